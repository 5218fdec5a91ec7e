"""A Vertex AI PipelineJob as a PipelineRecord, and the jobs behind its tasks.

The JSON is that of ``projects.locations.pipelineJobs.get`` (camelCase, enums as names, int64 as strings),
which is also what the protobuf message prints. ``taskId`` is the only unique name of a task; the order of
``taskDetails`` means nothing; ``jobDetail`` is absent from list calls. Nothing is judged here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from check_failed_run.record import PipelineRecord, TaskRecord
from check_failed_run.sources.clients import Clients

JOB_NAME = re.compile(r"^projects/(?P<project>[\w.:-]{1,100})/locations/(?P<region>[\w-]{1,60})/pipelineJobs/(?P<id>[\w.-]{1,200})$")
_JOB_ID = re.compile(r"^[a-z][-a-z0-9]{0,127}$")
_CUSTOM_JOB = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/customJobs/\d+")
_CHILD = re.compile(r"(?P<name>projects/[^/\s\"']+/(?:locations|regions|jobs)/[^\s\"'?]+)")
_OURS = re.compile(r"check[-_]failed[-_]run")
_EXIT_CODE = re.compile(r"exited with a non-zero status of (?P<code>\d{1,3})|(?:exit(?:ed with)? (?:code|status)) (?P<code2>\d{1,3})")
_DAG_ERROR = re.compile(r"The failed tasks are: \[(?P<names>[^\]]*)\]")

SHAPE_ERRORS = (AttributeError, TypeError, ValueError, KeyError, RecursionError)  # of JSON that has another shape than documented
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "NOT_TRIGGERED"})
JOB_ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
# The task store's words and those of ML Metadata, in the words of taskDetails.state.
_STATES = {
    "CANCEL_PENDING": "CANCELLED", "CANCELLING": "CANCELLED", "CANCELED": "CANCELLED", "COMPLETE": "SUCCEEDED", "CACHED": "SKIPPED", "NEW": "PENDING",
    "STATE_UNSPECIFIED": "UNKNOWN", "": "UNKNOWN", "DRIVER_SUCCEEDED": "RUNNING", "RUNNING_DRIVER": "RUNNING", "RUNNING_EXECUTOR": "RUNNING", "QUEUED": "PENDING",
}  # fmt: skip
_GROUP_NAME = re.compile(r"^(?:exit-handler|condition|condition-branches|for-loop)(?:-\d+)+$")
_GROUP_SCHEMAS = {"system.dagexecution", "system.run"}

# Child resources of google-cloud-pipeline-components: part of the resource name, API, gcloud command that shows it.
CHILD_COMMANDS = {
    "customJobs": "gcloud ai custom-jobs describe {id} --region={region} --project={project}",
    "hyperparameterTuningJobs": "gcloud ai hp-tuning-jobs describe {id} --region={region} --project={project}",
    "batchPredictionJobs": "gcloud ai batch-prediction-jobs describe {id} --region={region} --project={project}",
    "models": "gcloud ai models describe {id} --region={region} --project={project}",
    "endpoints": "gcloud ai endpoints describe {id} --region={region} --project={project}",
    "operations": "gcloud ai operations describe {id} --region={region} --project={project}",
    "batches": "gcloud dataproc batches describe {id} --region={region} --project={project}",
}
DEFAULT_TIMEOUT = "604800s"  # of a CustomJob: seven days
JOB_KINDS = ("customJobs", "batchPredictionJobs", "hyperparameterTuningJobs", "trainingPipelines")  # kinds that get_child reads
_BY_TYPE = {
    "DataflowJob": "gcloud dataflow jobs describe {id} --region={region} --project={project}",
    "BigQueryJob": "bq show --format=prettyjson --job=true {project}:{region}.{id}",
    "DataprocBatch": "gcloud dataproc batches describe {id} --region={region} --project={project}",
}


@dataclass(frozen=True, slots=True)
class Child:
    """A resource that a launcher started: its kind and its resource name."""

    kind: str  # customJobs, batchPredictionJobs, DataflowJob, ...
    name: str

    @property
    def id(self) -> str:
        return self.name.rstrip("/").rsplit("/", 1)[-1]

    def command(self, project: str, region: str) -> str | None:
        """The command that shows this resource; None for a kind without one. Only plain names are put into it."""
        parts = self.name.split("/")
        place = dict(zip(parts[::2], parts[1::2], strict=False))
        values = {"id": self.id, "region": place.get("locations") or region, "project": place.get("projects") or project}
        if not all(re.fullmatch(r"[\w.:-]+", value) for value in values.values()):
            return None
        template = _BY_TYPE.get(self.kind) or CHILD_COMMANDS.get(self.kind)
        return template.format(**values) if template else None


@dataclass(slots=True)
class JobInfo:
    """What a CustomJob (or another job behind a task) says about itself. Times in seconds since the epoch."""

    name: str
    state: str = "UNKNOWN"  # without JOB_STATE_
    code: int | None = None
    message: str | None = None
    start: float | None = None
    end: float | None = None
    created: float | None = None
    timeout: str | None = None
    strategy: str | None = None
    restarts: bool | None = None
    service_account: str | None = None
    output: str | None = None  # baseOutputDirectory
    pools: list[dict[str, Any]] = field(default_factory=list)  # {machine, accelerator, accelerators, replicas, image, args}

    @property
    def id(self) -> str:
        return self.name.rsplit("/", 1)[-1]


# ---------------------------------------------------------------------------------------------- reading JSON


def seconds(text: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 time with 0 to 9 digits of fraction."""
    m = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?$", str(text or ""))
    if not m:
        return None
    try:
        moment = datetime.fromisoformat(m[1] + ("+00:00" if m[3] in ("Z", None) else m[3])).timestamp()
    except ValueError:
        return None
    return moment + (int(m[2].ljust(9, "0")) / 1e9 if m[2] else 0.0)


def rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _state(text: Any) -> str:
    word = str(text or "").upper().removeprefix("PIPELINE_STATE_").removeprefix("TASK_STATE_").removeprefix("JOB_STATE_")
    return _STATES.get(word, word)


def _error(value: Any) -> tuple[int | None, str | None]:
    if not isinstance(value, dict):
        return None, None
    try:
        code = int(value.get("code") or 0) or None
    except (TypeError, ValueError):
        code = None
    message = value.get("message")
    return code, str(message) if message else None


def pipeline_record(job: dict[str, Any], *, own_task: str | None = None, exit_handler: bool = False) -> PipelineRecord:
    """The pipeline and its tasks from a PipelineJob's JSON.

    Args:
        own_task: task id of the exit task that asks, where it knows it.
        exit_handler: whether an exit task of this very job asks; then the running exit task is the asker.
    """
    name = str(job.get("name") or "")
    code, message = _error(job.get("error"))
    runtime = job.get("runtimeConfig") or {}
    pipeline = PipelineRecord(
        name=name,
        state=_state(job.get("state")),
        error_code=code,
        error_message=message,
        start=seconds(job.get("startTime")) or seconds(job.get("createTime")),
        end=seconds(job.get("endTime")),
        labels={str(k): str(v) for k, v in (job.get("labels") or {}).items()},
        service_account=job.get("serviceAccount") or None,
        pipeline_root=runtime.get("gcsOutputDirectory") or None,
        details={"display_name": job.get("displayName"), "parameters": runtime.get("parameterValues") or {}, "fail_fast": str(runtime.get("failurePolicy") or "").endswith("FAIL_FAST")},
    )
    m = JOB_NAME.match(name)
    if m:
        pipeline.details.update(project=m["project"], region=m["region"], job_id=m["id"], console=console(m["project"], m["region"], m["id"]))
    details = [d for d in (job.get("jobDetail") or {}).get("taskDetails") or [] if isinstance(d, dict)]
    for spec in (job.get("pipelineSpec") or {}, {}):
        tasks = [_task(detail) for detail in details]
        try:
            pipeline.tasks = _join(tasks, spec, _root(tasks, details, m["id"] if m else None), pipeline)
            _mark_own(pipeline, spec, own_task, exit_handler)
            break
        except SHAPE_ERRORS:  # the spec is free JSON; the tasks are worth more than its order
            pipeline.tasks, pipeline.details["spec_unreadable"] = [], True
    return pipeline


