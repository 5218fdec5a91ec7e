"""The plan: fixes in an expert's order, a GO or NO-GO, a verdict for schedulers, exact commands."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from check_failed_run.analysis.diagnosis import Cause, Diagnosis
from check_failed_run.catalogue.classes import CLASS_INFO, TREND_DEFAULTS, UNKNOWN_FIXES
from check_failed_run.catalogue.model import Change, Fix
from check_failed_run.planning import commands, policy
from check_failed_run.planning.policy import Retry, Risk
from check_failed_run.record import RunRecord

MIN_FIXES, MAX_FIXES, MAX_COMMANDS = 2, 5, 4
CONTEXT = 15  # lines shown before and after the failure
DECISIVE = 0.35  # below this confidence nothing is done on the strength of the diagnosis alone
DEFAULT_WEIGHT = 0.6  # a class's default applies less surely than a signature's own fix
# Where the log's last "saved" line proves nothing: the save itself failed, or what was saved may be spoilt.
DOUBTFUL_SAVES = frozenset({"io-checkpoint", "nan-inf", "optimization-divergence", "evaluation-mismatch"})
RAW_VALUES = frozenset(
    {"command", "resume_command", "command_batch_half", "command_lr_tenth", "command_lr_half", "command_no_workers"}
    | {"command_blocking", "command_nccl_debug", "command_faulthandler", "accumulation_flag"}
)
PATH_VALUES = frozenset({"path", "log", "checkpoint", "output_dir", "file", "dir", "image"})

# How a sentence reads where a value is not known.
NEUTRAL = {
    "batch_size": "the batch size",
    "checkpoint": "the newest complete checkpoint",
    "code": "that code",
    "command": "the launch command",
    "device": "that device",
    "host": "that host",
    "key": "that key",
    "location": "the place of the traceback",
    "log": "the log",
    "output_dir": "the output folder",
    "path": "the file",
    "permission": "the missing permission",
    "port": "that port",
    "principal": "the account that runs the task",
    "rank": "that rank",
    "step": "that step",
    "value": "that value",
}


@dataclass(frozen=True, slots=True)
class PlannedFix:
    """A fix with its templates filled and its risk decided. ``confidence`` is that it helps, given the diagnosis."""

    action: str
    change: Change
    risk: Risk
    expected_impact: str
    validate: str
    time_to_try: str
    command: str | None
    confidence: float
    source: Literal["signature", "exception", "trend", "transient", "class", "missing"] = "class"


@dataclass(frozen=True, slots=True)
class PlannedFinding:
    severity: Literal["blocker", "high", "medium", "low"]
    title: str
    description: str
    fix: str


@dataclass(slots=True)
class Plan:
    decision: Literal["GO", "NO-GO"]
    retry: Retry
    fixes: list[PlannedFix] = field(default_factory=list)
    findings: list[PlannedFinding] = field(default_factory=list)
    next_commands: list[str] = field(default_factory=list)
    reason: str = ""  # why GO or NO-GO, in one sentence


RESTART = Fix(
    "Restart unchanged from the newest complete checkpoint[[ ({checkpoint})]]",
    Change.RESTART,
    "Continues the run; the cause was outside it and need not come back",
    "The first logged step is the checkpoint's, its loss continues the old curve, and 200 steps pass",
    gain=0.95,
    confidence=0.9,
    command="{resume_command}",
)
RESTART_ELSEWHERE = replace(
    RESTART,
    action="Restart unchanged from the newest complete checkpoint[[ ({checkpoint})]] on another node, leaving out the one that failed[[ ({host})]]",
    impact="Continues the run away from the failing hardware",
    validate="200 steps pass on the other node without a new hardware record (Xid, ECC, node failure)",
)


def plan(diagnosis: Diagnosis, record: RunRecord) -> Plan:
    """The plan for one diagnosis. Deterministic; nothing is read, run or changed."""
    values = template_values(diagnosis, record)
    cause = diagnosis.primary
    if cause is None and diagnosis.decided and diagnosis.status in ("healthy", "recovered", "running"):
        return Plan("GO", "stop", reason="There is nothing to recover.")
    if cause is None or not diagnosis.decided or cause.cls not in CLASS_INFO:
        fixes = _unknown_fixes(diagnosis, values)
        result = Plan("NO-GO", "stop", fixes, reason="The evidence does not decide between causes.")
        result.findings = _findings(diagnosis, None, fixes)
        result.next_commands = _next_commands(fixes)
        return result

    retry = policy.retry_verdict(cause.cls, cause.signature, cause.kind)
    fixes = _choose(diagnosis, record, cause, retry, values)
    recovering = next((fix for fix in fixes if _recovers(fix, cause, retry, values)), None)
    if diagnosis.status in ("recovered", "healthy"):
        decision, reason, retry = "GO", "The run recovered; there is nothing to recover.", "stop"
    elif diagnosis.confidence < DECISIVE:
        decision, reason, retry = "NO-GO", "The evidence is too weak to act on.", "stop"
    elif recovering is not None and recovering.risk == policy.SAFE and retry != "stop":
        decision, reason = "GO", "The first step that recovers the run is safe."
    else:
        decision, reason = "NO-GO", "The first step that would recover the run needs a person's approval or decision."
    return Plan(decision, retry, fixes, _findings(diagnosis, cause, fixes), _next_commands(fixes, cause), reason)


# --- which fixes, in which order


def _own_fixes(cause: Cause) -> tuple[tuple[Fix, ...], str]:
    """The fixes that the catalogue has for this very cause, and where they are from."""
    catalogue = importlib.import_module("check_failed_run.catalogue")
    by_id = getattr(catalogue, "by_id", None)
    signature = by_id().get(cause.signature) if by_id else None
    if signature is not None and signature.fixes:
        return signature.fixes, "signature"
    rules = getattr(catalogue, "exception_rules", None)
    names = {cause.signature, cause.values.get("rule")}
    for rule in rules() if rules else ():
        if rule.id in names and rule.fixes:
            return rule.fixes, "exception"
    if cause.signature.startswith("trend/"):
        short = cause.signature.removeprefix("trend/")
        family = f"trend/{short.split('-', 1)[0]}-"
        for module in dict.fromkeys((cause.cls.replace("-", "_"), "nan_inf", "optimization_divergence", "evaluation_mismatch", "stalled")):
            try:
                trends = getattr(importlib.import_module(f"check_failed_run.catalogue.{module}"), "TREND_FIXES", {})
            except ModuleNotFoundError:
                continue
            for key in (cause.signature, short):
                if trends.get(key):
                    return tuple(trends[key]), "trend"
            if near := next((trends[key] for key in trends if key.startswith(family)), None):
                return tuple(near), "trend"
        if cause.signature in TREND_DEFAULTS:
            return TREND_DEFAULTS[cause.signature], "trend"
    return (), "class"


def _choose(diagnosis: Diagnosis, record: RunRecord, cause: Cause, retry: Retry, values: dict[str, str]) -> list[PlannedFix]:
    own, source = _own_fixes(cause)
    hardware = cause.cls in ("cuda-runtime", "process-crash", "nccl-distributed")
    candidates: list[tuple[Fix, str]] = []
    if retry == "retry":
        candidates.append((RESTART, "transient"))
    elif retry == "retry-elsewhere" and hardware:
        candidates.append((RESTART_ELSEWHERE, "transient"))
    candidates += [(fix, source) for fix in own]
    candidates += [(fix, "class") for fix in CLASS_INFO[cause.cls].fixes]

    none_whole = bool(record.checkpoints) and not values.get("checkpoint")
    own_order = {id(fix): position for position, fix in enumerate(own)}

    def worth(item: tuple[Fix, str]) -> float:
        fix, origin = item
        if origin == "transient":
            return 10.0
        score = policy.rank(fix)
        if origin == "class":
            score *= DEFAULT_WEIGHT
        # The catalogue lists its fixes best first; its order breaks near ties.
        score -= 0.08 * own_order.get(id(fix), 0)
        if fix.change is Change.RESTART and retry in ("change-first", "stop"):
            score *= 0.3  # the same command would only fail again
        if fix.change is Change.USE_CHECKPOINT and retry == "change-first" and not _checkpoint_is_the_fault(cause):
            score *= 0.3
        return score

    ordered = sorted(candidates, key=worth, reverse=True)  # stable: equal ones keep the catalogue's order
    transient = any(origin == "transient" for _, origin in candidates)
    planned: list[PlannedFix] = []
    heads: set[str] = set()
    # A class's defaults only fill up, behind what is known about the very cause.
    for fix, origin in [item for item in ordered if item[1] != "class"] + [item for item in ordered if item[1] == "class"]:
        if fix.only is not None and str(diagnosis.config.get(fix.only[0])) != fix.only[1]:
            continue
        if fix.change is Change.USE_CHECKPOINT and "checkpoint" not in values and not diagnosis.values.get("checkpoint_printed"):
            continue  # none is known
        about_checkpoint = fix.change in (Change.USE_CHECKPOINT, Change.RESTART) and "checkpoint" in fix.action.lower()
        if about_checkpoint and (none_whole or (transient and origin != "transient")):
            continue  # there is none to go on from; or it is said already
        if origin == "class":
            recovers = any(known.change not in policy.READ_ONLY for known in planned)
            if len(planned) >= (MIN_FIXES if own and recovers else 3):
                continue
        head = " ".join(re.findall(r"\w+", fix.action.lower())[:4])
        if head in heads:
            continue
        heads.add(head)
        filled = _fill_fix(fix, values, diagnosis.confidence, origin)
        if fix.change is Change.USE_CHECKPOINT and filled.risk == policy.SAFE and newest_complete(record) is None:
            filled = replace(filled, risk=policy.NEEDS_APPROVAL)  # the log names one, and nobody has looked at it
        planned.append(filled)
    return planned[:MAX_FIXES]


def _recovers(fix: PlannedFix, cause: Cause, retry: Retry, values: dict[str, str]) -> bool:
    """Whether this step, taken alone, gets the run going again."""
    if fix.change is Change.RESTART:
        return retry in ("retry", "retry-elsewhere")
    if fix.change is Change.USE_CHECKPOINT:
        return "checkpoint" in values and (retry in ("retry", "retry-elsewhere") or _checkpoint_is_the_fault(cause))
    return fix.change not in policy.READ_ONLY


def _checkpoint_is_the_fault(cause: Cause) -> bool:
    """Whether pointing at another checkpoint is itself the repair: a load failed on a broken file."""
    if cause.cls != "io-checkpoint" or cause.phase == "checkpoint-save":
        return False
    broken = re.search(r"corrupt|truncat|incomplete|partial|unfinished|damaged|invalid archive", f"{cause.signature} {cause.kind}".lower())
    return cause.phase == "checkpoint-load" or bool(broken)


def _unknown_fixes(diagnosis: Diagnosis, values: dict[str, str]) -> list[PlannedFix]:
    """Read-only steps that fetch what is missing."""
    fixes = [
        PlannedFix(
            action=f"Get {_clean(what)}",
            change=Change.FETCH,
            risk=policy.risk_of(Change.FETCH, how if is_command(how) else None),
            expected_impact=_sentence(why),
            validate="A second diagnosis with it names one cause",
            time_to_try="5 min",
            command=how if is_command(how) else None,
            confidence=0.6,
            source="missing",
        )
        for what, why, how in diagnosis.missing[:3]
    ]
    fixes = [fix for fix in fixes if fix.risk == policy.SAFE]
    known = {fix.command for fix in fixes}
    for fix in UNKNOWN_FIXES:
        if len(fixes) >= 3:
            break
        filled = _fill_fix(fix, values, 1.0, "class")
        if filled.command is None or filled.command not in known:
            fixes.append(filled)
    return fixes


# A fix that names the new value can be written into the run's own command.
_VARIANTS = (
    ("learning_rate_tenth", "{command_lr_tenth}"),
    ("learning_rate_half", "{command_lr_half}"),
    ("batch_size_half", "{command_batch_half}"),
)


def _fill_fix(fix: Fix, values: dict[str, str], confidence: float, source: str) -> PlannedFix:
    template = fix.command
    if template is None and fix.change is Change.HYPERPARAMETER:
        template = next((variant for name, variant in _VARIANTS if "{" + name + "}" in fix.action), None)
    command = fill_command(template, values) if template else None
    return PlannedFix(
        action=fill(fix.action, values),
        change=fix.change,
        risk=policy.risk_of(fix.change, command),
        expected_impact=fill(fix.impact, values),
        validate=fill(fix.validate, values),
        time_to_try=fix.time_to_try,
        command=command,
        confidence=round(fix.confidence * confidence, 2),
        source=source,  # type: ignore[arg-type]
    )


def _findings(diagnosis: Diagnosis, cause: Cause | None, fixes: list[PlannedFix]) -> list[PlannedFinding]:
    if cause is None:
        title = "Cause not decided"
        first: str = "high" if diagnosis.status in ("crashed", "hung", "diverged") else "medium"
    else:
        info = CLASS_INFO[cause.cls]
        title = f"{info.title}: {cause.kind}" if cause.kind else info.title
        first = "blocker" if info.severity == "critical" else "high"
        if diagnosis.status in ("recovered", "healthy"):
            first = "medium"
    description = diagnosis.root_cause or diagnosis.proximate or (cause.summary if cause else "") or "No cause could be established."
    result = []
    for position, fix in enumerate(fixes):
        severity = first if position == 0 else "medium" if position == 1 and first != "medium" else "low"
        result.append(PlannedFinding(severity, title, description if position == 0 else _sentence(fix.expected_impact), fix.action))  # type: ignore[arg-type]
    return result


def _next_commands(fixes: Iterable[PlannedFix], cause: Cause | None = None) -> list[str]:
    """Commands of the plan in its order, never one that destroys something; where there is none, a look at the failure's place."""
    found = list(dict.fromkeys(fix.command for fix in fixes if fix.command and fix.risk != policy.DANGEROUS))[:MAX_COMMANDS]
    at = cause.at if cause is not None else None
    if not found and at is not None and at.line and at.input not in ("-", "standard input", "traceback"):
        found.append(f"sed -n '{max(1, at.line - CONTEXT)},{at.line + CONTEXT}p' {shlex.quote(_clean(at.input))}")
    return found


