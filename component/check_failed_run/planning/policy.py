"""The fix policy: what may be done without asking, and in which order fixes are offered.

:data:`POLICY` is the whole policy. A pipeline that acts on reports may do what is ``safe`` here and nothing else.
"""

from __future__ import annotations

import re
from typing import Literal

from check_failed_run.catalogue.model import Change, Fix

Risk = Literal["safe", "needs-approval", "dangerous"]
Retry = Literal["retry", "retry-elsewhere", "change-first", "stop"]

SAFE: Risk = "safe"
NEEDS_APPROVAL: Risk = "needs-approval"
DANGEROUS: Risk = "dangerous"

POLICY: dict[Change, Risk] = {
    Change.DIAGNOSE: SAFE,
    Change.FETCH: SAFE,
    Change.USE_CHECKPOINT: SAFE,
    Change.RESTART: SAFE,
    Change.HYPERPARAMETER: NEEDS_APPROVAL,
    Change.CONFIG: NEEDS_APPROVAL,
    Change.CODE: NEEDS_APPROVAL,
    Change.DATA: NEEDS_APPROVAL,
    Change.ENVIRONMENT: NEEDS_APPROVAL,
    Change.RESOURCES: NEEDS_APPROVAL,
    Change.PERMISSION: NEEDS_APPROVAL,
    Change.PIPELINE: NEEDS_APPROVAL,
    Change.CANCEL: DANGEROUS,
    Change.KILL: DANGEROUS,
    Change.ROLLBACK: DANGEROUS,
    Change.DELETE: DANGEROUS,
}

RISK_ORDER: tuple[Risk, ...] = (SAFE, NEEDS_APPROVAL, DANGEROUS)
RISK_WEIGHT: dict[Risk, float] = {SAFE: 1.0, NEEDS_APPROVAL: 1.25, DANGEROUS: 3.0}

READ_ONLY: frozenset[Change] = frozenset({Change.DIAGNOSE, Change.FETCH})
"""Steps that only look: they never recover a run by themselves."""

# A look does not repair anything, however useful it is: it must not crowd out the fix.
READ_ONLY_GAIN = 0.45

# What a command does counts more than what its fix calls itself.
COMMAND_RISK: tuple[tuple[str, Risk], ...] = (
    (
        r"(?:^|[;&|]\s*|\bsudo\s+|\bxargs\s+)(?:rm|rmdir|shred|truncate|mkfs[.\w]*|dd|kill|pkill|killall|scancel|qdel|bkill|reboot|shutdown|umount)\s"
        r"|\bgit\s+(?:reset\s+--hard|clean\b)|\s(?:delete|cancel|terminate|drain|evict|destroy)(?:\s|$)|\bgsutil\s+(?:-m\s+)?rm\b"
        r"|\bgcloud\s+storage\s+rm\b|\baws\s+s3\s+rm\b|-delete(?:\s|$)|--gpu-reset\b",
        DANGEROUS,
    ),
    (
        r"(?:^|[;&|]\s*)sudo\s|\b(?:pip|pip3|conda|mamba|uv|apt|apt-get|yum|npm)\s+(?:\w+\s+)?(?:install|uninstall|upgrade|update|remove)\b"
        r"|(?:^|[;&|]\s*)(?:chmod|chown|mount|mv|ln|sysctl)\s|add-iam-policy-binding|set-iam-policy|services\s+enable\b|sed\s+-i"
        r"|\s(?:apply|patch|scale|update|create)(?:\s|$)",
        NEEDS_APPROVAL,
    ),
)
_COMMAND_RISK = tuple((re.compile(pattern), risk) for pattern, risk in COMMAND_RISK)

# (pattern searched in "class signature kind", verdict): the first that fits wins, then RETRY_BY_CLASS.
RETRY_RULES: tuple[tuple[str, Retry], ...] = (
    (r"xid-application|xid-notice", "change-first"),
    (r"\bxid\b|xid\d|\becc\b|row[- ]remap|fallen?[- ]off|nvlink|gpu[- ]lost|hardware|faulty|unhealthy", "retry-elsewhere"),
    (r"node[- ](?:fail|lost|down|not-?ready|shutdown)|host[- ](?:error|fail|lost)", "retry-elsewhere"),
    (r"stock-?out|no[- ]capacity|capacity|resource[- ]pool|insufficient[- ]resources|not enough resources|exhausted zone", "retry-elsewhere"),
    (r"preempt|\bspot\b|maintenance|reclaim|requeue|time[- ]?limit|walltime|sighup|hang-?up", "retry"),
    (r"connection[- ](?:reset|lost|closed|aborted)|reset by peer|disconnect|broken pipe|transient|temporar", "retry"),
    (r"rate[- ]limit|too many requests|\b(?:429|500|502|503|504)\b|service[- ]unavailable|server error|backend error", "retry"),
)
_RETRY_RULES = tuple((re.compile(pattern), verdict) for pattern, verdict in RETRY_RULES)

RETRY_BY_CLASS: dict[str, Retry] = {
    "nan-inf": "change-first",
    "oom": "change-first",
    "optimization-divergence": "change-first",
    "cuda-runtime": "change-first",
    "nccl-distributed": "change-first",
    "data-pipeline": "change-first",
    "config-error": "change-first",
    "io-checkpoint": "change-first",
    "stalled": "stop",
    "process-crash": "stop",
    "evaluation-mismatch": "change-first",
    "pipeline-orchestration": "change-first",
    "cloud-permissions-quota": "change-first",
}

# Transient by nature only where the class is about the outside world: a "transient" word in an oom kind changes nothing.
TRANSIENT_CLASSES = frozenset(
    {"nccl-distributed", "io-checkpoint", "process-crash", "cuda-runtime", "data-pipeline", "pipeline-orchestration", "cloud-permissions-quota"}
)


def risk_of(change: Change, command: str | None = None) -> Risk:
    """The risk of a fix: the policy's, raised where its command does more than its change says."""
    risk = POLICY[change]
    for pattern, floor in _COMMAND_RISK:
        if command and RISK_ORDER.index(floor) > RISK_ORDER.index(risk) and pattern.search(command):
            risk = floor
    return risk


def retry_verdict(cls: str, signature: str, kind: str) -> Retry:
    """What a scheduler may do with a run that failed of this cause."""
    if cls in TRANSIENT_CLASSES:
        text = f"{signature} {kind}".lower()
        for pattern, verdict in _RETRY_RULES:
            if pattern.search(text):
                return verdict
    return RETRY_BY_CLASS.get(cls, "stop")


def minutes(time_to_try: str) -> float:
    """Minutes in "10 min", "2 h", "1 day"; 30 where it is not clear."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*(s|sec|min|m|h|hour|d|day)", time_to_try)
    if not found:
        return 30.0
    scale = {"s": 1 / 60, "sec": 1 / 60, "min": 1, "m": 1, "h": 60, "hour": 60, "d": 1440, "day": 1440}
    return float(found.group(1)) * scale[found.group(2)]


def rank(fix: Fix) -> float:
    """Impact x confidence / risk weight; a quick step goes before a slow one of the same worth."""
    gain = min(fix.gain, READ_ONLY_GAIN) if fix.change in READ_ONLY else fix.gain
    duration = minutes(fix.time_to_try)
    quick = 1.0 if duration <= 15 else 0.95 if duration <= 60 else 0.85 if duration <= 480 else 0.75
    return round(gain * fix.confidence * quick / RISK_WEIGHT[POLICY[fix.change]], 6)