def console(project: str, region: str, job_id: str) -> str:
    return f"https://console.cloud.google.com/vertex-ai/locations/{quote(region)}/pipelines/runs/{quote(job_id)}?project={quote(project)}"


def _task(detail: dict[str, Any]) -> TaskRecord:
    code, message = _error(detail.get("error"))
    execution = detail.get("execution") if isinstance(detail.get("execution"), dict) else {}
    schema = str(execution.get("schemaTitle") or "").lower()
    state = _settled(detail, _state(detail.get("state")), message, execution)
    executor = detail.get("executorDetail") or {}
    container, custom = executor.get("containerDetail") or {}, executor.get("customJobDetail") or {}
    failed = [*(container.get("failedMainJobs") or []), *(custom.get("failedJobs") or [])]
    last = [job for job in (container.get("mainJob"), custom.get("job")) if job]
    jobs = tuple(dict.fromkeys(str(job) for job in [*failed, *last]))
    if message is None and state in ("FAILED", "CANCELLED"):
        code, message = _last_error(detail, code)
    metadata = execution.get("metadata") if isinstance(execution.get("metadata"), dict) else {}
    return TaskRecord(
        id=str(detail.get("taskId") or detail.get("taskName") or ""),
        name=str(detail.get("taskName") or detail.get("taskId") or "?"),
        state=state,
        parent=str(detail["parentTaskId"]) if detail.get("parentTaskId") else None,
        is_group=schema in _GROUP_SCHEMAS,
        start=seconds(detail.get("startTime")) or seconds(detail.get("createTime")),
        end=seconds(detail.get("endTime")),
        error_code=code,
        error_message=message,
        attempts=max(1, len(jobs)),
        jobs=jobs,
        exit_code=exit_code(message),
        cached=state == "SKIPPED",
        details={
            "root": schema == "system.run",
            "unique_name": detail.get("taskUniqueName"),
            "children": children(metadata.get("output:gcp_resources")),
            "inputs": {key.removeprefix("input:"): value for key, value in metadata.items() if key.startswith("input:")},
            "outputs": _uris(detail.get("outputs")),
            "refused": state == "FAILED" and not jobs and not schema.endswith(("dagexecution", "run")),
        },
    )


def _settled(detail: dict[str, Any], state: str, message: str | None, execution: dict[str, Any]) -> str:
    """The state that the fields agree on: the field itself, unless it is open while the others say that the task is over."""
    if state in ENDED and not (state == "SUCCEEDED" and message and _state(execution.get("state")) == "FAILED"):
        return state
    history = [h for h in detail.get("pipelineTaskStatus") or [] if isinstance(h, dict)]
    last = _state(history[-1].get("state")) if history else ""
    if last in ENDED and last != state:
        return last
    meant = _state(execution.get("state"))
    if meant in ("FAILED", "CANCELLED") or (detail.get("endTime") and message):
        return meant if meant in ("FAILED", "CANCELLED") else "FAILED"
    return state


def _last_error(detail: dict[str, Any], code: int | None) -> tuple[int | None, str | None]:
    for entry in reversed(detail.get("pipelineTaskStatus") or []):
        if isinstance(entry, dict) and (found := _error(entry.get("error")))[1]:
            return found
    return code, None


def _uris(outputs: Any) -> list[str]:
    found: list[str] = []
    for value in (outputs or {}).values() if isinstance(outputs, dict) else ():
        for artifact in (value or {}).get("artifacts") or []:
            if isinstance(artifact, dict) and artifact.get("uri"):
                found.append(str(artifact["uri"]))
    return found