# --- values


def newest_complete(record: RunRecord) -> str | None:
    """Path of the newest checkpoint on disk that is whole, by step, then time, then name."""
    whole = [c for c in record.checkpoints if c.state == "complete"]
    if not whole:
        return None
    return max(whole, key=lambda c: (c.step if c.step is not None else -1, c.time or 0.0, c.path)).path


_ALIASES = {
    "batch_size": ("batch_size", *commands.BATCH_SIZE),
    "eval_batch_size": commands.EVAL_BATCH_SIZE,
    "learning_rate": ("learning_rate", *commands.LEARNING_RATE),
    "grad_clip": ("grad_clip", *commands.GRAD_CLIP),
    "accumulation": ("accumulation", *commands.ACCUMULATION),
}


def template_values(diagnosis: Diagnosis, record: RunRecord) -> dict[str, str]:
    """Everything a fix template may use, as clean text. The cause's own values win over the run's."""
    values: dict[str, str] = {}
    cause = diagnosis.primary

    def put(source: dict[str, Any]) -> None:
        for key, value in source.items():
            if (text := _text(value)) is not None:
                values[key] = text

    put({key.rsplit(".", 1)[-1]: value for key, value in diagnosis.config.items()})
    put({key: value for key, value in diagnosis.environment.items() if isinstance(value, str | int | float)})
    put(diagnosis.values)
    if cause is not None:
        put({"step": cause.step, "epoch": cause.epoch, "rank": cause.rank, "location": cause.location})
        if cause.exception is not None:
            put({"exception": cause.exception.type})
        put(cause.values)
    # A crafted line must not choose what the run's own command is.
    trusted = record.command is not None and "\n" not in record.command
    given = record.command if trusted else diagnosis.values.get("command")
    values.pop("command", None)
    for derived in RAW_VALUES:
        values.pop(derived, None)
    command = commands.normalise(str(given)) if given else None
    checkpoint = newest_complete(record)
    if checkpoint is None and record.checkpoints:
        values.pop("checkpoint", None)
    elif checkpoint is not None:
        values["checkpoint"] = checkpoint
    elif "checkpoint" not in values and cause is not None and cause.cls not in DOUBTFUL_SAVES and "checkpoint_printed" in values:
        values["checkpoint"] = values["checkpoint_printed"]
    if "log" not in values and record.logs:
        put({"log": record.logs[0].name})
    for name, aliases in _ALIASES.items():
        if name not in values:
            found = next((values[alias] for alias in aliases if alias in values), None)
            if found is None and command:
                found = commands.get_flag(command, aliases)
            if found is not None:
                values[name] = found
    if "output_dir" not in values and command and (folder := commands.get_flag(command, ("output_dir", "out_dir", "save_dir", "default_root_dir"))):
        values["output_dir"] = folder
    if "output_dir" not in values and checkpoint and "/" in checkpoint.strip("/"):
        values["output_dir"] = checkpoint.rstrip("/").rsplit("/", 1)[0]

    if (rate := _number(values.get("learning_rate"))) is not None and rate > 0:
        values.setdefault("learning_rate_tenth", commands.number_text(rate / 10))
        values.setdefault("learning_rate_half", commands.number_text(rate / 2))
    else:
        values.pop("learning_rate", None)
    for name in ("batch_size", "eval_batch_size"):
        if smaller := commands.half(values.get(name)):
            values.setdefault(f"{name}_half", smaller)
    if (accumulation := _number(values.get("accumulation"))) and accumulation == int(accumulation) and accumulation > 0:
        values.setdefault("accumulation_double", str(2 * int(accumulation)))
    _command_values(values, command, diagnosis.framework, record)
    return values


