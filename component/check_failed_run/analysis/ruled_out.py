"""Why not the other classes: one true reason each."""

from __future__ import annotations

from check_failed_run.analysis.candidates import Candidates
from check_failed_run.analysis.classify import Verdict
from check_failed_run.analysis.diagnosis import Diagnosis
from check_failed_run.analysis.timeline import Timeline
from check_failed_run.catalogue import class_info
from check_failed_run.catalogue.model import CLASSES
from check_failed_run.scanning.facts import LogFacts


def rule_out(diagnosis: Diagnosis, verdict: Verdict, found: Candidates, timeline: Timeline, facts: list[LogFacts]) -> list[tuple[str, str]]:
    """A (class, reason) pair for every class but the primary; those with signs first."""
    primary = diagnosis.primary
    lines = sum(f.lines for f in facts)
    info = class_info()
    with_sign, without = [], []
    place = (lambda at: f"{at.input}:{at.line}") if len(facts) > 1 else (lambda at: f"line {at.line}")
    for cls in CLASSES:
        if primary is not None and cls == primary.cls:
            continue
        reason = None
        followed = [c for c in verdict.followed if c.cls == cls]
        recovered = [c for c in verdict.recovered if c.cls == cls]
        others = [c for c in verdict.survivors if c.cls == cls]
        context = [h for h in found.context if _class_of(h.signature) == cls]
        outranked = [c for c in found.causes if c.cls == cls and c not in others and c not in recovered]
        if others and primary is not None and primary.at is not None:
            c = others[0]
            relation = "comes after" if timeline.key(c.at) >= timeline.key(primary.at) else "says less than"
            reason = f"{c.kind} at {place(c.at)} {relation} {primary.kind} at {place(primary.at)}"
        elif followed and primary is not None:
            c = followed[0]
            more = f" ({len(followed)} such lines)" if len(followed) > 1 else ""
            reason = f"{c.kind} at {place(c.at)}{more} only follows from {primary.kind}"
        elif recovered:
            c = recovered[0]
            reason = f"{c.kind} at {place(c.at)} was survived: the run went on after it"
        elif outranked and primary is not None:
            c = outranked[0]
            reason = f"{c.kind} at {place(c.at)} is explained by {primary.kind}"
        elif context:
            reason = f"{len(context)} line(s) such as {place(context[0].at)} are ordinary and show no failure by themselves"
        if reason:
            with_sign.append((cls, reason))
        else:
            looked = info[cls].looked_for if cls in info else "its messages"
            without.append((cls, f"no sign of it in {lines:,} lines; looked for {looked}"))
    return with_sign + without


def _class_of(signature: str) -> str:
    return signature.split("/", 1)[0]