def children(text: Any) -> list[Child]:
    """The resources in a ``gcp_resources`` output (a JSON text, as the launchers of google-cloud-pipeline-components write it)."""
    try:
        loaded = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return []
    found = []
    for item in (loaded or {}).get("resources") or [] if isinstance(loaded, dict) else []:
        uri = str(item.get("resourceUri") or "") if isinstance(item, dict) else ""
        m = _CHILD.search(uri)
        if not m:
            continue
        parts = m["name"].split("/")
        kind = str(item.get("resourceType") or "")
        found.append(Child(kind if kind in _BY_TYPE else parts[-2] if len(parts) > 1 else kind, m["name"]))
    return found


def children_in_log(text: str) -> list[Child]:
    """The jobs that a launcher's log names (it prints the name of what it polls)."""
    return [Child(name.split("/")[-2], name) for name in dict.fromkeys(m[0] for m in _CUSTOM_JOB.finditer(text))]


def exit_code(message: str | None) -> int | None:
    """The container's exit code that an error message names."""
    m = _EXIT_CODE.search(message or "")
    return int(m["code"] or m["code2"]) if m else None


def named_failed(message: str | None) -> list[str]:
    """The direct children that a group's error names."""
    m = _DAG_ERROR.search(message or "")
    return [name.strip() for name in m["names"].split(",") if name.strip()] if m else []


# ---------------------------------------------------------------------------------------------- tasks and spec


def _root(tasks: list[TaskRecord], details: list[dict[str, Any]], job_id: str | None) -> TaskRecord | None:
    """The task that stands for the run itself, or None."""
    for task in tasks:
        if task.details["root"]:
            return task
    parents = {task.parent for task in tasks if task.parent}
    found = [task for task in tasks if task.parent is None and task.id in parents]
    if len(found) == 1 and (found[0].name == job_id or all(t.parent or t is found[0] for t in tasks)):
        found[0].details["root"] = found[0].is_group = True
        return found[0]
    return None


def _join(tasks: list[TaskRecord], spec: dict[str, Any], root: TaskRecord | None, pipeline: PipelineRecord) -> list[TaskRecord]:
    """The tasks in the order of the spec, with dependencies, images and the tasks that have no details of their own."""
    components = spec.get("components") or {}
    executors = (spec.get("deploymentSpec") or {}).get("executors") or {}
    by_parent: dict[str | None, list[TaskRecord]] = {}
    for task in tasks:
        if task is not root:
            by_parent.setdefault(None if root is not None and task.parent == root.id else task.parent, []).append(task)
    if not tasks:  # an answer without jobDetail says nothing about tasks
        return []
    by_id = {task.id: task for task in tasks}
    known = set(by_id)
    for task in tasks:  # a parent that is not among the tasks: the run's own level
        if task.parent is not None and task.parent not in known:
            by_parent.setdefault(None, []).append(task)
    parents = {task.parent for task in tasks if task.parent}
    for task in tasks:
        task.is_group = task.is_group or task.id in parents
    done: list[TaskRecord] = []
    seen: set[str] = set()

    def visit(dag: dict[str, Any], parent: TaskRecord | None, depth: int) -> None:
        specs = dag.get("tasks") or {}
        here = [t for t in by_parent.get(parent.id if parent else None, []) if t.id not in seen]
        by_name: dict[str, list[TaskRecord]] = {}
        for task in here:
            by_name.setdefault(task.name, []).append(task)
        iterations = [t for t in here if t.name not in specs and parent is not None and t.name.startswith(parent.name)]
        if iterations and not any(t.name in specs for t in here):
            for task in sorted(iterations, key=_order):
                seen.add(task.id)
                task.is_group = True
                task.details["iteration_of"] = parent.name
                done.append(task)
                visit(dag, task, depth + 1)
            here = [t for t in here if t not in iterations]
            specs = {}
        ids: dict[str, list[str]] = {}
        for key, item in specs.items():
            found = by_name.get(key) or by_name.get((item.get("taskInfo") or {}).get("name") or key) or []
            found = [t for t in found if t.id not in seen]
            component = components.get((item.get("componentRef") or {}).get("name") or "") or {}
            if not found:
                found = [_absent(key, item, component, parent)]
                by_id[found[0].id] = found[0]
            ids[key] = [t.id for t in found]
            for task in sorted(found, key=_order):
                seen.add(task.id)
                _describe(task, item, component, executors)
                done.append(task)
                if "dag" in component and depth < 40:
                    visit(component["dag"], task, depth + 1)
        for key, same in ids.items():
            before = tuple(i for other in specs[key].get("dependentTasks") or () for i in ids.get(other, ()))
            for i in same:
                by_id[i].depends_on = before
        for task in here:  # tasks that the spec does not know (a spec may be missing altogether)
            if task.id not in seen:
                seen.add(task.id)
                done.append(task)
                if task.is_group and depth < 40:
                    visit({}, task, depth + 1)

    if root is not None:
        seen.add(root.id)
        done.append(root)
    visit((spec.get("root") or {}).get("dag") or {}, None, 0)
    done += [task for task in tasks if task.id not in seen]
    _settle_absent(done, pipeline)
    _trust_groups(done)
    return done


