"""The report as workflow commands of GitHub Actions, which show as annotations of the run and of the pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands; escaping as in ``command.ts`` of
https://github.com/actions/toolkit. GitHub shows at most 10 errors, 10 warnings and 10 notices of a step.
"""

from __future__ import annotations

from pathlib import Path

from check_failed_run.report.model import Report
from check_failed_run.report.sarif import FAILED, code_place, in_root, log_place, text

MAX_EACH = 10
MAX_MESSAGE = 4000  # characters; a longer one is cut in the interface


def render(report: Report, root: Path | None = None) -> str:
    """One command a line: an error for the cause, warnings for other causes, notices for what is missing.

    Args:
        root: the checkout. Only a file that is there is named: GitHub drops annotations of other files from the diff.
    """
    if report.primary_cause == "none" or report.run_status not in FAILED:
        return command("notice", f"{report.run_status}: {report.summary}", title=report.skill_name)
    out = [command("error", _message(report), title=f"{report.primary_cause} ({report.primary_cause_confidence:.2f})", **_place(report, root))]
    out += [command("warning", other.evidence, title=f"{other.class_} ({other.confidence:.2f}), beside it") for other in report.secondary_causes[:MAX_EACH]]
    out += [command("notice", f"{item.why}\n{item.how}", title=f"Missing: {item.what}") for item in report.missing[:MAX_EACH]]
    return "".join(out)


def command(kind: str, message: str, **properties: str | int | None) -> str:
    """``::kind name=value,...::message`` and a newline. No text can end the command or begin another."""
    given = ",".join(f"{name}={escape_property(str(value))}" for name, value in properties.items() if value not in (None, ""))
    return f"::{kind}{' ' if given else ''}{given}::{escape_data(message[:MAX_MESSAGE])}\n"


def escape_data(value: str) -> str:
    return text(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(value: str) -> str:
    return escape_data(value).replace(":", "%3A").replace(",", "%2C")


def _message(report: Report) -> str:
    lines = [report.root_cause]
    if point := report.failure_point:
        lines += [f"{point.input}:{point.line}: {point.text}"]
    if report.fixes:
        lines += [f"First fix ({report.fixes[0].risk}): {report.fixes[0].action}"]
    lines += [f"Decision: {report.decision}", *report.next_commands[:1]]
    return "\n".join(lines)


def _place(report: Report, root: Path | None) -> dict[str, str | int | None]:
    for place in (code_place(report, root), log_place(report, root)):
        if place is not None and root is not None and in_root(place[0], root):
            return {"file": place[0], "line": place[1]}
    return {}
