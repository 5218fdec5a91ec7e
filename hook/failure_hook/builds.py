"""A failed Cloud Build: its log from the logs bucket or Cloud Logging, diagnosed like any other."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from check_failed_run.api import diagnose
from check_failed_run.record import LogSource, MissingEvidence, RunRecord
from check_failed_run.sources.clients import Clients, Fault
from failure_hook.events import Event
from failure_hook.settings import Settings

MAX_LOG = 32 << 20  # bytes of the log's end


def diagnose_build(event: Event, settings: Settings) -> Any:
    """The report of a failed build."""
    _, project, _, region, _, identity = event.name.split("/")
    details = json.loads(event.raw) if event.raw else {}
    clients = Clients(project, region, settings.deadline)
    record = RunRecord(targets=[event.name], failed=True)
    bucket = str(details.get("logsBucket") or "").removeprefix("gs://").strip("/")
    how = f"gcloud builds log {identity} --region={region} --project={project}"
    if re.fullmatch(r"[a-z0-9._-]{3,222}(?:/[\w./-]*)?", bucket):
        name, _, folder = bucket.partition("/")
        path = f"{folder.strip('/')}/log-{identity}.txt".lstrip("/")
        try:
            data = clients.call("objects.get", lambda timeout: _tail(clients, name, path, timeout), resource=f"gs://{name}/{path}", service=f"objects/{name}")
            record.logs.append(LogSource(f"build {identity}", lambda: io.BytesIO(data), size=len(data)))
        except Fault as fault:
            clients.gap(fault, record, "the build's log", bucket=name)
    steps = [f"step {s.get('id') or n} ({s.get('name')}): {s.get('status')}" + (f", exit code {s['exitCode']}" if s.get("exitCode") else "") for n, s in enumerate(details.get("steps") or [])]
    if steps:
        text = ("\n".join(steps) + f"\nbuild {identity}: {event.state}\n").encode()
        record.logs.append(LogSource("build steps", lambda: io.BytesIO(text), size=len(text)))
    if not any(log.name.startswith("build ") and log.name != "build steps" for log in record.logs):
        record.missing.append(MissingEvidence("the build's log", "the build names no logs bucket that can be read", how))
    return diagnose(record)


def _tail(clients: Clients, bucket: str, name: str, timeout: float) -> bytes:
    blob = clients.storage.bucket(bucket).blob(name)
    blob.reload(timeout=timeout)
    return blob.download_as_bytes(start=max(0, (blob.size or 0) - MAX_LOG), timeout=timeout)
