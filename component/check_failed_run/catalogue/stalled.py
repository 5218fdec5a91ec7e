"""No progress and no error: what watchers, schedulers and process listings print about a run that stands still.

Most stalls are seen in the metrics (steps that stop, throughput that collapses); these lines support that.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "stalled"

STACKS = Fix(
    action="Dump the stacks of every process that stands still before ending it",
    change=Change.DIAGNOSE,
    impact="shows the call that waits: a queue, a lock, a file, a collective",
    validate="the same frames show in two dumps, ten seconds apart",
    time_to_try="5 min",
    gain=0.5,
    confidence=0.85,
    command="for p in $(pgrep python); do py-spy dump --pid $p; done",
)
FEWER_WORKERS = Fix(
    action="Run with num_workers=0, then with multiprocessing_context='spawn' and a loader timeout, to see whether the data loader stands still",
    change=Change.CONFIG,
    impact="the main process loads the data itself: slower, but a stuck worker can't stop it, and errors show",
    validate="200 steps past the point where it stopped",
    time_to_try="20 min",
    gain=0.7,
    confidence=0.5,
)
REMOVE_LOCK = Fix(
    action="See whether a living process holds the lock; if none does, remove the lock file[[ {path}]] and start again",
    change=Change.DIAGNOSE,
    impact="the wait ends at once",
    validate="the line no longer comes, and loading goes on within a minute",
    time_to_try="2 min",
    gain=0.9,
    confidence=0.7,
    command="lsof[[ {path}]]",
)
ADD_RESOURCES = Fix(
    action="Ask for what the cluster has, or add nodes that offer it: compare the request with `ray status`",
    change=Change.RESOURCES,
    impact="the workers can be placed, and training starts",
    validate="all workers start within the start-up time limit",
    time_to_try="10 min",
    gain=0.9,
    confidence=0.85,
    command="ray status -v",
)
CHECK_STORAGE = Fix(
    action="Check the network file system from the same node: does a read of a data file return, does the server answer, what does dmesg say?",
    change=Change.DIAGNOSE,
    impact="a process in state D waits in the kernel and can't be killed; the storage must come back first",
    validate="reads return at the usual speed",
    time_to_try="10 min",
    gain=0.6,
    confidence=0.8,
    command="timeout 10 ls -l[[ {path}]]; dmesg -T | grep -iE 'nfs|blocked for more' | tail; grep -E 'nfs|fuse|lustre' /proc/mounts",
)
EVEN_SHARDS = Fix(
    action="Give every rank the same number of batches: drop the last ones, repeat shards, or use DistributedDataParallel.join()",
    change=Change.DATA,
    impact="no rank waits in a collective for a rank that has run out of data",
    validate="a whole epoch passes, and all ranks log the same number of steps",
    time_to_try="30 min",
    gain=0.95,
    confidence=0.7,
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="stalled/ray-infeasible",
        cls=CLS,
        role=Role.CAUSE,
        kind="resources never come",
        cues=("No available node types can fulfill resource request", "cannot be scheduled right now", "cannot be fulfilled by", "This is likely due to all cluster resources being claimed", "resource request", "all cluster resources being claimed by actor"),
        pattern=(
            r"No available node types can fulfill resource request[s]? ?(?P<value>\{[^}]{0,200}\})?|The following resource request cannot be scheduled right now: ?(?P<key>\{[^}]{0,200}\})?|"
            r"all cluster resources being claimed by actors"
        ),
        prints="Ray autoscaler and raylet",
        means="Ray waits for resources that no node offers.",
        not_shown="Whether nodes will be added later.",
        matches=(
            "Error: No available node types can fulfill resource request {'CPU': 1.0, 'GPU': 1.0}. Add suitable node types to this cluster to resolve this issue.",
            "Warning: The following resource request cannot be scheduled right now: {'GPU': 4.0}. This is likely due to all cluster resources being claimed by actors.",
        ),
        rejects=(
            Reject("Attempting to start training worker group of size 2 with the following resources: [{'GPU': 1}] * 2", "the request itself"),
            Reject("Quota 'NVIDIA_A100_GPUS' exceeded. Resource request denied", "the cloud said no"),
        ),
        specificity=3,
        status="hung",
        outranks=("stalled/ray-startup-timeout",),
        fixes=(ADD_RESOURCES,),
    ),
    Signature(
        id="stalled/ray-startup-timeout",
        cls=CLS,
        role=Role.CAUSE,
        kind="workers never start",
        cues=("worker group startup timed out", "WorkerGroupStartupTimeoutError", "Placement group creation timed out"),
        pattern=r"worker group startup timed out after (?P<timeout>[\d.]{1,12}) seconds|\bWorkerGroupStartupTimeoutError\b|Placement group creation timed out",
        prints="Ray Train v2 controller, Ray Tune",
        means="The training workers could not be started in time: the cluster has not enough free resources, or workers can't come up.",
        matches=(
            "The worker group startup timed out after 30.0 seconds waiting for 4 workers. Potential causes include: (1) temporary insufficient cluster resources while waiting for autoscaling",
            "TuneError: Placement group creation timed out. Make sure your cluster either has enough resources or use an autoscaling cluster.",
        ),
        rejects=(
            Reject("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=30", "a setting"),
            Reject("Started training worker group of size 2:", "they started"),
        ),
        specificity=2,
        status="hung",
        fixes=(ADD_RESOURCES,),
    ),
    Signature(
        id="stalled/heartbeat-without-step",
        cls=CLS,
        role=Role.CONTEXT,
        kind="alive, but no step",
        cues=("last_step_age", "no progress for", "No progress for", "idle for ", "no new step", "stuck at step", "seconds since last step", "steps not advancing", "hang detected", "Hang detected", "stall detected", "Stall detected", "no progress since", "No progress since", "No new step since", "No new step for", "No new step in", "No progress in", "no progress in"),
        pattern=(
            r"last_step_age ?[=:] ?(?P<seconds>\d{2,9}(?:\.\d{1,6})?) ?s?\b|last step (?P<step>\d{1,12}), idle for (?P<value>[\d.]{1,9} ?\w{1,8})|"
            r"[Nn]o (?:progress|new step) (?:for|since|in) (?P<timeout>\d[\d.]{0,9}) ?(?:s|sec|m|min|h|hours?|seconds|minutes)\b|stuck at step \d{1,12}|(?:[Hh]ang|[Ss]tall) detected|"
            r"\d{2,9} seconds since last step"
        ),
        prints="heartbeat threads and watchers beside the training",
        means="The process lives, and its step counter stands still for the time shown.",
        not_shown="What it waits for; a long evaluation or save looks the same for a while.",
        matches=(
            "heartbeat pid=8 alive step=4180 last_step_age=930s util=0% n_errors=0",
            "MON | last step 261, idle for 6 h; gpu util 100,100 %; power 92,91 W; read 0 MB/s",
            "watchdog: no progress for 1800 s, last step 4100",
        ),
        rejects=(
            Reject("heartbeat pid=8 alive step=4180 last_step_age=1s util=97%", "a step just ended"),
            Reject("val_loss: no improvement for 3 epochs", "a metric"),
        ),
        specificity=1,
        fixes=(STACKS, FEWER_WORKERS),
    ),
    Signature(
        id="stalled/process-in-uninterruptible-wait",
        cls=CLS,
        role=Role.CONFIRMATION,
        kind="waits for storage",
        cues=("rpc_wait_bit_killable", "nfs_wait", "wait_on_page_bit", "folio_wait_bit", "request_wait_answer", "blocked for more than", "not responding, still trying", "cl_sync_io_wait", "ceph_osdc_wait", "io_schedule", "not responding"),
        pattern=(
            r"\b(?:rpc_wait_bit_killable|nfs_wait\w{0,30}|(?:wait_on_page|folio_wait)_bit\w{0,20}|request_wait_answer|cl_sync_io_wait|ceph_osdc_wait\w{0,20})\b|"
            r"task \S{1,40}:(?P<pid>\d{1,9}) blocked for more than (?P<seconds>\d{1,7}) seconds|nfs: server (?P<host>\S{1,80}) not responding"
        ),
        prints="ps (WCHAN), /proc/PID/stack, the kernel log",
        means="A process waits in the kernel for storage, mostly a network file system.",
        not_shown="How long it will wait.",
        matches=(
            "  88262 D       13:27:31 rpc_wait_bit_killable    python train.py",
            "INFO: task python:4411 blocked for more than 120 seconds.",
            "nfs: server nas1 not responding, still trying",
        ),
        rejects=(
            Reject("  88260 S       13:27:31 do_select                python train.py", "an ordinary sleep"),
            Reject("OSError: [Errno 116] Stale file handle", "an error of the file system"),
        ),
        specificity=2,
        fixes=(CHECK_STORAGE, FEWER_WORKERS),
    ),
    Signature(
        id="stalled/stack-waits",
        cls=CLS,
        role=Role.CONFIRMATION,
        kind="stack of a waiting process",
        cues=("futex_wait", "(idle): ", "pthread_cond_wait", "pthread_cond_timedwait", "sem_wait", "__lll_lock_wait", "self._data_queue.get(timeout", "_try_get_data (torch"),
        pattern=(
            r"\b(?:futex_wait(?:_queue(?:_me)?)?|pthread_cond_(?:timed)?wait|__lll_lock_wait|sem_wait)\b|^Thread \S{1,30} \(idle\): |"
            r"data = self\._data_queue\.get\(timeout|_try_get_data \(torch"
        ),
        prints="py-spy, gdb, ps (WCHAN), faulthandler; the stack of a Ctrl-C",
        means="The process waits for a lock or a queue.",
        not_shown="That it waits for ever: idle threads always look like this.",
        matches=(
            "  88120 Sl      13:28:08 futex_wait_queue         python train.py",
            'Thread 0x7F1C (idle): "MainThread"',
            "    data = self._data_queue.get(timeout=timeout)",
        ),
        rejects=(
            Reject('Thread 0x7F1C (active): "MainThread"', "a thread that works"),
            Reject("futex facility returned an unexpected error code", "an error"),
        ),
        specificity=1,
        fixes=(STACKS, FEWER_WORKERS),
    ),
    Signature(
        id="stalled/rank-out-of-data",
        cls=CLS,
        role=Role.CONTEXT,
        kind="ranks with unequal data",
        cues=("iterator exhausted", "loader exhausted", "dataloader exhausted", "exhausted at batch", "exhausted after", "entering evaluation barrier", "ran out of batches", "dataset exhausted at", "Loader exhausted at", "shards exhausted at", "stream exhausted at", "finished, entering", "shard exhausted at"),
        pattern=(
            r"(?:rank (?P<rank>\d{1,6})\b.{0,120})?(?:iterator|[Ll]oader|dataset|stream|shards?) exhausted(?: (?:at|after) (?:batch )?(?P<value>\d{1,12}))?|ran out of batches|"
            r"rank \d{1,6}: epoch \d{1,6} finished, entering \w{0,20} ?barrier"
        ),
        prints="training scripts with a stream per rank",
        means="This rank has no more data; where the others still have some, they wait for it.",
        not_shown="That the others have more: compare the batch counts of the ranks.",
        matches=(
            "rank 2: 7 shards, 261 batches, iterator exhausted at batch 261",
            "rank 3 epoch 0 loader exhausted after 1249 batches",
            "rank 2: epoch 0 finished, entering evaluation barrier",
        ),
        rejects=(
            Reject("RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "memory"),
            Reject("retries exhausted for download of shard 3", "downloads"),
        ),
        specificity=1,
        fixes=(EVEN_SHARDS, STACKS),
    ),
    Signature(
        id="stalled/waiting-for-lock",
        cls=CLS,
        role=Role.CONTEXT,
        kind="waits for a file lock",
        cues=("to acquire lock", "acquiring lock", "Waiting for lock", "waiting for lock", "lock_path", "Still waiting to acquire", "Waiting for file lock", "waiting for file lock", "held by another process", "Waiting to acquire the file lock", "waiting to acquire the file lock", "Waiting to acquire the filelock", "waiting to acquire the filelock", "Waiting to acquire a file lock", "waiting to acquire a file lock", "file_baton"),
        pattern=(
            r"[Ss]till waiting to acquire lock on (?P<path>\S{1,300})|[Ww]aiting (?:for|to acquire) (?:the |a )?(?:file ?)?lock\b(?:.{0,40}? (?P<key>/\S{1,300}))?|"
            r"file_baton\.py\b|Attempting to acquire lock \d+ on (?P<name>\S{1,300})|[Ll]ock .{0,200} is held by another process"
        ),
        prints="huggingface_hub and datasets (filelock), torch.utils.cpp_extension (file_baton.py), kernels' caches",
        means="The process waits for a lock that another process holds or left behind.",
        not_shown="Whether the holder still lives.",
        matches=(
            "Still waiting to acquire lock on /root/.cache/huggingface/hub/.locks/models--a/b.lock (elapsed: 600.1 seconds)",
            "Waiting for lock /data/cache/index.lock",
            '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", line 55, in wait',
        ),
        rejects=(
            Reject("Lock 1402 acquired on /data/x.lock", "got it"),
            Reject("deadlock detected", "another kind"),
        ),
        specificity=1,
        fixes=(REMOVE_LOCK, STACKS),
    ),
    Signature(
        id="stalled/scheduler-pending",
        cls=CLS,
        role=Role.CONTEXT,
        kind="waits for the scheduler",
        cues=("queued and waiting for resources", "Nodes required for job are DOWN", "(Resources)", "(Priority)", "ReqNodeNotAvail", "QOSMaxGRESPerUser", "AssocGrpGRES", "Insufficient nvidia.com/gpu", "nodes are available: ", "waiting for resources", "(Resources", "(AssocGrp", "(Priority", "(QOSMax"),
        pattern=(
            r"queued and waiting for resources|Nodes required for job are DOWN|\bPD\b.{0,120}\((?P<reason>Resources|Priority|ReqNodeNotAvail|QOSMax\w{1,40}|AssocGrp\w{1,40})|"
            r"\d{1,5}/\d{1,5} nodes are available: .{0,300}Insufficient"
        ),
        prints="Slurm (srun, squeue), Kubernetes scheduler",
        means="The job waits for nodes; it did not start.",
        matches=(
            "srun: job 5512 queued and waiting for resources",
            "5512 gpu train mara PD 0:00 2 (Resources)",
            "0/12 nodes are available: 12 Insufficient nvidia.com/gpu.",
        ),
        rejects=(
            Reject("srun: job 5512 has been allocated resources", "it got them"),
            Reject("Insufficient Permission: Request had insufficient authentication scopes", "a permission"),
        ),
        specificity=1,
        fixes=(
            Fix(
                action="Compare the request with what the partition or node pool offers, and ask for less or for another pool",
                change=Change.RESOURCES,
                impact="the job can be placed",
                validate="the job starts within the usual queue time",
                gain=0.7,
                confidence=0.6,
                command="squeue --me --start; scontrol show job $SLURM_JOB_ID",
            ),
        ),
    ),
    Signature(
        id="stalled/gpu-idle",
        cls=CLS,
        role=Role.CONFIRMATION,
        kind="GPU idle",
        cues=(" 0 %, ", "util=0%", "util 0 0", "util 0"),
        pattern=r"(?:^|[,\s])0 ?%, ?(?P<value>\d{3,6}) MiB|\butil=0%|\butil 0(?: 0){1,15}\b",
        prints="nvidia-smi --query-gpu, watchers",
        means="A GPU that holds memory does nothing at this moment.",
        not_shown="For how long, unless the line comes again and again.",
        matches=(
            "2026/10/03 08:40:12.110, 0 %, 31874 MiB",
            "heartbeat pid=8 alive step=4180 last_step_age=930s util=0% n_errors=0",
        ),
        rejects=(
            Reject("2026/10/03 08:40:12.110, 97 %, 31874 MiB", "busy"),
            Reject("2026/10/03 08:40:12.110, 0 %, 3 MiB", "no process on it"),
        ),
        specificity=1,
    ),
    Signature(
        id="stalled/torch-worker-count-warning",
        cls=CLS,
        role=Role.CONTEXT,
        kind="too many loader workers",
        cues=("This DataLoader will create", "worker processes in total. Our suggested max"),
        pattern=r"This DataLoader will create (?P<value>\d{1,5}) worker processes in total\. Our suggested max number of worker in current system is (?P<limit>\d{1,5})",
        prints="PyTorch (torch/utils/data/dataloader.py)",
        means="More loader workers than processors; loading may be slow or stop.",
        not_shown="That it did.",
        matches=("UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 2, which is smaller than what this DataLoader is going to create.",),
        rejects=(
            Reject("DataLoader worker (pid 41) exited unexpectedly", "a crash"),
            Reject("num_workers=16", "a setting"),
        ),
        specificity=1,
        fixes=(FEWER_WORKERS,),
    ),
)
