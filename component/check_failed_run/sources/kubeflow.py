"""What a Kubeflow pipeline hands its exit task, and what its tasks left in the pipeline root.

The final status comes in three spellings (Vertex AI and the open-source backend in camelCase, kfp.local
in snake_case), with codes that may be floats and errors that may be ``{}``. The folders come in two:
``{root}/{pipeline}-{time}/{task}/`` from kfp.local and ``{root}/{project number}/{job}/{task}_{task id}/``
from Vertex AI. Nothing is judged here; no network is used.
"""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from check_failed_run.record import PipelineRecord, RunRecord, SkippedInput, TaskRecord

SPEC_FILE = "pipeline_spec.json"  # the compiled pipeline as JSON, where whoever started a local run put it
OUTPUT_FILE = "executor_output.json"  # written by KFP's executor when a Python component returned
MAX_DEPTH = 6
MAX_FILES = 400  # per run
MAX_JSON = 8 << 20  # bytes of a JSON file that are read

_VERTEX_JOB = re.compile(r"^projects/[^/]+/locations/[^/]+/pipelineJobs/[^/]+$")
_VERTEX_FOLDER = re.compile(r"^(?P<name>.+)_(?P<id>-?\d{6,})$")
_LOG_SUFFIXES = {".log", ".out", ".err", ".txt", ".jsonl", ".stdout", ".stderr"}
_CONFIG_SUFFIXES = {".yaml", ".yml", ".toml", ".json"}
_PACKED = {".gz", ".bz2", ".xz"}
_LOG_NAME = re.compile(r"(?i)(?:^|[_.-])(?:log|logs|out|err|std(?:out|err)|train(?:ing)?_log|console)(?:[_.-]|\d|$)")

# States of the open-source backend (ML Metadata's and the task store's) in Vertex AI's words.
_STATES = {"COMPLETE": "SUCCEEDED", "CACHED": "SUCCEEDED", "CANCELED": "CANCELLED", "CANCELING": "CANCELLED", "CANCELLING": "CANCELLED"}


@dataclass(frozen=True, slots=True)
class FinalStatus:
    """A PipelineTaskFinalStatus. ``task`` is the exit handler's group, never the task that failed."""

    state: str  # SUCCEEDED, FAILED, CANCELLED, RUNNING or "" (not given)
    code: int | None = None
    message: str | None = None
    job: str | None = None  # a resource name on Vertex AI, the run's name elsewhere
    task: str | None = None

    @property
    def platform(self) -> str:
        """vertex, local or kfp, by the form of the job's name."""
        if self.job and _VERTEX_JOB.match(self.job):
            return "vertex"
        return "local" if self.job and self.job.startswith("local-pipeline") else "kfp"


def read_status(text: str) -> FinalStatus | None:
    """The final status from its JSON text; None where there is none.

    Raises:
        ValueError: the text is not a JSON object.
    """
    text = text.strip()
    if not text or text in ("null", "None", "{}"):
        return None
    try:
        loaded = json.loads(text)
    except ValueError:
        try:  # a status that went through str() on its way has single quotes
            loaded = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise ValueError("the final status is not JSON") from None
    if isinstance(loaded, str):
        return read_status(loaded)
    if not isinstance(loaded, dict):
        raise ValueError("the final status is not a JSON object")

    def pick(*keys: str) -> Any:
        return next((loaded[key] for key in keys if loaded.get(key) not in (None, "")), None)

    error = pick("error")
    error = error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}
    state = str(pick("state") or "").upper().removeprefix("PIPELINE_STATE_").removeprefix("TASK_STATE_")
    message = error.get("message")
    return FinalStatus(
        state=_STATES.get(state, state),
        code=_code(error.get("code")),
        message=str(message) if message else None,
        job=_text(pick("pipelineJobResourceName", "pipeline_job_resource_name")),
        task=_text(pick("pipelineTaskName", "pipeline_task_name")),
    )


def _code(value: Any) -> int | None:
    try:
        return int(value) or None
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str | None:
    return str(value) if value else None


