"""Cloud Logging: the logs of the jobs behind a pipeline's tasks, as LogSources.

One entry is one line of a replica, or a whole text of the service. Severity says little (every line on stderr
is ERROR), and entries of replicas interleave; so all are read, ordered by (timestamp, insertId), and each replica
becomes a log of its own. Reads are few: pages of 1000, one query for all jobs, then tails, then the earliest errors.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from check_failed_run.record import LogSource, MissingEvidence, PipelineRecord, RunRecord, SkippedInput, TaskRecord
from check_failed_run.sources.clients import ACCOUNT, Clients, Fault
from check_failed_run.sources.vertex import JobInfo, rfc3339

PAGE = 1000  # the largest page that entries.list gives
HEAD_PAGES = 2  # of the common query, before tails are asked for
READS = 55  # entries.list calls of one diagnosis
WHOLE_PAGES = 30  # further pages of one job's log, when its head and tail did not decide
MAX_BYTES = 48 << 20  # of text kept
MAX_ENTRY = 256 << 10
BEFORE, AFTER = 120.0, 900.0  # seconds around a task's times; the service's last lines come after the task's end
RETENTION = 30 * 86400.0  # of the _Default bucket, unless it was changed

_SERVICE = "service"
_POOL = re.compile(r"^workerpool(?P<pool>\d+)-(?P<index>\d+)$")
MORE = "To find out more about why your job exited please check the logs"


@dataclass(slots=True)
class Entry:
    """One log entry. ``nanos`` are since the epoch."""

    job: str
    source: str  # replica, or "service"
    nanos: int
    insert_id: str
    text: str
    severity: int = 0
    split: tuple[str, int] | None = None

    @property
    def time(self) -> float:
        return self.nanos / 1e9


@dataclass(slots=True)
class JobLog:
    """What was read of one job's log, in order."""

    job: str
    entries: list[Entry] = field(default_factory=list)
    complete: bool = True
    gap: tuple[float, float] | None = None  # times between which entries may be missing
    errors_read: bool = False  # whether all entries of severity ERROR in the gap are there
    fault: Fault | None = None
    final: bool = False  # read after its task had ended

    def add(self, entries: Iterable[Entry]) -> None:
        known = {(e.nanos, e.insert_id) for e in self.entries}
        for entry in entries:
            if (entry.nanos, entry.insert_id) not in known:
                known.add((entry.nanos, entry.insert_id))
                self.entries.append(entry)
        self.entries.sort(key=lambda e: (e.nanos, e.insert_id))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job whose log is asked for; times in seconds since the epoch, None for open."""

    job: str
    start: float | None
    end: float | None


# ---------------------------------------------------------------------------------------------- queries


def job_filter(jobs: Iterable[str], start: float | None = None, end: float | None = None, *, errors: bool = False) -> str:
    """The filter for the logs of custom jobs. OR binds tighter than AND in this language; both are written with parentheses."""
    ids = [job for job in jobs if re.fullmatch(r"\d{1,25}", job)]
    alternatives = " OR ".join(f'"{job}"' for job in ids)
    parts = ['resource.type="ml_job"', f"resource.labels.job_id=({alternatives})" if len(ids) != 1 else f'resource.labels.job_id="{ids[0]}"']
    if start is not None:
        parts.append(f'timestamp>="{rfc3339(start)}"')
    if end is not None:
        parts.append(f'timestamp<="{rfc3339(end)}"')
    if errors:
        parts.append("severity>=ERROR")
    return " AND ".join(parts)


def events_filter(job_id: str, start: float | None = None) -> str:
    """The filter for a pipeline's own events (states of the job and its tasks)."""
    parts = ['resource.type="aiplatform.googleapis.com/PipelineJob"', f'resource.labels.pipeline_job_id="{job_id}"']
    if start is not None:
        parts.append(f'timestamp>="{rfc3339(start)}"')
    return " AND ".join(parts)


def cancel_filter(ids: Iterable[str], start: float, end: float) -> str:
    """The filter for the audit log's entries of calls that cancelled one of these jobs."""
    wanted = " OR ".join(f'"{job}"' for job in ids if re.fullmatch(r"[\w.-]{1,200}", job))
    return (
        f'logName:"cloudaudit.googleapis.com" AND protoPayload.methodName:"Cancel" AND protoPayload.resourceName:({wanted})'
        f' AND timestamp>="{rfc3339(start)}" AND timestamp<="{rfc3339(end)}"'
    )


