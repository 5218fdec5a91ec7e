"""From a diagnosis and a plan to the report. Only shapes and limits here: what is true was decided before."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from check_failed_run.analysis.dag import read_dag
from check_failed_run.analysis.diagnosis import Cause, Diagnosis
from check_failed_run.catalogue.classes import CLASS_INFO
from check_failed_run.catalogue.model import CLASSES, NO_FAILURE, UNKNOWN
from check_failed_run.planning.fixes import Plan, fill, fill_command, newest_complete, template_values
from check_failed_run.record import Checkpoint, PipelineRecord, RunRecord, TaskRecord
from check_failed_run.report import model
from check_failed_run.report.context import contexts
from check_failed_run.report.redact import clean
from check_failed_run.scanning.facts import LogFacts, LogLine, MetricPoint

HIGH, MEDIUM = 0.80, 0.50
QUOTE = 500  # characters of a quoted line
MAX_EVIDENCE, MAX_POINTS, MAX_SIGNALS, MAX_SUMMARY, MAX_RANKS = 12, 400, 200, 240, 1024


def build(
    diagnosis: Diagnosis, record: RunRecord, plan: Plan, *, run_id: str, timestamp: str, duration: float, facts: Iterable[LogFacts] = ()
) -> model.Report:
    """The report of one diagnosis, not yet redacted. The same input gives the same object."""
    cause = diagnosis.primary
    confidence = round(min(1.0, max(0.0, diagnosis.confidence)), 2)
    primary = UNKNOWN if not diagnosis.decided or (cause and cause.cls not in CLASS_INFO) else cause.cls if cause else NO_FAILURE
    evidence, dropped = _evidence(diagnosis)
    notes = [f"{dropped} more evidence lines" if dropped else ""]
    if len(diagnosis.signals) > MAX_SIGNALS:
        notes.append(f"{len(diagnosis.signals) - MAX_SIGNALS} more signals")
    if len(diagnosis.ranks) > MAX_RANKS:
        notes.append(f"{len(diagnosis.ranks) - MAX_RANKS} more ranks")
    return model.Report(
        run_id=run_id,
        timestamp=timestamp,
        duration_seconds=duration,
        decision=plan.decision,
        confidence=level(confidence),
        summary=_summary(diagnosis, primary),
        findings=[
            model.Finding(f"F{n:03d}", finding.severity, _line(finding.title), _line(finding.description), _line(finding.fix))
            for n, finding in enumerate(plan.findings, 1)
        ],
        next_commands=list(plan.next_commands),
        run_status=diagnosis.status,  # type: ignore[arg-type]
        framework=diagnosis.framework or "unknown",
        primary_cause=primary,
        primary_cause_confidence=confidence,
        contributing_factors=[_line(text) for text in dict.fromkeys(diagnosis.contributing)],
        evidence=evidence,
        root_cause=_root_cause(diagnosis, primary),
        fixes=[
            model.FixStep(fix.action, fix.risk, fix.expected_impact, fix.validate, fix.time_to_try, fix.command, fix.confidence)
            for fix in plan.fixes
        ],
        failure_point=_failure_point(cause) if diagnosis.decided or cause else None,
        proximate_cause=_line(diagnosis.proximate),
        secondary_causes=[
            model.SecondaryCause(other.cls, round(other.confidence, 2), quote(other.at) if other.at else _line(other.summary or other.kind))
            for other in diagnosis.secondary
        ],
        ruled_out=_ruled_out(diagnosis, primary),
        last_progress=_progress(diagnosis.last_progress),
        metrics={name: _series(name, points, diagnosis.went_wrong_at.get(name)) for name, points in sorted(diagnosis.series.items()) if points},
        environment={str(key): _plain(value) for key, value in sorted(diagnosis.environment.items(), key=lambda item: str(item[0]))},
        checkpoints=_checkpoints(diagnosis, record),
        attempts=[model.Attempt(**_only(model.Attempt, attempt)) for attempt in diagnosis.attempts],
        ranks=[model.RankState(**_only(model.RankState, rank)) for rank in diagnosis.ranks[:MAX_RANKS]],
        retry=plan.retry,
        fingerprint=fingerprint(cause) if cause else _hash(primary, diagnosis.status),
        missing=_missing(diagnosis, record, confidence),
        skipped=[model.Skipped(item.input, _line(item.reason)) for item in dict.fromkeys(record.skipped)],
        signals=[_signal(signal) for signal in diagnosis.signals[:MAX_SIGNALS]],
        truncated="; ".join(note for note in notes if note) or None,
        pipeline=_pipeline(record.pipeline, diagnosis, record) if record.pipeline else None,
        context=contexts(evidence, facts),
    )


def level(confidence: float) -> model.Level:
    return "high" if confidence >= HIGH else "medium" if confidence >= MEDIUM else "low"


# --- texts


def _line(text: str) -> str:
    """One line of prose."""
    return " ".join(clean(str(text)).split())


def quote(at: LogLine) -> str:
    """``name:line: raw``: what was really seen, without control characters, cut at 500 characters."""
    return f"{clean(at.input)}:{at.line}: {quoted(at.raw)}"


def quoted(raw: str) -> str:
    text = clean(raw).replace("\n", " ").strip()
    return text if len(text) <= QUOTE else text[: QUOTE - 1] + "…"


def _evidence(diagnosis: Diagnosis) -> tuple[list[str], int]:
    own = [item.at for item in diagnosis.evidence]
    if diagnosis.primary is not None:
        at = diagnosis.primary.at
        known = {(line.input, line.line, line.offset) for line in own}
        if at is not None and (at.input, at.line, at.offset) not in known:
            own.insert(0, at)
        if not diagnosis.evidence:
            own += [item.at for item in diagnosis.primary.evidence]
    lines = list(dict.fromkeys(quote(at) for at in own))
    return lines[:MAX_EVIDENCE], max(0, len(lines) - MAX_EVIDENCE)


def _root_cause(diagnosis: Diagnosis, primary: str) -> str:
    cause = diagnosis.primary
    text = diagnosis.root_cause or " ".join(part for part in ((cause.summary, cause.explanation) if cause else ()) if part)
    if text:
        return _line(text)
    if primary == NO_FAILURE:
        return "No failure was found."
    if primary == UNKNOWN:
        return "The evidence at hand does not show the cause."
    return CLASS_INFO[primary].title + (f": {cause.kind}." if cause and cause.kind else ".")


def _summary(diagnosis: Diagnosis, primary: str) -> str:
    where = f"{diagnosis.framework} run" if diagnosis.framework not in ("", "unknown") else "run"
    head = f"{where[0].upper()}{where[1:]} {diagnosis.status}" if diagnosis.status != "unknown" else f"{where[0].upper()}{where[1:]}: status unknown"
    if primary == NO_FAILURE:
        text = f"{head}: no failure found"
    elif primary == UNKNOWN:
        text = f"{head}: cause not shown by the evidence"
    else:
        cause = diagnosis.primary
        detail = _line((cause.summary if cause else "") or diagnosis.root_cause or (cause.kind if cause else "")).rstrip(".")
        step = f" at step {cause.step}" if cause and cause.step is not None and "step" not in detail.lower() else ""
        text = f"{head}{step}: {primary} ({diagnosis.confidence:.2f}): {detail}"
    text = _line(text)
    return text if len(text) <= MAX_SUMMARY else text[: MAX_SUMMARY - 1] + "…"


def _ruled_out(diagnosis: Diagnosis, primary: str) -> list[model.RuledOut]:
    """Every other class once: the analysis' reason where it has one, else what was looked for."""
    given = dict(reversed(diagnosis.ruled_out))
    listed = {primary} | {other.cls for other in diagnosis.secondary}
    if primary == UNKNOWN and diagnosis.primary is not None:
        listed.add(diagnosis.primary.cls)
    result = [model.RuledOut(cls, _line(given[cls])) for cls in dict.fromkeys(cls for cls, _ in diagnosis.ruled_out) if cls != primary]
    for cls in CLASSES:
        if cls not in listed and cls not in given and primary != UNKNOWN:
            result.append(model.RuledOut(cls, f"not found: {CLASS_INFO[cls].looked_for}"))
    return result


