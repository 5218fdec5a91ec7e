"""The report as a Markdown card: the verdict on the first screen, details below.

Log text is a stranger's: it stands in fences that it cannot close, or is escaped. Tables and fences only; no HTML, no relative links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from check_failed_run.report.dag_picture import tree
from check_failed_run.report.model import Report

CARD_EVIDENCE, CARD_FIXES, CELL = 4, 3, 300

_SPECIAL = re.compile(r"([\\`*_{}<>\[\]#|~&!$])")
# Words that a renderer turns into links, mentions or issue references. Inside code they stay text.
_LINKS = re.compile(r"@|://|www\.|#\d|\bGH-\d|(?:mailto|xmpp|javascript|data):|^:\w+:$", re.IGNORECASE)
_LIST_START = re.compile(r"^(\s*)([-+=]|\d{1,9}[.)])(?=\s|$|[-=])")


def render(report: Report) -> str:
    """The card, ending in a newline."""
    percent = f"{report.primary_cause_confidence:.2f}, {report.confidence}"
    out = [f"## {report.decision}: {escape(report.primary_cause)} ({percent})", "", escape(report.summary), ""]
    rows = [("Status", escape(report.run_status)), ("Framework", escape(report.framework)), ("Retry", report.retry)]
    point = report.failure_point
    if point is not None:
        place = f"{point.input}:{point.line}" + (f", step {point.step}" if point.step is not None else "")
        rows.append(("Failed at", code(place + (f", {point.location}" if point.location else ""), table=True)))
    if report.last_progress is not None and report.last_progress.step is not None:
        total = f" of {report.last_progress.total_steps}" if report.last_progress.total_steps else ""
        rows.append(("Last progress", f"step {report.last_progress.step}{total}"))
    if report.checkpoints is not None and report.checkpoints.newest_complete:
        lost = f", {report.checkpoints.steps_lost} steps lost" if report.checkpoints.steps_lost is not None else ""
        rows.append(("Newest complete checkpoint", code(report.checkpoints.newest_complete, table=True) + lost))
    if report.pipeline is not None:
        rows.append(("Pipeline", f"{code(report.pipeline.name, table=True)} {escape(report.pipeline.state)}"))
        rows.append(("Failed tasks", ", ".join(code(name, table=True) for name in report.pipeline.failed_tasks[:8]) or "none"))
    out += _table(("", ""), rows)
    out += ["", f"**Cause.** {escape(report.root_cause)}", ""]
    if report.evidence:
        out += [*fence(report.evidence[:CARD_EVIDENCE]), ""]
    if report.fixes:
        out += _table(
            ("", "Fix", "Risk", "Validate"),
            [(str(n), _cell(fix.action), fix.risk, _cell(fix.validate)) for n, fix in enumerate(report.fixes[:CARD_FIXES], 1)],
        )
        out.append("")
    if report.next_commands:
        out += [*fence(report.next_commands, "sh"), ""]
    out += _details(report)
    return "\n".join(out).rstrip("\n") + "\n"


def _details(report: Report) -> list[str]:
    out: list[str] = []

    def section(title: str, lines: Iterable[str]) -> None:
        lines = list(lines)
        if lines:
            out.extend([f"### {title}", "", *lines, ""])

    if report.contributing_factors:
        section("Contributing factors", [f"- {escape(text)}" for text in report.contributing_factors])
    if report.proximate_cause:
        section("Proximate cause", [escape(report.proximate_cause)])
    if len(report.evidence) > CARD_EVIDENCE:
        section("More evidence", fence(report.evidence[CARD_EVIDENCE:]))
    if report.fixes:
        section(
            "All fixes",
            _table(
                ("", "Fix", "Risk", "Expected impact", "Time", "Confidence"),
                [
                    (str(n), _cell(fix.action), fix.risk, _cell(fix.expected_impact), _cell(fix.time_to_try), f"{fix.confidence:.2f}")
                    for n, fix in enumerate(report.fixes, 1)
                ],
            ),
        )
    if report.pipeline is not None and report.pipeline.graph:
        section("Pipeline", fence(tree(report.pipeline, 60)))
    if report.pipeline is not None and report.pipeline.failures:
        section(
            "Failed tasks",
            _table(
                ("Task", "State", "Cause", "Exit code", "Attempts", "Error"),
                [
                    (
                        code(task.name, table=True) + (f" x{task.count}" if task.count > 1 else ""),
                        _cell(task.state),
                        _cell(task.primary_cause or ""),
                        "" if task.exit_code is None else str(task.exit_code),
                        str(task.attempts),
                        _cell(task.error or ""),
                    )
                    for task in report.pipeline.failures
                ],
            ),
        )
    if report.ranks:
        section(
            "Ranks",
            _table(
                ("Rank", "Role", "Place", "What"),
                [
                    (str(rank.rank), rank.role, code(f"{rank.input or ''}:{rank.line}", table=True) if rank.line else "", _cell(rank.what or ""))
                    for rank in report.ranks[:32]
                ],
            ),
        )
    if len(report.attempts) > 1:
        section(
            "Attempts",
            _table(("Attempt", "Lines", "Outcome"), [(str(a.number), f"{a.first_line} to {a.last_line}", _cell(a.outcome)) for a in report.attempts]),
        )
    if report.metrics:
        section(
            "Metrics",
            _table(
                ("Series", "First", "Last", "Min", "Max", "Went wrong at step"),
                [
                    (_cell(name), *(_value(v) for v in (s.first, s.last, s.min, s.max)), "" if s.went_wrong_at is None else str(s.went_wrong_at))
                    for name, s in report.metrics.items()
                ],
            ),
        )
    if report.secondary_causes:
        section(
            "Secondary causes",
            _table(
                ("Class", "Confidence", "Evidence"),
                [(_cell(item.class_), f"{item.confidence:.2f}", code(item.evidence[:CELL], table=True)) for item in report.secondary_causes],
            ),
        )
    if report.ruled_out:
        section("Ruled out", _table(("Class", "Reason"), [(_cell(item.class_), _cell(item.reason)) for item in report.ruled_out]))
    if report.missing:
        section(
            "Missing evidence",
            _table(("What", "Why", "How"), [(_cell(item.what), _cell(item.why), code(item.how[:CELL], table=True)) for item in report.missing]),
        )
    if report.skipped:
        section("Skipped", _table(("Input", "Reason"), [(code(item.input, table=True), _cell(item.reason)) for item in report.skipped]))
    out += [f"Run {code(report.run_id)}, fingerprint {code(report.fingerprint)}, {escape(report.timestamp)}"]
    return out


def summary_line(report: Report) -> str:
    """One line of plain text for a chat or a commit status."""
    return " ".join(f"{report.decision} {report.primary_cause} ({report.primary_cause_confidence:.2f}): {report.summary}".split())


def escape(text: str) -> str:
    """Prose that may hold log text, as inert Markdown on one line. Words that would become links stand in code."""
    words = []
    for word in text.split():
        words.append(code(word, table=True) if _LINKS.search(word) else _SPECIAL.sub(r"\\\1", word))
    return _LIST_START.sub(r"\1\\\2", " ".join(words)) if words and not words[0][:1].isdigit() else _number_start(" ".join(words))


def _number_start(text: str) -> str:
    return re.sub(r"^(\d{1,9})([.)])(?=\s|$)", r"\1\\\2", text)


def _cell(text: str) -> str:
    return escape(text if len(text) <= CELL else text[: CELL - 1] + "…")


def _value(value: float | str | None) -> str:
    return "" if value is None else _cell(value) if isinstance(value, str) else f"{value:.6g}"


def code(text: str, *, table: bool = False) -> str:
    """An inline code span that its text cannot leave; empty text gives an empty string."""
    text = " ".join(text.split())
    if not text:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    if table:
        # GFM splits cells before it reads code spans: every pipe is escaped, and no backslash may stand before one.
        text = re.sub(r"\\*\|", r"\\|", text)
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> list[str]:
    """A fenced block that its text cannot close."""
    flat = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    longest = max((len(run) for line in flat for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * max(3, longest + 1)
    return [f"{ticks}{language}", *flat, ticks]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
