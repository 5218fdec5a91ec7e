"""The catalogue as text and JSON, for ``explain`` and ``signatures``."""

from __future__ import annotations

import json
import textwrap

from check_failed_run.catalogue import by_id, class_info, exception_rules, signatures
from check_failed_run.catalogue.model import CLASSES, Fix, Signature


def known_names() -> list[str]:
    return [*CLASSES, *by_id(), *(r.id for r in exception_rules())]


def explain(name: str) -> str | None:
    """What is known about a signature id, an exception rule or a class; None where there is no such thing."""
    if name in by_id():
        return _signature(by_id()[name])
    if name in CLASSES:
        return _class(name)
    for rule in exception_rules():
        if rule.id == name:
            lines = [rule.id, f"class: {rule.cls}", f"kind:  {rule.kind}", "", _wrap(rule.means), *_fixes(rule.fixes)]
            return "\n".join(lines) + "\n"
    return None


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=indent)


def _fixes(fixes: tuple[Fix, ...]) -> list[str]:
    if not fixes:
        return []
    from check_failed_run.planning.policy import risk_of

    lines = ["", "Fixes:"]
    for number, fix in enumerate(fixes, 1):
        action = fix.action.replace("[[", "").replace("]]", "")
        lines.append(_wrap(f"{number}) {action} | risk={risk_of(fix.change)} | {fix.impact}", "  "))
    return lines


def _signature(s: Signature) -> str:
    lines = [s.id, f"class:   {s.cls or '-'}", f"role:    {s.role}", f"kind:    {s.kind}", f"printed by: {s.prints}", "", _wrap(s.means)]
    if s.not_shown:
        lines += ["", _wrap(f"Does not show: {s.not_shown}")]
    lines += ["", "Matches:", *(f"  {line}" for line in s.matches), "", "Does not match:", *(f"  {r.line}\n    ({r.why})" for r in s.rejects)]
    lines += _fixes(s.fixes)
    if s.outranks:
        lines += ["", f"Explains: {', '.join(s.outranks)}"]
    if s.references:
        lines += ["", "References:", *(f"  {r}" for r in s.references)]
    return "\n".join(lines) + "\n"


def _class(name: str) -> str:
    info = class_info()[name]
    ids = [s.id for s in signatures() if s.cls == name]
    lines = [f"{name}: {info.title}", "", _wrap(f"Is: {info.is_}"), _wrap(f"Is not: {info.is_not}"), _wrap(f"When: {info.when}"), "", "Procedure:"]
    lines += [_wrap(f"{n}) {step}", "  ") for n, step in enumerate(info.procedure, 1)]
    lines += ["", "Settings to check:", *(_wrap(f"{fw}: {text}", "  ") for fw, text in info.settings)]
    lines += _fixes(info.fixes)
    lines += ["", f"Signatures ({len(ids)}):", *(f"  {i}" for i in ids)]
    return "\n".join(lines) + "\n"


def list_signatures(format_: str, cls: str | None = None) -> str | None:
    """The catalogue as a table or as JSON; None for an unknown class."""
    if cls is not None and cls not in CLASSES:
        return None
    chosen = [s for s in signatures() if cls is None or s.cls == cls]
    if format_ == "json":
        return json.dumps([
            {"id": s.id, "class": s.cls, "role": str(s.role), "kind": s.kind, "pattern": s.pattern, "cues": list(s.cues), "unless": s.unless, "prints": s.prints, "means": s.means,
             "not_shown": s.not_shown, "specificity": s.specificity, "matches": list(s.matches), "rejects": [{"line": r.line, "why": r.why} for r in s.rejects],
             "fixes": [{"action": f.action, "change": str(f.change), "expected_impact": f.impact, "validate": f.validate} for f in s.fixes], "references": list(s.references), "since": s.since}
            for s in chosen], indent=2, ensure_ascii=False) + "\n"
    width = max((len(s.id) for s in chosen), default=0)
    return "".join(f"{s.id:{width}}  {s.role:12}  {s.kind}\n" for s in chosen)