# --- parts


def iso(time: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601, UTC."""
    if time is None or not math.isfinite(time):
        return None
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds" if time % 1 else "seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _failure_point(cause: Cause | None) -> model.FailurePoint | None:
    if cause is None or cause.at is None:
        return None
    at = cause.at
    location = cause.location or (cause.exception.location if cause.exception else None)
    return model.FailurePoint(
        input=at.input,
        line=at.line,
        text=quoted(at.raw),
        step=cause.step,
        epoch=_finite(cause.epoch),
        timestamp=iso(at.time),
        rank=cause.rank if cause.rank is not None else at.rank,
        location=location,
        exception=cause.exception.type if cause.exception else None,
    )


def _progress(point: MetricPoint | None) -> model.Progress | None:
    if point is None:
        return None
    return model.Progress(point.step, _finite(point.epoch), point.total_steps, iso(point.time), point.line)


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _series(name: str, points: list[MetricPoint], went_wrong_at: int | None) -> model.Series:
    pairs = [(float(p.step if p.step is not None else n), v) for n, p in enumerate(points) if (v := p.get(name)) is not None]
    if not pairs:
        return model.Series(None, None, None, None, went_wrong_at, 0)
    finite = [value for _, value in pairs if math.isfinite(value)]
    return model.Series(
        first=_number(pairs[0][1]),
        last=_number(pairs[-1][1]),
        min=min(finite) if finite else _number(pairs[0][1]),
        max=max(finite) if finite else _number(pairs[0][1]),
        went_wrong_at=went_wrong_at,
        count=len(pairs),
        points=[(x, _number(y)) for x, y in _thin(pairs, went_wrong_at)],
    )


def _thin(pairs: list[tuple[float, float]], went_wrong_at: int | None) -> list[tuple[float, float]]:
    """At most 400 points: ends, extremes, the first that is not finite and the one that went wrong are kept."""
    if len(pairs) <= MAX_POINTS:
        return pairs
    finite = [n for n, (_, y) in enumerate(pairs) if math.isfinite(y)]
    keep = {0, len(pairs) - 1}
    if finite:
        keep |= {min(finite, key=lambda n: pairs[n][1]), max(finite, key=lambda n: pairs[n][1])}
    if (bad := next((n for n, (_, y) in enumerate(pairs) if not math.isfinite(y)), None)) is not None:
        keep |= {bad, max(0, bad - 1)}
    if went_wrong_at is not None and (n := next((n for n, (x, _) in enumerate(pairs) if x >= went_wrong_at), None)) is not None:
        keep |= {n, max(0, n - 1)}
    room = MAX_POINTS - len(keep)
    spread = {round(n * (len(pairs) - 1) / (room - 1)) for n in range(room)}
    return [pairs[n] for n in sorted(keep | spread)][:MAX_POINTS]


def _plain(value: Any) -> Any:
    """Plain JSON values."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    return str(value)


def _only(part: type, values: dict[str, Any]) -> dict[str, Any]:
    """The keys that ``part`` has."""
    return {key: value for key, value in values.items() if key in part.__dataclass_fields__}


def _signal(signal: dict[str, Any]) -> model.Signal:
    return model.Signal(
        signature=str(signal.get("signature", "")),
        class_=str(signal.get("class_", signal.get("class", signal.get("cls", "")))),
        role=str(signal.get("role", "")),
        input=str(signal.get("input", "")),
        line=int(signal.get("line", 0)),
        count=int(signal.get("count", 1)),
    )


_STEP_IN_NAME = re.compile(r"(?:checkpoint|ckpt|global_?step|step|iter(?:ation)?)[-_=]?0*(\d+)")


def _checkpoints(diagnosis: Diagnosis, record: RunRecord) -> model.CheckpointSummary | None:
    known = record.checkpoints
    said = diagnosis.values.get("checkpoint") or diagnosis.values.get("checkpoint_printed")  # only named by the log: not looked at
    if not known and not said:
        return None
    if not known:
        return model.CheckpointSummary(newest=str(said))

    def order(c: Checkpoint) -> tuple[float, float, str]:
        return (c.step if c.step is not None else -1, c.time or 0.0, c.path)

    whole = newest_complete(record)
    step = next((c.step for c in known if c.path == whole and c.step is not None), None)
    if step is None and whole and (found := _STEP_IN_NAME.findall(whole.rstrip("/").rsplit("/", 1)[-1])):
        step = int(found[-1])
    last = diagnosis.last_progress.step if diagnosis.last_progress else None
    lost = last - step if last is not None and step is not None and last >= step else None
    return model.CheckpointSummary(
        newest_complete=whole,
        newest=max(known, key=order).path,
        partial=sorted(c.path for c in known if c.state == "partial"),
        corrupt=sorted(c.path for c in known if c.state == "corrupt"),
        steps_lost=lost,
    )


def _missing(diagnosis: Diagnosis, record: RunRecord, confidence: float) -> list[model.Missing]:
    items = [*diagnosis.missing, *((m.what, m.why, m.how) for m in record.missing)]
    cause = diagnosis.primary
    if cause is not None and cause.cls in CLASS_INFO and confidence < HIGH and diagnosis.status not in ("recovered", "healthy") and (decides := CLASS_INFO[cause.cls].decides):
        values = template_values(diagnosis, record)
        what, why, how = decides
        items.append((what, why, fill_command(how, values) or fill(how, values)))
    result = {}
    for what, why, how in items:
        result.setdefault(_line(what).lower(), model.Missing(_line(what), _line(why), _line(how)))
    return list(result.values())


# --- fingerprint

_NORMAL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "#"),  # uuid
        (r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?)?", "#"),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?", "#"),
        (r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+/", ""),  # the address before the last name
        (r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", "#"),
        (r"(?:[a-z]:)?[^\s'\"=,:;()\[\]<>]*[/\\](?=[^\s/\\])", ""),  # directories
        (r"\[?\b\d{1,3}(?:\.\d{1,3}){3}\b\]?(?::\d+)?", "#"),  # IPv4
        (r"\b0x[0-9a-f]+\b", "#"),
        (r"\b(?=[a-f]*\d)[0-9a-f]{7,}\b", "#"),  # hashes and addresses
        (r"\b(?:local[_ ]?|global[_ ]?)?rank[:= ]*\d+", "rank"),
        (r"\b[a-z][a-z0-9-]*\d[a-z0-9-]*(?:\.[a-z][a-z0-9-]*)+(?::\d+)?\b", "#"),  # host names with a number
        (r"[+-]?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=\b|[a-z%_])", "#"),
        (r"\d+", "#"),
        (r"#(?:[\s,x×:.*/-]*#)+", "#"),  # however many numbers
        (r"\s+", " "),
    )
)


