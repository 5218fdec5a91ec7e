"""A pipeline run, from its name to one report: the task that failed first is diagnosed by the engine, the others after it.

Reads the job, its tasks' jobs, their logs and files through :class:`~check_failed_run.sources.clients.Cloud`. Whatever
cannot be read becomes a named gap with the permission, the role and the command that grants it; the rest goes on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from check_failed_run.analysis.dag import Failure, failures, not_triggered, running
from check_failed_run.record import ConfigFile, LogSource, MissingEvidence, PipelineRecord, RunRecord, SkippedInput, TaskRecord
from check_failed_run.report.model import Report
from check_failed_run.sources import cloud_logging, vertex
from check_failed_run.sources.clients import PAGE, Cloud, CloudError

MAX_TASKS = 5  # failures (loop iterations that failed alike count once) that are diagnosed each
MAX_ENTRIES = 12 * PAGE  # log entries of the task that failed first
MAX_OTHER_ENTRIES = PAGE  # ... of each other
RETENTION_DAYS = 30  # of the _Default log bucket
MARGIN = 900.0  # seconds of log before a task's start and after its end


@dataclass
class Target:
    """One task to diagnose: its own record, and what is known of its jobs."""

    task: TaskRecord
    failure: Failure | None
    record: RunRecord
    jobs: list[dict[str, Any]] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    started: bool = False  # its container printed something


def resolve(job: str, cloud: Cloud) -> str:
    """The full resource name of a PipelineJob given by resource name, id or display name (the newest).

    Raises:
        CloudError: there is none, or it cannot be looked for.
    """
    if vertex.JOB_NAME.fullmatch(job):
        return job
    name = f"projects/{cloud.project}/locations/{cloud.region}/pipelineJobs/{job}"
    try:
        cloud.pipeline_job(name)
        return name
    except CloudError as error:
        if error.code not in ("NOT_FOUND", "INVALID_ARGUMENT"):
            raise
    found = cloud.find_pipeline_job(job)
    if found is None:
        raise CloudError("PipelineService.GetPipelineJob", "NOT_FOUND", f"no pipeline job has the id or display name {job!r} in {cloud.region} of project {cloud.project}")
    return found


def diagnose_vertex(
    name: str,
    cloud: Cloud,
    base: RunRecord,
    *,
    run_id: str | None = None,
    now: float | None = None,
    started: Callable[[RunRecord], None] | None = None,
) -> Report:
    """Diagnose a Vertex AI PipelineJob.

    Args:
        name: full resource name.
        cloud: access to its project.
        base: what is known already (further logs, framework, task); gaps are added to it.
        now: seconds since the epoch taken as the moment of looking.
        started: called as soon as the pipeline's tasks are known.
    """
    from check_failed_run.api import diagnose

    try:
        job = cloud.pipeline_job(name)
    except CloudError as error:
        gap(base, error, "the pipeline job with its tasks", f"gcloud ai pipeline-jobs describe {shlex.quote(name)} --region={cloud.region} --project={cloud.project} --format=json")
        base.targets = base.targets or [name]
        if base.pipeline is not None and base.pipeline.state == "FAILED":
            base.failed = True
        return diagnose(base, run_id=run_id, now=now)
    pipeline = vertex.read_pipeline_job(job)
    base.pipeline = pipeline
    if started is not None:
        started(base)
    found = failures(pipeline)
    targets = [Target(f.first, f, RunRecord()) for f in found[:MAX_TASKS]]
    if not targets:
        targets = [Target(t, None, RunRecord()) for t in running(pipeline)[:2]]
    parameters = _parameters(pipeline)
    for number, target in enumerate(targets):
        record = base if number == 0 else target.record
        target.record = record
        record.pipeline = pipeline
        record.framework, record.task = base.framework, base.task
        record.failed = target.failure is not None
        if parameters is not None:
            record.configs.append(parameters)
        _collect_task(target, cloud, pipeline, now, first=number == 0)
    if not targets:
        _no_target(base, pipeline)
    report = diagnose(base, run_id=run_id, now=now)
    _finish(report, targets, pipeline, cloud, now)
    for target in targets[1:]:
        _add_diagnosis(report, target, diagnose(target.record, run_id="part", now=now))
    return report


def gap(record: RunRecord, error: CloudError, what: str, how: str) -> None:
    """A call that failed as a named gap: the permission and role where it was refused."""
    why = f"{error.call} answered {error.code}: {' '.join(error.message.split())[:300]}"
    if error.code == "PERMISSION_DENIED" and error.role:
        why += f". It needs {error.permission} ({error.role})"
        how = _grant(record.pipeline, error.role) or how
    record.missing.append(MissingEvidence(what, why, how))
    record.skipped.append(SkippedInput(what, why))


def _grant(pipeline: PipelineRecord | None, role: str) -> str | None:
    m = vertex.JOB_NAME.fullmatch(pipeline.name) if pipeline else None
    account = pipeline.service_account if pipeline else None
    project = m["project"] if m else "PROJECT"
    return f"gcloud projects add-iam-policy-binding {project} --member=serviceAccount:{account or 'SERVICE_ACCOUNT'} --role={role}"


def _parameters(pipeline: PipelineRecord) -> ConfigFile | None:
    from check_failed_run.sources.log_files import flatten

    values = pipeline.details.get("parameters") or {}
    return ConfigFile("pipeline parameters", tuple(flatten(values).items())) if isinstance(values, dict) and values else None


# one task ---------------------------------------------------------------------------------------------------------


def _collect_task(target: Target, cloud: Cloud, pipeline: PipelineRecord, now: float | None, *, first: bool) -> None:
    task, record = target.task, target.record
    names = list(task.jobs)
    for name in names[-1:]:
        _get_job(target, cloud, name)
    for child in _children(target, cloud, pipeline):
        if child not in names:
            names.append(child)
            _get_job(target, cloud, child)
    target.job_ids = [n.rsplit("/", 1)[-1] for n in names]
    logs: list[LogSource] = []
    if target.job_ids:
        logs = _read_logs(target, cloud, pipeline, now, limit=MAX_ENTRIES if first else MAX_OTHER_ENTRIES)
    record.logs += logs
    target.started = any(not log.name.endswith(f"/{cloud_logging.SERVICE}") for log in logs)
    record.logs += _errors(target, pipeline)
    record.environment.update(_machine(target.jobs))
    if first and pipeline.pipeline_root and cloud.left > 5:
        _read_files(target, cloud, pipeline)


def _get_job(target: Target, cloud: Cloud, name: str) -> None:
    if not vertex.CUSTOM_JOB.search(name):
        return
    try:
        target.jobs.append(cloud.job(name))
    except CloudError as error:
        job_id = name.rsplit("/", 1)[-1]
        gap(target.record, error, f"the job of task {target.task.name}", f"gcloud ai custom-jobs describe {job_id} --region={cloud.region} --project={cloud.project} --format=json")


def _children(target: Target, cloud: Cloud, pipeline: PipelineRecord) -> list[str]:
    """Jobs that a launcher of google-cloud-pipeline-components started: from the metadata, else from its file in GCS."""
    resources = target.task.details.get("gcp_resources") or []
    if not resources and pipeline.pipeline_root and "gcp_resources" in str(target.task.details.get("unique_name", "")) + str(target.task.image or ""):
        resources = _resources_file(target, cloud, pipeline)
    names = []
    for item in resources:
        m = vertex.CUSTOM_JOB.search(item["name"])
        if m:
            names.append(m[0])
        elif item["name"]:
            target.record.skipped.append(SkippedInput(item["name"], f"a {item['type'] or 'job'} of another service; its own console has its error"))
            target.record.missing.append(MissingEvidence(f"the error of the {item['type'] or 'child job'}", "the launcher only passes on that it failed", _describe_child(item, cloud)))
    return names


def _describe_child(item: dict[str, str], cloud: Cloud) -> str:
    last = shlex.quote(item["name"].rsplit("/", 1)[-1])
    known = {
        "BigQueryJob": f"bq show --format=prettyjson -j {last} --project_id={cloud.project}",
        "DataflowJob": f"gcloud dataflow jobs show {last} --region={cloud.region} --project={cloud.project}",
        "DataprocBatch": f"gcloud dataproc batches describe {last} --region={cloud.region} --project={cloud.project}",
    }
    return known.get(item["type"], f"curl -sH \"Authorization: Bearer $(gcloud auth print-access-token)\" {shlex.quote(item['name'])}")


def _resources_file(target: Target, cloud: Cloud, pipeline: PipelineRecord) -> list[dict[str, str]]:
    place = _task_folder(target.task, pipeline)
    if place is None:
        return []
    try:
        return vertex.child_resources(cloud.read_object(place[0], f"{place[1]}gcp_resources", limit=1 << 16).decode("utf-8", "replace"))
    except CloudError:
        return []


def _read_logs(target: Target, cloud: Cloud, pipeline: PipelineRecord, now: float | None, *, limit: int) -> list[LogSource]:
    """The newest entries first, since one page often is all; then the rest backwards up to a limit."""
    task, record = target.task, target.record
    start = _stamp((task.start or pipeline.start or 0) - MARGIN) if task.start or pipeline.start else None
    end = _stamp(task.end + MARGIN) if task.end else _stamp(now) if now is not None else None
    query = cloud_logging.job_filter(target.job_ids, start, end)
    entries: list[dict[str, Any]] = []
    what = f"the log of task {task.name}"
    how = f"gcloud logging read {shlex.quote(query)} --project={cloud.project} --order=asc --limit=5000 --format='value(textPayload,jsonPayload.message)'"
    try:
        for entry in cloud.log_entries(query, newest_first=True, limit=limit):
            entries.append(entry)
    except CloudError as error:
        gap(record, error, what, how)
    if len(entries) >= limit:
        record.skipped.append(SkippedInput(what, f"only the last {limit:,} entries were read"))
    replicas = [e for e in entries if cloud_logging.replica_of(e) != cloud_logging.SERVICE]
    if not replicas and not any(m.what == what for m in record.missing):
        old = now is not None and task.end is not None and now - task.end > RETENTION_DAYS * 86400
        why = (
            f"the task ended more than {RETENTION_DAYS} days ago: its log is gone by retention" if old
            else "its containers left no line: the container did not start, or its service account lacks logging.logEntries.create (roles/logging.logWriter)"
        )
        if task.jobs:
            record.missing.append(MissingEvidence(what, why, how))
    logs: list[LogSource] = []
    attempts = [n.rsplit("/", 1)[-1] for n in task.jobs]
    by_job: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        by_job.setdefault(str(((entry.get("resource") or {}).get("labels") or {}).get("job_id")), []).append(entry)
    for job_id in target.job_ids:
        own = by_job.get(job_id)
        if not own:
            continue
        attempt = attempts.index(job_id) + 1 if job_id in attempts else len(attempts) or None
        prefix = f"attempt {attempt} of " if len(attempts) > 1 and attempt else ""
        launcher = job_id in attempts and job_id != target.job_ids[-1] and len(target.job_ids) > len(attempts)
        logs += cloud_logging.to_logs(own, f"{task.name} (launcher)" if launcher else task.name, attempt=attempt if len(attempts) > 1 else None, prefix=prefix)
    return logs


def _errors(target: Target, pipeline: PipelineRecord) -> list[LogSource]:
    """What the platform says of the task and its jobs, as text that the catalogue judges; the job's settings beside it."""
    task = target.task
    when = _stamp(task.end) if task.end else ""
    lines: list[str] = []
    if task.error_message:
        lines += [f"task {task.name}: {line}" for line in task.error_message.split("\n") if line.strip()]
    for job in target.jobs:
        message = (job.get("error") or {}).get("message")
        if message and message not in (task.error_message or ""):
            lines += [f"{_kind(job)} {str(job.get('name', '')).rsplit('/', 1)[-1]}: {line}" for line in message.split("\n") if line.strip()]
    if not lines and pipeline.error_message and target.failure is not None:
        lines += [f"pipeline: {line}" for line in pipeline.error_message.split("\n") if line.strip()]
    found = []
    if lines:
        data = "".join(f"{when} {line}\n".lstrip() for line in lines).encode("utf-8", "replace")
        found.append(cloud_logging.text_log(f"{task.name}/error", data, task=task.name))
    settings = [s for job in target.jobs for s in _settings(job)]
    if settings:
        found.append(cloud_logging.text_log(f"{task.name}/job settings", ("\n".join(settings) + "\n").encode(), task=task.name))
    return found


