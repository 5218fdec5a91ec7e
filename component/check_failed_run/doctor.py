"""What the exit handler and the hook need on Google Cloud: each permission tried with a harmless call.

A lookup of something that does not exist answers "not found" to whom may look, and "permission denied" to whom may not.
Nothing is written or changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from check_failed_run.record import RunRecord
from check_failed_run.sources.clients import ROLES, Clients, Fault

PROBE = "check-failed-run-doctor"
YES, NO, UNKNOWN = "yes", "no", "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One permission: ``answer`` is yes, no or unknown; ``how`` the command that grants it, or that finds out more."""

    permission: str
    role: str
    needed_for: str
    answer: str
    detail: str = ""
    how: str = ""


def examine(project: str, region: str, bucket: str | None = None, *, deadline: float = 60.0) -> list[Finding]:
    """Try every permission.

    Args:
        project, region: where pipelines run.
        bucket: of the pipeline root; without it the storage permissions stay unknown.
        deadline: seconds for all calls together.
    """
    clients = Clients(project, region, deadline)
    parent = f"projects/{project}/locations/{region}"

    def pipeline(timeout: float) -> Any:
        return clients.pipelines.get_pipeline_job(name=f"{parent}/pipelineJobs/{PROBE}", timeout=timeout, retry=None)

    def custom(timeout: float) -> Any:
        return clients.jobs.get_custom_job(name=f"{parent}/customJobs/1", timeout=timeout, retry=None)

    def entries(timeout: float) -> Any:
        request = {"resource_names": [f"projects/{project}"], "filter": 'resource.type="ml_job" AND timestamp>="2020-01-01T00:00:00Z" AND timestamp<="2020-01-01T00:00:01Z"', "page_size": 1}
        return next(iter(clients.logging.list_log_entries(request=request, timeout=timeout, retry=None).pages), None)

    found = [
        _try(clients, "pipelineJobs.get", pipeline),
        _try(clients, "customJobs.get", custom),
        _try(clients, "logEntries.list", entries),
    ]
    wanted = {"objects.list": "storage.objects.list", "objects.get": "storage.objects.get", "objects.create": "storage.objects.create"}
    if bucket is None:
        found += [Finding(permission, _role(api), _lacking(api), UNKNOWN, "name the bucket of the pipeline root with --bucket") for api, permission in wanted.items()]
        return found
    try:
        granted = clients.call("objects.list", lambda timeout: clients.storage.bucket(bucket).test_iam_permissions(list(wanted.values()), timeout=timeout), resource=f"gs://{bucket}")
    except Fault as fault:
        return found + [Finding(permission, _role(api), _lacking(api), UNKNOWN, fault.reason(), f"gcloud storage buckets get-iam-policy gs://{bucket}") for api, permission in wanted.items()]
    for api, permission in wanted.items():
        how = "" if permission in granted else f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:SERVICE_ACCOUNT --role={_role(api)}"
        found.append(Finding(permission, _role(api), _lacking(api), YES if permission in granted else NO, "", how))
    return found


def _try(clients: Clients, api: str, probe: Callable[[float], Any]) -> Finding:
    permission, role, lacking = ROLES[api]
    try:
        clients.call(api, probe, resource=PROBE)
    except Fault as fault:
        if fault.status == 404:
            return Finding(permission, role, lacking, YES)
        note = RunRecord()
        clients.gap(fault, note)
        how = note.missing[0].how if note.missing else ""
        return Finding(permission, role, lacking, NO if fault.status == 403 else UNKNOWN, fault.reason(), how)
    return Finding(permission, role, lacking, YES)


def _role(api: str) -> str:
    return "roles/storage.objectCreator" if api == "objects.create" else ROLES[api][1]


def _lacking(api: str) -> str:
    return "writing the report below the pipeline root" if api == "objects.create" else ROLES[api][2]


def table(findings: list[Finding]) -> str:
    """The findings as text: one line each, the command below those that are not granted."""
    width = max(len(f.permission) for f in findings)
    lines = []
    for f in findings:
        lines.append(f"{f.answer:7}  {f.permission:{width}}  {f.role:28}  {f.needed_for}")
        if f.answer != YES:
            lines += [f"         {text}" for text in (f.detail, f.how) if text]
    return "\n".join(lines) + "\n"
