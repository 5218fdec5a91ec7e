"""Saving and loading that fails: full, read-only or unreachable file systems, torn or damaged checkpoints, storage services.

Boundary: a state dict whose keys or sizes don't fit the model is ``config-error``; a bucket that answers 403 is
``cloud-permissions-quota``; a full ``/dev/shm`` is memory (``oom``); a damaged *sample* is ``data-pipeline``.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "io-checkpoint"

SEE_DISK = Fix(
    action="See what fills the file system: space, inodes and the size of the checkpoints",
    change=Change.DIAGNOSE,
    impact="names the directory to prune or the volume to enlarge; changes nothing",
    validate="the volume that holds the checkpoints shows 100 % use (or 100 % inodes)",
    time_to_try="2 min",
    gain=0.3,
    confidence=0.9,
    command="df -h [[{output_dir}]]; df -i [[{output_dir}]]; du -sh [[{output_dir}]]/* | sort -h | tail",
)
KEEP_FEWER = Fix(
    action="Keep fewer checkpoints (save_total_limit, save_top_k, keep_last_n, max_to_keep) so that all of them plus one being written fit",
    change=Change.CONFIG,
    impact="disk use stays bounded for the rest of the run",
    validate="after the second save within the next 200 steps the number of checkpoints and the use of the disk no longer grow",
    time_to_try="10 min",
    gain=0.9,
    confidence=0.8,
)
BIGGER_DISK = Fix(
    action="Write to a volume with room for (checkpoints kept + 1) times their size, or enlarge this one",
    change=Change.RESOURCES,
    impact="the save that failed goes through",
    validate="free space exceeds two checkpoints before the start, and the first save within 200 steps completes",
    time_to_try="30 min",
    gain=0.9,
    confidence=0.8,
)
RESUME_LAST = Fix(
    action="Resume from the newest complete checkpoint[[: {checkpoint}]]; the one that was being written is unusable",
    change=Change.USE_CHECKPOINT,
    impact="loses only the steps since that save",
    validate="the log says that the step count goes on from the checkpoint, and the loss is near its earlier value within 50 steps",
    time_to_try="10 min",
    gain=0.8,
    confidence=0.8,
)
OLDER_CHECKPOINT = Fix(
    action="Load an older checkpoint that is complete[[ ({checkpoint})]] instead of the damaged one",
    change=Change.USE_CHECKPOINT,
    impact="training goes on at the cost of the steps between the two",
    validate="the file opens, its size equals that of its neighbours, and the loss is near its earlier value within 50 steps",
    time_to_try="10 min",
    gain=0.85,
    confidence=0.8,
)
COPY_AGAIN = Fix(
    action="Copy or download the file again and compare size and checksum with the source",
    change=Change.DATA,
    impact="repairs a file that was cut short in transfer; the training code needs no change",
    validate="sizes and checksums are equal, and the file opens by itself",
    time_to_try="20 min",
    gain=0.8,
    confidence=0.6,
    command="ls -l [[{path}]] && sha256sum [[{path}]]",
)
ATOMIC_SAVE = Fix(
    action="Save to a temporary name on the same file system and rename it when complete (write, fsync, rename)",
    change=Change.CODE,
    impact="an interrupted save can no longer leave a torn file under the final name",
    validate="kill a test run during a save: the previous checkpoint still loads",
    time_to_try="30 min",
    gain=0.6,
    confidence=0.7,
)
WRITABLE_DIR = Fix(
    action="Point the output at a writable mount, or remount it read-write",
    change=Change.CONFIG,
    impact="checkpoints and logs can be written",
    validate="a test file can be created and removed in the directory by the job's user before the start; the first save succeeds",
    time_to_try="10 min",
    gain=0.95,
    confidence=0.85,
    command="mount | grep ' ro[,)]'; touch [[{output_dir}/]].write-test && rm [[{output_dir}/]].write-test",
)
FIX_OWNER = Fix(
    action=(
        "Give the job's user write access to the directory[[ of {path}]] (owner, group, container user, fsGroup), or use another directory"
    ),
    change=Change.PERMISSION,
    impact="the file can be opened; nothing else changes",
    validate="the job's user can create a file there before the start; the first save succeeds",
    time_to_try="10 min",
    gain=0.95,
    confidence=0.85,
    command="id; ls -ld [[{path}]]",
)
CHECK_STORAGE = Fix(
    action="Look at the storage server and the mount: kernel log, NFS or FUSE client, disk health",
    change=Change.DIAGNOSE,
    impact="shows whether the disk, the server or the network failed, and for which nodes",
    validate="dmesg or the server's log has an entry at the time of the error",
    time_to_try="10 min",
    gain=0.3,
    confidence=0.7,
    command="dmesg -T | grep -iE 'nfs|fuse|i/o error|ext4|xfs|lustre|nvme' | tail -50",
)
REMOUNT = Fix(
    action="Remount the share (or move to a healthy node) and restart from the newest complete checkpoint[[: {checkpoint}]]",
    change=Change.RESOURCES,
    impact="the handles are valid again; the run resumes",
    validate=(
        "listing and reading the directory works from every node; the run gets past the step at which it failed[[ ({step})]] by 200 steps"
    ),
    time_to_try="20 min",
    gain=0.8,
    confidence=0.6,
)
RAISE_NOFILE = Fix(
    action="Raise the limit of open files for the job (ulimit -n, LimitNOFILE, --ulimit nofile of the container)",
    change=Change.ENVIRONMENT,
    impact="gives room; a leak of descriptors only fails later",
    validate="the count in /proc/PID/fd stays below the limit for 200 steps",
    time_to_try="5 min",
    gain=0.7,
    confidence=0.8,
    command="ulimit -n 65536[[ && {command}]]",
)
SHARING_STRATEGY = Fix(
    action=(
        "Use torch.multiprocessing.set_sharing_strategy('file_system'), and don't keep tensors that came from loader workers (clone them)"
    ),
    change=Change.CODE,
    impact="tensors no longer hold one descriptor each, so their number stops growing",
    validate="the count in /proc/PID/fd is flat over 200 steps",
    time_to_try="15 min",
    gain=0.85,
    confidence=0.7,
)
RETRY_SAVE = Fix(
    action="Retry transient storage errors with exponential backoff, or save to local disk first and upload in the background",
    change=Change.CODE,
    impact="a few failed requests no longer end the run",
    validate="the next saves complete; retries, if any, show in the log without an exception",
    time_to_try="30 min",
    gain=0.8,
    confidence=0.7,
)
RESTART_SAME = Fix(
    action="Restart unchanged from the newest complete checkpoint[[: {checkpoint}]]; the service error is usually short",
    change=Change.RESTART,
    impact="resumes if the service is back",
    validate="the next save or read of the same path succeeds",
    time_to_try="10 min",
    gain=0.6,
    confidence=0.6,
)

SIGNATURES: tuple[Signature, ...] = (
    # ---- no space, quota -------------------------------------------------------------------------
    Signature(
        id="io-checkpoint/no-space",
        cls=CLS,
        role=Role.CAUSE,
        kind="file system full",
        cues=("No space left on device", "no space left on device", "[Errno 28]", "(os error 28)", "There is not enough space on the disk", "not enough space on the disk"),
        pattern=(
            r"(?i)no space left on device(?:[^'\n]{0,20}'(?P<path>[^'\n]+)')?|\[Errno 28\]|\(os error 28\)|not enough space on "
            r"the disk"
        ),
        # a full /dev/shm is memory, a full inotify table is a kernel limit, tee only tells that the same disk is full
        unless=(
            r"/dev/shm|/torch_\d+|shared memory|shm_open|inotify|file watchers|watch limit|^\s*tee:|is it because no space left"
            r"|[Ii]f .{0,40}no space"
        ),
        prints="the C library's ENOSPC as shown by Python (OSError), Rust (safetensors, tokenizers), h5py, TensorFlow, tar, cp, rsync",
        means="A write failed because the file system has no free blocks or inodes left.",
        not_shown="Which files fill it; whether an earlier checkpoint is intact.",
        matches=(
            "OSError: [Errno 28] No space left on device",
            "OSError: [Errno 28] No space left on device: '/scratch/run7/checkpoint-1500/optimizer.pt'",
            "safetensors._safetensors_rust.SafetensorError: Error while serializing: I/O error: No space left on device (os error 28)",
            'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No '
            'space left on device" })',
            "OSError: Can't write data (file write failed: errno = 28, error message = 'No space left on device', buf = 0x7f, "
            "total write = 9)",
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /out/ckpt-7.data-00000-of-00001.tempstate; No space "
            "left on device",
            "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: No space left on device",
            "cp: error writing '/mnt/out/last.ckpt': No space left on device",
            "OSError: [WinError 112] There is not enough space on the disk",
        ),
        rejects=(
            Reject(
                "RuntimeError: unable to write to file </torch_4121_88>: No space left on device (28)",
                "/dev/shm is full: that is memory (oom)",
            ),
            Reject("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f2e'", "shared memory, not the disk"),
            Reject("tee: /runs/a/train.log: No space left on device", "the log's pipe only confirms that the disk is full"),
            Reject("OSError: inotify watch limit reached: No space left on device", "a kernel table is full, not the disk"),
            Reject("There is enough space left on device cuda:0 for the batch", "about GPU memory, and not a failure"),
        ),
        fixes=(SEE_DISK, KEEP_FEWER, BIGGER_DISK, RESUME_LAST),
        specificity=3,
        outranks=(
            "nccl-distributed/",
            "io-checkpoint/torch-unexpected-pos",
            "io-checkpoint/torch-file-write-failed",
            "io-checkpoint/iostream",
        ),
    ),
    Signature(
        id="io-checkpoint/no-space-tee",
        cls=CLS,
        role=Role.CONFIRMATION,
        kind="file system full",
        cues=("No space left on device",),
        pattern=r"^\s*tee: (?P<path>[^:]+): No space left on device",
        prints="coreutils tee, which copies the log to a file",
        means="The file system of the log file is full; if checkpoints go there too, they fail as well.",
        not_shown="That the training process itself failed on a write.",
        matches=("tee: /scratch/exp/train.log: No space left on device", "tee: 'standard output': No space left on device"),
        rejects=(
            Reject("OSError: [Errno 28] No space left on device", "the process' own error"),
            Reject("tee: /scratch/exp/train.log: Permission denied", "another error"),
        ),
        fixes=(SEE_DISK,),
        specificity=2,
    ),
    Signature(
        id="io-checkpoint/torch-file-write-failed",
        cls=CLS,
        role=Role.CAUSE,
        kind="file system full or unwritable",
        cues=("PytorchStreamWriter failed",),
        pattern=r"PytorchStreamWriter failed (?:writing|reading|closing)\b.{0,120}?(?:file write failed|failed)?",
        prints="torch caffe2/serialize/inline_container.cc, PyTorchStreamWriter::valid",
        means="torch.save could not write to its file: the file system is full, over quota, or refused the write.",
        not_shown="Which of these; the system error itself (ENOSPC, EDQUOT, EIO) is not in this line.",
        matches=(
            "RuntimeError: [enforce fail at inline_container.cc:764] . PytorchStreamWriter failed writing file data/12: file write failed",
            "RuntimeError: PytorchStreamWriter failed writing central directory: file write failed",
            "RuntimeError: [enforce fail at inline_container.cc:450] . PytorchStreamWriter failed writing file data/7: file write failed",
        ),
        rejects=(
            Reject(
                "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
                "the reader: a damaged file, not a failed write",
            ),
            Reject(
                "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0",
                "the follow-up when the writer is closed",
            ),
        ),
        fixes=(SEE_DISK, KEEP_FEWER, BIGGER_DISK, RESUME_LAST),
        specificity=2,
        outranks=("io-checkpoint/torch-unexpected-pos", "nccl-distributed/watchdog-timeout"),
    ),
    Signature(
        id="io-checkpoint/torch-unexpected-pos",
        cls=CLS,
        role=Role.CASCADE,
        kind="write failed, reason in an earlier exception",
        cues=("unexpected pos ",),
        pattern=r"enforce fail at \S*inline_container\.cc:\d+\]\s*\.\s*unexpected pos (?P<value>\d+) vs (?P<key>\d+)",
        prints="torch caffe2/serialize/inline_container.cc, when the zip writer is closed after a failed write",
        means=(
            "The archive that torch.save was writing is shorter than it should be: an earlier write to it failed, mostly for want of space."
        ),
        not_shown="The system error; it is in the exception before, or only on the file system (df, quota).",
        matches=(
            "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 17394617344 vs 17394617232",
            "RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 64 vs 0",
        ),
        rejects=(
            Reject("ValueError: unexpected pos argument 3 in decode()", "not torch's zip writer"),
            Reject("RuntimeError: [enforce fail at inline_container.cc:143] . file not found: archive/data/3", "the reader"),
        ),
        fixes=(SEE_DISK, KEEP_FEWER, BIGGER_DISK, RESUME_LAST),
        specificity=2,
        fatal=True,
        references=("https://github.com/pytorch/pytorch/issues/100789",),
    ),
    Signature(
        id="io-checkpoint/iostream",
        cls=CLS,
        role=Role.CAUSE,
        kind="write or read of a C++ stream failed",
        cues=("iostream error", "ostream write failed", "basic_ios::clear", "basic_filebuf", "ios_base::"),
        pattern=r"(?:basic_ios::clear|basic_filebuf::\w+|ios_base::\w+|ostream write failed).{0,80}",
        prints="the C++ library behind torch.save (_legacy writer and PyTorchFileWriter), libtorch and other native savers",
        means="A native writer lost its file: the file system is full, over quota or went away.",
        not_shown="The system's error number.",
        matches=(
            "RuntimeError: basic_ios::clear: iostream error",
            "terminate called: what():  basic_filebuf::_M_convert_to_external conversion error: iostream error",
        ),
        rejects=(
            Reject("import iostream error handlers loaded", "no stream failed"),
            Reject("RuntimeError: unexpected EOF, expected 512 more bytes. The file might be corrupted.", "a torn file that is read"),
        ),
        fixes=(SEE_DISK, BIGGER_DISK, RESUME_LAST),
        specificity=2,
        outranks=("io-checkpoint/torch-unexpected-pos",),
    ),
    Signature(
        id="io-checkpoint/quota",
        cls=CLS,
        role=Role.CAUSE,
        kind="disk quota",
        cues=("Disk quota exceeded", "disk quota exceeded", "[Errno 122]", "(os error 122)", "quota exceeded on"),
        pattern=(
            r"(?i)disk quota exceeded(?:[^'\n]{0,10}'(?P<path>[^'\n]+)')?|\[Errno 122\]|\(os error 122\)|: quota exceeded on "
            r"(?:volume|file ?system)"
        ),
        prints="the C library's EDQUOT as shown by Python, Rust and shell tools; home directories and Lustre, GPFS, NFS project space",
        means="The user's or project's quota on this file system is used up; the disk itself may have room.",
        matches=(
            "OSError: [Errno 122] Disk quota exceeded",
            "OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/huggingface/hub/tmp1'",
            "Error while serializing: I/O error: Disk quota exceeded (os error 122)",
        ),
        rejects=(
            Reject("Quota 'DISKS_TOTAL_GB' exceeded.  Limit: 4096.0 in region us-east1.", "a cloud quota, not a file system's"),
            Reject("OSError: [Errno 28] No space left on device", "the disk is full, not the quota"),
        ),
        fixes=(
            Fix(
                action="Show the quota, then remove what is no longer needed or move caches and outputs to a file system with room",
                change=Change.DIAGNOSE,
                impact="shows which limit (bytes or files) is reached",
                validate="use is below the limit by at least two checkpoints",
                time_to_try="5 min",
                gain=0.5,
                confidence=0.9,
                command="quota -s; lfs quota -h -u $USER . ; du -sh ~/.cache [[{output_dir}]]",
            ),
            KEEP_FEWER,
            RESUME_LAST,
        ),
        specificity=3,
        outranks=(
            "nccl-distributed/",
            "io-checkpoint/torch-unexpected-pos",
            "io-checkpoint/torch-file-write-failed",
            "io-checkpoint/iostream",
        ),
    ),
    # ---- refused by the file system --------------------------------------------------------------
    Signature(
        id="io-checkpoint/read-only",
        cls=CLS,
        role=Role.CAUSE,
        kind="read-only file system",
        cues=("Read-only file system", "read-only file system", "[Errno 30]", "(os error 30)", "Remounting filesystem read-only", "remounting filesystem read-only"),
        pattern=(
            r"(?i)read-only file system(?:[^'\n]{0,10}'(?P<path>[^'\n]+)')?|\[Errno 30\]|\(os error 30\)|remounting filesystem "
            r"read-only"
        ),
        unless=r"(?i)matplotlib|fontlist|__pycache__|mounted as a read-only file system by design",
        prints="the C library's EROFS as shown by Python, torch, h5py, Rust and shell tools; the kernel when it remounts after disk errors",
        means="The process tried to write to a mount that only allows reading.",
        not_shown="Whether it was mounted so on purpose or the kernel made it read-only after disk errors (dmesg tells).",
        matches=(
            "OSError: [Errno 30] Read-only file system: '/models/run3/epoch-01.keras'",
            "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Read-only file system",
            "OSError: Unable to create file (unable to open file: name = 'm.h5', errno = 30, error message = 'Read-only file "
            "system', flags = 13)",
            "EXT4-fs (sdb1): Remounting filesystem read-only",
            "mkdir: cannot create directory '/mnt/out': Read-only file system",
        ),
        rejects=(
            Reject(
                "Matplotlib created a temporary cache directory because /home/u is on a Read-only file system", "it found another place"
            ),
            Reject("dataset volume mounted read-only at /data", "a fact about a mount, no failed write"),
        ),
        fixes=(WRITABLE_DIR, CHECK_STORAGE, RESUME_LAST),
        specificity=3,
        outranks=("io-checkpoint/torch-cannot-be-opened", "nccl-distributed/watchdog-timeout"),
    ),
    Signature(
        id="io-checkpoint/permission",
        cls=CLS,
        role=Role.CAUSE,
        kind="permission of a local or network path",
        cues=("[Errno 13]", "(os error 13)", "Permission denied", "is not available for writes", "[Errno 1] Operation not permitted"),
        pattern=(
            r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^'\n]+)'"
            r"|(?:strerror|error message)\s*[:=] '?Permission denied|Permission denied \(os error 13\)"
            r"|[Oo]pening (?P<path2>\S{1,400}) failed: Permission denied|(?<!\S)(?P<path3>/\S{1,400}); Permission denied"
            r"|(?:cp|mv|mkdir|touch|tar|rsync|tee): .{0,200}: Permission denied"
            r"|[Mm]odel file (?P<path4>\S{1,400}) is not available for writes"
            r"|PermissionError: \[Errno 1\] Operation not permitted: '(?P<path5>[^'\n]+)'"
        ),
        unless=r"docker\.sock|/dev/(?:nvidia|kfd|dri|infiniband)|publickey|googleapis|storage\.objects",
        prints="Python's open(), torch, h5py, TensorFlow, XGBoost and LightGBM when the system answers EACCES or EPERM",
        means="The job's user may not read or write this path.",
        not_shown="Whether the directory's owner, the container's user or the mount is wrong.",
        matches=(
            "PermissionError: [Errno 13] Permission denied: '/runs/exp4/checkpoints/last.ckpt'",
            "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Permission denied",
            "OSError: Unable to create file (unable to open file: name = '/o/m.h5', errno = 13, error message = 'Permission "
            "denied', flags = 13)",
            "tensorflow.python.framework.errors_impl.PermissionDeniedError: /logs/train; Permission denied",
            "lightgbm.basic.LightGBMError: Model file /srv/models/rank.txt is not available for writes",
            "[LightGBM] [Fatal] Model file /srv/models/rank.txt is not available for writes",
            "Error while serializing: I/O error: Permission denied (os error 13)",
            "xgboost.core.XGBoostError: [10:00:00] /workspace/src/common/io.cc:147: Opening /out/model.ubj failed: Permission denied",
        ),
        rejects=(
            Reject("PermissionError: [Errno 13] Permission denied", "no path: a socket or device may be meant"),
            Reject("Permission denied (publickey).", "ssh"),
            Reject("Permission 'storage.objects.get' denied on resource (or it may not exist).", "cloud IAM"),
            Reject("docker: permission denied while trying to connect to the Docker daemon socket", "the daemon's socket, not a file"),
        ),
        fixes=(FIX_OWNER, WRITABLE_DIR),
        specificity=3,
        outranks=("nccl-distributed/watchdog-timeout",),
    ),
    Signature(
        id="io-checkpoint/torch-cannot-be-opened",
        cls=CLS,
        role=Role.CAUSE,
        kind="file can't be opened for writing",
        cues=(" cannot be opened",),
        pattern=r"RuntimeError: File (?P<path>\S.{0,400}?) cannot be opened\b",
        prints="torch/csrc/... PyTorchFileWriter (caffe2/serialize/inline_container.cc)",
        means="torch.save could not create its file: read-only, no permission, no space, or a name that the system refuses.",
        not_shown="The system's reason.",
        matches=("RuntimeError: File /runs/a/ckpt.pt cannot be opened.", "RuntimeError: File checkpoints/epoch:3.pt cannot be opened."),
        rejects=(
            Reject("RuntimeError: Parent directory /runs/a does not exist.", "a missing directory: the path in the config is wrong"),
            Reject("video /data/v1.mp4 cannot be opened, skipping", "a sample, not a checkpoint"),
        ),
        fixes=(WRITABLE_DIR, SEE_DISK, RESUME_LAST),
        specificity=1,
        fatal=True,
    ),
    # ---- the storage below -----------------------------------------------------------------------
    Signature(
        id="io-checkpoint/stale-handle",
        cls=CLS,
        role=Role.CAUSE,
        kind="stale network file handle",
        cues=("Stale file handle", "Stale NFS file handle", "[Errno 116]", "(os error 116)"),
        pattern=r"Stale (?:NFS )?file handle(?:[^'\n]{0,10}'(?P<path>[^'\n]+)')?|\[Errno 116\]|\(os error 116\)",
        prints="the C library's ESTALE as shown by Python, Rust and shell tools on NFS, EFS, Filestore, Lustre, gcsfuse",
        means="The server no longer knows the file that the process holds: it was replaced, removed or re-exported meanwhile.",
        matches=(
            "OSError: [Errno 116] Stale file handle",
            "OSError: [Errno 116] Stale file handle: '/nfs/runs/a/step_900'",
            "tar: /efs/out: Cannot stat: Stale NFS file handle",
        ),
        rejects=(
            Reject("removing stale file lock /tmp/a.lock", "a lock file"),
            Reject("WARNING stale handle cache cleared for file reader", "not the system's message"),
        ),
        fixes=(REMOUNT, CHECK_STORAGE, RESTART_SAME),
        specificity=3,
        outranks=("nccl-distributed/watchdog-timeout",),
    ),
    Signature(
        id="io-checkpoint/eio",
        cls=CLS,
        role=Role.CAUSE,
        kind="input/output error of the device or mount",
        cues=(
            "[Errno 5]",
            "Input/output error",
            "(os error 5)",
            "[Errno 121]",
            "[Errno 107]",
            "Transport endpoint is not connected",
            "[Errno 108]", "Cannot send after transport endpoint shutdow",
        ),
        pattern=(
            r"\[Errno 5\]|Input/output error(?:[^'\n]{0,10}'(?P<path>[^'\n]+)')?|\(os error 5\)|\[Errno 121\] Remote I/O error"
            r"|OSError: \[Errno 10[78]\].{0,80}: '(?P<path2>[^'\n]+)'|(?:'|/)[^'\n]{0,200}: Transport endpoint is not connected"
            r"|Cannot send after transport endpoint shutdown"
        ),
        prints="the C library's EIO, EREMOTEIO, ENOTCONN as shown by Python, Rust and shell tools",
        means="The device or the network mount below the file failed while it was read or written.",
        not_shown="Whether the disk, the FUSE process or the server is at fault (the kernel log tells).",
        matches=(
            "OSError: [Errno 5] Input/output error",
            "OSError: [Errno 5] Input/output error: '/gcs/bucket/run/ckpt-40.pt'",
            "ls: cannot access '/mnt/ckpt': Transport endpoint is not connected",
            "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/blobfuse/out'",
            "Error while deserializing: I/O error: Input/output error (os error 5)",
        ),
        rejects=(
            Reject("OSError: [Errno 107] Transport endpoint is not connected", "no path: a socket"),
            Reject("OSError: [Errno 51] Network is unreachable", "another number"),
        ),
        fixes=(CHECK_STORAGE, REMOUNT, RESUME_LAST),
        specificity=3,
        outranks=("nccl-distributed/watchdog-timeout",),
    ),
    Signature(
        id="io-checkpoint/too-many-open-files",
        cls=CLS,
        role=Role.CAUSE,
        kind="file descriptors used up",
        cues=("Too many open files", "[Errno 24]", "(os error 24)", "[Errno 23]"),
        pattern=(
            r"\[Errno 24\](?: Too many open files(?:: '(?P<path>[^'\n]+)')?)?|Too many open files|\(os error 24\)|\[Errno 23\] "
            r"Too many open files in system"
        ),
        unless=r"(?i)\bif you (?:see|get|hit)|may (?:cause|lead to)|inotify",
        prints="the C library's EMFILE as shown by Python, Rust, gRPC; torch.utils.data when a worker's tensor can't be received",
        means="The process reached its limit of open files (ulimit -n).",
        not_shown="What holds them; tensors kept from loader workers hold one shared-memory descriptor each.",
        matches=(
            "OSError: [Errno 24] Too many open files",
            "OSError: [Errno 24] Too many open files: '/data/shard-00412.npy'",
            "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit "
            "using `ulimit -n`",
            "RuntimeError: unable to open shared memory object </torch_812_3> in read-write mode: Too many open files (24)",
        ),
        rejects=(
            Reject("WARNING keeping many files open may cause Too many open files", "a warning about what may happen"),
            Reject("OSError: [Errno 2] No such file or directory", "a missing file"),
        ),
        fixes=(SHARING_STRATEGY, RAISE_NOFILE, RESUME_LAST),
        specificity=3,
        outranks=("io-checkpoint/ancdata",),
    ),
    Signature(
        id="io-checkpoint/ancdata",
        cls=CLS,
        role=Role.CAUSE,
        kind="file descriptors used up",
        cues=("items of ancdata",),
        pattern=r"received \d+ items of ancdata",
        prints="Python multiprocessing/reduction.py recvfds, when a loader worker's tensor is rebuilt",
        means="A file descriptor sent by a worker could not be received: the process is out of descriptors.",
        not_shown="The limit and what holds the descriptors.",
        matches=("RuntimeError: received 0 items of ancdata",),
        rejects=(
            Reject("received 0 items from the queue", "a queue"),
            Reject("OSError: [Errno 24] Too many open files", "names the limit itself"),
        ),
        fixes=(SHARING_STRATEGY, RAISE_NOFILE, RESUME_LAST),
        specificity=2,
        references=("https://github.com/pytorch/pytorch/issues/973",),
    ),
    Signature(
        id="io-checkpoint/file-too-large",
        cls=CLS,
        role=Role.CAUSE,
        kind="file larger than allowed",
        cues=("[Errno 27]", "File size limit exceeded", "(os error 27)"),
        pattern=r"\[Errno 27\]|File size limit exceeded|\(os error 27\)",
        prints="the C library's EFBIG, and the shell on SIGXFSZ",
        means="The file would grow beyond what the file system or ulimit -f allows (FAT32: 4 GB).",
        matches=("OSError: [Errno 27] File too large", "File size limit exceeded (core dumped)"),
        rejects=(
            Reject("HTTP 413: file too large", "an upload refused by a server"),
            Reject("remote: error: File model.bin is 120.00 MB; this exceeds GitHub's file size limit", "git hosting"),
        ),
        fixes=(
            Fix(
                action="Save in shards below the limit, or write to a file system without it",
                change=Change.CONFIG,
                impact="each file stays below the limit",
                validate="the next save completes",
                gain=0.9,
                confidence=0.7,
            ),
            RESUME_LAST,
        ),
        specificity=3,
    ),
    # ---- damaged or unfinished checkpoints -------------------------------------------------------
    Signature(
        id="io-checkpoint/torch-archive",
        cls=CLS,
        role=Role.CAUSE,
        kind="truncated or corrupt torch archive",
        cues=(
            "PytorchStreamReader failed",
            "failed finding central directory",
            "invalid header or archive is corrupted",
            "The file might be corrupted",
        ),
        pattern=(
            r"PytorchStreamReader failed (?:reading|locating|opening|finding|closing|getting)\b.{0,160}|failed finding central directory"
            r"|invalid header or archive is corrupted|unexpected EOF, expected \d+ more bytes\. The file might be corrupted"
        ),
        # a missing record inside a whole archive is an old format or a wrong kind of file, not damage
        unless=r"locating file (?:constants\.pkl|model\.json|version|\.format_version)",
        prints="torch caffe2/serialize/inline_container.cc, PyTorchStreamReader; torch/serialization.py",
        means="The checkpoint's archive is cut off or damaged, so torch.load can't read it.",
        not_shown="When it was damaged: an interrupted save, a full disk, or a partial copy.",
        matches=(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
            "RuntimeError: PytorchStreamReader failed reading zip archive: invalid header or archive is corrupted",
            "RuntimeError: PytorchStreamReader failed reading zip archive: not a ZIP archive",
            "RuntimeError: PytorchStreamReader failed reading file data/94: file read failed",
            "RuntimeError: PytorchStreamReader failed locating file data/3: file not found",
            "RuntimeError: unexpected EOF, expected 5843 more bytes. The file might be corrupted.",
        ),
        rejects=(
            Reject(
                "RuntimeError: PytorchStreamReader failed locating file constants.pkl: file not found",
                "torch.jit.load was given a plain state dict: misuse, not damage",
            ),
            Reject("RuntimeError: PytorchStreamWriter failed writing file data/3: file write failed", "the writer"),
            Reject("Corrupt JPEG data: premature end of data segment", "a sample"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN, ATOMIC_SAVE),
        specificity=3,
        fatal=True,
        outranks=("data-pipeline/archive-corrupt",),
    ),
    Signature(
        id="io-checkpoint/zip-archive",
        cls=CLS,
        role=Role.CAUSE,
        kind="truncated or corrupt zip archive (.keras, .npz, .pt)",
        cues=("BadZipFile:", "Bad CRC-32 for file", "BadZipfile:"),
        pattern=r"\b(?:zipfile\.)?BadZip[Ff]ile: (?:File is not a zip file|Bad (?:CRC-32 for file|magic number)|Truncated|.{0,80}).{0,200}",
        prints="Python zipfile, under keras.saving, numpy.load and dataset unpackers",
        means="A zip archive is cut off, damaged, or no zip file at all.",
        not_shown="Whether it is a checkpoint or a data archive; the stack tells.",
        matches=(
            "zipfile.BadZipFile: File is not a zip file",
            "zipfile.BadZipFile: Bad CRC-32 for file 'model.weights.h5'",
            "zipfile.BadZipFile: Bad magic number for central directory",
        ),
        rejects=(
            Reject("except zipfile.BadZipFile:", "source code in a traceback: no message follows"),
            Reject("gzip.BadGzipFile: Not a gzipped file (b'<h')", "gzip: mostly a download of data"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN, ATOMIC_SAVE),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/pickle-truncated",
        cls=CLS,
        role=Role.CAUSE,
        kind="empty, truncated or foreign pickle",
        cues=("Ran out of input", "pickle data was truncated", "invalid load key", "UnpicklingError: unpickling stack underflow"),
        pattern=(
            r"EOFError: Ran out of input|UnpicklingError: pickle data was truncated"
            r"|UnpicklingError: invalid load key, '(?P<key>[^'\n]{1,6})'|UnpicklingError: unpickling stack underflow"
        ),
        prints="Python pickle, under torch.load (legacy format), joblib and cloudpickle",
        means="A pickled file is empty, cut off, or holds something else: a key 'v' is a Git LFS pointer, '<' an HTML page.",
        not_shown="Which file, unless the stack tells. In a spawned child it can follow from its parent's failed pickling.",
        matches=(
            "EOFError: Ran out of input",
            "_pickle.UnpicklingError: pickle data was truncated",
            "_pickle.UnpicklingError: invalid load key, 'v'.",
            "_pickle.UnpicklingError: invalid load key, '\\xff'.",
        ),
        rejects=(
            Reject(
                "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
                "torch's weights_only default: a change of API, not damage",
            ),
            Reject("StopIteration: generator ran out of input shards", "a data stream that ended"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN, ATOMIC_SAVE),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/seek-invalid",
        cls=CLS,
        role=Role.CAUSE,
        kind="read or write refused as invalid",
        cues=("OSError: [Errno 22] Invalid argument",),
        pattern=r"OSError: \[Errno 22\] Invalid argument\s*$",
        prints="the C library's EINVAL, from torch.load's reader on a cut-off archive (a seek outside the file) or a write above 2 GB",
        means="The system refused a read, seek or write; while a checkpoint is loaded, its file is mostly cut off.",
        not_shown="The file's name and real size: compare it with its neighbours.",
        matches=("OSError: [Errno 22] Invalid argument",),
        rejects=(
            Reject("OSError: [Errno 22] Invalid argument: 'D:\\\\runs\\\\a?b'", "a path that the system refuses: a wrong name"),
            Reject("ValueError: [Errno 22] Invalid argument", "another type"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN, ATOMIC_SAVE),
        specificity=1,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/safetensors",
        cls=CLS,
        role=Role.CAUSE,
        kind="truncated or corrupt safetensors file",
        cues=("Error while deserializing", "MetadataIncompleteBuffer", "HeaderTooLarge", "InvalidHeaderDeserialization", "HeaderTooSmall", "InvalidHeaderLength", "InvalidHeaderStart", "InvalidHeader"),
        pattern=(
            r"Error while deserializing(?: header)?: (?P<value>[^\n]{1,120})"
            r"|\b(?:MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|InvalidHeader(?:Deserialization|Length|Start)?)\b"
        ),
        unless=r"os error (?:2|5|13|28|30|116|122)\b|No such file",
        prints="safetensors (Rust) SafeTensorError, all versions: names up to 0.4, sentences from 0.5 on",
        means=(
            "A safetensors file is shorter than its header says, or its header is damaged (a cut-off download or copy, a Git LFS pointer)."
        ),
        not_shown="Which shard, where the stack does not tell: compare the sizes of all shards with the index.",
        matches=(
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: header too large",
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
            "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization",
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: invalid UTF-8 in header: invalid "
            "utf-8 sequence",
        ),
        rejects=(
            Reject("SafetensorError: Error while serializing: I/O error: No space left on device (os error 28)", "a failed write"),
            Reject("SafetensorError: File does not contain tensor lm_head.weight", "a whole file with other keys: config-error"),
        ),
        fixes=(COPY_AGAIN, OLDER_CHECKPOINT, ATOMIC_SAVE),
        specificity=3,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/hdf5",
        cls=CLS,
        role=Role.CAUSE,
        kind="truncated, corrupt or locked HDF5 file",
        cues=(
            "truncated file: eof",
            "file signature not found",
            "unable to lock file",
            "bad object header",
            "wrong B-tree signature",
            "t synchronously read data", "t read data",
        ),
        pattern=(
            r"truncated file: eof = (?P<value>\d+)|file signature not found|unable to lock file, errno = (?P<code>\d+)"
            r"|bad object header|wrong B-tree signature|[Cc]an't (?:synchronously )?read data"
        ),
        prints="libhdf5 through h5py (OSError), under Keras .h5 checkpoints and HDF5 data sets",
        means="The HDF5 file is cut off, damaged, not HDF5, or locked by another process (errno 11 or 35).",
        not_shown="Whether it is a checkpoint or data; the stack tells.",
        matches=(
            "OSError: Unable to synchronously open file (truncated file: eof = 30000, sblock->base_addr = 0, stored_eof = 93624)",
            "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
            "OSError: Unable to synchronously open file (file signature not found)",
            "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
            "temporarily unavailable')",
            "OSError: Can't synchronously read data (wrong B-tree signature)",
        ),
        rejects=(
            Reject(
                "FileNotFoundError: [Errno 2] Unable to open file (unable to open file: name = 'a.h5', errno = 2, error message "
                "= 'No such file')",
                "a missing file: the path is wrong",
            ),
            Reject("KeyError: \"Unable to open object (object 'labels' doesn't exist)\"", "a missing key in a whole file"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN, ATOMIC_SAVE),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/tf-data-loss",
        cls=CLS,
        role=Role.CAUSE,
        kind="truncated or corrupt TensorFlow checkpoint",
        cues=(
            "Unable to open table file",
            "not an sstable",
            "Checksum does not match",
            "too short to be an sstable",
            "TensorBundle at",
            "Data loss: ",
            "DATA_LOSS: ",
        ),
        pattern=(
            r"Unable to open table file (?P<path>[^\s:;]+)|not an sstable|Checksum does not match: stored|too short to be an sstable"
            r"|TensorBundle at (?P<path2>\S+) .{0,40}(?:checksum|truncated|corrupt)|(?:Data loss|DATA_LOSS): (?!corrupted "
            r"record)(?:Checksum|Unable|file|block|Error)"
        ),
        unless=r"corrupted record at",
        prints="tensorflow/core/util/tensor_bundle and lib/io/table (DataLossError); tensorstore (Orbax)",
        means="The checkpoint's index or data file is damaged or cut off.",
        not_shown="Whether the path given is a checkpoint prefix at all (a data file given as prefix says the same).",
        matches=(
            "tensorflow.python.framework.errors_impl.DataLossError: Checksum does not match: stored 398 vs. calculated on the "
            "restored bytes 21",
            "DataLossError: Unable to open table file ./run/model.ckpt-500.data-00000-of-00001: DATA_LOSS: not an sstable (bad "
            "magic number)",
            "ValueError: DATA_LOSS: Error decoding tensorstore chunk: checksum mismatch",
        ),
        rejects=(
            Reject("DataLossError: corrupted record at 48212 [Op:IteratorGetNext]", "a TFRecord of the data set"),
            Reject(
                "NotFoundError: Unsuccessful TensorSliceReader constructor: Failed to find any matching files for x.ckpt", "a missing file"
            ),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN),
        specificity=3,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/dcp-metadata-missing",
        cls=CLS,
        role=Role.CAUSE,
        kind="unfinished distributed checkpoint",
        cues=("/.metadata", ".distcp"),
        pattern=(
            r"(?:FileNotFoundError|No such file or directory|NoSuchKey|NotFound).{0,60}?'?(?P<path>[^'\s]*/\.metadata"
            r"|[^'\s]*__\d+_\d+\.distcp)\b"
        ),
        prints="torch.distributed.checkpoint filesystem reader; torchtitan, FSDP, Megatron, NeMo",
        means="The sharded checkpoint has no .metadata (or lacks a shard): its save never finished, as .metadata is written last.",
        not_shown="Why that save was interrupted: see the end of the run that wrote it.",
        matches=(
            "FileNotFoundError: [Errno 2] No such file or directory: 'outputs/checkpoint/step-900/.metadata'",
            "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/iter_0002000/__3_0.distcp'",
        ),
        rejects=(
            Reject("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.metadata.json'", "another file"),
            Reject("Wrote outputs/checkpoint/step-900/.metadata", "a save that finished"),
        ),
        fixes=(OLDER_CHECKPOINT, ATOMIC_SAVE),
        specificity=3,
        fatal=True,
        outranks=("io-checkpoint/dcp-exception", "config-error/", "exception/", "nccl-distributed/watchdog-timeout"),
    ),
    Signature(
        id="io-checkpoint/dcp-exception",
        cls=CLS,
        role=Role.CASCADE,
        kind="distributed checkpoint failed on other ranks",
        cues=("CheckpointException ranks:", "torch.distributed.checkpoint.api.CheckpointException"),
        pattern=r"CheckpointException(?:: CheckpointException)? ranks:dict_keys\(\[(?P<rank>[\d, ]*)\]\)",
        prints="torch/distributed/checkpoint/api.py; the named ranks hold the reason",
        means="A distributed save or load failed on the ranks that are named; the others report it.",
        not_shown="The reason, which is in the named rank's own exception.",
        matches=(
            "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])",
            "CheckpointException ranks:dict_keys([3, 7])",
        ),
        rejects=(
            Reject("FileNotFoundError: [Errno 2] No such file or directory: 'c/step-9/.metadata'", "the reason itself"),
            Reject("from torch.distributed.checkpoint.api import CheckpointException", "source code"),
        ),
        fixes=(OLDER_CHECKPOINT,),
        specificity=2,
    ),
    Signature(
        id="io-checkpoint/deepspeed-shards-missing",
        cls=CLS,
        role=Role.CAUSE,
        kind="unfinished DeepSpeed checkpoint",
        cues=(
            "zero checkpoints paths",
            "optim_states.pt",
            "t get saved by one or more processes",
            "Unable to find latest file at",
            "model_states.pt", "following zero checkpoint paths are missing", "following zero checkpoints path are missing", "following zero checkpoint path are missing", "following zero checkpoint paths is missing", "following zero checkpoints path is missing", "following zero checkpoint path is missing",
        ),
        pattern=(
            r"following zero checkpoints? paths? (?:are|is) missing|can't find (?:files matching )?\S*(?:optim|model)_states\.pt"
            r"|Expected \d+ of \S*_states\.pt under|didn't get saved by one or more processes|Unable to find latest file at (?P<path>\S+)"
            r"|FileNotFoundError: .{0,80}(?:optim|model)_states\.pt"
        ),
        prints="deepspeed/runtime/engine.py and utils/zero_to_fp32.py",
        means=(
            "The DeepSpeed checkpoint lacks shards or its 'latest' file: the save did not finish on every rank, or the path is "
            "not a checkpoint."
        ),
        matches=(
            "The following zero checkpoints paths are missing: ['/c/global_step500/zero_pp_rank_3_mp_rank_00_optim_states.pt']",
            "FileNotFoundError: can't find *_optim_states.pt files in directory '/c/global_step500'",
            "ValueError: Expected 8 of *_optim_states.pt under '/c/global_step500' but found 7 files. Possibly due to an "
            "overwrite of an old checkpoint, "
            "or a checkpoint didn't get saved by one or more processes.",
            "Unable to find latest file at /c/latest, if trying to load latest checkpoint please ensure this file exists",
        ),
        rejects=(
            Reject("Saving ZeRO checkpoint: /c/global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "a save"),
            Reject("successfully read 8 ZeRO state_dicts for rank 0", "a load that worked"),
        ),
        fixes=(OLDER_CHECKPOINT, ATOMIC_SAVE),
        specificity=2,
    ),
    Signature(
        id="io-checkpoint/orbax-incomplete",
        cls=CLS,
        role=Role.CAUSE,
        kind="unfinished Orbax, TensorStore or Flax checkpoint",
        cues=(
            "ncomplete checkpoint",
            "ncommitted checkpoint",
            "nfinalized checkpoint",
            "driver: Metadata at",
            "not a finalized checkpoint",
            "checkpoint is incomplete",
            "orbax-checkpoint-tmp",
        ),
        pattern=(
            r"(?i)(?:incomplete|uncommitted|unfinalized) checkpoint\b|not a finalized checkpoint|checkpoint is incomplete"
            r"|(?:NOT_FOUND|FAILED_PRECONDITION|DATA_LOSS).{0,60}driver: Metadata at|(?:Error|No such file).{0,160}orbax-checkpoint-tmp"
        ),
        unless=(
            r"(?i)\b(?:clean(?:ed|ing)|delet(?:ed|ing)|remov(?:ed|ing)|skip(?:ped|ping)|ignor(?:ed|ing))\b.{0,60}(?:incomplete"
            r"|uncommitted|unfinalized)"
        ),
        prints="orbax-checkpoint, flax.training.checkpoints, tensorstore's zarr and OCDBT drivers",
        means="The checkpoint's save was not finished (no commit marker or array metadata), so it can't be restored.",
        matches=(
            'ValueError: NOT_FOUND: Error opening "zarr" driver: Metadata at "gs://b/run/400/default/params.w/.zarray" does not exist',
            "ValueError: Found incomplete checkpoint at gs://b/run/400.",
            "ValueError: Cannot restore from uncommitted checkpoint /r/600",
            "RuntimeError: The checkpoint is incomplete: 3 of 4 processes have written",
        ),
        rejects=(
            Reject("Removing incomplete checkpoint /r/600.orbax-checkpoint-tmp-17", "housekeeping at the start"),
            Reject("Saving checkpoint to /r/600.orbax-checkpoint-tmp-17", "the normal way of a save"),
        ),
        fixes=(OLDER_CHECKPOINT, ATOMIC_SAVE),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/hf-unable-to-load",
        cls=CLS,
        role=Role.CAUSE,
        kind="unreadable weights file",
        cues=(
            "Unable to load weights from",
            "find a valid checkpoint at",
            "trainer_state.json",
            "Consistency check failed: file should be of size",
        ),
        pattern=(
            r"OSError: Unable to load weights from (?:pytorch|\w+) checkpoint file for '(?P<path>[^'\n]+)'"
            r"|ValueError: Can't find a valid checkpoint at (?P<path2>\S+)|FileNotFoundError: "
            r".{0,60}'(?P<path3>[^'\n]*/trainer_state\.json)'"
            r"|Consistency check failed: file should be of size \d+ but has size \d+"
        ),
        prints="transformers modeling_utils.load_state_dict, Trainer._load_from_checkpoint; huggingface_hub file_download",
        means=(
            "The checkpoint folder exists but a file in it can't be read or is missing: an unfinished save or download, or a Git "
            "LFS pointer."
        ),
        not_shown="Whether the folder is the one that was meant.",
        matches=(
            "OSError: Unable to load weights from pytorch checkpoint file for '/m/pytorch_model.bin' at '/m/pytorch_model.bin'. "
            "If you tried to load",
            "ValueError: Can't find a valid checkpoint at /runs/sft/checkpoint-1200",
            "FileNotFoundError: [Errno 2] No such file or directory: '/runs/sft/checkpoint-1200/trainer_state.json'",
            "OSError: Consistency check failed: file should be of size 4968066768 but has size 1073741824 "
            "(model-00001-of-00003.safetensors).",
        ),
        rejects=(
            Reject(
                "OSError: Error no file named pytorch_model.bin, model.safetensors found in directory ./m.",
                "a wrong or empty folder: config-error",
            ),
            Reject("Saving trainer_state.json to /runs/sft/checkpoint-1200", "a save"),
        ),
        fixes=(OLDER_CHECKPOINT, COPY_AGAIN),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="io-checkpoint/save-race",
        cls=CLS,
        role=Role.CAUSE,
        kind="several processes rename or remove one checkpoint",
        cues=("tmp-checkpoint-", "[Errno 39]", "/checkpoint-"),
        pattern=(
            r"(?:FileNotFoundError|FileExistsError|OSError): \[Errno (?:2|17|39)\][^'\n]{0,60}'(?P<path>[^'\n]*tmp-checkpoint-\d+)'"
            r"|OSError: \[Errno 39\] Directory not empty: '(?P<path2>[^'\n]+)'"
            r"|FileNotFoundError: \[Errno 2\][^'\n]{0,60}'[^'\n]*/checkpoint-\d+/(?:optimizer|scheduler|rng_state|scaler)[^'\n]*'"
        ),
        prints="transformers Trainer (4.36 to 4.38 staging directory; rotation of old checkpoints) on shared storage; shutil",
        means="Two processes renamed or removed the same checkpoint folder, or one removed it while another still wrote or read it.",
        not_shown="Which process was first.",
        matches=(
            "FileNotFoundError: [Errno 2] No such file or directory: '/o/tmp-checkpoint-500' -> '/o/checkpoint-500'",
            "OSError: [Errno 39] Directory not empty: '/o/tmp-checkpoint-500' -> '/o/checkpoint-500'",
            "FileNotFoundError: [Errno 2] No such file or directory: '/o/checkpoint-500/rng_state_3.pth'",
        ),
        rejects=(
            Reject("Deleting older checkpoint [/o/checkpoint-400] due to args.save_total_limit", "normal rotation"),
            Reject("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "a missing input"),
        ),
        fixes=(
            Fix(
                action=(
                    "Let one process per shared file system write and rotate checkpoints (save_on_each_node=False on shared "
                    "storage), and update transformers"
                ),
                change=Change.CONFIG,
                impact="no two processes touch one folder",
                validate="two saves in the next 200 steps complete on all ranks",
                gain=0.85,
                confidence=0.7,
            ),
            RESUME_LAST,
        ),
        specificity=2,
        references=("https://github.com/huggingface/transformers/issues/27925",),
    ),
    Signature(
        id="io-checkpoint/save-failed",
        cls=CLS,
        role=Role.CASCADE,
        kind="a save failed, reason elsewhere",
        cues=(
            "ailed to save checkpoint",
            "ailed to write checkpoint",
            "rror saving checkpoint",
            "rror loading checkpoint",
            "rror writing checkpoint",
            "ailed to load checkpoint",
            "heckpoint save failed",
            "is corrupted or incomplete",
            "corrupt checkpoint",
            "heckpoint is corrupt",
        ),
        pattern=(
            r"(?i)(?:failed to (?:save|write|load)|error (?:saving|writing|loading)) checkpoint\b|checkpoint save failed"
            r"|(?:checkpoint|ckpt|weights)\b.{0,120}is corrupted or incomplete|corrupt checkpoint|checkpoint is corrupt"
        ),
        prints="training programs' own words",
        means="The program says that a checkpoint could not be written or read.",
        not_shown="Why.",
        matches=(
            "ERROR Failed to save checkpoint at step 400",
            "RuntimeError: checkpoint /a/last.pt is corrupted or incomplete",
            "Error loading checkpoint /a/last.pt: bad magic",
        ),
        rejects=(
            Reject("Saving checkpoint at step 400", "a normal save"),
            Reject("checkpoint verified, not corrupted", "a check that passed"),
        ),
        fixes=(OLDER_CHECKPOINT, SEE_DISK),
        specificity=1,
    ),
    # ---- storage services ------------------------------------------------------------------------
    Signature(
        id="io-checkpoint/storage-service",
        cls=CLS,
        role=Role.CAUSE,
        kind="storage service error",
        cues=(
            "(SlowDown)",
            "(ServiceUnavailable)",
            "(InternalError) when calling",
            "(RequestTimeout)",
            "(503) when calling",
            "(500) when calling",
            "EndpointConnectionError",
            "storage.googleapis.com",
            "gcsfs.retry.HttpError",
            "IncompleteReadError",
            "ServerBusy",
            "OperationTimedOut",
            "ExceptionsPool timeout",
            "HTTP code 503",
            "HTTP response code 503",
            "HTTP response code 429",
            "object mutation operations", "HTTP code 429",
        ),
        pattern=(
            r"An error occurred \((?P<code>SlowDown|ServiceUnavailable|InternalError|RequestTimeout|503|500)\) when calling the "
            r"(?P<key>\w+) operation"
            r"|EndpointConnectionError: Could not connect|gcsfs\.retry\.HttpError: .{0,200}\b(?:5\d\d|429)\b|\b(?:429|50[0234]) "
            r"(?:GET|PUT|POST|PATCH|DELETE) https?://storage\.googleapis\.com"
            r"|IncompleteReadError: |(?:Code|ErrorCode): ?(?:ServerBusy|OperationTimedOut)|HTTP (?:response )?code (?:503|429)\b"
            r"|exceeded the rate limit for object mutation operations|storage\.googleapis\.com.{0,160}(?:Read timed out|Max "
            r"retries exceeded|Connection reset|Connection aborted)"
        ),
        unless=r"(?i)\bretrying\b|\bretry (?:in|after|attempt)\b|will retry",
        prints="boto3/s3fs, google-cloud-storage, gcsfs, azure-storage, TensorFlow's and TensorStore's cloud file systems",
        means="The object store failed or throttled a request, and the client gave up after its retries.",
        not_shown="Whether the object was written: list it before resuming from it.",
        matches=(
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation (reached max "
            "retries: 4): Please reduce your request rate.",
            "google.api_core.exceptions.ServiceUnavailable: 503 POST "
            "https://storage.googleapis.com/upload/storage/v1/b/x/o?uploadType=resumable",
            "google.api_core.exceptions.TooManyRequests: 429 POST https://storage.googleapis.com/upload/storage/v1/b/x/o: The "
            "object x exceeded the rate limit for object mutation operations",
            'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://b.s3.amazonaws.com/ckpt"',
            "gcsfs.retry.HttpError: We encountered an internal error. Please try again., 503",
        ),
        rejects=(
            Reject(
                "google.api_core.exceptions.Forbidden: 403 POST https://storage.googleapis.com/upload/storage/v1/b/x/o",
                "access, not the service",
            ),
            Reject("google.api_core.exceptions.NotFound: 404 GET https://storage.googleapis.com/storage/v1/b/x/o/y", "a missing object"),
            Reject("503 GET https://storage.googleapis.com/b/o, retrying in 1.2 s", "the client tries again"),
        ),
        fixes=(RETRY_SAVE, RESTART_SAME, RESUME_LAST),
        specificity=2,
    ),
    Signature(
        id="io-checkpoint/transfer-broken",
        cls=CLS,
        role=Role.CAUSE,
        kind="transfer broken off",
        cues=(
            "Connection broken",
            "ChunkedEncodingError",
            "checksum mismatch while downloading",
            "Checksum mismatch while downloading",
            "DataCorruption",
        ),
        pattern=(
            r"(?:ProtocolError|ChunkedEncodingError|ConnectionError)\b.{0,20}Connection broken|[Cc]hecksum mismatch while "
            r"downloading|DataCorruption: "
        ),
        unless=r"(?i)retrying|trying to resume",
        prints="urllib3 and requests; google-resumable-media (DataCorruption)",
        means="A download or upload ended before all bytes had arrived.",
        not_shown="Which end broke it off.",
        matches=(
            "urllib3.exceptions.ProtocolError: ('Connection broken: IncompleteRead(104857600 bytes read, 419430400 more "
            "expected)', IncompleteRead())",
            "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(0 bytes read)', IncompleteRead(0 bytes read))",
            "google.resumable_media.common.DataCorruption: Checksum mismatch while downloading:",
        ),
        rejects=(
            Reject("ConnectionError: Server Disconnected", "a streamed data set lost its server: data-pipeline"),
            Reject("Connection broken by 'NewConnectionError' ... Retrying (Retry(total=2))", "the client tries again"),
        ),
        fixes=(RETRY_SAVE, RESTART_SAME),
        specificity=1,
    ),
    Signature(
        id="io-checkpoint/lock-held",
        cls=CLS,
        role=Role.CAUSE,
        kind="lock of a file or database",
        cues=("could not be acquired", "database is locked", "No locks available", "[Errno 37]"),
        pattern=(
            r"(?:filelock\.\S*|\b)Timeout: The file lock '(?P<path>[^'\n]+)' could not be acquired|database is locked|\[Errno 37\]"
            r"|No locks available"
        ),
        prints="filelock (huggingface_hub, datasets, torch extensions), SQLite (Optuna, MLflow), NFS without a lock daemon",
        means="A lock that guards a file could not be taken: another process holds it, one that died left it, or the mount has no locks.",
        matches=(
            "filelock._error.Timeout: The file lock '/home/u/.cache/huggingface/x.lock' could not be acquired.",
            "sqlite3.OperationalError: database is locked",
            "OSError: [Errno 37] No locks available",
        ),
        rejects=(
            Reject("Waiting to acquire lock on /home/u/.cache/x.lock", "waiting is no failure"),
            Reject("GIL could not be acquired during shutdown of module threading", "not a file lock"),
        ),
        fixes=(
            Fix(
                action="See who holds the lock; if nobody does, remove the left-over lock file",
                change=Change.DIAGNOSE,
                impact="tells a dead lock from a live one",
                validate="no process holds it, or the one that does is known",
                time_to_try="5 min",
                gain=0.5,
                confidence=0.7,
                command="fuser -v [[{path}]]; ls -l [[{path}]]",
            ),
            Fix(
                action="Put the cache or database on a local disk, one per node",
                change=Change.CONFIG,
                impact="locks no longer cross nodes or a network file system",
                validate="the first 50 steps run on all ranks",
                gain=0.8,
                confidence=0.6,
            ),
        ),
        specificity=2,
    ),
)