def local_path(uri: str) -> Path | None:
    """Where ``uri`` is in this container's file system, or None. ``gs://b/x`` is ``/gcs/b/x`` on Vertex AI (a FUSE mount)."""
    if uri.startswith("gs://"):
        path = Path("/gcs") / uri[5:]
    elif uri.startswith("file://"):
        path = Path(uri[7:])
    elif "://" in uri:
        return None
    else:
        path = Path(uri)
    try:
        return path if path.is_dir() else None
    except OSError:
        return None


def find_run_folder(root: Path, job: str | None, job_name: str | None) -> Path | None:
    """The run's own folder below a pipeline root, or None.

    kfp.local uses the job's name. Vertex AI uses ``{project number}/{job id}``, and ``job`` has both.
    """
    candidates = []
    if job and _VERTEX_JOB.match(job):
        _, project, _, _, _, job_id = job.split("/")
        candidates += [root / project / job_id, root / job_id]
    for name in (job_name, job):
        if name and "/" not in name and name not in (".", ".."):
            candidates.append(root / name)
    return next((path for path in candidates if path.is_dir()), None)


def collect_run_folder(
    folder: Path, record: RunRecord, status: FinalStatus | None, *, name: str, own: Path | None = None, spec: dict[str, Any] | None = None
) -> PipelineRecord:
    """Fill ``record`` with the tasks, logs and configurations below a run's folder; returns the pipeline.

    Args:
        folder: the run's folder, one folder a task below it.
        status: what the exit task was told.
        name: the pipeline job's name for the report.
        own: a path inside the exit task's own folder; that task is left out.
        spec: the compiled pipeline; without it, tasks that never ran are unknown. Looked for beside the run.
    """
    spec = spec or read_spec(folder)
    pipeline = PipelineRecord(
        name=name,
        state=(status.state if status else "") or "UNKNOWN",
        error_code=status.code if status else None,
        error_message=status.message if status else None,
        pipeline_root=str(folder.parent),
        platform=status.platform if status and status.platform != "kfp" else "local",
    )
    left = MAX_FILES
    found: list[TaskRecord] = []
    for path in sorted(folder.iterdir()):
        if not path.is_dir() or path.is_symlink() or (own is not None and own.is_relative_to(path)):
            continue
        files = list(_walk(path, left))
        left -= len(files)
        m = _VERTEX_FOLDER.match(path.name)
        task_name = m["name"] if m else path.name
        times = [t for t in (_mtime(file) for file in files) if t is not None]
        task = TaskRecord(
            id=m["id"] if m else path.name,
            name=task_name,
            state="SUCCEEDED" if (path / OUTPUT_FILE).is_file() else "RUNNING",
            start=min(times, default=_mtime(path)),
            end=max(times, default=_mtime(path)),
            details={"folder": str(path)},
        )
        found.append(task)
        _add_files(files, folder, task_name, record)
    if left <= 0:
        record.skipped.append(SkippedInput(str(folder), f"more than {MAX_FILES} files; the rest was not looked at"))
    pipeline.tasks = _with_spec(found, spec, pipeline.state) if spec else _judged(found, pipeline.state)
    times = [t for task in pipeline.tasks for t in (task.start, task.end) if t is not None]
    pipeline.start, pipeline.end = min(times, default=None), max(times, default=None)
    record.pipeline = pipeline
    return pipeline


def read_spec(folder: Path) -> dict[str, Any] | None:
    """The compiled pipeline beside a run's folder or in it, or None."""
    for path in (folder / SPEC_FILE, folder.parent / SPEC_FILE):
        try:
            if path.stat().st_size <= MAX_JSON and isinstance(loaded := json.loads(path.read_bytes()), dict):
                return loaded
        except (OSError, ValueError):
            continue
    return None