def _order(task: TaskRecord) -> tuple:
    return (task.start if task.start is not None else float("inf"), task.name, task.id)


def _absent(key: str, item: dict[str, Any], component: dict[str, Any], parent: TaskRecord | None) -> TaskRecord:
    return TaskRecord(
        id=f"{parent.id}/{key}" if parent else key,
        name=(item.get("taskInfo") or {}).get("name") or key,
        state="PENDING",
        parent=parent.id if parent else None,
        is_group="dag" in component,
        details={"root": False, "absent": True, "children": [], "inputs": {}, "outputs": [], "refused": False, "unique_name": None},
    )


def _settle_absent(tasks: list[TaskRecord], pipeline: PipelineRecord) -> None:
    """A task without details never started. It is NOT_TRIGGERED once nothing can start it any more."""
    by_id = {task.id: task for task in tasks}
    over = pipeline.state in JOB_ENDED or (pipeline.details.get("fail_fast") and any(t.state == "FAILED" for t in tasks))
    for _ in range(len(tasks)):
        changed = False
        for task in tasks:
            if not task.details.get("absent") or task.state == "NOT_TRIGGERED":
                continue
            parent = by_id.get(task.parent) if task.parent else None
            upstream = [by_id[i].state for i in task.depends_on if i in by_id]
            blocked = any(state in ("FAILED", "CANCELLED", "NOT_TRIGGERED") for state in upstream) and not task.details.get("always")
            if over or blocked or (parent is not None and parent.state in ENDED):
                task.state, changed = "NOT_TRIGGERED", True
        if not changed:
            return


def _trust_groups(tasks: list[TaskRecord]) -> None:
    """A group's error names its failed children; believe it where a child's own state is open."""
    by_parent: dict[str | None, list[TaskRecord]] = {}
    for task in tasks:
        by_parent.setdefault(task.parent, []).append(task)
    for group in [task for task in tasks if task.is_group and task.state == "FAILED"]:
        for name in named_failed(group.error_message):
            same = [t for t in by_parent.get(group.id, ()) if t.name == name]
            if same and not any(t.state == "FAILED" for t in same):
                for task in same:
                    if task.state in ("RUNNING", "PENDING", "UNKNOWN") and not task.details.get("absent"):
                        task.state = "FAILED"
                        task.details["state_from"] = f"the error of {group.name}"


def _describe(task: TaskRecord, item: dict[str, Any], component: dict[str, Any], executors: dict[str, Any]) -> None:
    parameters = (item.get("inputs") or {}).get("parameters") or {}
    task.is_exit_task = any("taskFinalStatus" in value for value in parameters.values() if isinstance(value, dict))
    task.is_group = task.is_group or "dag" in component
    policy = item.get("triggerPolicy") or {}
    task.details["always"] = policy.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
    task.details["condition"] = policy.get("condition")
    task.details["retries"] = int((item.get("retryPolicy") or {}).get("maxRetryCount") or 0)
    container = (executors.get(component.get("executorLabel") or "") or {}).get("container") or {}
    task.image = container.get("image") or None
    task.details["command"] = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]][:400]


