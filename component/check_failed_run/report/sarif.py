"""The report as SARIF 2.1.0, for code scanning.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html; what GitHub reads and its limits:
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from check_failed_run.report.model import Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_TEXT, MAX_RELATED, MAX_TAGS = 1000, 20, 10  # GitHub: 1024 characters of a description, 1000 locations a result, 20 tags a rule
LEVELS = {"blocker": "error", "high": "error", "medium": "warning", "low": "note"}
FAILED = ("crashed", "hung", "diverged", "degraded", "unknown")

_PLACE = re.compile(r"(.{1,400}?):(\d{1,18}): (.*)", re.DOTALL)
_LOCATION = re.compile(r"(.+):(\d{1,18})")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def render(report: Report, root: Path | None = None) -> str:
    """SARIF text with one run: a result for the primary cause, one for each other cause; none for a run without failure.

    Args:
        root: the checkout; a path of a traceback (``/app/src/train.py``) is given relative to it when its end is a file there
            (``src/train.py``), since code scanning shows a result only at a file of the repository.
    """
    results = results_of(report)
    rules = _rules(report, [result["ruleId"] for result in results])
    index = {rule["id"]: n for n, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = index[result["ruleId"]]
        result["locations"] = [_location(report, result, root)]
    if results and (related := _related(report)):
        results[0]["relatedLocations"] = related
    run: dict[str, Any] = {
        "tool": {"driver": {"name": report.skill_name, "version": _version(), "semanticVersion": _version(), "rules": rules}},
        "automationDetails": {"id": f"{report.skill_name}/"},
        "invocations": [{"executionSuccessful": True, "endTimeUtc": report.timestamp}],
        "columnKind": "utf16CodeUnits",
        "properties": {"run_id": report.run_id, "run_status": report.run_status, "decision": report.decision, "retry": report.retry},
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def results_of(report: Report) -> list[dict[str, Any]]:
    """Results without their places: ruleId, level, message, rank, partialFingerprints."""
    if report.primary_cause == "none" or report.run_status not in FAILED:
        return []
    severity = report.findings[0].severity if report.findings else "high"
    message = text(f"{report.summary}\n\n{report.root_cause}" + (f"\n\nFirst fix: {report.fixes[0].action}" if report.fixes else ""))
    results = [_result(signature_of(report) or report.primary_cause, LEVELS[severity], message, report.primary_cause_confidence, report.fingerprint)]
    for other in report.secondary_causes:
        said = text(f"{other.class_} ({other.confidence:.2f}), beside the primary cause {report.primary_cause}: {other.evidence}")
        results.append(_result(other.class_, "note", said, other.confidence, f"{report.fingerprint}/{other.class_}"))
    return results


def signature_of(report: Report) -> str | None:
    """The signature that matched at the failure point, or the first of the primary cause's class."""
    own = [s for s in report.signals if s.class_ == report.primary_cause and s.role == "cause"]
    point = report.failure_point
    at = next((s for s in own if point and (s.input, s.line) == (point.input, point.line)), None)
    first = at or (own[0] if own else None)
    return first.signature if first else None


def code_place(report: Report, root: Path | None) -> tuple[str, int] | None:
    """(path, line) of the innermost frame in the user's code, relative to ``root`` where it is there; None without one."""
    point = report.failure_point
    m = _LOCATION.fullmatch(point.location) if point and point.location else None
    if m is None:
        return None
    return in_root(m[1], root) or m[1], max(1, int(m[2]))


def log_place(report: Report, root: Path | None) -> tuple[str, int] | None:
    """(path, line) of the line that first shows the failure."""
    point = report.failure_point
    return (in_root(point.input, root) or point.input, max(1, point.line)) if point else None


def in_root(path: str, root: Path | None) -> str | None:
    """The longest end of ``path`` that is a file below ``root``, as a relative POSIX path."""
    if root is None or "\0" in path:
        return None
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part != "/" and not part.endswith(":")]
    if ".." in parts:
        return None
    for n in range(min(len(parts), 40)):
        candidate = "/".join(parts[-40:][n:])
        try:
            if (root / candidate).is_file():
                return candidate
        except OSError:
            return None
    return None