def _command_values(values: dict[str, str], command: str | None, framework: str, record: RunRecord) -> None:
    """Variants of the launch command; each is there only where the command itself shows how."""
    checkpoint = values.get("checkpoint")
    resume = record.restart_command or commands.resume_command(command, framework, checkpoint)
    if resume is None and not checkpoint and not record.checkpoints:
        resume = command
    variants: dict[str, str | None] = {"command": command, "resume_command": resume}
    if command:
        if smaller := values.get("batch_size_half"):
            changed = commands.set_flag(command, commands.BATCH_SIZE, smaller)
            if changed and (double := values.get("accumulation_double")):
                changed = commands.set_flag(changed, commands.ACCUMULATION, double) or changed
            variants["command_batch_half"] = changed
        if rate := values.get("learning_rate_tenth"):
            variants["command_lr_tenth"] = commands.set_flag(command, commands.LEARNING_RATE, rate)
        if rate := values.get("learning_rate_half"):
            variants["command_lr_half"] = commands.set_flag(command, commands.LEARNING_RATE, rate)
        variants["command_no_workers"] = commands.set_flag(command, commands.WORKERS, 0)
        variants["command_blocking"] = commands.set_environment(command, "CUDA_LAUNCH_BLOCKING", "1")
        variants["command_nccl_debug"] = commands.set_environment(
            commands.set_environment(command, "TORCH_DISTRIBUTED_DEBUG", "DETAIL"), "NCCL_DEBUG", "INFO"
        )
        variants["command_faulthandler"] = commands.set_environment(
            commands.set_environment(command, "PYTHONUNBUFFERED", "1"), "PYTHONFAULTHANDLER", "1"
        )
    values.update({name: text for name, text in variants.items() if text})


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]+")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, dict | list | tuple | set):
        return None
    if isinstance(value, float):
        return commands.number_text(value)
    text = str(value)
    if len(text) > 4096:
        return None
    return text if text.strip() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()