def _mark_own(pipeline: PipelineRecord, spec: dict[str, Any], own_task: str | None, exit_handler: bool) -> None:
    """Which task is this tool: by id, else by its command or image, else the exit task that runs while one asks."""
    exits = [task for task in pipeline.tasks if task.is_exit_task]
    own = [task for task in pipeline.tasks if own_task and task.id == own_task]
    for task in own:
        task.is_exit_task = True
    own = own or [t for t in (exits if spec else pipeline.tasks) if _OURS.search(" ".join([t.image or "", *t.details.get("command", ())][:40])) or _OURS.search(t.name)]
    if not own and exit_handler:
        own = [t for t in exits if t.state in ("RUNNING", "PENDING")]
    for task in own:
        task.details["own"] = task.is_exit_task = True


def job_from_events(name: str, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A job's JSON as far as its log events tell it (states, times, errors, custom job ids); None without events."""
    tasks: dict[str, dict[str, Any]] = {}
    job: dict[str, Any] = {"name": name}
    m = JOB_NAME.match(name)
    for event in sorted(events, key=lambda e: e.get("nanos", 0)):
        labels = event.get("labels") or {}
        job.setdefault("serviceAccount", labels.get("service_account") or None)
        if not event.get("taskName"):
            if event.get("state"):
                job["state"] = event["state"]
            job |= {key: event[key] for key in ("startTime", "endTime", "error") if event.get(key)}
            continue
        task_id = str(event.get("taskId") or event["taskName"])
        task = tasks.setdefault(task_id, {"taskId": task_id, "taskName": str(event["taskName"])})
        task |= {key: event[key] for key in ("state", "createTime", "startTime", "endTime", "error") if event.get(key)}
        if labels.get("custom_job_id") and m:
            job_id = re.sub(r"\D", "", str(labels["custom_job_id"]))
            task["executorDetail"] = {"containerDetail": {"mainJob": f"projects/{m['project']}/locations/{m['region']}/customJobs/{job_id}"}}
    for task in tasks.values():
        if m and task["taskName"] == m["id"]:
            task["execution"] = {"schemaTitle": "system.Run"}
        elif "executorDetail" not in task and (_GROUP_NAME.match(task["taskName"]) or named_failed((task.get("error") or {}).get("message"))):
            task["execution"] = {"schemaTitle": "system.DagExecution"}
    if not tasks and "state" not in job:
        return None
    return {**job, "jobDetail": {"taskDetails": list(tasks.values())}}


# ---------------------------------------------------------------------------------------------- the API


def _plain(message: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(type(message).pb(message))


def job_name(text: str, project: str | None, region: str | None) -> str | None:
    """The full resource name that ``text`` is, or is the id of; None for what can only be a display name."""
    text = text.strip().strip("/")
    if JOB_NAME.match(text):
        return text
    m = re.search(r"/locations/(?P<region>[\w-]+)/pipelines/runs/(?P<id>[\w-]+)\?(?:.*&)?project=(?P<project>[\w:.-]+)", text)
    if m:  # the console's address of a run
        return f"projects/{m['project']}/locations/{m['region']}/pipelineJobs/{m['id']}"
    if _JOB_ID.match(text) and project and region:
        return f"projects/{project}/locations/{region}/pipelineJobs/{text}"
    return f"projects/{project}/locations/{region}/pipelineJobs/{text}" if text.isdigit() and project and region else None


def get_job(clients: Clients, name: str) -> dict[str, Any]:
    """The PipelineJob's JSON.

    Raises:
        Fault: it cannot be read.
    """
    return _plain(clients.call("pipelineJobs.get", lambda timeout: clients.pipelines.get_pipeline_job(name=name, timeout=timeout, retry=None), resource=name))


def find_job(clients: Clients, text: str) -> str | None:
    """The resource name of the newest job with this display name, or None.

    Raises:
        Fault: jobs cannot be listed.
    """
    parent = f"projects/{clients.project}/locations/{clients.region}"
    wanted = text.replace("\\", "\\\\").replace('"', '\\"')
    request = {"parent": parent, "filter": f'display_name="{wanted}"', "page_size": 1, "order_by": "create_time desc"}

    def listed(timeout: float) -> Any:
        return next(iter(clients.pipelines.list_pipeline_jobs(request=request, timeout=timeout, retry=None)), None)

    found = clients.call("pipelineJobs.list", listed, resource=text)
    return found.name if found is not None else None


def get_custom_job(clients: Clients, name: str) -> JobInfo:
    """The CustomJob behind a task.

    Raises:
        Fault: it cannot be read.
    """
    return job_info(_plain(clients.call("customJobs.get", lambda timeout: clients.jobs.get_custom_job(name=name, timeout=timeout, retry=None), resource=name)))


def get_child(clients: Clients, child: Child) -> JobInfo | None:
    """The job that a launcher started, where its API is one of Vertex AI's job services; else None.

    Raises:
        Fault: it cannot be read.
    """
    if child.kind == "customJobs":
        return get_custom_job(clients, child.name)
    calls = {
        "batchPredictionJobs": ("batchPredictionJobs.get", lambda timeout: clients.jobs.get_batch_prediction_job(name=child.name, timeout=timeout, retry=None)),
        "hyperparameterTuningJobs": ("hyperparameterTuningJobs.get", lambda timeout: clients.jobs.get_hyperparameter_tuning_job(name=child.name, timeout=timeout, retry=None)),
        "trainingPipelines": ("trainingPipelines.get", lambda timeout: clients.pipelines.get_training_pipeline(name=child.name, timeout=timeout, retry=None)),
    }
    if child.kind not in calls:
        return None
    api, function = calls[child.kind]
    return job_info(_plain(clients.call(api, function, resource=child.name)))


def ran_into_timeout(info: JobInfo) -> float | None:
    """How long the job ran, in seconds, if that is just its time limit; else None."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)s", info.timeout or DEFAULT_TIMEOUT)
    if m is None or info.start is None or info.end is None:
        return None
    ran, limit = info.end - info.start, float(m[1])
    return ran if 0.98 * limit <= ran <= limit + 600 else None


def job_info(job: dict[str, Any]) -> JobInfo:
    """A CustomJob (or tuning, batch prediction job or training pipeline) from its JSON."""
    spec = job.get("jobSpec") or job.get("trialJobSpec") or {}
    scheduling = spec.get("scheduling") or {}
    code, message = _error(job.get("error"))
    pools = []
    for pool in spec.get("workerPoolSpecs") or []:
        machine, container, package = pool.get("machineSpec") or {}, pool.get("containerSpec") or {}, pool.get("pythonPackageSpec") or {}
        pools.append({
            "machine": machine.get("machineType"), "accelerator": machine.get("acceleratorType"), "accelerators": int(machine.get("acceleratorCount") or 0),
            "replicas": int(pool.get("replicaCount") or 0), "image": container.get("imageUri") or package.get("executorImageUri"),
            "args": [str(word) for word in [*(container.get("command") or []), *(container.get("args") or package.get("args") or [])]][:200],
        })  # fmt: skip
    return JobInfo(
        name=str(job.get("name") or ""),
        state=_state(job.get("state")),
        code=code,
        message=message,
        start=seconds(job.get("startTime")),
        end=seconds(job.get("endTime")),
        created=seconds(job.get("createTime")),
        timeout=scheduling.get("timeout"),
        strategy=scheduling.get("strategy"),
        restarts=scheduling.get("restartJobOnWorkerRestart"),
        service_account=spec.get("serviceAccount"),
        output=(spec.get("baseOutputDirectory") or {}).get("outputUriPrefix"),
        pools=pools,
    )