def text(value: str) -> str:
    """Without characters that XML and viewers do not take."""
    return _CONTROL.sub("", value)


def _result(rule: str, level: str, message: str, confidence: float, print_: str) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "rank": round(100 * confidence, 1),
        # The first is what GitHub compares; it is not hashed from a line of code, so that moved code keeps the alert.
        "partialFingerprints": {"primaryLocationLineHash": print_, "checkFailedRun/v1": print_},
    }


def _rules(report: Report, ids: list[str]) -> list[dict[str, Any]]:
    from check_failed_run.catalogue import by_id, class_info

    rules = []
    for name in dict.fromkeys(ids):
        signature = by_id().get(name)
        info = class_info().get(signature.cls if signature else name)
        title = f"{info.title}: {signature.kind}" if signature and info else info.title if info else "The evidence does not show the cause"
        full = signature.means if signature else info.is_ if info else "The run failed, and what was read does not decide why."
        own = [fix.action for fix in report.fixes] if name == ids[0] else []
        steps = own or list(info.procedure if info else ())
        lines = [full, "", *(f"{n}. {step}" for n, step in enumerate(steps, 1))]
        if signature and signature.references:
            lines += ["", *signature.references]
        rules.append({
            "id": name,
            "name": "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name))[:255],
            "shortDescription": {"text": text(title)[:MAX_TEXT]},
            "fullDescription": {"text": text(full)[:MAX_TEXT]},
            "help": {"text": text("\n".join(lines)), "markdown": _markdown(full, steps, signature.references if signature else ())},
            "defaultConfiguration": {"level": "error"},
            "properties": {"tags": ["training", *([signature.cls if signature else name])][:MAX_TAGS], "problem.severity": "error"},
        })
    return rules


def _markdown(full: str, steps: list[str], references: tuple[str, ...]) -> str:
    from check_failed_run.report.markdown import escape

    lines = [escape(full), "", *(f"{n}. {escape(step)}" for n, step in enumerate(steps, 1))]
    if references:
        lines += ["", *(f"- {escape(reference)}" for reference in references)]
    return text("\n".join(lines))


def _location(report: Report, result: dict[str, Any], root: Path | None) -> dict[str, Any]:
    if result["level"] == "note" and (other := next((s for s in report.secondary_causes if s.class_ == result["ruleId"]), None)):
        m = _PLACE.fullmatch(other.evidence)
        return _physical(in_root(m[1], root) or m[1], int(m[2]), m[3]) if m else _physical(_target(report), 1, None)
    place = code_place(report, root)
    if place is not None:
        return _physical(place[0], place[1], None)
    place = log_place(report, root)
    return _physical(*place, report.failure_point.text if report.failure_point else None) if place else _physical(_target(report), 1, None)


def _target(report: Report) -> str:
    """A name for a result without a line: GitHub refuses results without a place."""
    return report.pipeline.name if report.pipeline else "run"


def _related(report: Report) -> list[dict[str, Any]]:
    related = []
    for line in report.evidence[:MAX_RELATED]:
        if m := _PLACE.fullmatch(line):
            related.append({"id": len(related) + 1, **_physical(m[1], int(m[2]), m[3]), "message": {"text": text(m[3])[:MAX_TEXT]}})
    return related


def _physical(path: str, line: int, snippet: str | None) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(1, min(line, 2**31 - 1))}
    if snippet:
        region["snippet"] = {"text": text(snippet)[:MAX_TEXT]}
    return {"physicalLocation": {"artifactLocation": {"uri": uri(path)}, "region": region}}


def uri(path: str) -> str:
    """A path as a URI reference: relative as it is, absolute with ``file://``; everything else percent-encoded."""
    if re.match(r"(?:gs|s3|https?|file)://", path):
        return quote(path.encode("utf-8", "replace"), safe="/:%")
    path = path.replace("\\", "/")
    if re.match(r"[A-Za-z]:/", path):
        return "file:///" + quote(path, safe="/:")
    return ("file://" if path.startswith("/") else "") + quote(path.encode("utf-8", "replace"), safe="/")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("check-failed-run")
    except PackageNotFoundError:
        return "0.0.0"