def caller_of(raw: Any) -> tuple[float, str, str] | None:
    """(time, method, principal) of an audit log entry; None for another payload."""
    from google.cloud.audit.audit_log_pb2 import AuditLog

    audit = AuditLog()
    if raw.WhichOneof("payload") != "proto_payload" or not raw.proto_payload.Unpack(audit):
        return None
    principal = audit.authentication_info.principal_email
    return (raw.timestamp.seconds + raw.timestamp.nanos / 1e9, audit.method_name.rsplit(".", 1)[-1], principal) if principal else None


def read_page(clients: Clients, query: str, *, newest_first: bool = False, token: str = "") -> tuple[list[Any], str]:
    """(raw LogEntry messages, next page token). An empty page may still have a token.

    Raises:
        Fault: the page cannot be read.
    """
    request = {
        "resource_names": [f"projects/{clients.project}"],
        "filter": query,
        "order_by": "timestamp desc" if newest_first else "timestamp asc",
        "page_size": PAGE,
        "page_token": token,
    }

    def listed(timeout: float) -> Any:
        return next(iter(clients.logging.list_log_entries(request=request, timeout=timeout, retry=None).pages))

    response = clients.call("logEntries.list", listed)
    raw = type(response).pb(response)
    return list(raw.entries), raw.next_page_token


def entry_of(raw: Any) -> Entry:
    """One protobuf LogEntry."""
    labels = raw.resource.labels
    kind = raw.WhichOneof("payload")
    if kind == "text_payload":
        text = raw.text_payload
    elif kind == "json_payload":
        fields = raw.json_payload.fields
        text = fields["message"].string_value if "message" in fields and fields["message"].HasField("string_value") else _json(raw.json_payload)
    else:
        text = ""
    split = (raw.split.uid, raw.split.index) if raw.split.uid else None
    return Entry(
        labels.get("job_id", ""),
        labels.get("task_name", ""),
        raw.timestamp.seconds * 1_000_000_000 + raw.timestamp.nanos,
        raw.insert_id,
        text[:MAX_ENTRY],
        int(raw.severity),
        split,
    )


def event_of(raw: Any) -> dict[str, Any]:
    """A pipeline or task event: its payload (nested or flat), with the entry's labels and time."""
    from google.protobuf.json_format import MessageToDict

    payload = MessageToDict(raw.json_payload) if raw.WhichOneof("payload") == "json_payload" else {}
    inner = payload.get("payload") if isinstance(payload.get("payload"), dict) else payload
    return {**inner, "pipelineName": payload.get("pipelineName"), "labels": dict(raw.labels), "nanos": raw.timestamp.seconds * 1_000_000_000 + raw.timestamp.nanos}