def _judged(tasks: list[TaskRecord], state: str) -> list[TaskRecord]:
    """States from the folders alone, which is little.

    A Python component that returned left executor_output.json. A container component may leave none, so
    among the others only the one that started last is taken as the failed one, and only in a failed run.
    """
    open_tasks = sorted((t for t in tasks if t.state == "RUNNING"), key=lambda t: t.start or 0)
    newest = max((t.start or 0 for t in tasks), default=0)
    for task in open_tasks:
        last = task is open_tasks[-1] and (task.start or 0) >= newest
        task.state = ("FAILED" if last else "SUCCEEDED") if state == "FAILED" else "SUCCEEDED" if state == "SUCCEEDED" else task.state
        task.details["state_from"] = "files in the pipeline root"
    return tasks


def _with_spec(found: list[TaskRecord], spec: dict[str, Any], state: str) -> list[TaskRecord]:
    """The tasks that the compiled pipeline names, with the states that the folders show."""
    by_folder = {task.name: task for task in found}
    tasks: list[TaskRecord] = []

    def visit(dag: dict[str, Any], parent: str | None) -> None:
        for key, task in (dag.get("tasks") or {}).items():
            reference = (task.get("componentRef") or {}).get("name") or ""
            component = (spec.get("components") or {}).get(reference) or {}
            name = (task.get("taskInfo") or {}).get("name") or key
            inputs = (task.get("inputs") or {}).get("parameters") or {}
            record = TaskRecord(
                id=f"{parent}.{key}" if parent else key,
                name=name,
                state="NOT_TRIGGERED",
                parent=parent,
                is_group="dag" in component,
                is_exit_task=any("taskFinalStatus" in value for value in inputs.values() if isinstance(value, dict)),
                depends_on=tuple(f"{parent}.{d}" if parent else d for d in task.get("dependentTasks") or ()),
                image=_image(spec, component),
            )
            seen = by_folder.get(reference.removeprefix("comp-")) or by_folder.get(key)
            if seen is not None and not record.is_group:
                record.state, record.start, record.end, record.details = seen.state, seen.start, seen.end, seen.details
            tasks.append(record)
            if record.is_group:
                visit(component["dag"], record.id)

    visit((spec.get("root") or {}).get("dag") or {}, None)
    leaves = [task for task in tasks if not task.is_group and not task.is_exit_task]
    done = {id_ for task in leaves if task.state != "NOT_TRIGGERED" for id_ in task.depends_on}
    for task in leaves:
        if task.state == "RUNNING":
            # A folder without executor_output.json: a container component that ended well, where a task behind it started.
            task.state = "FAILED" if state == "FAILED" and task.id not in done else "SUCCEEDED" if state != "" else "RUNNING"
    if state == "FAILED" and leaves and not any(task.state == "FAILED" for task in leaves):
        # It failed before it wrote anything (the image, an import): the first one whose predecessors all ended well.
        ended = {task.id for task in leaves if task.state == "SUCCEEDED"}
        first = next((t for t in leaves if t.state == "NOT_TRIGGERED" and set(t.depends_on) <= ended), None)
        if first is not None:
            first.state = "FAILED"
            first.details = {"state_from": "no output folder, though everything before it ended well"}
    for group in reversed([task for task in tasks if task.is_group]):
        states = {task.state for task in tasks if task.parent == group.id and not task.is_exit_task}
        group.state = "FAILED" if "FAILED" in states else "SUCCEEDED" if "SUCCEEDED" in states else "NOT_TRIGGERED"
    return [task for task in tasks if not task.is_exit_task]


def _image(spec: dict[str, Any], component: dict[str, Any]) -> str | None:
    executors = (spec.get("deploymentSpec") or {}).get("executors") or {}
    executor = executors.get(component.get("executorLabel") or "") or {}
    return (executor.get("container") or {}).get("image")