def normalise(text: str) -> str:
    """A failure line without numbers, hex, directories, ranks, dates, hosts and uuids."""
    text = clean(text).lower()[:2000]
    for pattern, by in _NORMAL:
        text = pattern.sub(by, text)
    return text.strip(" #.,:;")


def fingerprint(cause: Cause) -> str:
    """``1:<16 hex>``: equal for the same failure whatever its numbers, paths, ranks and dates are."""
    function = ""
    if cause.exception is not None:
        function = next((frame.function for frame in reversed(cause.exception.frames) if frame.user), "")
        text = f"{cause.exception.type.rsplit('.', 1)[-1]}: {normalise(cause.exception.message.split(chr(10), 1)[0])}"
    else:
        text = normalise(cause.at.text) if cause.at else ""
    return _hash(cause.cls, cause.signature, text, function)


def _hash(*parts: str) -> str:
    return "1:" + hashlib.sha256("\0".join(("1", *parts)).encode("utf-8", "replace")).hexdigest()[:16]


# --- pipeline


def _pipeline(pipeline: PipelineRecord, diagnosis: Diagnosis, record: RunRecord) -> model.Pipeline:
    by_id = {task.id: task for task in pipeline.tasks}
    dag = read_dag(pipeline)
    failed, last = dag.failed, dag.last_succeeded
    task_of = {log.name: log.task for log in record.logs if log.task}

    def cause_of(task: TaskRecord) -> Cause | None:
        for cause in (diagnosis.primary, *diagnosis.secondary):
            if cause is None:
                continue
            at = task_of.get(cause.at.input) if cause.at else None
            if (cause.values.get("task") or at) in (task.id, task.name):
                return cause
        return None

    grouped: dict[tuple[str, str], model.FailedTask] = {}
    for task in failed:
        key = (task.name, normalise(task.error_message or ""))
        if key in grouped:
            grouped[key].count += 1
            continue
        cause = cause_of(task)
        log = next((log.name for log in record.logs if log.task in (task.id, task.name)), None) or task.details.get("log")
        grouped[key] = model.FailedTask(
            name=task.name,
            state=task.state,
            error=_line(task.error_message) if task.error_message else None,
            exit_code=task.exit_code,
            attempts=task.attempts,
            log=str(log) if log else None,
            primary_cause=cause.cls if cause else None,
            confidence=round(diagnosis.confidence if cause is diagnosis.primary else cause.confidence, 2) if cause else None,
            root_cause=_line(cause.summary or cause.kind) if cause else None,
            evidence=[quote(cause.at)] if cause and cause.at else [],
        )

    def depth(task: TaskRecord) -> int:
        seen: set[str] = set()
        while task.parent and task.parent in by_id and task.parent not in seen:
            seen.add(task.parent)
            task = by_id[task.parent]
        return len(seen)

    return model.Pipeline(
        name=pipeline.name,
        state=pipeline.state,
        error=_line(pipeline.error_message) if pipeline.error_message else None,
        tasks=dag.counts,
        failed_tasks=_names(failed),
        not_triggered_tasks=_names(dag.not_triggered),
        first_failed_task=failed[0].name if failed else None,
        last_succeeded_task=last.name if last else None,
        failures=list(grouped.values()),
        platform=pipeline.platform,
        console=pipeline.details.get("console"),
        tree=[
            {
                "name": task.name,
                "state": task.state,
                "depth": depth(task),
                "parent": by_id[task.parent].name if task.parent in by_id else None,
                "depends_on": [by_id[other].name if other in by_id else other for other in task.depends_on],
                "error": _line(task.error_message) if task.error_message else None,
            }
            for task in pipeline.tasks
        ],
        graph=[
            model.GraphTask(
                id=task.id,
                name=task.name,
                state=task.state,
                parent=task.parent if task.parent in by_id and not by_id[task.parent].details.get("root") else None,
                depends_on=[other for other in task.depends_on if other in by_id],
                is_group=task.is_group,
                is_exit_task=task.is_exit_task,
                cached=task.cached,
                failed_first=task is dag.first_failed,
                seconds=round(task.end - task.start, 3) if task.end is not None and task.start is not None else None,
            )
            for task in pipeline.tasks
            if not task.details.get("root")
        ],
    )


def _names(tasks: Iterable[TaskRecord]) -> list[str]:
    return list(dict.fromkeys(task.name for task in tasks))