def _kind(job: dict[str, Any]) -> str:
    parts = str(job.get("name", "")).split("/")
    return parts[-2].removesuffix("s") if len(parts) > 1 else "job"


def _settings(job: dict[str, Any]) -> list[str]:
    """The parts of a job that bear on failures, as the API spells them."""
    import json

    spec = job.get("jobSpec") or {}
    shown: dict[str, Any] = {"state": job.get("state"), "startTime": job.get("startTime"), "endTime": job.get("endTime"), "scheduling": spec.get("scheduling"), "serviceAccount": spec.get("serviceAccount")}
    for number, pool in enumerate(spec.get("workerPoolSpecs") or []):
        container = pool.get("containerSpec") or {}
        shown[f"workerPool{number}"] = {"machineSpec": pool.get("machineSpec"), "replicaCount": pool.get("replicaCount"), "image": container.get("imageUri"), "args": (container.get("args") or [])[:40]}
    return [f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)[:2000]}" for k, v in shown.items() if v]


def _machine(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    pools = [p for job in jobs[-1:] for p in ((job.get("jobSpec") or {}).get("workerPoolSpecs") or [])]
    specs = [p.get("machineSpec") or {} for p in pools]
    if not specs:
        return {}
    machines = [" ".join(str(x) for x in (s.get("machineType"), s.get("acceleratorCount"), s.get("acceleratorType")) if x) for s in specs]
    replicas = sum(int(p.get("replicaCount") or 1) for p in pools)
    return {"machines": sorted({m for m in machines if m}), "replicas": replicas}


# files ----------------------------------------------------------------------------------------------------------------


def _task_folder(task: TaskRecord, pipeline: PipelineRecord) -> tuple[str, str] | None:
    """(bucket, prefix ending in a slash) of a task's outputs."""
    m = vertex.JOB_NAME.fullmatch(pipeline.name)
    root = pipeline.pipeline_root or ""
    if not m or not root.startswith("gs://") or "/" not in root[5:] + "/":
        return None
    bucket, _, path = root[5:].partition("/")
    path = f"{path.strip('/')}/" if path.strip("/") else ""
    return bucket, f"{path}{m['project']}/{m['id']}/{task.name}_{task.id}/"


def _read_files(target: Target, cloud: Cloud, pipeline: PipelineRecord) -> None:
    """Configurations and logs among the outputs of the task; every download bounded."""
    import re

    from check_failed_run.sources.log_files import parse_config

    place = _task_folder(target.task, pipeline)
    if place is None:
        return
    bucket, prefix = place
    try:
        listed = cloud.list_objects(bucket, prefix, limit=500)
    except CloudError as error:
        gap(target.record, error, f"the files of task {target.task.name} (gs://{bucket}/{prefix})", f"gcloud storage ls -r gs://{bucket}/{shlex.quote(prefix)}")
        return
    wanted = [o for o in listed if re.search(r"(?i)(?:args|config|hparams|params|metrics)[\w.-]*\.(?:json|ya?ml|toml)$|\.(?:log|txt)$", o["name"])]
    for item in wanted[:8]:
        shown = f"gs://{bucket}/{item['name']}"
        try:
            data = cloud.read_object(bucket, item["name"], limit=4 << 20, tail=item["name"].endswith((".log", ".txt")))
        except CloudError as error:
            gap(target.record, error, shown, f"gcloud storage cat {shlex.quote(shown)}")
            return
        if item["name"].endswith((".log", ".txt")):
            target.record.logs.append(cloud_logging.text_log(shown, data, task=target.task.name))
        else:
            values = parse_config(item["name"], data)
            if values:
                target.record.configs.append(ConfigFile(shown, tuple(values.items())))


# the report -----------------------------------------------------------------------------------------------------------


def _no_target(record: RunRecord, pipeline: PipelineRecord) -> None:
    if pipeline.state == "FAILED":
        record.failed = True
        record.missing.append(MissingEvidence("the task that failed", "the job is FAILED, and no task of it is", f"open {pipeline.details.get('console') or pipeline.name}"))


def _finish(report: Report, targets: list[Target], pipeline: PipelineRecord, cloud: Cloud, now: float | None) -> None:
    cancelled = pipeline.state in ("CANCELLED", "CANCELLING")
    first = targets[0] if targets else None
    if first is not None and first.failure is None and report.run_status == "healthy":
        report.run_status = "running"
        report.summary = f"The pipeline runs: task {first.task.name} makes progress."
    if first is None and report.run_status == "healthy":
        report.run_status = "running" if pipeline.state in ("RUNNING", "PENDING", "QUEUED") else "healthy"
        if pipeline.state == "SUCCEEDED":
            report.root_cause = "No failure was found: every task of the pipeline ended well."
        elif cancelled:
            report.run_status = "crashed"
            report.root_cause = "The pipeline was cancelled; no task had failed before."
    if first is not None and first.failure is not None:
        fell = len(not_triggered(pipeline))
        times = f" in {first.failure.count} iterations" if first.failure.count > 1 else ""
        after = f"; {fell} task{'s were' if fell > 1 else ' was'} not triggered" if fell else ""
        report.proximate_cause = f"Task {first.task.name} failed first{times}{after}. {report.proximate_cause}".strip()
        if report.primary_cause == "cloud-permissions-quota" and not first.started:
            report.contributing_factors.append("pipeline-orchestration: the task was refused before its container started")
    report.next_commands = [*report.next_commands, *[c for c in _commands(first, pipeline, cloud) if c not in report.next_commands]]


def _commands(target: Target | None, pipeline: PipelineRecord, cloud: Cloud) -> list[str]:
    m = vertex.JOB_NAME.fullmatch(pipeline.name)
    where = f"--region={cloud.region} --project={cloud.project}"
    commands = [f"gcloud ai pipeline-jobs describe {shlex.quote(m['id'] if m else pipeline.name)} {where}"]
    if target is not None and target.job_ids:
        query = cloud_logging.job_filter(target.job_ids[-1:], _stamp((target.task.start or 0) - MARGIN) if target.task.start else None)
        commands.insert(0, f"gcloud logging read {shlex.quote(query)} --project={cloud.project} --order=asc --limit=5000 --format='value(timestamp,textPayload,jsonPayload.message)'")
        commands.insert(1, f"gcloud ai custom-jobs describe {target.job_ids[-1]} {where}")
    if pipeline.details.get("console"):
        commands.append(f"open {shlex.quote(pipeline.details['console'])}")
    return commands


def _add_diagnosis(report: Report, target: Target, other: Report) -> None:
    """The diagnosis of a further failed task into the one report."""
    if report.pipeline is None:
        return
    for entry in report.pipeline.failures:
        if entry.name == target.task.name and entry.primary_cause in (None, "unknown"):
            entry.primary_cause, entry.confidence = other.primary_cause, other.primary_cause_confidence
            entry.root_cause, entry.evidence = other.root_cause, other.evidence[:2]
            break
    if other.primary_cause not in ("none", "unknown"):
        report.contributing_factors.append(f"task {target.task.name} failed by itself: {other.primary_cause}")
    report.missing += [m for m in other.missing if m not in report.missing][:3]
    report.skipped += [s for s in other.skipped if s not in report.skipped][:10]


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