def _walk(folder: Path, limit: int):
    """Regular files below ``folder``, in name order; links are not followed."""
    count = 0
    for root, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        if len(Path(root).relative_to(folder).parts) >= MAX_DEPTH:
            folders[:] = []
        for name in sorted(files):
            path = Path(root) / name
            if path.is_symlink() or not path.is_file():
                continue
            if count >= limit:
                return
            count += 1
            yield path


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _add_files(files: list[Path], folder: Path, task: str, record: RunRecord) -> None:
    """Logs and configurations among a task's outputs. Output parameters are files too, so names decide first."""
    from check_failed_run.sources.log_files import InputError, collect

    for path in files:
        suffixes = [s.lower() for s in path.suffixes if s.lower() not in _PACKED]
        suffix = suffixes[-1] if suffixes else ""
        wanted = suffix in _LOG_SUFFIXES or _LOG_NAME.search(path.name) or (suffix in _CONFIG_SUFFIXES and path.name != OUTPUT_FILE)
        if not wanted:
            continue
        part = RunRecord()
        try:
            collect([str(path)], part)
        except InputError as error:
            if not part.skipped and not part.configs:
                part.skipped.append(SkippedInput(str(path), str(error)))
        shown = str(path.relative_to(folder))
        for log in part.logs:
            log.name, log.task = shown, task
        record.logs += part.logs
        record.configs += [type(c)(shown, c.values) for c in part.configs]
        record.skipped += [SkippedInput(shown, s.reason) for s in part.skipped]


# ---------------------------------------------------------------------------------------------- open source: a run by its id

GENERIC = re.compile(r"^(?:executor|system-(?:container|dag)-(?:executor|impl|driver)|driver|container-impl)$|^root(?:\.0)?$")
_DRIVER = re.compile(r"^(?P<of>.+?)-(?:container-|dag-)?driver$|^root-driver$")
_NODE = "workflows.argoproj.io/node-name"  # annotation of a pod: {workflow}.root.{task}.executor
_TOKEN_FILE = "/var/run/secrets/kubeflow/pipelines/token"
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
MAX_POD_LOG = 8 << 20  # bytes of one pod's log: its end


def get_run(host: str, run_id: str, timeout: float) -> dict[str, Any]:
    """The run's JSON (``GET /apis/v2beta1/runs/{id}``), with kfp's own REST client.

    ``kfp.Client`` is that client without time limits, so the layer below it is called. A token is taken from
    ``KF_PIPELINES_TOKEN`` or the file that kfp reads (``KF_PIPELINES_SA_TOKEN_PATH``). The JSON is read raw: newer servers send
    ``status`` and ``pods`` where older ones send ``state`` and ``pod_name``.

    Raises:
        kfp_server_api.ApiException, OSError, urllib3 errors: the run cannot be read.
    """
    import kfp_server_api

    configuration = kfp_server_api.Configuration(host=host.rstrip("/"))
    configuration.retries = False
    token = _kfp_token()
    api = kfp_server_api.ApiClient(configuration)
    if token:
        api.default_headers["Authorization"] = f"Bearer {token}"
    # the client ignores a time limit that is a plain float
    response = kfp_server_api.RunServiceApi(api).run_service_get_run(run_id, _preload_content=False, _request_timeout=(timeout, timeout))
    data = response.data
    loaded = json.loads(data[: 4 * MAX_JSON])
    if not isinstance(loaded, dict):
        raise ValueError("the answer is not a JSON object")
    return loaded.get("run") if isinstance(loaded.get("run"), dict) else loaded


def _kfp_token() -> str | None:
    if os.environ.get("KF_PIPELINES_TOKEN"):
        return os.environ["KF_PIPELINES_TOKEN"]
    try:
        return Path(os.environ.get("KF_PIPELINES_SA_TOKEN_PATH") or _TOKEN_FILE).read_text().strip() or None
    except OSError:
        return None


