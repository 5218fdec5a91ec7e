"""The verdict in words, and the facts about the run that go with it."""

from __future__ import annotations

import re
from typing import Any

from check_failed_run.analysis.candidates import Candidates
from check_failed_run.analysis.classify import Verdict
from check_failed_run.analysis.diagnosis import Cause, Diagnosis
from check_failed_run.analysis.ranks import RankFacts
from check_failed_run.analysis.settings import head_lines
from check_failed_run.analysis.timeline import Timeline
from check_failed_run.catalogue import class_info
from check_failed_run.catalogue.frameworks import FRAMEWORKS
from check_failed_run.catalogue.model import Mark, Signature
from check_failed_run.record import RunRecord
from check_failed_run.scanning.facts import LogFacts, MetricPoint

_VERSIONS = re.compile(
    r"(?i)\b(torch|pytorch|cuda|cudnn|nccl|tensorflow|jax|jaxlib|transformers|lightning|pytorch[-_ ]lightning|deepspeed|accelerate|python|driver|xgboost|lightgbm|keras|numpy)"
    r"(?:[ _-]?version)?(?:[=:]{1,2} ?| version:? | v|/| )(\d{1,3}\.\d{1,3}(?:\.\d{1,4})?(?:\+?[a-z0-9.]{1,12})?)\b"
)
_DEVICE = re.compile(r"\b(NVIDIA [A-Z][\w -]{2,30}?(?:\d{2,3}\s?GB|[A-Z]?\d{3,4}\w*)|(?:Tesla|GeForce|Quadro|RTX|A100|H100|H200|B200|V100|L40S?|L4|T4|MI\d{3}X?)[\w -]{0,20}|TPU v\d\w*)\b")
_HOST = re.compile(r"(?i)\bhost(?:name)?[=: ]{1,3}([\w.-]{2,60})")


def framework_of(facts: list[LogFacts], record: RunRecord) -> str:
    """The most specific framework whose own words stand in what was kept of the logs."""
    text = "\n".join(line.text for log in facts for excerpt in log.excerpts for line in (excerpt[:800] + excerpt[-400:]))
    text += "\n".join(f.file for log in facts for t in log.tracebacks[:20] for e in t.exceptions for f in e.frames)
    text += " " + (record.command or "")
    for name, words in FRAMEWORKS:
        if any(word in text for word in words):
            return name
    return "unknown"


def last_point(timeline: Timeline, primary: Cause | None) -> MetricPoint | None:
    """The last completed step of the attempt that counts."""
    main = max(timeline.logs, key=lambda log: len(log.facts.metrics), default=None)
    if main is None:
        return None
    points = [p for p in main.facts.metrics if p.step is not None or p.epoch is not None]
    if primary is not None and primary.at is not None and primary.at.input == main.facts.name and not primary.signature.startswith("trend/"):
        points = [p for p in points if p.line <= primary.at.line] or points
    train = [p for p in points if p.kind in ("train", "progress")]
    return (train or points or [None])[-1]


def describe(diagnosis: Diagnosis, timeline: Timeline, verdict: Verdict, found: Candidates, ranks: RankFacts, signatures: dict[str, Signature]) -> None:
    """Fill ``proximate``, ``root_cause`` and ``missing``."""
    primary = diagnosis.primary
    if primary is None:
        if not diagnosis.decided:
            diagnosis.root_cause = "Not decided: the run failed by what its platform says, and nothing that was read says why."
            diagnosis.missing.append(("the log of the failed task, all replicas, standard error included", "what was read holds no failure", "check-failed-run LOG_FOLDER/"))
        elif diagnosis.status == "recovered":
            first = verdict.recovered[0] if verdict.recovered else None
            what = f"{first.kind} at line {first.at.line}" if first else "a fault"
            diagnosis.root_cause = f"No failure is left: {what} was survived and the run went on{' to its end' if verdict.ended_ok else ''}."
            diagnosis.proximate = "the run ended well after a restart or retry" if verdict.ended_ok else "the run went on after the fault"
        elif verdict.ended_ok:
            diagnosis.root_cause = "No failure was found: the run says that it reached its end."
        elif verdict.early_stop:
            diagnosis.root_cause = "No failure was found: the run was stopped early, as configured."
        else:
            diagnosis.root_cause = "No failure was found: the log shows neither an error nor a stop. It may be that of a run in progress."
            diagnosis.missing.append(("the run's exit code or a later copy of the log", "the log ends without a word about the end", "check-failed-run LOG --once again later, or echo $? in the launching shell"))
        return
    where = f"{primary.at.input}:{primary.at.line}" if primary.at is not None else "no single line"
    step = f" at step {primary.step}" if primary.step is not None else ""
    rank = f" on rank {primary.rank}" if primary.rank is not None else ""
    location = f" in {primary.location}" if primary.location else ""
    phase = f" during {primary.phase.replace('-', ' ')}" if primary.phase else ""
    if primary.summary:
        diagnosis.proximate = f"{primary.summary} ({where})."
    elif primary.exception is not None:
        diagnosis.proximate = f"{primary.exception.type.rsplit('.', 1)[-1]}{rank}{step}{location}{phase} ({where})."
    else:
        diagnosis.proximate = f"{primary.kind}{rank}{step} ({where})."
    sentences = [_sentence(primary)]
    followed = {c.rank for c in verdict.followed if c.rank is not None} - {primary.rank}
    if primary.role == "cascade" and ranks.mismatch:
        sentences.append("The ranks wait in different collectives (sequence number, operation or size differ): their programs took different paths, so no longer time-out would help.")
    elif primary.role == "cascade" and ranks.same and ranks.absent:
        sentences.append(f"All waiting ranks are in the same collective; rank {', '.join(map(str, sorted(ranks.absent)[:4]))} reports no time-out and is the suspect.")
    elif followed and primary.rank is not None:
        sentences.append(f"The {len(followed)} other rank(s) that report errors only waited for rank {primary.rank}.")
    if primary.not_shown:
        sentences.append(f"Not shown: {primary.not_shown.rstrip('.')}.")
    diagnosis.root_cause = " ".join(s for s in sentences if s)
    info = class_info().get(primary.cls)
    if not diagnosis.decided:
        diagnosis.root_cause = f"Not decided. {diagnosis.root_cause}".strip()
        diagnosis.missing.append(("the log of the whole run, all ranks, standard error included", "what is there shows that the run failed, not why", "check-failed-run LOG_FOLDER/ (a folder with every rank's log and the configuration)"))
    if diagnosis.confidence < 0.8 and info is not None and info.decides is not None:
        diagnosis.missing.append(info.decides)


