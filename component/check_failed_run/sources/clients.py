"""Google Cloud clients for one job: made late, counted, bounded in time, and unable to raise anything but a Fault.

Each client gets its project from the job's name, since the default project inside a Vertex AI task is Google's
tenant project. ``AIPLATFORM_EMULATOR_HOST``, ``LOGGING_EMULATOR_HOST`` and ``STORAGE_EMULATOR_HOST`` (host:port)
send a client to a local server, over a plain channel and without credentials.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from check_failed_run.record import MissingEvidence, RunRecord

DEFAULT_REGION = "us-central1"
DEADLINE = 600.0  # seconds for all calls together
CALL_TIMEOUT = 20.0  # seconds of one call, at most a quarter of what is left
READS_PER_MINUTE = 55  # Cloud Logging allows 60 entries.list calls a minute and project
RETRIES = {429: 5, 500: 3, 503: 3, 504: 2, 0: 2}  # tries by HTTP status; 0 is a broken connection

# API name: (permission, role, what the report lacks without it)
ROLES: dict[str, tuple[str, str, str]] = {
    "pipelineJobs.get": ("aiplatform.pipelineJobs.get", "roles/aiplatform.viewer", "the pipeline's tasks, their states and errors"),
    "pipelineJobs.list": ("aiplatform.pipelineJobs.list", "roles/aiplatform.viewer", "finding a job by its display name"),
    "customJobs.get": ("aiplatform.customJobs.get", "roles/aiplatform.viewer", "the job behind a task: its error, machine, time limit and restarts"),
    "batchPredictionJobs.get": ("aiplatform.batchPredictionJobs.get", "roles/aiplatform.viewer", "the batch prediction job behind a task"),
    "hyperparameterTuningJobs.get": ("aiplatform.hyperparameterTuningJobs.get", "roles/aiplatform.viewer", "the tuning job behind a task"),
    "trainingPipelines.get": ("aiplatform.trainingPipelines.get", "roles/aiplatform.viewer", "the AutoML job behind a task"),
    "logEntries.list": ("logging.logEntries.list", "roles/logging.viewer", "the tasks' logs"),
    "runs.get": ("runs.get", "kubeflow-pipelines-view", "the run's tasks, their states and errors"),
    "pods.list": ("pods.list", "view", "which pod ran which task"),
    "pods.log": ("pods/log.get", "view", "the tasks' logs"),
    "objects.list": ("storage.objects.list", "roles/storage.objectViewer", "the run's files and checkpoints in Cloud Storage"),
    "objects.get": ("storage.objects.get", "roles/storage.objectViewer", "the run's files in Cloud Storage"),
}
ACCOUNT = re.compile(r"[\w.+-]{1,120}@[\w.-]{1,120}")  # an account that may stand in a command
_CONSENT = "--condition=None"
_TENANT_PROJECT = re.compile(r"^[a-z0-9]+-tp$")
_CONNECTION = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Timeout", "ChunkedEncodingError", "TransportError", "RetryError", "_InactiveRpcError", "IncompleteRead", "ProtocolError", "ConnectionResetError", "MaxRetryError", "NewConnectionError", "ConfigException")


def now() -> float:
    """The moment of looking: the one place where cloud runs read the wall clock. Seconds since the epoch."""
    return time.time()


class Fault(Exception):
    """A call that did not succeed. ``status`` is an HTTP status; 0 stands for a broken connection, 504 for no answer."""

    def __init__(self, api: str, status: int, message: str, resource: str = ""):
        super().__init__(message)
        self.api, self.status, self.message, self.resource = api, status, message, resource

    def reason(self) -> str:
        words = {
            0: "the connection broke",
            401: "no valid credentials",
            403: "access was refused (403)",
            404: "not found (404)",
            429: "the quota of requests is used up (429)",
            500: "the service failed (500)",
            503: "the service is unavailable (503)",
            504: "no answer in time",
        }
        detail = re.sub(r"^(?:GET|POST|PUT) \S+: ", "", " ".join(self.message.split()))[:300]
        return f"{self.api}: {words.get(self.status, f'error {self.status}')}" + (f": {detail}" if detail else "")


class Clients:
    """The clients that one job needs, made on first use.

    Args:
        project: project id or number that owns the job.
        region: location of the job.
        deadline: seconds until no further call is made.
        sleep: how to wait between tries.
    """

    def __init__(self, project: str, region: str, deadline: float = DEADLINE, sleep: Callable[[float], None] = time.sleep):
        self.project, self.region = project, region
        self.calls: Counter[str] = Counter()
        self.principal: str | None = None  # whose permissions a gap's command grants
        self.deadline = deadline
        self._ends = time.monotonic() + deadline
        self._sleep = sleep
        self._made: dict[str, Any] = {}
        self._dead: dict[str, Fault] = {}  # APIs that will not answer, with the fault that showed it
        self._reads: deque[float] = deque()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._ends - time.monotonic()

    def renew(self, deadline: float) -> None:
        """A new deadline, and another chance for services that failed: for the next look at a running job."""
        self._ends = time.monotonic() + deadline
        self._dead.clear()

    # --- calls

    def call(self, api: str, function: Callable[[float], Any], *, resource: str = "", service: str | None = None) -> Any:
        """``function(timeout)``, tried again where that may help.

        Args:
            api: a key of :data:`ROLES`.
            function: makes the call with the given timeout in seconds.
            resource: what is asked for; a 404 concerns it alone, other faults the whole service.
            service: calls that share a fate; ``api`` when absent.

        Raises:
            Fault: it did not succeed, or an earlier call of the service already failed for good.
        """
        service = service or api
        if service in self._dead:
            known = self._dead[service]
            raise Fault(api, known.status, known.message, resource)
        tried = 0
        while True:
            if self.left <= 0.2:
                raise Fault(api, 504, "the deadline of the diagnosis passed", resource)
            self._pace(api)
            self.calls[api] += 1
            tried += 1
            try:
                return function(max(0.2, min(CALL_TIMEOUT, self.left / 4)))
            except Exception as error:
                fault = classify(error, api, resource)
                if fault.api != api:
                    fault = Fault(api, fault.status, fault.message, resource)
                last = tried >= RETRIES.get(fault.status, 1)
                wait = min(16.0, (1.0 if fault.status == 429 else 0.4) * 2 ** (tried - 1))
                if last or wait >= self.left / 2:
                    if fault.status not in (400, 404) and not (service.startswith("objects") and fault.status == 403):
                        self._dead[service] = fault
                    raise fault from None
                self._sleep(wait)

    def _pace(self, api: str) -> None:
        if api != "logEntries.list":
            return
        moment = time.monotonic()
        while self._reads and moment - self._reads[0] > 60:
            self._reads.popleft()
        if len(self._reads) >= READS_PER_MINUTE:
            wait = 60.5 - (moment - self._reads[0])
            if wait > self.left:
                raise Fault(api, 429, "the read quota of a minute is used up and the deadline is near")
            self._sleep(wait)
        self._reads.append(time.monotonic())

    def gap(self, fault: Fault, record: RunRecord, what: str | None = None, *, bucket: str | None = None) -> None:
        """Note in ``record`` what the fault keeps from the report, and the command that mends it. Once a cause."""
        permission, role, lacking = ROLES.get(fault.api, (fault.api, "roles/viewer", "an answer of this API"))
        named = re.search(r"[Pp]ermission '?([a-z]+\.\w+\.\w+)'? denied", fault.message)
        permission = named[1] if named else permission
        why = fault.reason() + (f"; needs {permission} ({role})" if fault.status == 403 else "")
        gap = MissingEvidence(what or lacking, why, self._mend(fault, role, bucket))
        if not any(other.what == gap.what and (other.how == gap.how or fault.status != 404) and other.why.startswith(f"{fault.api}:") for other in record.missing):
            record.missing.append(gap)

    def _mend(self, fault: Fault, role: str, bucket: str | None) -> str:
        if fault.api in ("runs.get", "pods.list", "pods.log"):
            return self._mend_kubernetes(fault, role)
        if (fault.status == 403 and "has not been used in project" in fault.message) or "SERVICE_DISABLED" in fault.message:
            service = "logging.googleapis.com" if fault.api.startswith("log") else "storage.googleapis.com" if fault.api.startswith("obj") else "aiplatform.googleapis.com"
            return f"gcloud services enable {service} --project={self.project}"
        if fault.status == 403:
            member = f"--member={self._member()} --role={role}"
            if bucket:
                return f"gcloud storage buckets add-iam-policy-binding gs://{bucket} {member}"
            return f"gcloud projects add-iam-policy-binding {self.project} {member} {_CONSENT}"
        if fault.status == 401:
            return "gcloud auth application-default login"
        if fault.status == 404 and fault.resource.startswith("gs://"):
            return f"gcloud storage ls -l {shlex.quote(fault.resource)}"
        if fault.status == 404 and "/customJobs/" in fault.resource:
            return f"gcloud ai custom-jobs list --region={self.region} --project={self.project}"
        if fault.status == 404 and not fault.api.startswith("log"):
            return f"gcloud ai pipeline-jobs list --region={self.region} --project={self.project}"
        if fault.api.startswith("log"):
            return f"gcloud logging read 'resource.type=\"ml_job\"' --project={self.project} --freshness=1d --limit=100"
        if fault.api.startswith("obj") and bucket:
            return f"gcloud storage ls gs://{bucket}"
        return f"check-failed-run --vertex-pipeline {shlex.quote(fault.resource or 'JOB')} --project {self.project} --region {self.region}"

    def _mend_kubernetes(self, fault: Fault, role: str) -> str:
        space = shlex.quote(self.project)
        if fault.status == 403:
            return f"kubectl create rolebinding check-failed-run-{role} --clusterrole={role} --serviceaccount={space}:ACCOUNT -n {space}"
        if fault.api == "runs.get":
            return f"kubectl -n {space} get workflow -l pipeline/runid={shlex.quote(fault.resource)} -o yaml > workflow.yaml"
        return f"kubectl -n {space} logs {shlex.quote(fault.resource or 'POD')} -c main > task.log; check-failed-run task.log"

    def _member(self) -> str:
        who = self.principal
        if who is None or not ACCOUNT.fullmatch(who):
            return 'user:"$(gcloud config get-value account)"'
        return f"serviceAccount:{who}" if who.endswith("gserviceaccount.com") else f"user:{who}"

    # --- the clients themselves

    def _client(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its notes about connections are no part of a report
            # The storage client asks for a bucket's metadata before the first real call, for traces that nobody records here.
            os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
            self._made[name] = make()
        return self._made[name]

    def _credentials(self) -> Any:
        """The credentials, looked for once: a search without success takes seconds."""
        found = self._made.get("credentials")
        if found is None:
            try:
                found = credentials()
            except Exception as error:
                found = classify(error, "credentials")
            self._made["credentials"] = found
        if isinstance(found, Fault):
            raise found
        return found

    @property
    def pipelines(self) -> Any:
        from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient

        return self._client("pipelines", lambda: self._aiplatform(PipelineServiceClient))

    @property
    def jobs(self) -> Any:
        from google.cloud.aiplatform_v1.services.job_service import JobServiceClient

        return self._client("jobs", lambda: self._aiplatform(JobServiceClient))

    def _aiplatform(self, client: Any) -> Any:
        host = os.environ.get("AIPLATFORM_EMULATOR_HOST")
        if host:
            return client(transport=client.get_transport_class("grpc")(channel=_plain_channel(host)))
        return client(credentials=self._credentials(), client_options={"api_endpoint": f"{self.region}-aiplatform.googleapis.com"})

    @property
    def logging(self) -> Any:
        from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client

        def make() -> Any:
            host = os.environ.get("LOGGING_EMULATOR_HOST")
            if host:
                return LoggingServiceV2Client(transport=LoggingServiceV2Client.get_transport_class("grpc")(channel=_plain_channel(host)))
            return LoggingServiceV2Client(credentials=self._credentials())

        return self._client("logging", make)

    @property
    def storage(self) -> Any:
        from google.cloud import storage

        def make() -> Any:
            host = os.environ.get("STORAGE_EMULATOR_HOST")
            if host:
                from google.auth.credentials import AnonymousCredentials

                endpoint = host if "://" in host else f"http://{host}"
                return storage.Client(project=self.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})
            return storage.Client(project=self.project, credentials=self._credentials())

        return self._client("storage", make)


def _plain_channel(host: str) -> Any:
    import grpc

    return grpc.insecure_channel(host.removeprefix("http://"), options=[("grpc.max_receive_message_length", -1)])


def credentials() -> Any:
    """Application default credentials with the cloud-platform scope; whatever project they name is ignored."""
    import google.auth

    return google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])[0]


def classify(error: Exception, api: str, resource: str = "") -> Fault:
    """Any exception of a client as a Fault."""
    if isinstance(error, Fault):
        return error
    name, message = type(error).__name__, str(getattr(error, "message", None) or error)
    code = getattr(error, "code", None)
    if callable(code):  # a raw gRPC error
        code = None
    status = getattr(code, "value", code)
    if status is None and isinstance(getattr(error, "status", None), int):
        status = error.status  # type: ignore[attr-defined]  # kfp_server_api, kubernetes
        message = str(getattr(error, "reason", None) or message)
    if isinstance(status, tuple):
        status = None
    if name in ("DeadlineExceeded", "GatewayTimeout") or "timed out" in message.lower():
        return Fault(api, 504, "" if "Deadline" in name else message, resource)
    if isinstance(status, int) and status in (200, 206):
        status = 0
    if isinstance(status, int) and 400 <= status < 600:
        return Fault(api, 503 if status == 502 else status, message, resource)
    if "auth" in type(error).__module__ or name in ("DefaultCredentialsError", "RefreshError"):
        return Fault(api, 401, message, resource)
    if name in _CONNECTION or isinstance(error, OSError):
        return Fault(api, 0, message, resource)
    if name in ("Unknown", "Cancelled", "Aborted", "InvalidResponse"):
        return Fault(api, 0, message, resource)
    return Fault(api, 500, f"{name}: {message}", resource)


# ---------------------------------------------------------------------------------------------- defaults


def default_project() -> str | None:
    """The project of the environment, the gcloud configuration or the credentials; never a tenant project of Google's."""
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "CLOUD_ML_PROJECT_ID", "GCLOUD_PROJECT"):
        if os.environ.get(name):
            return os.environ[name]
    found = gcloud_value("core", "project")
    if found or any(os.environ.get(f"{name}_EMULATOR_HOST") for name in ("AIPLATFORM", "LOGGING", "STORAGE")):
        return found
    try:
        import google.auth

        found = google.auth.default()[1]
    except Exception:  # no credentials at all
        return None
    return None if not found or _TENANT_PROJECT.match(found) else found


def default_region() -> str:
    """The region of the environment or the gcloud configuration, else us-central1."""
    for name in ("CLOUDSDK_AI_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_REGION", "CLOUDSDK_COMPUTE_REGION"):
        if os.environ.get(name):
            return os.environ[name]
    return gcloud_value("ai", "region") or gcloud_value("compute", "region") or DEFAULT_REGION


def gcloud_value(section: str, key: str) -> str | None:
    """A value of the active gcloud configuration, read from its files."""
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    try:
        active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (folder / "active_config").read_text().strip() or "default"
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(folder / "configurations" / f"config_{Path(active).name}")
        return parser.get(section, key, fallback=None) or None
    except (OSError, configparser.Error, UnicodeError):
        return None