def vertex_like(run: dict[str, Any]) -> dict[str, Any]:
    """The run in the shape of a Vertex AI PipelineJob, so that one reader joins tasks and spec.

    Argo's nodes are folded: ``train`` with its ``train-driver`` and ``executor`` is one task, failed if any of them failed; groups
    come from the spec. A task that was skipped because something before it failed is left to the spec.
    """
    spec = run.get("pipeline_spec") or {}
    spec = spec.get("pipeline_spec") if isinstance(spec.get("pipeline_spec"), dict) else spec
    nodes = [n for n in (run.get("run_details") or {}).get("task_details") or [] if isinstance(n, dict)]
    owner = _owners(nodes)
    places = _places(spec)
    details: dict[str, dict[str, Any]] = {}
    for node in nodes:
        name = _task_name(node, owner)
        if name is None or (places and name not in places):
            continue
        detail = details.setdefault(name, {"taskId": str(node.get("task_id") or name), "taskName": name, "pods": []})
        _fold(detail, node)
    for detail in details.values():
        detail["state"] = _settle(detail.pop("seen"))
    groups: dict[str, dict[str, Any]] = {}
    for name, detail in details.items():
        parent = ""
        for group in places.get(name, ((),))[0]:
            path = f"{parent}/{group}" if parent else group
            entry = groups.setdefault(path, {"taskId": f"group:{path}", "taskName": group, "parentTaskId": f"group:{parent}" if parent else "", "state": "SUCCEEDED", "execution": {"schemaTitle": "system.DagExecution"}})
            if detail["state"] in ("FAILED", "RUNNING") and entry["state"] != "FAILED":
                entry["state"] = detail["state"]
            parent = path
        detail["parentTaskId"] = f"group:{parent}" if parent else ""
    return {
        "name": str(run.get("run_id") or ""), "displayName": run.get("display_name"), "state": _word(run.get("state")), "createTime": run.get("created_at"),
        "startTime": run.get("created_at"), "endTime": run.get("finished_at"), "error": run.get("error"), "serviceAccount": run.get("service_account"),
        "runtimeConfig": {"parameterValues": (run.get("runtime_config") or {}).get("parameters") or {}, "gcsOutputDirectory": (run.get("runtime_config") or {}).get("pipeline_root")},
        "pipelineSpec": spec, "jobDetail": {"taskDetails": [*groups.values(), *details.values()]},
    }  # fmt: skip


def _word(state: Any) -> str:
    word = str(state or "").upper()
    return _STATES.get(word, word)


