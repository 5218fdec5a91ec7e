"""Facts to a verdict. Pure: no clock, no environment, no network; the same facts give the same diagnosis."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from check_failed_run.analysis import evidence
from check_failed_run.analysis.candidates import Candidates, Finder, phase_of
from check_failed_run.analysis.classify import Judge, Verdict
from check_failed_run.analysis.confidence import confidence
from check_failed_run.analysis.diagnosis import Cause, Diagnosis, Evidence
from check_failed_run.analysis.ranks import RankFacts, read_ranks
from check_failed_run.analysis.ruled_out import rule_out
from check_failed_run.analysis.settings import read_settings
from check_failed_run.analysis.stall import find_stall
from check_failed_run.analysis.timeline import Log, Timeline
from check_failed_run.analysis.trajectory import number_steps, series_of
from check_failed_run.analysis.words import contributing, describe, environment, framework_of, last_point
from check_failed_run.catalogue import by_id, exception_rules
from check_failed_run.catalogue.model import Mark, Role
from check_failed_run.record import RunRecord
from check_failed_run.scanning.facts import LogFacts, LogLine, Traceback

__all__ = ["analyse"]


def analyse(facts: list[LogFacts], record: RunRecord) -> Diagnosis:
    """Diagnose one run from the facts of its logs and what the sources know about it."""
    signatures = by_id()
    marks = {s.id: s.marks for s in signatures.values() if s.marks is not None}
    timeline = Timeline(facts, record, marks)
    command = _command(timeline, record)
    settings, printed = read_settings(facts, record, command)
    facts = [replace(f, metrics=number_steps(f.metrics, settings.get("logging_steps"))) for f in facts]
    timeline = Timeline(facts, record, marks)
    finder = Finder(timeline, signatures, exception_rules(), num_labels=settings.get("num_labels"), task=record.task, learning_rate=settings.get("learning_rate"))
    found = finder.find()
    world = settings.get("world_size")
    ranks = read_ranks(timeline, found.cascades, found.causes, world if isinstance(world, int) else None)
    judge = Judge(timeline, signatures, found, ranks)
    verdict = judge.decide()
    if verdict.primary is None:
        verdict.primary = _stall(timeline, record, found, verdict, settings)
    framework = record.framework or framework_of(facts, record)
    status = _status(timeline, verdict, judge)
    primary = verdict.primary
    blamed = None if status in ("healthy", "recovered", "running") else primary
    features = _features(blamed, verdict, found, judge, status, facts)
    sure = confidence(features)
    decided = blamed is None or blamed.cls != "unknown"
    if record.failed and blamed is None and status in ("healthy", "recovered"):
        # the platform says that it failed, and nothing here says why
        status, decided, sure = "crashed", False, min(sure, 0.2)
    diagnosis = Diagnosis(
        status=status,
        framework=framework,
        primary=blamed if blamed is not None else None,
        decided=decided,
        confidence=sure if decided else min(sure, 0.3),
        environment=environment(facts, record, timeline, settings, command),
        config=settings,
        features=features,
    )
    _locate(timeline, found, blamed, status)
    _first_step(timeline, found, blamed)
    _fill(diagnosis, timeline, verdict, found, ranks, judge, facts, record, command, printed)
    return diagnosis


def _command(timeline: Timeline, record: RunRecord) -> str | None:
    if record.command:
        return record.command
    for log in timeline.logs:
        for hit in timeline.marks(log, Mark.COMMAND):
            if hit.group("command"):
                return hit.group("command").strip()
    return None


def _stall(timeline: Timeline, record: RunRecord, found: Candidates, verdict: Verdict, settings: dict[str, Any]) -> Cause | None:
    if verdict.ended_ok or verdict.early_stop:
        return None
    signatures = by_id()
    watched = [h.at for h in found.context if signatures[h.signature].cls == "stalled"]
    stall = find_stall(timeline, record.now, interrupted=verdict.interrupted.at if verdict.interrupted else None, watched=watched, epochs=settings.get("epochs"))
    if stall is None:
        return None
    at = stall.evidence[0] if stall.evidence else None
    return Cause(
        cls="stalled", signature="trend/stall", kind="no progress, no error", at=at, specificity=stall.strength, status="hung",
        step=stall.last.step if stall.last else None, epoch=stall.last.epoch if stall.last else None, attempt=timeline.last_attempt,
        summary=stall.summary, evidence=[Evidence(line, "progress") for line in stall.evidence],
    )


def _status(timeline: Timeline, verdict: Verdict, judge: Judge) -> str:
    primary = verdict.primary
    if primary is None:
        if any(not c.signature.startswith("trend/") and judge.fatal(c) for c in verdict.recovered) and (verdict.ended_ok or timeline.last_attempt > 1):
            return "recovered"
        return "healthy"
    if primary.attempt < timeline.last_attempt and verdict.ended_ok:
        return "recovered"
    if primary.status:
        errors = [c for c in [*verdict.survivors, *verdict.followed] if judge.fatal(c) and not c.signature.startswith("trend/")]
        if primary.status == "diverged" and judge.dies(primary):
            return "crashed"
        if not judge.fatal(primary) and primary.status in ("diverged", "degraded") and errors and primary.cls in ("nan-inf", "optimization-divergence"):
            return "crashed"
        return primary.status
    if primary.cls == "stalled":
        return "hung"
    return "crashed"


def _features(primary: Cause | None, verdict: Verdict, found: Candidates, judge: Judge, status: str, facts: list[LogFacts]) -> dict[str, float]:
    if primary is None:
        return {
            "specificity_2": 1.0,
            "specificity_3": float(verdict.ended_ok),
            "absence": float(not verdict.ended_ok and not verdict.early_stop),
            "unread": float(not verdict.ended_ok and not verdict.early_stop and not any(f.metrics for f in facts)),
            "competing": float(min(2, len({c.cls for c in verdict.recovered}))) * 0.3,
        }
    others = {c.cls for c in verdict.survivors if c.cls != primary.cls and c.specificity >= 2 and c.attempt == primary.attempt}
    same = sum(c.cls == primary.cls for c in verdict.survivors)
    return {
        "specificity_3": float(primary.specificity >= 3),
        "specificity_2": float(primary.specificity == 2),
        "specificity_0": float(primary.specificity == 0),
        "heuristic": float(primary.signature.startswith("exception/") and primary.specificity == 1),
        "fatal": float(judge.fatal(primary)),
        "cascade": float(primary.role == "cascade"),
        "trend": float(primary.signature.startswith("trend/")),
        "confirmed": float(same > 0 or any(c.cls == primary.cls for c in found.confirmations if c is not primary)),
        "competing": float(min(2, len(others))),
        "truncated": float(any(not f.complete for f in facts)),
        "suspicion": float(primary.signature == "trend/eval-perfect" or (primary.role == "context")),
    }


def _fill(diagnosis: Diagnosis, timeline: Timeline, verdict: Verdict, found: Candidates, ranks: RankFacts, judge: Judge,
          facts: list[LogFacts], record: RunRecord, command: str | None, printed: dict[str, LogLine]) -> None:
    signatures = by_id()
    primary = diagnosis.primary
    diagnosis.last_progress = last_point(timeline, primary)
    describe(diagnosis, timeline, verdict, found, ranks, signatures)
    diagnosis.contributing = contributing(diagnosis, found, verdict, ranks, signatures, record)
    if primary is not None:
        diagnosis.evidence = evidence.of_failure(primary, timeline, verdict, found, ranks, signatures, printed)
    else:
        diagnosis.evidence = evidence.of_quiet_run(timeline, verdict, found)
    distinct_secondary: dict[str, Cause] = {}
    for cause in [*verdict.survivors, *verdict.followed]:
        if cause.cls and cause.cls != (primary.cls if primary else None) and cause.cls != "unknown":
            distinct_secondary.setdefault(cause.cls, cause)
    diagnosis.secondary = list(distinct_secondary.values())
    for cause in diagnosis.secondary:
        cause.confidence = round(0.1 + 0.1 * min(cause.specificity, 3) if cause.role != "cascade" else 0.1, 2)
    diagnosis.ruled_out = rule_out(diagnosis, verdict, found, timeline, facts)
    diagnosis.series = _series(timeline, primary)
    diagnosis.attempts = [
        {"number": number, "first_line": log.attempt_starts[i], "last_line": (log.attempt_starts[i + 1] - 1) if i + 1 < len(log.attempt_starts) else log.facts.lines,
         "outcome": _outcome(timeline, number, verdict, found), "input": log.facts.name}
        for log in timeline.logs if not log.companion or len(timeline.logs) == 1
        for i, number in enumerate(range(log.first_attempt, log.last_attempt() + 1))
    ] if timeline.last_attempt > 1 else []
    diagnosis.ranks = _rank_rows(ranks, primary)
    diagnosis.values.setdefault("command", command)
    diagnosis.values["log"] = next((t for t in record.targets if t not in ("-", "traceback")), None)
    loaded = [h for log in timeline.logs for h in timeline.marks(log, Mark.CHECKPOINT_SAVED) if h.group("path")]
    before = [h for h in loaded if primary is None or primary.at is None or h.at.input != primary.at.input or h.at.line <= primary.at.line]
    if before:
        diagnosis.values["checkpoint_printed"] = before[-1].group("path")
    rows = []
    for fact in facts:
        for name, table in sorted(fact.signatures.items()):
            signature = signatures.get(name)
            if signature is None or signature.role is Role.MARKER or not table.first:
                continue
            rows.append({"signature": name, "class": signature.cls, "role": str(signature.role), "input": fact.name, "line": table.first[0].at.line, "count": table.count})
    diagnosis.signals = rows[:200]


def _locate(timeline: Timeline, found: Candidates, primary: Cause | None, status: str) -> None:
    """A cause that a library printed (an assert of a kernel, [Fatal] of a booster) lies where the next traceback of its process points."""
    trend = primary is not None and primary.signature.startswith("trend/")
    if primary is None or primary.location is not None or primary.at is None or (trend and status != "crashed"):
        return
    log = timeline.log(primary.at.input)
    for traceback_log, traceback in found.tracebacks:
        if traceback_log is not log or traceback.handled or traceback.last_line < primary.at.line:
            continue
        if traceback.rank is not None and primary.rank is not None and traceback.rank != primary.rank:
            continue
        if primary.role == "cascade" and not _says(log, traceback, primary.signature):
            continue
        if (traceback.header.line - primary.at.line > 400 and not trend) or timeline.attempt(traceback.header) != primary.attempt:
            break
        location = next((e.location for e in traceback.exceptions if e.location), None)
        if location is not None:
            primary.location = location
            primary.phase = primary.phase or next((p for p in map(phase_of, traceback.exceptions) if p), None)
            return


def _says(log: Log, traceback: Traceback, signature: str) -> bool:
    """Whether one of the traceback's exceptions is a hit of the signature."""
    table = log.facts.signatures.get(signature)
    lines = {h.at.line for h in table.hits()} if table is not None else set()
    return any(e.at.line in lines for e in traceback.exceptions)