def _sentence(text: str) -> str:
    text = _clean(text)
    return text[:1].upper() + text[1:]


# --- templates

_OPTIONAL = re.compile(r"( ?)\[\[(?!:[a-z]+:\])(.*?)\]\]", re.DOTALL)  # but "[[:space:]]" in a grep pattern
_NAME = re.compile(r"(?<!\$)\{([a-z_][a-z0-9_]*)\}")


def _resolve_optional(template: str, values: dict[str, str]) -> str:
    def choose(found: re.Match[str]) -> str:
        space, part = found.groups()
        return space + part if all(name in values for name in _NAME.findall(part)) else ""

    return _OPTIONAL.sub(choose, template)


def fill(template: str, values: dict[str, str]) -> str:
    """A sentence with its values; an unknown one outside ``[[ ]]`` becomes a neutral word."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        text = values.get(name)
        if text is None:
            return NEUTRAL.get(name, "the " + name.replace("_", " "))
        text = _clean(text)
        return text if len(text) <= 160 else text[:159] + "…"

    return _NAME.sub(value, _resolve_optional(template, values)).strip()


def fill_command(template: str, values: dict[str, str]) -> str | None:
    """A shell command with its values quoted for the place they stand in; None where one is not known."""
    template = _resolve_optional(template, values).strip()
    out: list[str] = []
    quote, at = "", 0
    for found in _NAME.finditer(template):
        literal = template[at : found.start()]
        out.append(literal)
        quote = _quote_state(literal, quote)
        at = found.end()
        name = found.group(1)
        text = values.get(name)
        if text is None or _CONTROL.search(text):
            return None
        if name in RAW_VALUES:
            if quote:
                return None
            out.append(_without_variables(text, re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", "".join(out))))
            continue
        if name in PATH_VALUES and text.startswith("-"):
            text = "./" + text
        if quote == "'":
            out.append(text.replace("'", "'\"'\"'"))
        elif quote == '"':
            out.append('"' + shlex.quote(text) + '"')  # out of the quotes and in again
        else:
            out.append(shlex.quote(text))
    out.append(template[at:])
    # A part that lost its only argument would wait for the keyboard.
    parts = re.split(r"(\s*(?:&&|;)\s+)", "".join(out).strip())
    kept = [(parts[n - 1] if n else "", parts[n]) for n in range(0, len(parts), 2) if not _WAITS.match(parts[n])]
    return "".join((joint if n else "") + part for n, (joint, part) in enumerate(kept)).strip() or None


_WAITS = re.compile(r"(?:sha256sum|sha1sum|md5sum|cat|zcat|stat|file|head|tail|wc|unzip|tar)(?: -[\w-]+)*$")


def _without_variables(command: str, names: list[str]) -> str:
    """``command`` without its own leading assignments of ``names``: in a shell the last assignment would win."""
    words = shlex.split(command) if names else []
    keep = 0
    while keep < len(words) and re.match(r"[A-Za-z_]\w*=", words[keep]):
        keep += 1
    if not any(word.partition("=")[0] in names for word in words[:keep]):
        return command
    return commands.join([word for word in words[:keep] if word.partition("=")[0] not in names] + words[keep:])


def _quote_state(text: str, quote: str) -> str:
    """The quote that is open after ``text``, if any."""
    skip = False
    for char in text:
        if skip:
            skip = False
        elif char == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return quote


_COMMAND_WORDS = frozenset(
    ["dmesg", "journalctl", "kubectl", "sacct", "squeue", "scontrol", "gcloud", "gsutil", "aws", "az", "nvidia-smi", "rocm-smi", "py-spy", "grep", "tail", "head", "ls", "df", "du", "free", "ulimit", "cat", "curl", "check-failed-run", "python", "python3", "pip", "ray", "docker", "find", "stat", "tar", "zcat", "less", "sed", "awk", "ps", "ping", "nc", "mount", "lsof", "for", "uname", "bq", "wandb", "mlflow", "ssh", "scp", "rsync"]
)


def is_command(text: str) -> bool:
    """Whether ``how`` of a missing artifact is an exact command: no sentence, no remark behind it, no placeholder in it."""
    first = text.strip().split(" ", 1)[0].rsplit("/", 1)[-1]
    if first not in _COMMAND_WORDS or _CONTROL.search(text) or re.search(r"<[\w .-]+>|\b[A-Z]+_[A-Z]+\b(?!=)| \((?!\))", text):
        return False
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False