def _owners(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Node by the ids and pod names of its children."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for child in node.get("child_tasks") or []:
            for key in (child.get("task_id"), child.get("pod_name")):
                if key:
                    found[str(key)] = node
    return found


def _task_name(node: dict[str, Any], owner: dict[str, dict[str, Any]]) -> str | None:
    """The spec's name of the task that a node belongs to; None for the run itself."""
    seen = 0
    while node is not None and seen < 20:
        name = str(node.get("display_name") or node.get("name") or "")
        m = _DRIVER.match(name)
        if m and m["of"]:
            return m["of"]
        if name and not GENERIC.match(name) and not m:
            return name
        node = owner.get(str(node.get("task_id"))) or owner.get(str(node.get("pod_name")))  # type: ignore[assignment]
        seen += 1
    return None


def _fold(detail: dict[str, Any], node: dict[str, Any]) -> None:
    state = _word(node.get("state") or node.get("status")) or "PENDING"
    driver = bool(_DRIVER.match(str(node.get("display_name") or node.get("name") or "")))
    detail.setdefault("seen", []).append((driver, state))
    for key, take, start in (("startTime", min, "start_time"), ("endTime", max, "end_time")):
        moment = str(node.get(start) or "")
        if moment and not moment.startswith(("0001", "1970")):
            detail[key] = take(filter(None, (detail.get(key), moment)))
    error = node.get("error") if isinstance(node.get("error"), dict) else {}
    if error.get("message") and state == "FAILED":
        detail["error"] = {"code": error.get("code"), "message": str(error["message"])}
    if state in ("FAILED", "RUNNING"):
        pods = [node.get("pod_name"), *((pod or {}).get("name") for pod in node.get("pods") or [])]
        detail["pods"] += [str(pod) for pod in pods if pod and str(pod) not in detail["pods"]]


def _settle(seen: list[tuple[bool, str]]) -> str:
    """The state of a task from those of its nodes. A node that was skipped though its driver ran was a cache hit (or a false
    condition); without a driver it was left out because something before it failed."""
    states = {state for _, state in seen}
    own = {state for driver, state in seen if not driver}
    for state in ("FAILED", "CANCELLED", "RUNNING"):
        if state in states:
            return state
    if "SUCCEEDED" in own:
        return "SUCCEEDED"
    if own & {"SKIPPED", "OMITTED"}:
        return "SKIPPED" if (True, "SUCCEEDED") in seen else "NOT_TRIGGERED"
    return "PENDING"


def _places(spec: dict[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    """task name: the groups around it, from the compiled spec."""
    found: dict[str, list[tuple[str, ...]]] = {}

    def visit(dag: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, task in (dag.get("tasks") or {}).items():
            component = (spec.get("components") or {}).get((task.get("componentRef") or {}).get("name") or "") or {}
            if "dag" in component and len(path) < 20:
                visit(component["dag"], (*path, key))
            else:
                found.setdefault(key, []).append(path)

    visit((spec.get("root") or {}).get("dag") or {}, ())
    return found


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a run: its name, phase and the Argo node that it ran."""

    name: str
    phase: str
    node: str

    def ran(self, task: str) -> bool:
        """Whether it is the pod of this task's own container (not of its driver)."""
        parts = self.node.split(".")
        return task in parts and not any(_DRIVER.match(part) for part in parts[-1:])


def namespace() -> str:
    """The namespace of the runs: this pod's own, else kubeflow."""
    try:
        return Path(_NAMESPACE_FILE).read_text().strip() or "kubeflow"
    except OSError:
        return "kubeflow"


def default_host() -> str:
    """The Kubeflow Pipelines API as a pod of the cluster reaches it."""
    if os.environ.get("KF_PIPELINES_ENDPOINT"):
        return os.environ["KF_PIPELINES_ENDPOINT"]
    host, port = os.environ.get("ML_PIPELINE_SERVICE_HOST"), os.environ.get("ML_PIPELINE_SERVICE_PORT", "8888")
    return f"http://{host}:{port}" if host else "http://ml-pipeline.kubeflow.svc.cluster.local:8888"


def kubernetes_api() -> Any:
    """The core API, from inside a cluster or by the kubeconfig.

    Raises:
        kubernetes.config.ConfigException: there is neither.
    """
    from kubernetes import client, config

    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    configuration = client.Configuration.get_default_copy()
    configuration.retries = False
    return client.CoreV1Api(client.ApiClient(configuration))


def list_pods(api: Any, space: str, run_id: str, timeout: float) -> list[Pod]:
    """The pods of a run that are still there."""
    found = api.list_namespaced_pod(space, label_selector=f"pipeline/runid={run_id}", limit=500, _request_timeout=(timeout, timeout))
    return [Pod(pod.metadata.name, pod.status.phase or "", (pod.metadata.annotations or {}).get(_NODE, "")) for pod in found.items]


def read_pod_log(api: Any, space: str, pod: str, timeout: float) -> bytes:
    """The end of a pod's main container's log."""
    response = api.read_namespaced_pod_log(pod, space, container="main", timestamps=True, tail_lines=100_000, _preload_content=False, _request_timeout=(timeout, timeout))
    return response.read()[-MAX_POD_LOG:]


def read_archived_log(host: str, space: str, run_id: str, pod: str, timeout: float) -> bytes:
    """The log of a pod through the user interface's server, which falls back to the artifact store when the pod is gone.

    Raises:
        OSError: it does not answer, or not with a log.
    """
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    if not host.startswith(("http://", "https://")):
        raise OSError("the host is no http address")
    query = urlencode({"podname": pod, "runid": run_id, "podnamespace": space})
    token = _kfp_token()
    request = Request(f"{host.rstrip('/')}/k8s/pod/logs?{query}", headers={"Authorization": f"Bearer {token}"} if token else {})
    with urlopen(request, timeout=timeout) as response:
        if "html" in (response.headers.get("Content-Type") or ""):
            raise OSError("the answer is a page, not a log")
        return response.read(MAX_POD_LOG)
