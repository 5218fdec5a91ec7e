"""Communication between the processes of one run: rendezvous, connections, collectives, gradient reduction.

Time-outs of collectives are cascades: a rank that waits says nothing about why its peer didn't come. Analysis
compares their sequence numbers, operations and sizes over the ranks.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "nccl-distributed"

FIND_FIRST_RANK = Fix(
    action="Read the logs of all ranks from the first time-out backwards: look for the rank that stopped first or that is in another collective",
    change=Change.FETCH,
    impact="separates the rank that caused the wait from the ranks that only waited",
    validate="one rank shows an error, an exit or a different operation at the same sequence number",
    gain=0.6,
    confidence=0.8,
)
FLIGHT_RECORDER = Fix(
    action="Run again with the flight recorder and collective logging, so that a time-out names the call of every rank",
    change=Change.DIAGNOSE,
    impact="the dump lists the last collectives of every rank with sizes and stacks; no effect on training",
    validate="training starts as before; after a time-out the dump files exist for every rank",
    gain=0.4,
    confidence=0.8,
    command=(
        "TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL_DEBUG=INFO[[ {command}]]"
    ),
)
RAISE_TIMEOUT = Fix(
    action="Where a rank is only slow (saving, evaluating, tokenising on rank 0), raise the time-out of the process group, or do that work outside collectives",
    change=Change.CONFIG,
    impact="long single-rank work no longer ends the run; a real hang takes longer to be noticed",
    validate="the next save or evaluation passes without a time-out",
    gain=0.5,
    confidence=0.4,
)
SAME_COLLECTIVES = Fix(
    action="Make every rank call the same collectives in the same order and with the same shapes: no rank-dependent branches, skipped batches or log keys",
    change=Change.CODE,
    impact="removes the mismatch itself",
    validate="100 steps past the failing step without a time-out, with TORCH_DISTRIBUTED_DEBUG=DETAIL",
    time_to_try="1 h",
    gain=0.9,
    confidence=0.6,
)
FREE_PORT = Fix(
    action="Use another port or let the launcher pick a free one[[ (port {port} is taken)]]",
    change=Change.CONFIG,
    impact="the rendezvous can start; nothing else changes",
    validate="all ranks join within a minute and the first step is logged",
    time_to_try="2 min",
    gain=0.95,
    confidence=0.9,
    command="ss -ltnp[[ 'sport = :{port}']]",
)
STALE_PROCESS = Fix(
    action="Find what listens on the port; if it is a leftover of an earlier run, end that process",
    change=Change.DIAGNOSE,
    impact="shows whether another job or a leftover holds the port",
    validate="the port is free, and the start succeeds with the old settings",
    time_to_try="2 min",
    gain=0.8,
    confidence=0.6,
    command="lsof -nP -iTCP[[:{port}]] -sTCP:LISTEN",
)
CHECK_NETWORK = Fix(
    action="Check from every node that the master address and port can be reached, and that it is the address of the right interface",
    change=Change.DIAGNOSE,
    impact="tells a wrong address or closed firewall from a process that was never started",
    validate="the connection opens from every node while rank 0 waits",
    time_to_try="5 min",
    gain=0.6,
    confidence=0.7,
    command="nc -vz[[ {host}]][[ {port}]]",
)
SET_INTERFACE = Fix(
    action="Name the network interface that joins the nodes: NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME), leaving out docker0, virbr0 and lo",
    change=Change.ENVIRONMENT,
    impact="NCCL and Gloo bind to an address that the other nodes can reach",
    validate="the 'Bootstrap : Using' line shows that interface on every node, and the first all-reduce ends",
    time_to_try="5 min",
    gain=0.8,
    confidence=0.6,
    command="NCCL_SOCKET_IFNAME=^lo,docker,virbr NCCL_DEBUG=INFO[[ {command}]]",
)
START_ALL = Fix(
    action="See whether every node started: compare the node count asked for with the scheduler's list, and read the log of the node that didn't join",
    change=Change.DIAGNOSE,
    impact="names the node or rank that never came",
    validate="all participants join within the time limit",
    time_to_try="10 min",
    gain=0.7,
    confidence=0.8,
)
NCCL_DEBUG = Fix(
    action="Run again with NCCL_DEBUG=INFO and read the first WARN line before the error",
    change=Change.DIAGNOSE,
    impact="names the system call, peer and device behind the generic error",
    validate="the log holds 'NCCL WARN' lines of the failing rank",
    gain=0.4,
    confidence=0.8,
    command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV[[ {command}]]",
)
TEST_FABRIC = Fix(
    action="Test the links without the training: all_reduce_perf of nccl-tests over the same nodes, and ibstat / ibqueryerrors or the NIC counters",
    change=Change.DIAGNOSE,
    impact="tells a bad link, cable or node from a fault in the program",
    validate="all sizes pass with the bandwidth that the fabric should give",
    time_to_try="30 min",
    gain=0.5,
    confidence=0.6,
)
RESTART_FROM_CHECKPOINT = Fix(
    action="Start again from the newest complete checkpoint[[ ({checkpoint})]], without the node that lost its link if one is named",
    change=Change.RESTART,
    impact="a transient network fault doesn't come back; repeated faults on one node point to hardware",
    validate="training passes the failing step and runs 200 steps more",
    gain=0.6,
    confidence=0.5,
)
UNUSED_PARAMETERS = Fix(
    action="Leave no parameter without a gradient: use every output in the loss, freeze or remove unused modules; as a stop-gap pass find_unused_parameters=True",
    change=Change.CODE,
    impact="the reducer gets all gradients; find_unused_parameters costs one extra pass over the graph per step",
    validate="the second iteration passes; TORCH_DISTRIBUTED_DEBUG=DETAIL names no unused parameter",
    time_to_try="20 min",
    gain=0.95,
    confidence=0.85,
)
EXITS_FIRST = Fix(
    action="Look at the peer first: why did the other process close the connection (its own log, its exit code, the node's kernel log)?",
    change=Change.FETCH,
    impact="finds the cause; the line here only shows the loss of a peer",
    validate="the other rank's log ends earlier, with its own error",
    gain=0.6,
    confidence=0.8,
)

NCCL_GENERIC = (
    "nccl-distributed/nccl-system-error",
    "nccl-distributed/nccl-internal-error",
    "nccl-distributed/nccl-remote-error",
    "nccl-distributed/nccl-invalid-usage",
    "nccl-distributed/nccl-invalid-argument",
    "nccl-distributed/watchdog-timeout",
)

SIGNATURES: tuple[Signature, ...] = (
    # --- time-outs of collectives -------------------------------------------------------------------
    # ProcessGroupNCCL.cpp, WorkNCCL::checkTimeout and the watchdog; the same sentence comes again as
    # "watchdog thread terminated with exception: ..." and as "what():  ...".
    Signature(
        id="nccl-distributed/watchdog-timeout",
        cls=CLS,
        role=Role.CASCADE,
        kind="collective time-out",
        cues=("Watchdog caught collective operation timeout", "caught collective operation timeout"),
        pattern=(
            r"(?:\[Rank (?P<rank>\d{1,6})\] )?Watchdog caught collective operation timeout:?"
            r"(?: Work\w{1,20}\((?:SeqNum=(?P<seq>\d{1,12}), )?OpType=(?P<op>\w{1,40})"
            r"(?:, NumelIn=(?P<numel>\d{1,15}), NumelOut=(?P<numel_out>\d{1,15}))?(?:, TensorShape=\[[^\]]{0,80}\])?"
            r",? ?Timeout\(ms\)=(?P<timeout>\d{1,12})\))?"
        ),
        prints="PyTorch, ProcessGroupNCCL watchdog thread (ProcessGroupNCCL.cpp, WorkNCCL::checkTimeout)",
        means="This rank waited in a collective for longer than the process group's time-out.",
        not_shown="Why its peers did not come: another rank may have died, be slow, or be in another collective; the network is only one reason.",
        matches=(
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.",
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803170 milliseconds before timing out.",
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, TensorShape=[1], Timeout(ms)=1800000) ran for 1800116 milliseconds before timing out.",
            "[Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=_ALLGATHER_BASE, NumelIn=8, NumelOut=64, Timeout(ms)=1800000) ran for 1800400 milliseconds before timing out.",
            "[Rank 2] Watchdog caught collective operation timeout: WorkHCCL(SeqNum=11, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800500 milliseconds before timing out.",
        ),
        rejects=(
            Reject("[PG 0 Rank 1] Timeout at NCCL work: 912, last enqueued NCCL work: 912, last completed NCCL work: 911.", "a companion line with its own signature"),
            Reject("[PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds", "the heartbeat monitor, not a time-out of work"),
            Reject("init_process_group(backend='nccl', timeout=1800000)", "a setting"),
        ),
        fixes=(FIND_FIRST_RANK, SAME_COLLECTIVES, FLIGHT_RECORDER, RAISE_TIMEOUT),
        references=("https://pytorch.org/docs/stable/distributed.html",),
        fatal=True,
    ),
    Signature(
        id="nccl-distributed/timeout-at-work",
        cls=CLS,
        role=Role.CASCADE,
        kind="collective time-out",
        cues=("Timeout at NCCL work", "last enqueued NCCL work", "Some NCCL operations have failed or timed out", "Some operations have failed or timed out", "last completed"),
        pattern=(
            r"Timeout at NCCL work: (?P<seq>\d{1,12})|last enqueued (?:NCCL )?work: -?\d{1,12}, last completed|"
            r"Some (?:NCCL )?operations have failed or timed out"
        ),
        prints="PyTorch, ProcessGroupNCCL watchdog thread",
        means="The watchdog of this rank gave up on a collective and takes the process down.",
        not_shown="Which rank caused it.",
        matches=(
            "[PG 0 Rank 2] Timeout at NCCL work: 7305, last enqueued NCCL work: 7305, last completed NCCL work: 7304.",
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
            "[PG ID 0 PG GUID 0(default_pg) Rank 5] Exception (either an error or timeout) detected by watchdog at work: 88, last enqueued NCCL work: 90, last completed NCCL work: 87.",
        ),
        rejects=(
            Reject("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "the main line, with its own signature"),
            Reject("2 of 400 operations have failed, retrying", "not the watchdog"),
        ),
        specificity=1,
        fixes=(FIND_FIRST_RANK,),
    ),
    Signature(
        id="nccl-distributed/watchdog-terminated",
        cls=CLS,
        role=Role.CASCADE,
        kind="watchdog ended the process",
        cues=("watchdog thread terminated with exception", "watchdog thread is joined", "observed collective timeout", "Received a dump signal", "Observed flight recorder dump signal"),
        pattern=(
            r"watchdog thread terminated with exception: (?!.{0,400}(?:CUDA error|out of memory))|"
            r"(?:Received a|Observed flight recorder) dump signal (?:due to|from)|observed collective timeout"
        ),
        prints="PyTorch, ProcessGroupNCCL watchdog and heartbeat threads",
        means="A communication error or time-out of this or another rank ended the process.",
        not_shown="The first cause.",
        matches=(
            "[PG ID 1 PG GUID 1 Rank 4] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5",
            "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info.",
            "Observed flight recorder dump signal from another rank via TCPStore.",
        ),
        rejects=(
            Reject("Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered", "the watchdog only reports a CUDA error; that error is the cause"),
            Reject("watchdog: all good", "no termination"),
        ),
        specificity=1,
        fixes=(FIND_FIRST_RANK,),
    ),
    Signature(
        id="nccl-distributed/heartbeat-monitor",
        cls=CLS,
        role=Role.CASCADE,
        kind="watchdog stuck",
        cues=("watchdog got stuck for", "Heartbeat monitor timed out", "watchdog hang, ", "without making progress in monitoring enqueued collectives", "in monitoring enqueued collectives"),
        pattern=r"watchdog got stuck for (?P<timeout>\d{1,7}) seconds|Heartbeat monitor timed out! Process will be terminated|in monitoring enqueued collectives",
        prints="PyTorch, ProcessGroupNCCL::heartbeatMonitor",
        means="All progress of the watchdog stopped: a NCCL or CUDA call on this rank never returned.",
        not_shown="Which call: a hang in a collective, a dead peer or another thread that holds the GIL look the same.",
        matches=(
            "[PG ID 0 PG GUID 0(default_pg) Rank 2] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring enqueued collectives.",
            "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3",
        ),
        rejects=(
            Reject("Setting NCCL heartbeat timeout TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480", "a setting"),
            Reject("If you suspect the watchdog is not actually stuck and a longer timeout would help, you can either increase the timeout", "advice that goes with it"),
        ),
        fixes=(FIND_FIRST_RANK, SAME_COLLECTIVES, FLIGHT_RECORDER),
        fatal=True,
    ),
    Signature(
        id="nccl-distributed/work-wait-timeout",
        cls=CLS,
        role=Role.CASCADE,
        kind="collective time-out",
        cues=("Timed out waiting", "Operation timed out!", "Wait timeout", "DistBackendError: Timeout", "Collective operation timed out", "waitForInput"),
        pattern=(
            r"Timed out waiting (?P<timeout>\d{1,9})\s?ms for (?:recv|send)|Operation timed out!|"
            r"\bWait timeout\b|Collective operation timed out|waitForInput|"
            r"Timed out waiting (?P<seconds>\d{1,9})ms for (?:monitoredBarrier|all ranks)"
        ),
        prints="Gloo (transport/tcp/unbound_buffer.cc) and ProcessGroupGloo; PyTorch Work::wait",
        means="A rank waited for data of a peer until the time-out.",
        not_shown="Why the peer did not send.",
        matches=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:133] Timed out waiting 60000ms for send operation to complete",
            "RuntimeError: Operation timed out!",
        ),
        rejects=(
            Reject("requests.exceptions.ReadTimeout: Read timed out. (read timeout=10)", "an HTTP client"),
            Reject("Timed out waiting for the lock file", "not communication between ranks"),
        ),
        fixes=(FIND_FIRST_RANK, SAME_COLLECTIVES, RAISE_TIMEOUT),
        fatal=True,
    ),
    # --- NCCL's own errors --------------------------------------------------------------------------
    Signature(
        id="nccl-distributed/nccl-system-error",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL system error",
        cues=("unhandled system error", "ncclSystemError"),
        pattern=r"unhandled system error|\bncclSystemError\b",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp), JAX and TensorFlow",
        means="A system call inside NCCL failed (socket, shared memory, InfiniBand verbs).",
        not_shown="Which call; the 'Last error' or 'NCCL WARN' line says that.",
        matches=(
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        ),
        rejects=(
            Reject("ncclUnhandledCudaError: Call to CUDA function failed.", "a CUDA call, not a system call"),
            Reject("SystemError: unknown opcode", "Python"),
        ),
        specificity=1,
        fatal=True,
        fixes=(NCCL_DEBUG, SET_INTERFACE, TEST_FABRIC),
        references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
    ),
    Signature(
        id="nccl-distributed/nccl-cuda-error",
        cls=CLS,
        role=Role.CASCADE,
        kind="CUDA error inside NCCL",
        cues=("unhandled cuda error", "ncclUnhandledCudaError"),
        pattern=r"unhandled cuda error|\bncclUnhandledCudaError\b",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp)",
        means="A CUDA call inside NCCL failed; the CUDA error itself stands in the 'Last error' line or earlier.",
        not_shown="Which CUDA error: out of memory, an illegal access of an earlier kernel and a bad device all end here.",
        matches=(
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1",
            "ncclUnhandledCudaError: Call to CUDA function failed.",
        ),
        rejects=(
            Reject("NCCL error: unhandled system error, NCCL version 2.20.5", "a system call"),
            Reject("RuntimeError: CUDA error: device-side assert triggered", "not reported by NCCL"),
        ),
        fatal=True,
        fixes=(NCCL_DEBUG,),
    ),
    Signature(
        id="nccl-distributed/nccl-internal-error",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL internal error",
        cues=("ncclInternalError", "NCCL error"),
        pattern=r"\bncclInternalError\b|NCCL error.{0,160}\binternal error\b",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp)",
        means="An internal check of NCCL failed; often a topology or transport that the node set-up doesn't allow, or ranks that disagree.",
        not_shown="Which check; run with NCCL_DEBUG=INFO.",
        matches=(
            "ncclInternalError: Internal check failed.",
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, internal error - please report this issue to the NCCL developers, NCCL version 2.18.1",
        ),
        rejects=(
            Reject("NCCL error in: NCCLUtils.hpp:317, unhandled system error, NCCL version 2.21.5", "another kind"),
            Reject("tensorflow.python.framework.errors_impl.InternalError: internal error", "not NCCL"),
        ),
        specificity=1,
        fatal=True,
        fixes=(NCCL_DEBUG, TEST_FABRIC, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/nccl-remote-error",
        cls=CLS,
        role=Role.CASCADE,
        kind="peer lost",
        cues=("ncclRemoteError", "remote process exited or there was a network error", "remote process exiting prematurely"),
        pattern=r"\bncclRemoteError\b|remote process exited or there was a network error|network error or a remote process exiting prematurely",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp)",
        means="The connection to another rank was lost: that rank ended, or the network did.",
        not_shown="Which of the two, and why.",
        matches=(
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "NCCL error: remote process exited or there was a network error, NCCL version 2.19.3",
        ),
        rejects=(
            Reject("NCCL error: unhandled system error", "another kind"),
            Reject("ConnectionError: a network error while downloading", "not NCCL"),
        ),
        fatal=True,
        fixes=(EXITS_FIRST, TEST_FABRIC, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/nccl-invalid-usage",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL used wrongly",
        cues=("ncclInvalidUsage", "NCCL error"),
        pattern=r"\bncclInvalidUsage\b|NCCL error.{0,160}\binvalid usage\b",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp)",
        means="The call doesn't fit: two ranks on one GPU, CPU tensors, or ranks that pass different counts.",
        not_shown="Which of these; the WARN line names it.",
        matches=(
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, invalid usage, NCCL version 2.10.3",
        ),
        rejects=(
            Reject("NCCL error: invalid argument, NCCL version 2.20.5", "another kind"),
            Reject("cublas: invalid usage of handle", "not NCCL"),
        ),
        fatal=True,
        specificity=1,
        fixes=(
            Fix(
                action="Give each process its own GPU: call torch.cuda.set_device(local_rank) before init_process_group, and start no more processes per node than it has GPUs",
                change=Change.CODE,
                impact="removes the usual reason: several ranks on GPU 0",
                validate="nvidia-smi shows one process per GPU and the first collective ends",
                gain=0.85,
                confidence=0.7,
            ),
            NCCL_DEBUG,
        ),
    ),
    Signature(
        id="nccl-distributed/nccl-invalid-argument",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL used wrongly",
        cues=("ncclInvalidArgument", "NCCL error"),
        pattern=r"\bncclInvalidArgument\b|NCCL error.{0,160}\binvalid argument\b",
        prints="NCCL, reported by PyTorch (NCCLUtils.hpp)",
        means="NCCL got an argument that it can't take (a rank, root, device or pointer).",
        matches=(
            "ncclInvalidArgument: Invalid value for an argument.",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, invalid argument, NCCL version 2.14.3",
        ),
        rejects=(
            Reject("OSError: [Errno 22] Invalid argument", "a system call outside NCCL"),
            Reject("CUDA error: invalid argument", "CUDA, not NCCL"),
        ),
        fatal=True,
        specificity=1,
        fixes=(NCCL_DEBUG, SAME_COLLECTIVES),
    ),
    # init.cc / bootstrap.cc: "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    Signature(
        id="nccl-distributed/duplicate-gpu",
        cls=CLS,
        role=Role.CAUSE,
        kind="two ranks on one GPU",
        cues=("Duplicate GPU detected",),
        pattern=r"Duplicate GPU detected ?: ranks? (?P<rank>\d{1,6}) and rank (?P<value>\d{1,6}) both on CUDA device (?P<device>\w{1,16})|Duplicate GPU detected",
        prints="NCCL, init.cc",
        means="Two ranks use the same GPU, which NCCL refuses.",
        matches=(
            "gpu7:411:588 [0] init.cc:525 NCCL WARN Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 4b000",
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        ),
        rejects=(
            Reject("Duplicate rows detected: 12", "data"),
            Reject("NCCL WARN Cuda failure 'out of memory'", "another cause"),
        ),
        specificity=3,
        fatal=True,
        outranks=NCCL_GENERIC,
        fixes=(
            Fix(
                action="Give each process its own GPU: torch.cuda.set_device(LOCAL_RANK) before init_process_group, processes per node ≤ GPUs per node, one visible GPU list for all ranks of the node",
                change=Change.CODE,
                impact="each rank has a device of its own, and NCCL starts",
                validate="nvidia-smi shows one process per GPU; the first collective ends",
                gain=0.95,
                confidence=0.9,
                command="nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv",
            ),
        ),
    ),
    # misc/socket.cc, net_socket.cc: WARN lines and "Last error:" texts, not the INFO lines of retries
    Signature(
        id="nccl-distributed/nccl-connect",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL can't connect",
        cues=("socketStartConnect", "socketPollConnect", "socketFinalizeConnect", "NCCL WARN Net", "NCCL WARN Call to connect", "NCCL WARN Connect", "NCCL WARN Call to Connect to", "NCCL WARN connect to", "NCCL WARN Call to Connect returned", "NCCL WARN Call to Connect failed", "NCCL WARN connect returned", "NCCL WARN connect failed"),
        pattern=(
            r"(?:socketStartConnect|socketPollConnect|socketFinalizeConnect|Net) ?: ?(?:Connect to |Call to connect )?(?P<host>[\w.:\[\]%-]{0,80})(?:<(?P<port>\d{1,5})>)?"
            r".{0,80}?(?:[Ff]ailed|returned \d{1,4} ?\().{0,60}(?:Connection refused|No route to host|timed out|unreachable|Software caused|Software error)|"
            r"NCCL WARN (?:Net : )?(?:Call to )?[Cc]onnect (?:to .{1,80} )?(?:failed|returned).{0,60}(?:refused|No route|timed out|unreachable)"
        ),
        unless=r"NCCL INFO|retrying",
        prints="NCCL, misc/socket.cc",
        means="A rank could not open NCCL's own connection to a peer: wrong interface or address, a firewall, or a peer that is gone.",
        not_shown="Which of these; the 'Bootstrap : Using' and 'NET/Socket : Using' lines show the interface that was picked.",
        matches=(
            "socketPollConnect: Connect to 172.18.0.1<40021> returned 111(Connection refused) errno 115(Operation now in progress)",
            "n4:88:120 [1] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.2.0.7<37133> failed : No route to host",
            "n4:88:120 [1] include/socket.h:390 NCCL WARN Net : Connect to 192.168.122.1<53279> failed : Connection refused",
            "n4:88:120 [1] include/socket.h:403 NCCL WARN Call to connect failed : Connection timed out",
            "socketStartConnect: Connect to fe80::1%eth0<44521> failed : Software caused connection abort",
        ),
        rejects=(
            Reject("NCCL INFO socketPollConnect: connect to 172.18.0.1<40021> returned Connection refused, retrying (attempt 3/34)", "a retry, which may still succeed"),
            Reject("NCCL INFO Call to connect returned Connection refused, retrying", "a retry"),
            Reject("requests: Connect to example.org failed : timed out", "not NCCL"),
        ),
        specificity=3,
        fatal=True,
        outranks=NCCL_GENERIC,
        fixes=(SET_INTERFACE, CHECK_NETWORK, NCCL_DEBUG),
    ),
    Signature(
        id="nccl-distributed/nccl-ib",
        cls=CLS,
        role=Role.CAUSE,
        kind="InfiniBand / RoCE fault",
        cues=("Got completion from peer", "Got completion with error", "Got async event", "Call to ibv_", "Async fatal event", "mlx5: ", "vendor err", "Got completion with status", "Got asynchronous event"),
        pattern=(
            r"NET/IB ?: .{0,80}Got completion (?:from peer .{0,80})?with (?:status|error)[= ]?(?P<code>(?!(?:5|12|13)\b)\d{1,4})|"
            r"NET/IB ?: .{0,60}Got async(?:hronous)? event ?: (?!(?:client reregistration|GID table change|port active|P_Key|SM change|LID change))|"
            r"NET/IB.{0,60}Async fatal event|\bCall to ibv_\w{1,40} failed|"
            r"mlx5: .{0,60}got completion with error"
        ),
        prints="NCCL, net_ib.cc and ibvwrap.cc",
        means="A verb or transfer on InfiniBand or RoCE failed: a link went down, or memory could not be registered.",
        not_shown="Whether cable, switch, adapter or set-up is at fault.",
        matches=(
            "node3:901:1200 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.4.22<41022> with status=4 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.1.4.21",
            "node3:901:1199 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
            "node3:901:1200 [2] misc/ibvwrap.cc:227 NCCL WARN Call to ibv_reg_mr failed",
            "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
        ),
        rejects=(
            Reject("NCCL WARN NET/IB : Got completion from peer 10.1.4.22<41022> with status=12 opcode=0", "no answer, which is also what a dead peer looks like"),
            Reject("NCCL INFO NET/IB : No device found.", "no InfiniBand on this machine; sockets are used"),
            Reject("NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change", "an event without effect on open connections"),
            Reject("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.1.4.21<0>", "the list of devices"),
        ),
        specificity=2,
        outranks=NCCL_GENERIC,
        fixes=(TEST_FABRIC, EXITS_FIRST, RESTART_FROM_CHECKPOINT),
    ),
    # ibv_wc_status 12 (transport retry exceeded), 13 (RNR retry exceeded) and 5 (flushed): the peer did not answer
    Signature(
        id="nccl-distributed/nccl-ib-peer",
        cls=CLS,
        role=Role.CASCADE,
        kind="peer lost",
        cues=("Got completion from peer", "Got completion with error", "NET/IB : ", "NET/IB: "),
        pattern=r"NET/IB ?: .{0,80}Got completion (?:from peer (?P<peer>.{0,80}))?with (?:status|error)[= ]?(?P<code>(?:5|12|13)\b)",
        prints="NCCL, net_ib.cc",
        means="A peer did not answer on InfiniBand or RoCE: its process or node is gone, or the link is down.",
        not_shown="Which of these.",
        matches=(
            "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.4.22<41022> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            "NCCL WARN NET/IB : Got completion with error 12, opcode 129, len 1, vendor err 129",
        ),
        rejects=(
            Reject("NCCL WARN NET/IB : Got completion from peer 10.1.4.22<41022> with status=4 opcode=0", "a protection error, not a silent peer"),
            Reject("NCCL WARN NET/IB : mlx5_2:1 Got async event : port error", "a local fault"),
        ),
        fixes=(EXITS_FIRST, TEST_FABRIC, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/nccl-socket-lost",
        cls=CLS,
        role=Role.CASCADE,
        kind="peer lost",
        cues=("socketProgress: Connection closed by remote peer", "Connection closed by remote peer", "NCCL WARN Net : Connection closed", "Call to recv from", "Call to send to", "socketProgressOpt", "recv from ", "send to ", "socketProgress"),
        pattern=(
            r"(?:socketProgress(?:Opt)?: |Net : )?Connection closed by remote peer (?P<host>[\w.:-]{1,80})?|"
            r"(?:Call to )?(?:recv from|send to) (?P<peer>[\w.:<>-]{1,80}) failed ?:? (?:Connection reset|Broken pipe|Connection timed out)|"
            r"socketProgress(?:Opt)?: .{0,60}(?:Connection reset|Broken pipe|Connection timed out)"
        ),
        unless=r"NCCL INFO",
        prints="NCCL, misc/socket.cc",
        means="A peer closed NCCL's connection: its process ended or its node was lost.",
        not_shown="Why the peer ended.",
        matches=(
            "socketProgress: Connection closed by remote peer vid-2<39122>",
            "n1:7:30 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer n2<52114>",
            "n1:7:30 [0] include/socket.h:423 NCCL WARN Call to recv from 10.0.0.3<48212> failed : Connection reset by peer",
            "socketProgressOpt: Call to recv from 10.0.0.3<48212> failed : Connection timed out",
        ),
        rejects=(
            Reject("NCCL INFO [Service thread] Connection closed by localRank 3", "ordinary shutdown"),
            Reject("Remote end closed connection without response", "an HTTP client"),
        ),
        fixes=(EXITS_FIRST, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/nccl-version-mismatch",
        cls=CLS,
        role=Role.CAUSE,
        kind="NCCL versions or plug-ins differ",
        cues=("Mismatched NCCL version detected", "NCCL version mismatch", "bootstrapRoot: mismatch"),
        pattern=r"Mismatched NCCL version detected|NCCL version mismatch|bootstrapRoot: mismatch",
        prints="NCCL, bootstrap.cc and misc",
        means="The ranks run different NCCL versions or disagree on the number of ranks at start-up.",
        matches=(
            "NCCL WARN Mismatched NCCL version detected : rank 0 has 21805 vs rank 4 21903",
            "NCCL WARN bootstrapRoot: mismatch in rank count from procs 8 : 16",
        ),
        rejects=(
            Reject("NCCL version 2.21.5+cuda12.4", "a version line"),
            Reject("version mismatch: protobuf 4 vs 5", "not NCCL"),
        ),
        specificity=3,
        outranks=NCCL_GENERIC,
        fixes=(
            Fix(
                action="Run the same image on every node, and the same world size on every launcher",
                change=Change.ENVIRONMENT,
                impact="all ranks speak the same protocol",
                validate="'NCCL version' lines agree on all ranks, and the first collective ends",
                gain=0.9,
                confidence=0.85,
            ),
        ),
    ),
    Signature(
        id="nccl-distributed/nccl-invalid-device",
        cls=CLS,
        role=Role.CAUSE,
        kind="processes share or miss GPUs",
        cues=("only supports CUDA tensors", "ProcessGroupNCCL is only supported with GPUs", "Tensors must be CUDA and dense", "No backend type associated with device type", "using GPU 0 to perform barrier as devices used by this process are currently unknown"),
        pattern=(
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found|Tensors must be CUDA and dense|"
            r"No backend type associated with device type (?P<device>\w{1,16})|NCCL.{0,40} only supports CUDA tensors"
        ),
        prints="PyTorch, ProcessGroupNCCL and ProcessGroup.hpp",
        means="A collective was called on a device that the chosen backend can't serve.",
        matches=(
            "RuntimeError: No backend type associated with device type cpu",
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "ValueError: Tensors must be CUDA and dense",
        ),
        rejects=(
            Reject("using GPU 0 to perform barrier as devices used by this process are currently unknown.", "a warning"),
            Reject("Expected all tensors to be on the same device, but found at least two devices", "not a collective"),
        ),
        specificity=3,
        fatal=True,
        fixes=(
            Fix(
                action="Move the tensor to the rank's GPU before the collective, or start a process group with a backend for that device (cpu:gloo,cuda:nccl)",
                change=Change.CODE,
                impact="the collective finds a backend",
                validate="the call passes on all ranks",
                gain=0.9,
                confidence=0.8,
            ),
        ),
    ),
    Signature(
        id="nccl-distributed/dist-backend-error",
        cls=CLS,
        role=Role.CASCADE,
        kind="backend error",
        cues=("DistBackendError", "ncclUniqueId from"),
        pattern=r"\bDistBackendError\b|is setting up NCCL communicator and retrieving ncclUniqueId from",
        prints="PyTorch, torch.distributed",
        means="The communication backend raised an error.",
        not_shown="Which; the text after it says that.",
        matches=(
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, remote process exited or there was a network error",
        ),
        rejects=(
            Reject("torch.distributed.DistNetworkError: The server socket has failed to listen", "another type"),
            Reject("except dist.DistStoreError:", "code"),
        ),
        specificity=1,
        fixes=(EXITS_FIRST, NCCL_DEBUG),
    ),
    Signature(
        id="nccl-distributed/connect-retry",
        cls=CLS,
        role=Role.CONTEXT,
        kind="connection is tried again",
        cues=("Connection refused, retrying", "refused, retrying", "client socket has failed to connect", "returned Connection timed out, retrying", ", retrying"),
        pattern=(
            r"connect(?: to (?P<host>[\w.:-]{1,80})(?:<(?P<port>\d{1,5})>)?)? returned [\w ]{1,40}, retrying|"
            r"The client socket has failed to connect to \[?(?P<address>[^\]\s]{1,80})"
        ),
        prints="NCCL, misc/socket.cc; PyTorch, c10d socket.cpp (also for IPv6 addresses that are tried first)",
        means="An attempt to connect failed and is made again.",
        not_shown="Whether a later attempt succeeded.",
        matches=(
            "NCCL INFO Call to connect returned Connection refused, retrying",
            "NCCL INFO socketPollConnect: connect to 10.0.0.4<33211> returned Connection refused, retrying (attempt 2/34)",
            "[c10d] The client socket has failed to connect to [gpu-2]:29400 (errno: 97 - Address family not supported by protocol).",
        ),
        rejects=(
            Reject("socketPollConnect: Connect to 172.18.0.1<40021> returned 111(Connection refused)", "the final failure"),
            Reject("HTTP connection refused, retrying in 5 s", "not between ranks"),
        ),
        specificity=1,
    ),
    Signature(
        id="nccl-distributed/bootstrap-interface",
        cls=CLS,
        role=Role.CONTEXT,
        kind="virtual interface chosen",
        cues=("Bootstrap : Using docker", "Bootstrap : Using virbr", "Bootstrap : Using veth", "Bootstrap : Using br-", "Bootstrap: Using docker", "Bootstrap : Using lo:", "Bootstrap: Using lo:", "Bootstrap: Using virbr", "Bootstrap: Using veth", "Bootstrap : Using lo", "Bootstrap: Using br-", "Bootstrap: Using lo"),
        pattern=r"Bootstrap ?: Using (?P<interface>(?:docker|virbr|veth|br-|lo)[\w.-]{0,20}):(?P<host>[\w.:]{1,60})",
        prints="NCCL, misc/socket.cc (with NCCL_DEBUG=INFO)",
        means="NCCL picked a virtual or loopback interface, which other nodes can't reach.",
        not_shown="That more than one node takes part: on one node this does no harm.",
        matches=(
            "n5:240:240 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
            "NCCL INFO Bootstrap: Using lo:127.0.0.1<0>",
        ),
        rejects=(
            Reject("NCCL INFO Bootstrap : Using ib0:10.4.0.2<0>", "a real interface"),
            Reject("Bootstrap : Using local data", "not NCCL"),
        ),
        specificity=1,
        fixes=(SET_INTERFACE,),
    ),
    # --- Gloo ----------------------------------------------------------------------------------------
    Signature(
        id="nccl-distributed/gloo-peer-lost",
        cls=CLS,
        role=Role.CASCADE,
        kind="peer lost",
        cues=("Connection closed by peer", "Connection reset by peer", "Application timeout caused pair closure", "gloo/transport", "Connection timed out", "]: Broken pipe", ": Broken pipe", "Socket closed", "Broken pipe"),
        pattern=(
            r"\bConnection closed by peer \[(?P<host>[^\]\s]{1,80})\](?::(?P<port>\d{1,5}))?|"
            r"(?:Read|Write) error \[[^\]\s]{1,80}\](?::\d{1,5})?: (?:Connection reset by peer|Broken pipe|Connection timed out)|"
            r"gloo.{0,120}(?:Connection reset by peer|Connection closed by peer|Broken pipe|Application timeout caused pair closure|Socket closed)|"
            r"Application timeout caused pair closure"
        ),
        prints="Gloo, transport/tcp/pair.cc",
        means="The connection to a peer was lost in the middle of a collective: the peer's process ended or closed it.",
        not_shown="Why the peer ended; its own log says that, and a silent exit with status 0 is one of the reasons.",
        matches=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.12]:17402",
            "RuntimeError: [/build/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:9412: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the application.",
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [fe80::1%lo]:52311",
            "RuntimeError: Application timeout caused pair closure",
        ),
        rejects=(
            Reject("requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))", "an HTTP client"),
            Reject("wandb: Network error (ConnectionError), entering retry loop: Connection reset by peer", "not between ranks"),
        ),
        fatal=True,
        fixes=(EXITS_FIRST, SAME_COLLECTIVES, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/gloo-size-mismatch",
        cls=CLS,
        role=Role.CAUSE,
        kind="collective mismatch",
        cues=("op.preamble.length <= op.nbytes", "op.preamble.length"),
        pattern=r"op\.preamble\.length <= op\.nbytes(?:\.\s{0,2}(?P<got>\d{1,15}) vs (?P<want>\d{1,15}))?",
        prints="Gloo, transport/tcp/pair.cc (an enforce that aborts the process)",
        means="A peer sent more bytes than this rank expects: the ranks called the collective with tensors of different sizes, or different collectives.",
        not_shown="Which call; the Python stack of the other ranks shows it.",
        matches=(
            "terminate called after throwing an instance of 'gloo::EnforceNotMet' what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 128 vs 64",
            "[enforce fail at pair.cc:490] op.preamble.length <= op.nbytes. 8 vs 4",
        ),
        rejects=(
            Reject("[enforce fail at inline_container.cc:672] . unexpected pos 18944 vs 18832", "writing a checkpoint"),
            Reject("pair.cc:598] Connection closed by peer [10.0.0.12]:17402", "the other ranks' view"),
        ),
        specificity=3,
        fatal=True,
        outranks=("process-crash/", "nccl-distributed/gloo-peer-lost"),
        fixes=(SAME_COLLECTIVES, FLIGHT_RECORDER),
    ),
    Signature(
        id="nccl-distributed/gloo-connect",
        cls=CLS,
        role=Role.CAUSE,
        kind="Gloo can't connect",
        cues=("Gloo connectFullMesh failed", "connectFullMesh failed", "gloo/transport/tcp", "Unable to resolve hostname to a", "Unable to find address for", "connect [", "timed out connecting", "Connection refused", "Connect timeout"),
        pattern=(
            r"Gloo connectFullMesh failed|gloo.{0,120}(?:connect \[.{1,80}\].{0,20}: (?:Connection refused|No route to host|Network is unreachable)|Connect timeout|"
            r"timed out connecting|Connection refused)|Unable to (?:resolve hostname to a|find address for)"
        ),
        prints="Gloo, rendezvous/context.cc and transport/tcp; PyTorch ProcessGroupGloo",
        means="A rank could not open Gloo's connection to its peers: an unusable interface or host name, a firewall, or a missing peer.",
        matches=(
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:61093: Connection refused",
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: eth0",
        ),
        rejects=(
            Reject("using backend gloo on localhost:29500", "a start line"),
            Reject("urllib3: connect [127.0.0.1]: Connection refused", "not Gloo"),
        ),
        specificity=2,
        fatal=True,
        outranks=("nccl-distributed/gloo-peer-lost",),
        fixes=(SET_INTERFACE, CHECK_NETWORK, START_ALL),
    ),
    # --- store and rendezvous -----------------------------------------------------------------------
    Signature(
        id="nccl-distributed/port-in-use",
        cls=CLS,
        role=Role.CAUSE,
        kind="port in use",
        cues=("EADDRINUSE", "ddress already in use", "errno: 98", "server socket has failed to", "Only one usage of each socket address"),
        pattern=(
            r"(?:[Ss]erver socket has failed to (?:listen|bind).{0,160}?(?:port: (?P<port>\d{1,5}).{0,100})?(?:EADDRINUSE|[Aa]ddress already in use))|"
            r"failed to bind to .{0,80}?:(?P<value>\d{1,5})\b.{0,80}[Aa]ddress already in use|"
            r"\bEADDRINUSE\b|[Aa]ddress already in use|Only one usage of each socket address"
        ),
        unless=r"(?i)tensorboard|\bwandb\b|jupyter|flask|uvicorn|prometheus|dashboard|metrics server|gradio|retrying|trying (?:another|next)|fall(?:ing)? ?back",
        prints="PyTorch, c10d socket.cpp / TCPStore; gRPC servers of JAX and TensorFlow; MPI daemons",
        means="The port of the rendezvous (master port) is already used on this host, so that the store could not start.",
        not_shown="Who uses it: another job, or a leftover of an earlier run.",
        matches=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29501, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).",
            "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "RuntimeError: Address already in use",
            "OSError: [Errno 98] Address already in use",
        ),
        rejects=(
            Reject("TensorBoard could not bind to port 6006, address already in use", "a side service"),
            Reject("[c10d] The client socket has failed to connect to [::]:29500 (errno: 99 - Cannot assign requested address)", "the client's side"),
            Reject("Ray dashboard: address already in use, trying another port", "a side service that picks another port"),
        ),
        specificity=3,
        fatal=True,
        outranks=(
            "nccl-distributed/store-connect-timeout",
            "nccl-distributed/clients-joined",
            "nccl-distributed/rendezvous-connection",
            "nccl-distributed/store-lost",
            "nccl-distributed/dist-backend-error",
        ),
        fixes=(FREE_PORT, STALE_PROCESS),
        references=("https://pytorch.org/docs/stable/elastic/run.html",),
    ),
    Signature(
        id="nccl-distributed/store-connect-timeout",
        cls=CLS,
        role=Role.CAUSE,
        kind="store can't be reached",
        cues=("client socket has timed out", "connect() timed out", "Timed out while trying to connect to", "DistNetworkError: Failed to connect", "client socket has failed to connect to any network address"),
        pattern=(
            r"client socket has timed out after (?P<timeout>\d{1,9})\s?(?:ms|s)\b.{0,20}while trying to connect to \(?(?P<host>[^,)\s]{1,100})(?:, (?P<port>\d{1,5}))?|"
            r"connect\(\) timed out\. Original timeout was (?P<seconds>\d{1,9})|client socket has failed to connect to any network address of \(?(?P<address>[^,)\s]{1,100})"
        ),
        prints="PyTorch, c10d socket.cpp (TCPStore client)",
        means="This process could not reach the store of rank 0 (or of the rendezvous) within its time limit.",
        not_shown="Whether rank 0 never started, died, listens elsewhere, or is behind a firewall.",
        matches=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.4, 29500).",
            "TimeoutError: The client socket has timed out after 60s while trying to connect to (node0, 29400).",
            "RuntimeError: connect() timed out. Original timeout was 1800000 ms.",
            "[c10d] The client socket has failed to connect to any network address of (head-0, 29500).",
        ),
        rejects=(
            Reject("[c10d] The client socket has failed to connect to [::ffff:10.0.0.4]:29500 (errno: 111 - Connection refused).", "one attempt of many"),
            Reject("psycopg2: connect() timed out", "a database"),
        ),
        specificity=2,
        fatal=True,
        outranks=("nccl-distributed/rendezvous-connection",),
        fixes=(CHECK_NETWORK, START_ALL, SET_INTERFACE),
    ),
    Signature(
        id="nccl-distributed/clients-joined",
        cls=CLS,
        role=Role.CAUSE,
        kind="not all ranks joined",
        cues=("waiting for clients", "clients joined"),
        pattern=r"Timed out after (?P<timeout>\d{1,9}) seconds waiting for clients\.? ?(?P<joined>\d{1,6})/(?P<expected>\d{1,6}) clients joined",
        prints="PyTorch, TCPStore (waitForWorkers)",
        means="Some ranks never joined the process group within the time limit.",
        not_shown="Which rank is missing, and why.",
        matches=(
            "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.",
            "RuntimeError: Timed out after 1801 seconds waiting for clients. 1/16 clients joined.",
        ),
        rejects=(
            Reject("TCPStore: 3/8 clients joined so far", "still waiting"),
            Reject("flower server: waiting for clients", "federated learning"),
        ),
        specificity=3,
        fatal=True,
        fixes=(START_ALL, CHECK_NETWORK),
    ),
    Signature(
        id="nccl-distributed/store-wait-timeout",
        cls=CLS,
        role=Role.CASCADE,
        kind="store wait time-out",
        cues=("wait timeout after", "Socket Timeout", "Timed out initializing process group in store based barrier", "store based barrier"),
        pattern=(
            r"wait timeout after (?P<timeout>\d{1,9})\s?ms, keys: (?P<key>\S{1,120})|(?:RuntimeError|DistStoreError|DistNetworkError): Socket Timeout|"
            r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d{1,6})"
        ),
        prints="PyTorch, TCPStore::doWait and distributed_c10d._store_based_barrier",
        means="A rank waited for a key that another rank should have set.",
        not_shown="Why the other rank did not.",
        matches=(
            "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: store_based_barrier_key:1 (world_size=8, worker_count=4, timeout=0:30:00)",
            "RuntimeError: Socket Timeout",
        ),
        rejects=(
            Reject("Waiting in store based barrier to initialize process group for rank: 1", "still waiting"),
            Reject("socket timeout is set to 30", "a setting"),
        ),
        fatal=True,
        fixes=(FIND_FIRST_RANK, START_ALL, RAISE_TIMEOUT),
    ),
    Signature(
        id="nccl-distributed/store-lost",
        cls=CLS,
        role=Role.CASCADE,
        kind="store lost",
        cues=("sendBytes failed on SocketImpl", "recvValueWithTimeout failed", "recvValue failed", "recvVector failed", "Connection was likely closed. Did the remote server shutdown or crash", "Failed to recv, got 0 bytes", "Failed to check the", "The node has no connection to the store", "Did the remote server shutdown or crash", "recvBytes failed on SocketImpl"),
        pattern=(
            r"(?:sendBytes|recvBytes|recvValue|recvVector|recvValueWithTimeout) failed on SocketImpl|Did the remote server shutdown or crash|Failed to recv, got 0 bytes|"
            r"Failed to check the .{0,40} flag on TCPStore"
        ),
        prints="PyTorch, c10d TCPStore and ProcessGroupNCCL's heartbeat thread",
        means="The process that holds the store (rank 0) is gone.",
        not_shown="Why it ended.",
        matches=(
            "[c10d] sendBytes failed on SocketImpl(fd=31, addr=[vm-1]:41022, remote=[vm-0]:29500): Broken pipe",
            "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
            "[PG ID 0 PG GUID 0 Rank 3] Failed to check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe",
        ),
        rejects=(
            Reject("BrokenPipeError: [Errno 32] Broken pipe", "any pipe"),
            Reject("server shutdown requested by user", "not the store"),
        ),
        specificity=1,
        fixes=(EXITS_FIRST,),
    ),
    Signature(
        id="nccl-distributed/rendezvous-timeout",
        cls=CLS,
        role=Role.CAUSE,
        kind="not all nodes joined",
        cues=("RendezvousTimeoutError", "Rendezvous timed out", "was not able to complete the rendezvous", "was not able to join the rendezvous"),
        pattern=r"\bRendezvousTimeoutError\b(?!\()|Rendezvous timed out|was not able to (?:join|complete) the rendezvous",
        unless=r"\braise |\bexcept ",
        prints="torchrun (torch.distributed.elastic, dynamic_rendezvous.py)",
        means="The number of nodes that was asked for did not join the rendezvous within its time limit.",
        not_shown="Which node is missing, and why.",
        matches=(
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            '    "message": "RendezvousTimeoutError: ",',
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: Timed out while joining",
        ),
        rejects=(
            Reject("    raise RendezvousTimeoutError()", "the code line of the stack; the exception line follows"),
            Reject("Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence", "TensorFlow's iterator"),
        ),
        specificity=3,
        fatal=True,
        fixes=(START_ALL, CHECK_NETWORK, RAISE_TIMEOUT),
    ),
    Signature(
        id="nccl-distributed/participants",
        cls=CLS,
        role=Role.CONFIRMATION,
        kind="not all nodes joined",
        cues=("participants: ", "worker_count=", "participants joined"),
        pattern=r"\bparticipants: (?P<joined>\d{1,6})/(?P<expected>\d{1,6})\b|world_size=(?P<want>\d{1,6}), worker_count=(?P<got>\d{1,6})|(?P<value>\d{1,6})/(?P<total>\d{1,6}) participants joined",
        unless=r"participants: (\d+)/\1\b",
        prints="launchers and watchers of the rendezvous; distributed_c10d",
        means="Fewer participants are there than were asked for.",
        matches=(
            "agent alive, participants: 1/4",
            "store_based_barrier_key:1 (world_size=8, worker_count=4, timeout=0:30:00)",
        ),
        rejects=(
            Reject("rendezvous complete, participants: 2/2", "all joined"),
            Reject("participants: 120 (study arm A)", "data"),
        ),
        specificity=1,
    ),
    Signature(
        id="nccl-distributed/rendezvous-connection",
        cls=CLS,
        role=Role.CAUSE,
        kind="rendezvous can't be reached",
        cues=("RendezvousConnectionError", "The connection to the C10d store has failed", "The connection to the etcd"),
        pattern=r"\bRendezvousConnectionError\b(?!\()|The connection to the (?:C10d store|etcd) has failed",
        unless=r"\braise |\bexcept ",
        prints="torchrun (c10d_rendezvous_backend.py, etcd_rendezvous_backend.py)",
        means="This node could not reach, or lost, the rendezvous endpoint.",
        not_shown="Whether the endpoint was wrong, not started, or went away after a failure elsewhere.",
        matches=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        ),
        rejects=(
            Reject("    raise RendezvousConnectionError(", "code line of the stack"),
            Reject("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "another type"),
        ),
        specificity=1,
        fatal=True,
        fixes=(CHECK_NETWORK, START_ALL, FIND_FIRST_RANK),
    ),
    Signature(
        id="nccl-distributed/rendezvous-closed",
        cls=CLS,
        role=Role.CASCADE,
        kind="rendezvous closed",
        cues=("RendezvousClosedError", "RendezvousGracefulExitError", "has failed to shutdown the rendezvous", "has failed to send a keep-alive heartbeat", "has failed to shut down the rendezvous", "RendezvousStateError"),
        pattern=r"\bRendezvous(?:Closed|GracefulExit|State)Error\b(?!\()|has failed to shut ?down the rendezvous|has failed to send a keep-alive heartbeat to the rendezvous",
        unless=r"\braise |\bexcept ",
        prints="torchrun (dynamic_rendezvous.py)",
        means="Another node closed the rendezvous, mostly because its workers failed.",
        not_shown="What failed there.",
        matches=(
            "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
            "The node 'gpu7_41_0' has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.",
            "The node 'gpu7_41_0' has failed to send a keep-alive heartbeat to the rendezvous '77' due to an error of type RendezvousConnectionError.",
        ),
        rejects=(
            Reject("    raise RendezvousClosedError()", "code line of the stack"),
            Reject("Rendezvous complete for workers.", "a start line"),
        ),
        specificity=1,
        fatal=True,
        fixes=(FIND_FIRST_RANK,),
    ),
    # --- mismatches ----------------------------------------------------------------------------------
    Signature(
        id="nccl-distributed/collective-mismatch",
        cls=CLS,
        role=Role.CAUSE,
        kind="collective mismatch",
        cues=("Detected mismatch between collectives on ranks", "CollectiveFingerPrint(", "Detected mismatch between"),
        pattern=(
            r"Detected mismatch between collectives on ranks(?:\. Rank (?P<rank>\d{1,6}) is running collective: CollectiveFingerPrint\("
            r"(?:SequenceNumber=(?P<seq>\d{1,12}), )?OpType=(?P<op>\w{1,40}))?"
        ),
        prints="PyTorch, ProcessGroupWrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
        means="The ranks called different collectives, or the same one with different shapes, at the same point.",
        matches=(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=55, OpType=ALLGATHER, TensorShape=[4]), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=55, OpType=ALLREDUCE).",
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running inconsistent collective: CollectiveFingerPrint(OpType=BARRIER",
        ),
        rejects=(
            Reject("Running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE) in wrapper", "a trace line without mismatch"),
            Reject("Detected mismatch between tokenizer and model vocabulary", "not a collective"),
        ),
        specificity=3,
        fatal=True,
        outranks=("nccl-distributed/watchdog-timeout", "nccl-distributed/heartbeat-monitor", "nccl-distributed/gloo-peer-lost"),
        fixes=(SAME_COLLECTIVES,),
    ),
    Signature(
        id="nccl-distributed/monitored-barrier",
        cls=CLS,
        role=Role.CASCADE,
        kind="rank missing at a barrier",
        cues=("monitoredBarrier", "failed to pass monitoredBarrier"),
        pattern=r"Ranks? (?P<missing>\d{1,6})[\d, ]{0,200} failed to pass monitoredBarrier|monitoredBarrier.{0,120}(?:timed out|timeout|Timed out)",
        prints="PyTorch, ProcessGroupGloo::monitoredBarrier",
        means="The named rank did not reach the barrier in time.",
        not_shown="Why that rank is late; its own log or stack says that.",
        matches=(
            "RuntimeError: Rank 1 failed to pass monitoredBarrier in 300000 ms",
            "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms.",
        ),
        rejects=(
            Reject("calling dist.monitored_barrier(timeout=60)", "a call"),
            Reject("monitoredBarrier passed on all ranks", "no failure"),
        ),
        specificity=3,
        fatal=True,
        fixes=(FIND_FIRST_RANK, SAME_COLLECTIVES),
    ),
    Signature(
        id="nccl-distributed/desync",
        cls=CLS,
        role=Role.CAUSE,
        kind="collective mismatch",
        cues=("desync", "Desync", "finish collective #", "finished collective #", "] are in ", "] joined "),
        pattern=(
            r"(?:Collective )?[Dd]esync(?:ed| detected| report)?\b.{0,80}(?:rank|collective)|\[\d[\d, ]{0,200}\] (?:joined but didn.t finish|finished) collective #(?P<seq>\d{1,12})|"
            r"ranks? \[?(?P<ranks>\d[\d, ]{0,80})\]? (?:joined|are in) .{0,60}but"
        ),
        unless=r"desync_debug ?[=:]|DESYNC_DEBUG|NCCL_DESYNC",
        prints="PyTorch, ProcessGroupNCCL with TORCH_NCCL_DESYNC_DEBUG (TraceUtils.h), flight recorder analysis",
        means="The ranks are at different collectives.",
        matches=(
            "- [0, 1] joined but didn't finish collective #14 (count from 1)",
            "[Rank 0] Collective desync detected: rank 3 is in collective #91, others in #92",
        ),
        rejects=(
            Reject("ProcessGroupNCCL initialization options: NCCL_DESYNC_DEBUG: 0, TIMEOUT(ms): 1800000", "a setting"),
            Reject("audio/video desync of 40 ms in clip 12", "media"),
        ),
        specificity=3,
        outranks=("nccl-distributed/watchdog-timeout",),
        fixes=(SAME_COLLECTIVES, FLIGHT_RECORDER),
    ),
    # --- gradient reduction --------------------------------------------------------------------------
    Signature(
        id="nccl-distributed/ddp-unused-parameters",
        cls=CLS,
        role=Role.CAUSE,
        kind="DDP: parameters without gradient",
        cues=("Expected to have finished reduction in the prior iteration",),
        pattern=r"Expected to have finished reduction in the prior iteration",
        prints="PyTorch, DistributedDataParallel reducer (reducer.cpp, ensure_prior_reduction_finished)",
        means="Some parameters took no part in the loss of the previous iteration, so that their gradients were never reduced.",
        not_shown="Which parameters; 'Parameter indices which did not receive grad' or TORCH_DISTRIBUTED_DEBUG names them.",
        matches=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
        ),
        rejects=(
            Reject("Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass.", "the opposite, and only a warning"),
            Reject("RuntimeError: Expected to mark a variable ready only once.", "another reducer error"),
        ),
        specificity=3,
        fatal=True,
        outranks=("nccl-distributed/gloo-peer-lost", "nccl-distributed/watchdog-timeout", "nccl-distributed/store-lost"),
        fixes=(UNUSED_PARAMETERS,),
        references=("https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    ),
    Signature(
        id="nccl-distributed/ddp-ready-twice",
        cls=CLS,
        role=Role.CAUSE,
        kind="DDP: gradient reduced twice",
        cues=("Expected to mark a variable ready only once", "has been marked as ready twice"),
        pattern=r"Expected to mark a variable ready only once|Parameter (?:at index (?P<index>\d{1,7}) )?(?:with name (?P<name>[\w.]{1,200}) )?has been marked as ready twice",
        prints="PyTorch, DistributedDataParallel reducer (reducer.cpp, mark_variable_ready)",
        means="A parameter's gradient came twice in one backward: re-entrant checkpointing, a module used twice, or several backward passes.",
        matches=(
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a module parameter outside the `forward` function.",
            "Parameter at index 198 with name lm_head.weight has been marked as ready twice.",
        ),
        rejects=(
            Reject("RuntimeError: Trying to backward through the graph a second time", "autograd, not the reducer"),
            Reject("RuntimeError: Expected to have finished reduction in the prior iteration", "another reducer error"),
        ),
        specificity=3,
        fatal=True,
        outranks=("nccl-distributed/gloo-peer-lost", "nccl-distributed/watchdog-timeout", "nccl-distributed/store-lost"),
        fixes=(
            Fix(
                action="Use non-re-entrant activation checkpointing (use_reentrant=False), or call _set_static_graph() when the graph never changes",
                change=Change.CONFIG,
                impact="each gradient is reduced once",
                validate="the first two iterations pass",
                gain=0.85,
                confidence=0.75,
            ),
            UNUSED_PARAMETERS,
        ),
    ),
    Signature(
        id="nccl-distributed/ddp-shape-verification",
        cls=CLS,
        role=Role.CAUSE,
        kind="DDP: models differ between ranks",
        cues=("appears not to match sizes of the same param", "appears not to match strides", "DDP expects same model across all ranks", "expects same model across all ranks"),
        pattern=r"appears not to match (?:sizes|strides) of the same param|expects same model across all ranks",
        prints="PyTorch, DistributedDataParallel constructor (reducer.cpp, verify_params_across_processes)",
        means="The ranks built models with different parameters.",
        matches=(
            "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 62 params, while rank 0 has inconsistent 60 params.",
            "RuntimeError: [1]: params[0] in this process with sizes [10, 8] appears not to match sizes of the same param in process 0.",
        ),
        rejects=(
            Reject("size mismatch for head.weight: copying a param with shape torch.Size([10, 8]) from checkpoint", "a checkpoint, not another rank"),
            Reject("all ranks have the same model", "no failure"),
        ),
        specificity=3,
        fatal=True,
        outranks=("nccl-distributed/gloo-peer-lost", "nccl-distributed/watchdog-timeout", "nccl-distributed/store-lost"),
        fixes=(
            Fix(
                action="Build the same model on every rank: same configuration, same vocabulary, no rank-dependent data in the constructor",
                change=Change.CODE,
                impact="the parameter lists agree",
                validate="the DDP constructor passes on all ranks",
                gain=0.95,
                confidence=0.85,
            ),
        ),
    ),
    Signature(
        id="nccl-distributed/sharded-module-misuse",
        cls=CLS,
        role=Role.CAUSE,
        kind="sharded training error",
        cues=("still have inflight params", "inflight params", "Expects all ranks to have", "FSDP expected", "Non-root FSDP instance", "has already been reduced"),
        pattern=(
            r"still have inflight params|The parameter \d{1,9} has already been reduced|parameter .{0,40}has already been reduced|"
            r"Non-root FSDP instance.s|FSDP expected .{0,80}across ranks|Expects all ranks to have .{0,60}(?:but|same)"
        ),
        prints="DeepSpeed (stage3, stage_1_and_2.py), PyTorch FSDP (_runtime_utils.py)",
        means="Gathering or reduction of sharded parameters went out of step: modules ran in another order, twice, or not on all ranks.",
        matches=(
            "RuntimeError: still have inflight params [{'id': 290, 'status': 'AVAILABLE', 'numel': 1024}]",
            "AssertionError: The parameter 447 has already been reduced. Gradient computed twice for this partition. Multiple gradient reduction is currently not supported",
        ),
        rejects=(
            Reject("RuntimeError: Expected to mark a variable ready only once.", "DDP, not ZeRO"),
            Reject("learning rate has already been reduced twice", "a schedule"),
        ),
        fatal=True,
        fixes=(
            SAME_COLLECTIVES,
            Fix(
                action="Turn off re-entrant activation checkpointing and run no forward pass of a part of the model outside the engine",
                change=Change.CODE,
                impact="parameters are gathered and released in one order",
                validate="100 steps pass on all ranks",
                gain=0.7,
                confidence=0.5,
            ),
        ),
    ),
    # --- JAX -----------------------------------------------------------------------------------------
    # client.h prints "Terminating process because the JAX distributed service detected fatal errors. This most
    # likely indicates that another task died" for every error of the service, a missing task included.
    Signature(
        id="nccl-distributed/jax-coordinator-timeout",
        cls=CLS,
        role=Role.CAUSE,
        kind="not all tasks joined",
        cues=("DEADLINE_EXCEEDED", "Barrier timed out", "Barrier timed out. Id"),
        pattern=(
            r"(?:JAX distributed service|[Cc]oordination [Ss]ervice|CoordinationService).{0,400}DEADLINE_EXCEEDED|DEADLINE_EXCEEDED: .{0,40}Barrier timed out|"
            r"Barrier timed out\. (?:Id|Barrier_id)|DEADLINE_EXCEEDED: .{0,60}(?:CoordinationService|RegisterTask|GetKeyValue\(\) timed out|waiting for .{0,40}task)"
        ),
        prints="JAX distributed runtime (XLA coordination service client)",
        means="The coordinator waited for tasks that did not come: fewer processes started than num_processes says, or one can't reach the coordinator.",
        not_shown="Which task is missing; the sentence 'another task died' stands there in every case.",
        matches=(
            "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded",
            "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task triggered the barrier too early or too slowly. Please look at the task logs (both timed out and first task) to debug further.",
            "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names: /job:jax_worker/replica:0/task:3",
        ),
        rejects=(
            Reject("Terminating process because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)", "a task that died or froze later"),
            Reject("google.api_core.exceptions.DeadlineExceeded: 504 Deadline Exceeded", "a cloud API"),
        ),
        specificity=2,
        fatal=True,
        outranks=("nccl-distributed/jax-coordination-error",),
        fixes=(START_ALL, CHECK_NETWORK),
        references=("https://docs.jax.dev/en/latest/multi_process.html",),
    ),
    Signature(
        id="nccl-distributed/jax-tasks-unhealthy",
        cls=CLS,
        role=Role.CASCADE,
        kind="task lost",
        cues=("tasks are unhealthy", "stopped sending heartbeats", "heartbeat timeout", "Task heartbeat timeout", "heartbeat timed out"),
        pattern=(
            r"following tasks are unhealthy \(stopped sending heartbeats\)|[Tt]ask (?P<key>/job:\S{1,120} )?(?:.{0,60})?heartbeat time(?:out|d out)|"
            r"UNAVAILABLE: .{0,120}stopped sending heartbeats"
        ),
        prints="XLA / TensorFlow coordination service",
        means="A task stopped answering: it died, froze, or lost its network.",
        not_shown="Which of these.",
        matches=(
            "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):",
            "UNAVAILABLE: Task /job:jax_worker/replica:0/task:1 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.",
        ),
        rejects=(
            Reject("DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0", "a task that never came"),
            Reject("heartbeat_timeout_seconds: 100", "a setting"),
        ),
        fatal=True,
        fixes=(FIND_FIRST_RANK, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/jax-coordination-error",
        cls=CLS,
        role=Role.CASCADE,
        kind="another task failed",
        cues=("JAX distributed service detected fatal errors", "coordination service", "Coordination service", "CoordinationServiceError", "another task died", "Polled an error from coordination service", "/job:jax_worker", "Terminating process because the coordinator ", "Terminating process because the JAX distribu", "Shutdown barrier has failed", "Shutdown barrier failed", "Agent is in an ERROR", "Agent is in ERROR"),
        pattern=(
            r"Terminating process because the (?:JAX distributed service|coordinator) detected (?:missing heartbeats|fatal errors)|most likely indicates that another task died|"
            r"[Pp]olled an error (?:for|from) (?:the )?coordination service|CoordinationServiceError|[Cc]oordination service (?:agent )?(?:is )?in (?:an )?ERROR|"
            r"Agent is in (?:an )?ERROR|Shutdown barrier (?:has )?failed"
        ),
        prints="XLA / TensorFlow coordination service agent",
        means="The coordination service told this task to stop because of an error in another one.",
        not_shown="The error itself, and that a task died at all.",
        matches=(
            "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.",
            "Polled an error from coordination service (this can be an error from this or another task).",
            "Terminating process because the coordinator detected missing heartbeats. This most likely indicates that another task died",
        ),
        rejects=(
            Reject("Starting JAX distributed service on [::]:12355", "a start line"),
            Reject("Coordination service is enabled.", "a start line"),
        ),
        specificity=1,
        fatal=True,
        fixes=(FIND_FIRST_RANK,),
    ),
    # --- MPI, Horovod, other libraries ---------------------------------------------------------------
    Signature(
        id="nccl-distributed/horovod-internal",
        cls=CLS,
        role=Role.CASCADE,
        kind="Horovod: peer lost",
        cues=("HorovodInternalError", "Horovod has been shut down", "hvd.elastic"),
        pattern=r"\bHorovodInternalError\b|Horovod has been shut down\.",
        prints="Horovod (common/operations.cc, exceptions.py)",
        means="A Horovod collective failed, mostly because another rank ended.",
        not_shown="Why the other rank ended.",
        matches=(
            "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.",
            "HorovodInternalError: ncclCommInitRank failed: unhandled system error",
        ),
        rejects=(
            Reject("from horovod.common.exceptions import HostsUpdatedInterrupt", "code"),
            Reject("Horovod initialised: rank 0 of 8", "a start line"),
        ),
        fatal=True,
        fixes=(FIND_FIRST_RANK, RESTART_FROM_CHECKPOINT),
    ),
    Signature(
        id="nccl-distributed/horovod-stalled",
        cls=CLS,
        role=Role.CONTEXT,
        kind="Horovod: ranks wait for each other",
        cues=("One or more tensors were submitted to be reduced", "Stalled ranks", "Missing ranks", "Stalled ops", "Missing ops: ", "Missing ops ", "Missing ops:", "Missing ops"),
        pattern=r"One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks|(?:Stalled|Missing) (?:ranks|ops):? ?(?P<ranks>[\d, ]{0,200})",
        prints="Horovod, stall_inspector.cc",
        means="Some ranks wait for a tensor that the others have not submitted yet.",
        not_shown="Whether they come later: the warning alone is no failure.",
        matches=(
            "W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
            "Stalled ranks: 1, 3",
            "Missing ranks:",
        ),
        rejects=(
            Reject("Missing rank column in data frame", "data"),
            Reject("horovodrun --stall-check-warning-time 60", "a setting"),
        ),
        specificity=1,
        fixes=(FIND_FIRST_RANK, SAME_COLLECTIVES),
    ),
    Signature(
        id="nccl-distributed/mpi-abort",
        cls=CLS,
        role=Role.CASCADE,
        kind="MPI job aborted",
        cues=("MPI_ABORT was invoked", "application called MPI_Abort", "exited on signal", "exiting improperly", "primary job  terminated normally", "Primary job  terminated normally", "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "Primary job terminated normally", "primary job terminated normally"),
        pattern=(
            r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6})|application called MPI_Abort\(|exiting improperly|[Pp]rimary job  ?terminated normally|"
            r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
        ),
        prints="mpirun (Open MPI orterun / prterun, MPICH hydra)",
        means="The launcher ends all ranks because one of them ended.",
        not_shown="Why that one ended.",
        matches=(
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
            "Primary job  terminated normally, but 1 process returned",
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
            "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 2",
        ),
        rejects=(
            Reject("mpirun -np 8 python train.py", "the command"),
            Reject("job terminated normally", "a success"),
        ),
        specificity=1,
        fixes=(FIND_FIRST_RANK,),
    ),
    Signature(
        id="nccl-distributed/mpi-transport",
        cls=CLS,
        role=Role.CAUSE,
        kind="MPI / UCX transport",
        cues=("UCX  ERROR", "UCX ERROR", "ORTE has lost communication", "ORTE was unable to", "PRTE has lost communication", "mca_btl_tcp", "btl_tcp_endpoint", "oneCCL: ", "|CCL_ERROR|", "CCL_ERROR", "Fatal error in PMPI_", "Fatal error in internal_", "PRTE was unable to reliably start", "PRTE was unable to launch"),
        pattern=(
            r"\bUCX +ERROR\b|\b[OP]RTE (?:has lost communication with|was unable to (?:reliably start|launch))|"
            r"btl_tcp_endpoint\S{0,40}\].{0,160}(?:failed|refused|unreachable)|\bCCL_ERROR\b|oneCCL: .{0,80}(?:EXCEPTION|error|failed)|Fatal error in (?:PMPI_|internal_)\w{1,40}"
        ),
        prints="UCX, Open MPI (orted, prted, btl/tcp), MPICH, oneCCL",
        means="The transport below MPI or oneCCL failed.",
        not_shown="Whether the peer died first.",
        matches=(
            "[1690000000.123456] [gpu3:4111 :0]    ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
            "ORTE has lost communication with a remote daemon.",
            "Fatal error in PMPI_Allreduce: Other MPI error, error stack:",
            "2026:01:02-03:04:05:(1234) |CCL_ERROR| atl_mpi.cpp:120 init: failed",
        ),
        rejects=(
            Reject("UCX  WARN  network device mlx5_0:1 is not available", "a warning"),
            Reject("oneCCL version 2021.9 initialized", "a start line"),
        ),
        fixes=(TEST_FABRIC, CHECK_NETWORK, EXITS_FIRST),
    ),
    Signature(
        id="nccl-distributed/nccl-p2p",
        cls=CLS,
        role=Role.CAUSE,
        kind="GPU peer-to-peer",
        cues=("peer access is not supported", "peer mapping resources exhausted", "P2P is disabled between", "could not enable P2P", "failed to open CUDA IPC", "failed to peer", "p2pMap"),
        pattern=r"peer access is not supported between|peer mapping resources exhausted|NCCL WARN .{0,80}(?:could not enable P2P|failed to (?:peer|open CUDA IPC)|p2pMap)",
        prints="CUDA and NCCL (transport/p2p.cc)",
        means="Direct access between two GPUs could not be set up.",
        matches=(
            "RuntimeError: CUDA error: peer mapping resources exhausted",
            "RuntimeError: CUDA error: peer access is not supported between these two devices",
            "NCCL WARN Cuda failure: failed to open CUDA IPC handle : 801",
        ),
        rejects=(
            Reject("NCCL INFO P2P is disabled between connected GPUs 0 and 1", "NCCL goes on through shared memory"),
            Reject("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "a healthy link"),
        ),
        fixes=(
            Fix(
                action="Switch GPU peer-to-peer off and see whether the run starts",
                change=Change.ENVIRONMENT,
                impact="traffic between the GPUs goes through host memory: slower, but independent of peer access",
                validate="the first all-reduce ends within seconds",
                gain=0.8,
                confidence=0.6,
                command="NCCL_P2P_DISABLE=1[[ {command}]]",
            ),
        ),
    ),
    Signature(
        id="nccl-distributed/broken-process-group",
        cls=CLS,
        role=Role.CAUSE,
        kind="process group misused",
        cues=("process group has not been initialized", "trying to initialize the default process group twice", "init_process_group twice", "is not part of group", "Global rank ", "Invalid process group", "initialize the default process group twice"),
        pattern=(
            r"[Dd]efault process group has not been initialized|initialize the default process group twice|Global rank (?P<rank>\d{1,6}) is not part of group|"
            r"Invalid process group specified"
        ),
        prints="PyTorch, distributed_c10d.py",
        means="A collective was called without, or with a wrong, process group.",
        not_shown="Whether the launcher or the script is at fault.",
        matches=(
            "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
            "ValueError: trying to initialize the default process group twice!",
            "ValueError: Global rank 5 is not part of group <torch.distributed.distributed_c10d.ProcessGroup object at 0x7f>",
        ),
        rejects=(
            Reject("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set", "a missing variable: a matter of configuration"),
            Reject("WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL", "a notice at exit"),
        ),
        fatal=True,
        fixes=(
            Fix(
                action="Call init_process_group once per process before any collective, and start the script with its launcher (torchrun, accelerate launch)",
                change=Change.CODE,
                impact="the collective finds its group",
                validate="all ranks pass the first collective",
                gain=0.9,
                confidence=0.75,
            ),
        ),
    ),
    Signature(
        id="nccl-distributed/world-size-mismatch",
        cls=CLS,
        role=Role.CAUSE,
        kind="launchers disagree",
        cues=("Rank ID must be unique", "world size mismatch", "the worker group world size", "rank >= world_size", "Invalid rank ", "inconsistent world size", "World size mismatch"),
        pattern=(
            r"Rank ID must be unique|[Ww]orld size mismatch|inconsistent world size|Invalid rank (?P<rank>\d{1,6}), rank should be in the interval"
        ),
        prints="PyTorch, Megatron and launchers, at start-up",
        means="The processes disagree on how many they are, or two have the same rank.",
        matches=(
            "ValueError: Invalid rank 8, rank should be in the interval [0, 7]",
            "RuntimeError: world size mismatch: expected 16, got 8",
        ),
        rejects=(
            Reject("world size (8) is not divisible by tensor parallel size (3)", "a setting that doesn't fit"),
            Reject("world_size: 8", "a setting"),
        ),
        specificity=2,
        fixes=(START_ALL,),
    ),
)
