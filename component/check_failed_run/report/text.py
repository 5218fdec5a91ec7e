"""The report as plain text, for a terminal, a log or a pager."""

from __future__ import annotations

from collections.abc import Iterable

from check_failed_run.report.model import Report

_RED, _YELLOW, _GREEN, _BOLD, _DIM = "31", "33", "32", "1", "2"


def render(report: Report, color: bool = False) -> str:
    """The text report, ending in a newline. With ``color`` the same characters plus a few SGR sequences."""

    def paint(text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if color and text else text

    bad = report.run_status in ("crashed", "hung", "diverged")
    status = _RED if bad else _GREEN if report.run_status in ("healthy", "recovered") else _YELLOW
    lines = [
        f"{paint('Status:', _BOLD)} {paint(report.run_status, status)}",
        f"{paint('Framework:', _BOLD)} {_line(report.framework)}",
        f"{paint('Primary cause:', _BOLD)} {paint(report.primary_cause, _BOLD)} (confidence: {report.primary_cause_confidence:.2f})",
        f"{paint('Contributing factors:', _BOLD)} {'; '.join(map(_line, report.contributing_factors)) or 'none'}",
    ]
    if report.pipeline is not None:
        lines += [
            f"{paint('Pipeline:', _BOLD)} {_line(report.pipeline.name)}",
            f"{paint('Pipeline state:', _BOLD)} {_line(report.pipeline.state)}",
            f"{paint('Failed tasks:', _BOLD)} {','.join(map(_line, report.pipeline.failed_tasks)) or 'none'}",
        ]
    lines += [paint("Evidence:", _BOLD), *_items(report.evidence)]
    lines += [paint("Root cause:", _BOLD), _line(report.root_cause)]
    lines.append(paint("Top fixes:", _BOLD))
    for number, fix in enumerate(report.fixes, 1):
        risk = paint(f"risk={fix.risk}", {"safe": _GREEN, "needs-approval": _YELLOW}.get(fix.risk, _RED))
        lines.append(f"{number}) {_line(fix.action)} | {risk} | expected impact={_line(fix.expected_impact)} | validate={_line(fix.validate)}")
    if not report.fixes:
        lines.append("none")
    lines += [
        f"{paint('Decision:', _BOLD)} {paint(report.decision, _GREEN if report.decision == 'GO' else _RED)}",
        f"{paint('Confidence:', _BOLD)} {report.confidence}",
        "",
        paint("Next command(s):", _BOLD),
        *_items(report.next_commands),
    ]
    for title, items in (
        ("Ruled out:", [f"{item.class_}: {item.reason}" for item in report.ruled_out]),
        ("Missing evidence:", [f"{item.what} ({item.why}): {item.how}" for item in report.missing]),
        ("Skipped:", [f"{item.input}: {item.reason}" for item in report.skipped]),
    ):
        if items:
            lines += ["", paint(title, _BOLD), *(paint(line, _DIM) for line in _items(items))]
    return "\n".join(lines) + "\n"


def _items(items: Iterable[str]) -> list[str]:
    return [f"- {_line(item)}" for item in items] or ["- none"]


def _line(text: str) -> str:
    """One line, whatever is in it; spaces inside stay, since quotes are raw."""
    return text.replace("\r", " ").replace("\n", " ")