def _json(struct: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    return json.dumps(MessageToDict(struct), ensure_ascii=False)


class Reader:
    """Reads the logs of many jobs within a budget of calls."""

    def __init__(self, clients: Clients, reads: int = READS):
        self.clients, self.reads = clients, reads
        self.bytes = 0
        self.fault: Fault | None = None

    def renew(self) -> None:
        """Another budget, for another look."""
        self.reads, self.fault = READS, None

    def page(self, query: str, *, newest_first: bool = False, token: str = "") -> tuple[list[Entry], str] | None:
        """Entries of one page and the next token; None when the budget or the service is at its end."""
        if self.reads <= 0 or self.fault is not None or self.bytes > MAX_BYTES:
            return None
        self.reads -= 1
        try:
            raw, following = read_page(self.clients, query, newest_first=newest_first, token=token)
        except Fault as fault:
            self.fault = fault
            return None
        entries = [entry_of(item) for item in raw]
        self.bytes += sum(len(e.text) for e in entries)
        return entries, following

    def read(self, wanted: list[Wanted]) -> dict[str, JobLog]:
        """Head, tail and earliest errors of each job's log, the first job first."""
        logs = {w.job: JobLog(w.job) for w in wanted}
        for start in range(0, len(wanted), 200):
            self._common(wanted[start : start + 200], logs)
        if self.fault is not None:
            for log in logs.values():
                log.fault = self.fault
                log.complete = False
        return logs

    def _common(self, wanted: list[Wanted], logs: dict[str, JobLog]) -> None:
        starts, ends = [w.start for w in wanted], [w.end for w in wanted]
        begin = None if None in starts or not starts else min(s for s in starts if s is not None) - BEFORE
        end = None if None in ends or not ends else max(e for e in ends if e is not None) + AFTER
        query = job_filter([w.job for w in wanted], begin, end)
        token, reached = "", None
        for number in range(HEAD_PAGES):
            answer = self.page(query, token=token)
            if answer is None:
                break
            entries, token = answer
            self._share(entries, logs)
            reached = entries[-1].time if entries else reached
            if not token:
                return
            if not entries and number == HEAD_PAGES - 1:  # an empty page that goes on costs a read, not an answer
                break
        open_jobs = [w for w in wanted if reached is None or w.end is None or w.end + AFTER > reached]
        for w in open_jobs:
            logs[w.job].complete = False
            head = [e.time for e in logs[w.job].entries]
            logs[w.job].gap = (head[-1] if head else (w.start or 0.0), w.end or float("inf"))
        for w in open_jobs:
            answer = self.page(job_filter([w.job], begin if w.start is None else w.start - BEFORE, None if w.end is None else w.end + AFTER), newest_first=True)
            if answer is None:
                break
            entries, token = answer
            log = logs[w.job]
            oldest = min((e.time for e in entries), default=None)
            log.add(entries)
            if not token or (oldest is not None and log.gap is not None and oldest <= log.gap[0]):
                log.gap, log.complete = None, True
            elif log.gap is not None and oldest is not None:
                log.gap = (log.gap[0], oldest)
        gapped = [w for w in open_jobs if logs[w.job].gap is not None]
        if gapped:
            first = min((logs[w.job].gap or (0.0, 0.0))[0] for w in gapped)
            answer = self.page(job_filter([w.job for w in gapped], first or None, end, errors=True))
            if answer is not None:
                self._share(answer[0], logs)
                for w in gapped:
                    logs[w.job].errors_read = not answer[1]

    def _share(self, entries: list[Entry], logs: dict[str, JobLog]) -> None:
        by_job: dict[str, list[Entry]] = {}
        for entry in entries:
            by_job.setdefault(entry.job, []).append(entry)
        for job, some in by_job.items():
            if job in logs:
                logs[job].add(some)

    def read_whole(self, log: JobLog, pages: int = WHOLE_PAGES) -> bool:
        """Fill the gap of one job's log, up to a limit; whether anything was added."""
        if log.gap is None:
            return False
        low, high = log.gap
        query = job_filter([log.job], low, None if high == float("inf") else high)
        token, before = "", len(log.entries)
        for _ in range(pages):
            answer = self.page(query, token=token)
            if answer is None:
                break
            entries, token = answer
            log.add(entries)
            if entries:
                log.gap = (entries[-1].time, high)
            if not token:
                log.gap, log.complete = None, True
                break
        return len(log.entries) > before

    def read_newer(self, log: JobLog) -> bool:
        """The entries that came since the last one of ``log``; whether there were any."""
        if not log.entries:
            return False
        query, token, before = job_filter([log.job], log.entries[-1].time - 0.001), "", len(log.entries)
        for _ in range(5):
            answer = self.page(query, token=token)
            if answer is None:
                break
            log.add(answer[0])
            token = answer[1]
            if not token:
                break
        return len(log.entries) > before


# ---------------------------------------------------------------------------------------------- entries to logs


def log_sources(log: JobLog, prefix: str, *, info: JobInfo | None = None, task: str | None = None) -> list[LogSource]:
    """A log per replica, and one for the service; quotes read ``{prefix}/workerpool0-0:12: 2026-...Z text``."""
    by_source: dict[str, list[tuple[int, str]]] = {}
    said: set[str] = set()
    service: list[Entry] = []
    for entry in _joined(log.entries):
        if entry.source == _SERVICE:
            service.append(entry)
            continue
        lines = entry.text.rstrip("\n").split("\n")
        said.update(line.strip() for line in lines)
        by_source.setdefault(entry.source or "log", []).extend((entry.nanos, line) for line in lines)
    for entry in service:
        by_source.setdefault(_SERVICE, []).extend((entry.nanos, line) for line in _new_lines(entry.text, said))
    replicas = sorted((name for name in by_source if name != _SERVICE), key=_pool_order)
    ranks = _ranks(replicas, info)
    sources = []
    for name in [*replicas, *([_SERVICE] if _SERVICE in by_source else [])]:
        data = text_of(by_source[name]).encode("utf-8", "replace")
        sources.append(LogSource(f"{prefix}/{name}", lambda data=data: io.BytesIO(data), len(data), rank=ranks.get(name), task=task))
    return sources


def text_of(lines: Iterable[tuple[int, str]]) -> str:
    """Lines with their times in front, as RFC 3339."""
    return "".join(f"{rfc3339(nanos / 1e9)} {line}\n" if nanos > 0 else f"{line}\n" for nanos, line in lines)


def _new_lines(text: str, said: set[str]) -> list[str]:
    """What the service adds: its entry repeats the end of a replica's stderr, often cut."""
    lines = [line for line in text.rstrip("\n").split("\n") if line.strip() and not line.startswith(MORE)][:200]
    if len(lines) < 2:
        return lines
    return [lines[0], *(line for line in lines[1:] if line.strip() not in said and not any(known.startswith(line.strip()) for known in said))] if said else lines


def _joined(entries: list[Entry]) -> list[Entry]:
    """Entries that an agent split are put together again."""
    result: list[Entry] = []
    by_uid: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.split is None:
            result.append(entry)
            continue
        parts = by_uid.setdefault(entry.split[0], [])
        if not parts:
            result.append(entry)
        parts.append(entry)
    for parts in by_uid.values():
        first = parts[0]
        first.text = "".join(e.text for e in sorted(parts, key=lambda e: e.split[1] if e.split else 0))[: 4 * MAX_ENTRY]
    return result


def _pool_order(name: str) -> tuple:
    m = _POOL.match(name)
    return (0, int(m["pool"]), int(m["index"]), name) if m else (1, 0, 0, name)


def _ranks(replicas: list[str], info: JobInfo | None) -> dict[str, int]:
    """The first global rank of each replica, where there are several: pools in order, one process a GPU."""
    if len(replicas) < 2 and sum(pool["replicas"] for pool in (info.pools if info else ())) < 2:
        return {}
    pools = info.pools if info else []
    ranks, number = {}, 0
    if pools:
        first: list[tuple[int, int]] = []
        for pool in pools:
            each = max(1, pool["accelerators"])
            first.append((number, each))
            number += each * max(1, pool["replicas"])
        for name in replicas:
            m = _POOL.match(name)
            if m and int(m["pool"]) < len(first):
                base, each = first[int(m["pool"])]
                ranks[name] = base + each * int(m["index"])
        return ranks
    return {name: number for number, name in enumerate(replicas) if _POOL.match(name)}


def _account(pipeline: PipelineRecord) -> tuple[str, str]:
    """(the account that the tasks run as, its member name in a command)."""
    account = pipeline.service_account
    if account and ACCOUNT.fullmatch(account):
        return account, f"serviceAccount:{account}"
    return "the job's service account", "serviceAccount:ACCOUNT"


def note_absence(log: JobLog, task: TaskRecord, pipeline: PipelineRecord, record: RunRecord, project: str, now: float) -> None:
    """Say why a job has no log, as far as that is known."""
    end = task.end or pipeline.end or now
    query = job_filter([log.job], task.start)
    how = f"gcloud logging read '{query}' --project={project} --limit=100"
    if log.fault is not None:
        return  # told as a gap of the API
    if now - end > RETENTION:
        days = int((now - end) // 86400)
        record.missing.append(MissingEvidence(
            f"the log of task {task.name}", f"the task ended {days} days ago and its entries are gone: the _Default bucket keeps them for 30 days",
            f"gcloud logging buckets list --project={project}; gcloud logging sinks list --project={project}",
        ))  # fmt: skip
        return
    account, member = _account(pipeline)
    record.missing.append(MissingEvidence(
        f"the log of task {task.name}",
        f"no entry of job {log.job} is in Cloud Logging: it wrote none, an exclusion filter drops them, or {account} lacks logging.logEntries.create (roles/logging.logWriter)",
        f"{how}; gcloud projects add-iam-policy-binding {project} --member={member} --role=roles/logging.logWriter",
    ))  # fmt: skip


def note_silence(log: JobLog, task: TaskRecord, pipeline: PipelineRecord, record: RunRecord, project: str) -> None:
    """Say that only the service's lines were found, none of the program's."""
    account, member = _account(pipeline)
    record.missing.append(MissingEvidence(
        f"the lines of the program of task {task.name}",
        f"only the service's own lines are in Cloud Logging: the container never started, printed nothing, or {account} lacks logging.logEntries.create (roles/logging.logWriter)",
        f"gcloud projects add-iam-policy-binding {project} --member={member} --role=roles/logging.logWriter",
    ))  # fmt: skip


def note_gap(log: JobLog, name: str, record: RunRecord) -> None:
    """Say which part of a long log was not read."""
    if log.gap is None:
        return
    low, high = log.gap
    until = "its end" if high == float("inf") else rfc3339(high)
    rest = "all errors among them were" if log.errors_read else "only the earliest errors among them may have been"
    record.skipped.append(SkippedInput(name, f"entries between {rfc3339(low)} and {until} were not read (limit of reads); {rest}"))