def _first_step(timeline: Timeline, found: Candidates, primary: Cause | None) -> None:
    """A failure inside the training loop before any step was logged is one of step 0; one in the evaluation after an epoch, of its last step."""
    if primary is None or primary.at is None:
        return
    if primary.step is not None:
        if primary.phase == "evaluation":
            primary.step = _epoch_end(timeline, primary)
        return
    points = [p for log in timeline.logs for p in timeline.points(log, log.last_attempt())]
    if any((p.step or 0) > 0 or p.kind in ("train", "eval") for p in points):
        return
    in_loop = primary.phase in ("forward", "backward", "optimizer", "data-loading", "evaluation")
    for log, traceback in found.tracebacks:
        if log.facts.name == primary.at.input and traceback.last_line >= primary.at.line and not in_loop:
            in_loop = any(_LOOP.search(f.function) for e in traceback.exceptions for f in e.frames)
    if in_loop:
        primary.step = 0


def _epoch_end(timeline: Timeline, primary: Cause) -> int | None:
    """The epoch's last step, where fewer steps were left after the last logged one than lie between two logged ones."""
    points = [p for p in timeline.log(primary.at.input).facts.metrics if p.line < primary.at.line and p.kind == "train" and p.step is not None and p.total_steps]
    if len(points) < 2 or points[-1].step != primary.step:
        return primary.step
    left, usual = points[-1].total_steps - points[-1].step, points[-1].step - points[-2].step
    return points[-1].total_steps if 0 < left < usual else primary.step


