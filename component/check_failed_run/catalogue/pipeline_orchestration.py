"""The pipeline's own machinery: images, specs, inputs, placement, time limits, and the wrappers around a failed task.

Most of what an orchestrator prints is a wrapper: it says *that* a task failed. Those lines are cascades.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "pipeline-orchestration"

PUSH_IMAGE = Fix(
    action="Push the image with that tag[[ ({image})]], or correct the name in the spec; pin by digest",
    change=Change.PIPELINE,
    impact="the container can start",
    validate="the manifest can be read by the node's account, and the pod leaves ContainerCreating",
    time_to_try="15 min",
    gain=0.95,
    confidence=0.8,
    command="docker manifest inspect [[{image}]]",
)
IMAGE_ACCESS = Fix(
    action="Give the node's or service agent's account read access to the registry (artifactregistry.reader, imagePullSecrets)",
    change=Change.PERMISSION,
    impact="the image can be pulled",
    validate="a pod with that image alone starts",
    time_to_try="15 min",
    gain=0.9,
    confidence=0.5,
)
FIX_ENTRYPOINT = Fix(
    action="Correct the command of the container, or build the image for the node's processor",
    change=Change.PIPELINE,
    impact="the program starts",
    validate="docker run with the same command starts on a machine of that kind",
    time_to_try="15 min",
    gain=0.9,
    confidence=0.8,
)
FIX_SPEC = Fix(
    action="Correct the spec at the place that the message names, and compile it again",
    change=Change.PIPELINE,
    impact="the pipeline is accepted",
    validate="compilation and a run with small inputs get past the task",
    time_to_try="15 min",
    gain=0.95,
    confidence=0.8,
)
CHECK_INPUT = Fix(
    action="See whether the input exists[[: {path}]], who writes it and when; start the run after it, or wait for it in a first task",
    change=Change.DIAGNOSE,
    impact="tells a late producer from a wrong path",
    validate="the listing shows the object",
    time_to_try="5 min",
    gain=0.5,
    confidence=0.85,
    command="gcloud storage ls -l [[{path}]]",
)
RERUN_INPUT = Fix(
    action="Produce the missing input, then run the pipeline again (cached tasks are skipped)",
    change=Change.RESTART,
    impact="the task finds its input",
    validate="the task gets past its reading step",
    time_to_try="30 min",
    gain=0.9,
    confidence=0.7,
)
RAISE_TIMEOUT = Fix(
    action="Raise the task's timeout[[ (now {value})]] to what the run needs (steps left times seconds a step, plus a margin)",
    change=Change.PIPELINE,
    impact="the task can finish",
    validate="steps left times the seconds a step of the next 200 steps fit into the new limit",
    time_to_try="10 min",
    gain=0.9,
    confidence=0.75,
)
RESUME = Fix(
    action="Resume from the newest checkpoint[[: {checkpoint}]] instead of starting over",
    change=Change.USE_CHECKPOINT,
    impact="keeps the work done until the stop",
    validate="the step count goes on from the checkpoint",
    time_to_try="10 min",
    gain=0.7,
    confidence=0.7,
)
WHO_CANCELLED = Fix(
    action="Look in the audit log for who or what cancelled it",
    change=Change.DIAGNOSE,
    impact="tells a person from a time limit or a cancelled parent",
    validate="the entry names the caller",
    time_to_try="5 min",
    gain=0.4,
    confidence=0.7,
    command="gcloud logging read 'logName:cloudaudit.googleapis.com AND protoPayload.methodName:Cancel' --freshness=8d --limit=20",
)
TASK_LOG = Fix(
    action="Read the log of the task or replica that failed[[ ({replica})]]; this line is only its exit",
    change=Change.FETCH,
    impact="shows the reason",
    validate="the log's last traceback or error is known",
    time_to_try="5 min",
    gain=0.4,
    confidence=0.9,
)
FREE_NODES = Fix(
    action="Ask for what the cluster has (GPU type, number, node selector, tolerations), or add nodes",
    change=Change.RESOURCES,
    impact="the pod can be placed",
    validate="the pod is Running within 10 minutes",
    time_to_try="20 min",
    gain=0.85,
    confidence=0.6,
    command="kubectl describe nodes | grep -A8 'Allocated resources'",
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="pipeline-orchestration/image-pull",
        cls=CLS,
        role=Role.CAUSE,
        kind="image can't be pulled",
        cues=(
            "ImagePullBackOff",
            "ErrImagePull",
            "Failed to pull image",
            "failed to pull and unpack",
            "manifest unknown",
            "pull access denied",
            "InvalidImageName",
            "ErrImageNeverPull",
            "repository does not exist",
            "manifest for ",
            "The image ",
            "failed to resolve reference",
            "CannotPullContainer",
        ),
        pattern=(
            r"Failed to pull image \\?\"(?P<image>[^\"\\]+)|\b(?:ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName"
            r"|CannotPullContainer\w*)\b|failed to pull and unpack image|manifest unknown"
            r"|pull access denied for (?P<image2>\S+)|manifest for (?P<image3>\S+) not found|The image (?P<image4>\S+) does not "
            r"exist|failed to resolve reference"
        ),
        prints="kubelet events, containerd, Docker, Vertex AI at creation",
        means="The container never started: its image does not exist under that name, or may not be pulled.",
        not_shown="Which of the two, where the message does not say 'not found' or 'denied'.",
        matches=(
            'Failed to pull image "eu-docker.pkg.dev/p/train/app:v7": rpc error: code = NotFound desc = failed to pull and '
            'unpack image "eu-docker.pkg.dev/p/train/app:v7": not found',
            "Error: ErrImagePull",
            "      Reason:       ImagePullBackOff",
            "docker: Error response from daemon: manifest for org/app:v7 not found: manifest unknown: manifest unknown.",
            "Failed to create pipeline job. Error: The image us-docker.pkg.dev/p/r/i:1 does not exist.",
            "Error response from daemon: pull access denied for org/app, repository does not exist or may require 'docker login'",
        ),
        rejects=(
            Reject('Pulling image "eu-docker.pkg.dev/p/train/app:v7"', "normal"),
            Reject("PIL.UnidentifiedImageError: cannot identify image file 'a.jpg'", "a sample"),
            Reject("The image has 4 channels", "a sample"),
        ),
        fixes=(PUSH_IMAGE, IMAGE_ACCESS),
        specificity=3,
        outranks=("nccl-distributed/", "stalled/"),
    ),
    Signature(
        id="pipeline-orchestration/container-start",
        cls=CLS,
        role=Role.CAUSE,
        kind="container can't start",
        cues=(
            "failed to create containerd task",
            "failed to create shim task",
            "OCI runtime create failed",
            "exec format error",
            "Exec format error",
            "RunContainerError",
            "CreateContainerError",
            "CreateContainerConfigError",
            "StartError",
            "executable file not found in", "no such file",
        ),
        pattern=(
            r"failed to create (?:containerd|shim) task|OCI runtime create failed|[Ee]xec format error|\b(?:RunContainerError"
            r"|CreateContainerError|CreateContainerConfigError|StartError)\b"
            r"|exec: \\?\"(?P<path>[^\"\\]+)\\?\": (?:stat .{0,80}no such file|executable file not found in)"
        ),
        unless=r"nvidia-container-cli|nvml error|driver",
        prints="containerd, runc, Docker, kubelet",
        means="The image is there, but its command can't be run: not found in it, not executable, or built for another processor.",
        matches=(
            "StartError: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            'failed: exec: "trainer": executable file not found in $PATH: unknown',
            "exec /usr/bin/python3: exec format error",
            "Error: CreateContainerConfigError",
        ),
        rejects=(
            Reject(
                "OCI runtime create failed: nvidia-container-cli: initialization error: nvml error: driver not loaded",
                "the driver: cuda-runtime",
            ),
            Reject("FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'", "the program looked for a tool"),
        ),
        fixes=(FIX_ENTRYPOINT, PUSH_IMAGE),
        specificity=3,
        outranks=("nccl-distributed/",),
    ),
    Signature(
        id="pipeline-orchestration/spec-invalid",
        cls=CLS,
        role=Role.CAUSE,
        kind="invalid spec or missing parameter",
        cues=(
            "nvalid pipeline spec",
            "nvalid PipelineSpec",
            "Missing required pipeline parameter",
            "InconsistentTypeException",
            "kfp.dsl.types",
            "nvalid pipeline job",
            "runtime parameters",
            "The pipeline parameter",
            "not found in the pipeline job input definitions",
            "ailed to compile pipeline",
            "strict decoding error",
            "admission webhook",
            "ailed to resolve inputs",
            "missing a required argument",
            "{{$.inputs",
            "nvalid value for runtime parameter",
        ),
        pattern=(
            r"[Ii]nvalid (?:pipeline spec|PipelineSpec|pipeline job)\b|Missing required pipeline parameter:? ?(?P<key>\S*)"
            r"|InconsistentTypeException|[Ff]ailed to compile pipeline"
            r"|pipeline parameter (?P<key2>\S+) is not found in the pipeline job input definitions|strict decoding error"
            r"|admission webhook .{0,160}denied the request|[Ff]ailed to resolve inputs"
            r"|(?:Error|No such file|not found|[Ii]nvalid|literal|convert).{0,200}\{\{\$\.inputs\.|[Ii]nvalid value for runtime parameter"
        ),
        prints="kfp compiler, google-cloud-aiplatform PipelineJob, the KFP driver, Kubernetes admission",
        means="The pipeline or job spec was refused, or a parameter or input is missing or was not filled in.",
        matches=(
            "ValueError: The pipeline parameter lr is not found in the pipeline job input definitions.",
            "kfp.dsl.types.type_utils.InconsistentTypeException: Incompatible argument passed to the input 'epochs' of component 'train'",
            "google.api_core.exceptions.InvalidArgument: 400 Invalid pipeline spec: task train has no component",
            "FileNotFoundError: [Errno 2] No such file or directory: \"{{$.inputs.artifacts['data'].path}}\"",
            'error: error validating data: strict decoding error: unknown field "spec.replicaSpec"',
            "failed to resolve inputs: parameter output-url not found in task load",
        ),
        rejects=(
            Reject("command: [--data, {{$.inputs.artifacts['data'].path}}]", "a spec that is printed before it is filled in"),
            Reject("TypeError: train() missing a required argument: 'lr'", "the program's own function"),
        ),
        fixes=(FIX_SPEC,),
        specificity=3,
    ),
    Signature(
        id="pipeline-orchestration/input-missing",
        cls=CLS,
        role=Role.CAUSE,
        kind="input object or artifact missing",
        cues=(
            "No such object: ",
            "matched no objects",
            "404 GET https://storage",
            "NoSuchKey",
            "BlobNotFound",
            "The specified key does not exist",
            "HeadObject operation: Not Found",
            "NoSuchBucket",
            "The specified bucket does not exist",
            "No such file or directory: /gcs/",
            "/gcs/",
            "No URLs matched", "exceptions.NotFound: 404 POST https://storag", "An error occurred (404", "FileNotFoundError",
        ),
        pattern=(
            r"No such object: (?P<path>\S+)|(?<!\S)(?P<path2>\S{1,400}) matched no objects|exceptions\.NotFound: 404 (?:GET|POST) "
            r"https://storage\.googleapis\.com/\S+|An error occurred \((?:NoSuchKey|404|NoSuchBucket)\)"
            r"|\bBlobNotFound\b|The specified (?:key|bucket) does not exist|FileNotFoundError: .{0,120}?(?P<path3>/gcs/[^\s'\":]+)"
            r"|No URLs matched: (?P<path4>\S+)|FileNotFoundError: .{0,40}(?P<path5>gs://[^\s'\"]+)"
        ),
        unless=r"(?i)checkpoint|\bckpt|\.metadata\b",
        prints="google-cloud-storage, gcsfs, gcloud storage, boto3, azure-storage; open() on the /gcs mount",
        means="An object that the task reads does not exist: not written yet, or another path.",
        not_shown="Which task or schedule should have written it.",
        matches=(
            "google.api_core.exceptions.NotFound: 404 GET "
            "https://storage.googleapis.com/storage/v1/b/exports/o/day%2F_SUCCESS?projection=noAcl: No such object: "
            "exports/day/_SUCCESS",
            "ERROR: (gcloud.storage.cp) The following URLs matched no objects or files: gs://b/x gs://b/x matched no objects",
            "FileNotFoundError: nothing under /gcs/exports/clicks/dt=2026-01-01",
            "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation: The specified "
            "key does not exist.",
        ),
        rejects=(
            Reject("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "a local path: config-error"),
            Reject("writing 400 objects to /gcs/exports/clicks", "no failure"),
            Reject(
                "404 GET https://storage.googleapis.com/b/run/o/checkpoint-5: No such object: run/checkpoint-5",
                "a checkpoint, not an input",
            ),
        ),
        fixes=(CHECK_INPUT, RERUN_INPUT),
        specificity=2,
        fatal=True,
        outranks=("exception/", "pipeline-orchestration/replica-exited"),
    ),
    Signature(
        id="pipeline-orchestration/timeout",
        cls=CLS,
        role=Role.CAUSE,
        kind="time limit of a task",
        cues=(
            "longer than its timeout",
            "exceeded its deadline",
            "longer than specified deadline",
            "DeadlineExceeded",
            "AirflowTaskTimeout",
            "exceeded its timeout",
            "failed to finish within",
            "TaskRunTimeout",
            "PipelineRunTimeout",
            "MaxRuntimeExceeded",
            "MaxWaitTimeExceeded",
            "build step exceeded",
            "TIMEOUT", "active on the node longer than the specified", "active longer than the specified deadline",
        ),
        pattern=(
            r"ran for longer than its timeout(?: of (?P<value>\w+))?|\b(?:[Ss]tep|[Pp]od|[Tt]ask|[Jj]ob|[Ww]orkflow"
            r"|[Nn]ode)\b.{0,80}exceeded its (?:deadline|timeout)|active (?:on the node )?longer than (?:the )?specified deadline"
            r"|(?:[Rr]eason:?|Warning)\s+DeadlineExceeded|AirflowTaskTimeout|failed to finish within \\?\"?(?P<value2>\w+)"
            r"|\b(?:TaskRun|PipelineRun)Timeout\b|Max(?:Runtime|WaitTime)Exceeded|^\s*TIMEOUT\s*$"
        ),
        unless=r"(?i)barrier|collective|rendezvous|coordination|nccl|grpc",
        prints="Vertex AI, Kubernetes jobs, Argo, Tekton, Airflow, SageMaker, Cloud Build",
        means="The task ran into its time limit and was stopped; that alone is no fault of its program.",
        not_shown="Whether it was making progress until then.",
        matches=(
            "CANCELED: the job ran for longer than its timeout of 14400s.",
            "Step exceeded its deadline",
            "Job was active longer than specified deadline",
            "  Warning  DeadlineExceeded  2m  job-controller  Job was active longer than specified deadline",
            'TaskRun "train" failed to finish within "1h0m0s"',
            "airflow.exceptions.AirflowTaskTimeout: Timeout, PID: 81",
        ),
        rejects=(
            Reject("DEADLINE_EXCEEDED: Barrier timed out. Id: init", "a coordination time-out: nccl-distributed"),
            Reject("timeout: 14400s", "a setting"),
            Reject(
                "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "the scheduler: process-crash"
            ),
        ),
        fixes=(RAISE_TIMEOUT, RESUME),
        specificity=3,
        outranks=("process-crash/", "pipeline-orchestration/cancelled", "pipeline-orchestration/gcpc-launcher"),
    ),
    Signature(
        id="pipeline-orchestration/cancelled",
        cls=CLS,
        role=Role.CAUSE,
        kind="cancelled",
        cues=("CANCELED", "CANCELLED", "Job cancelled.", "was cancelled by", "was canceled by", "Operation was cancelled"),
        pattern=(
            r"^\s*\"?CANCELL?ED\"?\.?\s*$|\bJob cancelled\.|(?:PIPELINE|JOB)_STATE_CANCELLED|\b(?:[Rr]un|[Jj]ob|[Tt]ask"
            r"|[Pp]ipeline|[Bb]uild) .{0,80}was cancell?ed by (?P<principal>\S+)"
        ),
        unless=r"DUE TO|slurm|STEP|\bON \S+ CANCELLED",
        prints="Vertex AI, Cloud Build, Airflow",
        means="The job was cancelled: by a person, a time limit, or with its parent.",
        not_shown="By whom: the audit log tells.",
        matches=("CANCELED", "Job cancelled.", "state: JOB_STATE_CANCELLED", "pipeline run 12 was cancelled by ana@example.com"),
        rejects=(
            Reject("*** STEP 4.0 ON n1 CANCELLED AT 2026-01-01 ***", "Slurm"),
            Reject("asyncio.exceptions.CancelledError", "a coroutine"),
        ),
        fixes=(WHO_CANCELLED, RAISE_TIMEOUT, RESUME),
        specificity=1,
    ),
    Signature(
        id="pipeline-orchestration/unschedulable",
        cls=CLS,
        role=Role.CAUSE,
        kind="pod can't be placed",
        cues=(
            "FailedScheduling",
            "nodes are available:",
            "Unschedulable",
            "FailedMount",
            "FailedAttachVolume",
            "persistentvolumeclaim",
            "MountVolume.SetUp failed",
        ),
        pattern=(
            r"FailedScheduling|0/\d+ nodes are available: (?P<value>.{1,200})|\bUnschedulable\b|FailedMount\b|FailedAttachVolume"
            r"|MountVolume\.SetUp failed|persistentvolumeclaim \\?\"(?P<key>[^\"\\]+)\\?\" not found"
        ),
        prints="Kubernetes scheduler and kubelet events",
        means="The pod could not be placed on a node, or a volume could not be mounted, so the container did not start.",
        not_shown="Whether it was placed later: a pending pod that starts is no failure.",
        matches=(
            "Warning  FailedScheduling  3m  default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.",
            'MountVolume.SetUp failed for volume "secrets" : secret "gcs-key" not found',
            'persistentvolumeclaim "train-data" not found',
        ),
        rejects=(
            Reject("Normal  Scheduled  3m  default-scheduler  Successfully assigned ml/train-0 to node-4", "placed"),
            Reject("3 nodes are available for training", "not the scheduler"),
        ),
        fixes=(FREE_NODES, FIX_SPEC),
        specificity=2,
        outranks=("nccl-distributed/rendezvous-timeout",),
    ),
    Signature(
        id="pipeline-orchestration/internal",
        cls=CLS,
        role=Role.CAUSE,
        kind="internal error of the service",
        cues=("Internal error occurred for the current attempt", "Internal error happened", "Internal error encountered", "INTERNAL_ERROR"),
        pattern=r"Internal error (?:occurred for the current attempt|happened|encountered)|^\s*INTERNAL_ERROR\s*$",
        prints="Vertex AI (code 13), Cloud Build",
        means="The service failed, after attempts of its own; with a peered network often a missing address range.",
        matches=("Internal error occurred for the current attempt.", "Internal error encountered."),
        rejects=(Reject("RuntimeError: CUDA error: internal error", "the device"), Reject("NCCL INFO no internal error", "NCCL")),
        fixes=(
            Fix(
                action="Run the task again; if it fails the same way, ask the provider's support with the job's id",
                change=Change.RESTART,
                impact="passing faults go away",
                validate="the task starts and logs its first steps",
                gain=0.5,
                confidence=0.5,
            ),
        ),
        specificity=1,
    ),
    # ---- wrappers: they say that something failed, not why ------------------------------------------
    Signature(
        id="pipeline-orchestration/dag-failed",
        cls=CLS,
        role=Role.CASCADE,
        kind="wrapper of failed tasks",
        cues=("some tasks failed", "due to the above error", "Failed to handle the job", "Failed to handle the pipeline task"),
        pattern=(
            r"The DAG failed because some tasks failed\.(?: The failed tasks are: \[(?P<tasks>[^\]]*)\])?|is failed due to the "
            r"above error|Failed to handle the (?:job|pipeline task)"
        ),
        unless=r"exceed quota limits|PERMISSION_DENIED|permission",
        prints="Vertex AI Pipelines, on the job, on groups and in the exit task's status (code 9)",
        means="Direct children of this job or group failed.",
        not_shown="Why: see the tasks that are named; groups among them are wrappers too.",
        matches=(
            "The DAG failed because some tasks failed. The failed tasks are: [train, evaluate].",
            "Job (project_id = p, job_id = 12) is failed due to the above error.; Failed to handle the job: {project_number = 1, "
            "job_id = 12}",
        ),
        rejects=(
            Reject("some tasks failed to report metrics, ignored", "not the service's message"),
            Reject("all tasks succeeded", "no failure"),
        ),
        fixes=(TASK_LOG,),
        specificity=1,
    ),
    Signature(
        id="pipeline-orchestration/replica-exited",
        cls=CLS,
        role=Role.CASCADE,
        kind="wrapper of a container's exit",
        cues=("exited with a non-zero status", "Container exited with a non-zero", "container exited with a non-zero"),
        pattern=r"[Tt]he replica (?P<replica>[\w-]+) exited with a non-zero status of (?P<code>-?\d+)|[Cc]ontainer exited with a non-zero",
        prints="Vertex AI, on the CustomJob, its task and in the log",
        means="The container of this replica ended with that exit code; the first one seen is named.",
        not_shown="Why: its log tells; without any log, the job's account may lack logging.logWriter.",
        matches=(
            "The replica workerpool0-0 exited with a non-zero status of 1. Termination reason: Error.",
            "The replica workerpool1-3 exited with a non-zero status of 137.",
        ),
        rejects=(
            Reject("process exited with status 0", "a good end"),
            Reject("Replicas low on memory: workerpool0.", "names the reason: oom"),
        ),
        fixes=(TASK_LOG,),
        specificity=1,
    ),
    Signature(
        id="pipeline-orchestration/gcpc-launcher",
        cls=CLS,
        role=Role.CASCADE,
        kind="wrapper of a child job",
        cues=("Job failed with value error in error state", "Job failed with error state"),
        pattern=r"Job failed with (?:value error in )?error state: (?P<code>\d+)",
        prints="google-cloud-pipeline-components launchers (job_remote_runner.py); 5 is JOB_STATE_FAILED, 7 CANCELLED",
        means="The child job that the launcher started ended in that state.",
        not_shown="Why: the child's own error and log tell (gcp_resources names it).",
        matches=("ValueError: Job failed with value error in error state: 5.", "RuntimeError: Job failed with error state: 7."),
        rejects=(
            Reject("is in a non-final state 3. Waiting for 20 seconds for next poll.", "it still runs"),
            Reject("Job failed.", "no state"),
        ),
        fixes=(TASK_LOG,),
        specificity=1,
    ),
    Signature(
        id="pipeline-orchestration/operator",
        cls=CLS,
        role=Role.CASCADE,
        kind="wrapper of a failed pod, step or build",
        cues=(
            "BackoffLimitExceeded",
            "backoff limit",
            "CrashLoopBackOff",
            "back-off restarting failed container",
            "Back-off restarting failed container",
            "ERROR: build step",
            "Main: Error (exit code",
            "Error (exit code",
            "Bash command failed",
            "Task failed with exceptionPyTorchJobFailed",
            "because it has failed", "is failed because", "is failing because", "PyTorchJobFailed",
        ),
        pattern=(
            r"BackoffLimitExceeded|has reached the specified backoff limit|CrashLoopBackOff|[Bb]ack-off restarting failed "
            r"container|ERROR: build step \d+ .{0,200}failed|\bError \(exit code (?P<code>\d+)\)"
            r"|AirflowException: Bash command failed|PyTorchJob(?:Failed| \S+ is failed because)|Job \S+ is (?:failed|failing) because"
        ),
        prints="Kubernetes jobs and kubelet, Cloud Build, Argo, Airflow, Kubeflow training operator",
        means="A container or step below ended with an error, and the orchestrator gave up on it.",
        not_shown="Why: its own log tells.",
        matches=(
            "Job has reached the specified backoff limit",
            "Warning  BackOff  1m  kubelet  Back-off restarting failed container",
            'ERROR: build step 2 "gcr.io/p/train" failed: step exited with non-zero status: 1',
            "main: Error (exit code 1)",
        ),
        rejects=(Reject('Normal  BackOff  2m  kubelet  Back-off pulling image "a:b"', "the image"), Reject("backoffLimit: 3", "a setting")),
        fixes=(TASK_LOG,),
        specificity=1,
    ),
)
