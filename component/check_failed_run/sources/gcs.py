"""Cloud Storage: what a pipeline's tasks left there, read in bounded pieces and kept in memory.

Outputs lie under ``{pipeline root}/{project number}/{job id}/{task name}_{task id}/``; checkpoints have no fixed
place. Object names are strangers' text: they are shown cleaned and never become a local path.
"""

from __future__ import annotations

import io
import json
import re
import statistics
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from check_failed_run.record import Checkpoint, ConfigFile, LogSource, PipelineRecord, RunRecord, SkippedInput, TaskRecord
from check_failed_run.sources.clients import Clients, Fault
from check_failed_run.sources.log_files import flatten, read_simple_yaml, sniff

MAX_LISTED = 2000  # objects of one listing
MAX_FILES = 6  # objects downloaded for one diagnosis
MAX_LOG = 8 << 20  # bytes of a log that are read: its end
MAX_SMALL = 1 << 20  # bytes of a configuration or an error file
MAX_UNPACKED = 32 << 20

_URI = re.compile(r"^gs://(?P<bucket>[a-z0-9][a-z0-9._-]{1,221})(?:/(?P<name>.*))?$")
_IN_TEXT = re.compile(r"(?:gs://|/gcs/)[a-z0-9][a-z0-9._-]{1,221}/[^\s'\",;)\]}>]+")
_SAVING = re.compile(r"(?i)sav|checkpoint|ckpt|resum|restor")
_LOG = re.compile(r"(?i)(?:^|[_.-])(?:log|logs|stdout|stderr|console|error|errors|traceback|failure)(?:[_.-]|\d|$)|\.(?:log|out|err|jsonl)$")
_CONFIG = re.compile(r"(?i)^(?:train(?:ing)?_?args|(?:model_|train(?:ing)?_|trainer_|run_)?config|deepspeed_?config|ds_config|hparams|params|args|trainer_state|accelerate_config)\.(?:json|ya?ml|toml)$")
_ERROR = re.compile(r"(?i)^(?:error|failure|exception|traceback)s?(?:\.(?:json|txt|log))?$|torchelastic.*error")
_STEP = re.compile(r"(?i)(?:step|iter(?:ation)?|global_?step|checkpoint|ckpt|epoch|model)[_=-]?0*(?P<step>\d{1,9})")
_FORMATS = {
    ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "lightning", ".safetensors": "safetensors", ".distcp": "torch-dcp", ".h5": "keras",
    ".keras": "keras", ".index": "tensorflow", ".msgpack": "flax", ".npz": "numpy", ".orbax": "orbax", ".model": "xgboost", ".ubj": "xgboost",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One object. ``updated`` is in seconds since the epoch."""

    bucket: str
    name: str
    size: int
    updated: float | None

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.name}"


def split_uri(uri: str) -> tuple[str, str] | None:
    """(bucket, object name) of ``gs://...`` or ``/gcs/...``; None for anything else."""
    m = _URI.match(f"gs://{uri[5:]}" if uri.startswith("/gcs/") else uri)
    return (m["bucket"], m["name"] or "") if m else None


def shown(name: str) -> str:
    """An object name fit for a report: no control characters, no steps upwards, at most 200 characters."""
    parts = [re.sub(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", "?", part) for part in name.split("/") if part not in ("", ".", "..")]
    text = "/".join(parts)
    return text if len(text) <= 200 else "…" + text[-199:]


def list_objects(clients: Clients, bucket: str, prefix: str, limit: int = MAX_LISTED) -> list[Item]:
    """The objects under a prefix, in name order.

    Raises:
        Fault: they cannot be listed.
    """

    def listed(timeout: float) -> list[Item]:
        blobs = clients.storage.list_blobs(bucket, prefix=prefix, max_results=limit, timeout=timeout, retry=None)
        return [Item(bucket, blob.name, int(blob.size or 0), blob.updated.timestamp() if blob.updated else None) for blob in blobs]

    return clients.call("objects.list", listed, resource=f"gs://{bucket}/{prefix}", service=f"objects {bucket}")


def read_object(clients: Clients, item: Item, limit: int, *, tail: bool = False) -> bytes:
    """At most ``limit`` bytes of an object, from its start or its end.

    Raises:
        Fault: it cannot be read.
    """
    start = max(0, item.size - limit) if tail else 0

    def loaded(timeout: float) -> bytes:
        blob = clients.storage.bucket(item.bucket).blob(item.name)
        if item.size <= limit:
            return blob.download_as_bytes(timeout=timeout, retry=None, checksum=None)
        return blob.download_as_bytes(start=start, end=start + limit - 1, timeout=timeout, retry=None, checksum=None)

    return clients.call("objects.get", loaded, resource=item.uri, service=f"objects {item.bucket}")[:limit]


def write_text(clients: Clients, uri: str, text: str, content_type: str = "application/json") -> None:
    """Write one object.

    Raises:
        Fault: it cannot be written.
        ValueError: ``uri`` is no gs:// object name.
    """
    place = split_uri(uri)
    if place is None or not place[1]:
        raise ValueError(f"{uri}: not a gs://BUCKET/NAME address")

    def stored(timeout: float) -> None:
        clients.storage.bucket(place[0]).blob(place[1]).upload_from_string(text.encode(), content_type=content_type, timeout=timeout, retry=None)

    clients.call("objects.create", stored, resource=uri, service=f"objects {place[0]}")


# ---------------------------------------------------------------------------------------------- the run's files


def collect_outputs(clients: Clients, pipeline: PipelineRecord, tasks: list[TaskRecord], record: RunRecord) -> dict[str, RunRecord]:
    """Logs, error files and configurations in the output folders of ``tasks``, by task id; gaps go to ``record``.

    One listing serves all tasks. The tasks' ``details["outputs_found"]`` say what else lies there.
    """
    found: dict[str, RunRecord] = {}
    place = split_uri(pipeline.pipeline_root or "")
    project, job_id = pipeline.details.get("project"), pipeline.details.get("job_id")
    if place is None or not tasks or not project or not job_id:
        return found
    bucket, root = place
    base = "/".join(part for part in (root.strip("/"), project, job_id) if part) + "/"
    try:
        items = list_objects(clients, bucket, base)
    except Fault as fault:
        clients.gap(fault, record, "the files in the tasks' output folders", bucket=bucket)
        return found
    left = MAX_FILES
    for task in tasks:
        folder = f"{base}{task.name}_{task.id}/"
        own = [item for item in items if item.name.startswith(folder)]
        task.details["outputs_found"] = [item.name[len(folder) :] for item in own][:50]
        part = found.setdefault(task.id, RunRecord())
        wanted = sorted((item for item in own if item.size and _wanted(item.name)), key=lambda item: _rank(item.name))
        for item in wanted[:left]:
            _add(clients, item, f"{task.name}/{shown(item.name[len(folder) :])}", task, part, record)
        if len(wanted) > left:
            record.skipped.append(SkippedInput(f"gs://{bucket}/{shown(folder)}", f"{len(wanted) - left} files were not read (limit of {MAX_FILES} downloads)"))
        left = max(0, left - len(wanted))
    return found


def _wanted(name: str) -> bool:
    last = PurePosixPath(name).name
    return bool(_LOG.search(last) or _CONFIG.match(last) or _ERROR.match(last)) and last != "executor_output.json"


def _rank(name: str) -> tuple:
    last = PurePosixPath(name).name
    return (0 if _ERROR.match(last) else 1 if _LOG.search(last) else 2, name)


def _add(clients: Clients, item: Item, name: str, task: TaskRecord, part: RunRecord, record: RunRecord) -> None:
    config = bool(_CONFIG.match(PurePosixPath(item.name).name))
    try:
        data = read_object(clients, item, MAX_SMALL if config else MAX_LOG, tail=not config)
    except Fault as fault:
        clients.gap(fault, record, "the files in the tasks' output folders", bucket=item.bucket)
        return
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(data)
    kind = sniff(data[: 1 << 16], PurePosixPath(item.name).name) if data else "blank"
    if config and (values := read_config(data, item.name)) is not None:
        part.configs.append(ConfigFile(name, tuple(values.items())))
    elif kind in ("log", "config") and not config:
        part.logs.append(LogSource(name, lambda: io.BytesIO(data), len(data), task=task.id))
        if item.size > MAX_LOG:
            record.skipped.append(SkippedInput(name, f"only its last {MAX_LOG >> 20} MiB were read"))
    else:
        record.skipped.append(SkippedInput(name, f"{kind} file" if kind != "config" else "not readable as configuration"))


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, MAX_UNPACKED)
    except zlib.error:
        return b""


def read_config(data: bytes, name: str) -> dict[str, Any] | None:
    """Flat dotted keys of a JSON, YAML or TOML text; None where it holds no mapping."""
    text = data.decode("utf-8", "replace")
    try:
        if name.endswith(".json"):
            loaded = json.loads(text)
        elif name.endswith(".toml"):
            import tomllib

            loaded = tomllib.loads(text)
        else:
            loaded = read_simple_yaml(text)
    except (ValueError, RecursionError):
        return None
    return flatten(loaded) if isinstance(loaded, dict) else None


# ---------------------------------------------------------------------------------------------- checkpoints


def checkpoint_folders(lines: Iterable[str], output: str | None, limit: int = 2) -> list[str]:
    """Where checkpoints may be: folders of gs:// and /gcs/ paths that the log prints while saving, and the job's own."""
    found: list[str] = []
    for line in lines:
        if not _SAVING.search(line):
            continue
        for m in _IN_TEXT.finditer(line):
            place = split_uri(m[0].rstrip("."))
            if place and "/" in place[1].strip("/"):
                found.append(f"gs://{place[0]}/{place[1].strip('/').rsplit('/', 1)[0]}/")
    newest = list(dict.fromkeys(reversed(found)))[:limit]
    if output and split_uri(output):
        newest.append(output.rstrip("/") + "/checkpoints/")
    return newest[:limit]


def collect_checkpoints(clients: Clients, folders: list[str], record: RunRecord) -> None:
    """List checkpoints; nothing is downloaded. One far smaller than its siblings, or empty, was not written to its end."""
    for folder in folders:
        place = split_uri(folder)
        if place is None:
            continue
        try:
            items = list_objects(clients, *place)
        except Fault as fault:
            clients.gap(fault, record, "the checkpoints", bucket=place[0])
            continue
        record.checkpoints += _checkpoints(items, place[1])


def _checkpoints(items: list[Item], prefix: str) -> list[Checkpoint]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        rest = item.name[len(prefix) :]
        head, slash, _ = rest.partition("/")
        suffix = PurePosixPath(item.name).suffix.lower()
        if slash and _STEP.search(head):
            groups.setdefault(prefix + head + "/", []).append(item)
        elif not slash and (suffix in _FORMATS or (_STEP.search(rest) and suffix not in (".json", ".log", ".txt", ".yaml"))):
            groups.setdefault(item.name, []).append(item)
    sizes = {name: sum(item.size for item in some) for name, some in groups.items()}
    typical = statistics.median(sizes.values()) if len(sizes) >= 3 else 0
    result = []
    for name, some in groups.items():
        m = _STEP.search(name[len(prefix) :])
        formats = {_FORMATS.get(PurePosixPath(item.name).suffix.lower()) for item in some} - {None}
        size = sizes[name]
        state = "partial" if size == 0 or size < 0.5 * typical else "complete"
        result.append(Checkpoint(
            path=f"gs://{some[0].bucket}/{name}", format=sorted(formats)[0] if formats else "unknown", state=state, step=int(m["step"]) if m else None,
            time=max((item.updated for item in some if item.updated), default=None), reason="empty or far smaller than the others" if state == "partial" else None, bytes=size,
        ))  # fmt: skip
    return sorted(result, key=lambda c: (c.step if c.step is not None else -1, c.time or 0.0, c.path))