_LOOP = re.compile(r"(?:^|_)(?:train(?:ing)?(?:_(?:step|loop|epoch|one_epoch|batch))?|fit(?:_loop)?|run_epoch|inner_training_loop)$")


def _series(timeline: Timeline, primary: Cause | None) -> dict:
    main = max(timeline.logs, key=lambda log: len(log.facts.metrics), default=None)
    if main is None:
        return {}
    points = timeline.points(main, timeline.last_attempt) or main.facts.metrics
    return {name: s.points for name, s in sorted(series_of(points).items(), key=lambda kv: -len(kv[1].points))[:24]}


def _outcome(timeline: Timeline, number: int, verdict: Verdict, found: Candidates) -> str:
    if number == timeline.last_attempt:
        return "ended well" if verdict.ended_ok else verdict.primary.kind if verdict.primary else "no failure found"
    causes = [c for c in [*found.causes, *found.cascades] if c.attempt == number]
    return f"failed: {causes[0].kind}" if causes else "ended without a known reason"


def _rank_rows(ranks: RankFacts, primary: Cause | None) -> list[dict[str, Any]]:
    if len(ranks.ranks) < 2:
        return []
    rows = []
    failed = primary.rank if primary is not None else None
    for rank in sorted(ranks.ranks)[:1024]:
        word = ranks.first_words.get(rank)
        role = "failed-first" if rank == failed else "followed" if word is not None and primary is not None else "silent" if primary is not None else "unaffected"
        rows.append({"rank": rank, "role": role, "line": word.at.line if word else None, "input": word.at.input if word else None,
                     "timestamp": None, "time": word.at.time if word else None, "what": word.kind if word else None})
    return rows