def _sentence(primary: Cause) -> str:
    parts = []
    if primary.summary:
        parts.append(primary.summary[0].upper() + primary.summary[1:])
    if primary.exception is not None:
        message = primary.exception.message.split("\n")[0].strip()
        name = primary.exception.type.rsplit(".", 1)[-1]
        parts.append(f"{name}: {message[:200]}" if message else name)
    elif primary.at is not None and not primary.summary:
        parts.append(primary.at.text.strip()[:200])
    text = ". ".join(p.rstrip(".") for p in parts if p)
    if primary.explanation:
        explanation = primary.explanation[0].upper() + primary.explanation[1:]
        text = f"{text}. {explanation}" if text else explanation
    return text.rstrip(".") + "." if text else ""


def contributing(diagnosis: Diagnosis, found: Candidates, verdict: Verdict, ranks: RankFacts, signatures: dict[str, Signature], record: RunRecord) -> list[str]:
    """Factors that made the failure likely or worse, from settings and context lines."""
    primary, config = diagnosis.primary, diagnosis.config
    if primary is None:
        return []
    factors: list[str] = []
    if primary.cls in ("nan-inf", "optimization-divergence"):
        if config.get("precision") == "fp16":
            factors.append("fp16 precision (largest value 65504)" + (" without gradient clipping" if config.get("grad_clip") in (0, 0.0, None) else ""))
        elif config.get("grad_clip") in (0, 0.0):
            factors.append("gradient clipping is off")
        rate = config.get("learning_rate")
        if isinstance(rate, int | float) and rate >= 0.01:
            factors.append(f"learning rate {rate:g}")
        if config.get("warmup") in (0, 0.0):
            factors.append("no warm-up")
    if primary.cls == "oom":
        for key, label in (("batch_size", "batch size"), ("eval_batch_size", "evaluation batch size"), ("max_length", "maximum length"), ("zero_stage", "ZeRO stage")):
            if config.get(key) is not None:
                factors.append(f"{label} {config[key]}")
        if config.get("gradient_checkpointing") is False:
            factors.append("gradient checkpointing is off")
        if primary.phase:
            factors.append(f"it happened in {primary.phase.replace('-', ' ')}")
    for cls in {c.cls for c in verdict.survivors if c.cls and c.cls not in (primary.cls, "unknown") and c.signature.startswith("trend/")}:
        trend = next(c for c in verdict.survivors if c.cls == cls)
        factors.append(trend.summary or trend.kind)
    if primary.attempt > 1:
        factors.append(f"attempt {primary.attempt}: earlier attempts had ended")
    kinds = {}
    for hit in found.context:
        signature = signatures[hit.signature]
        if signature.cls == primary.cls and signature.kind not in kinds:
            kinds[signature.kind] = hit
    factors += [f"{kind} (line {hit.at.line})" for kind, hit in list(kinds.items())[:3]]
    return factors[:8]


def environment(facts: list[LogFacts], record: RunRecord, timeline: Timeline, settings: dict[str, Any], command: str | None) -> dict[str, Any]:
    """Only what was seen: versions, devices, world size, exit code, command."""
    seen: dict[str, Any] = dict(record.environment)
    versions: dict[str, str] = {}
    devices: list[str] = []
    for log in facts:
        for line in head_lines(log, 400):
            for match in _VERSIONS.finditer(line.text[:600]):
                versions.setdefault(match[1].lower().replace(" ", "-"), match[2])
            if (m := _DEVICE.search(line.text[:600])) and m[1].strip() not in devices and len(devices) < 4:
                devices.append(m[1].strip())
            if "host" not in seen and (m := _HOST.search(line.text[:300])):
                seen["host"] = m[1]
    if versions:
        seen["versions"] = dict(sorted(versions.items())[:16])
    if devices:
        seen["devices"] = devices
    if settings.get("world_size"):
        seen["world_size"] = settings["world_size"]
    if command:
        seen["command"] = command[:2000]
    codes = [h.group("code") for log in timeline.logs for h in timeline.marks(log, Mark.EXIT_CODE) if h.group("code")]
    if record.exit_code is not None:
        seen["exit_code"] = record.exit_code
    elif codes:
        try:
            seen["exit_code"] = int(codes[-1])
        except ValueError:
            seen["exit_code"] = codes[-1]
    return seen
