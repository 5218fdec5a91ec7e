"""The lines around the quoted ones, from what the scan kept: no log is read again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from check_failed_run.report import model
from check_failed_run.report.redact import clean
from check_failed_run.scanning.facts import LogFacts, LogLine

BEFORE, AFTER, WIDTH = 5, 5, 300  # lines, lines, characters of a line
MAX_CONTEXTS = 6

# The middle of a key or certificate whose BEGIN line is further up.
_ENCODED = re.compile(r"\s*[A-Za-z0-9+/=]{60,}\s*")


def contexts(evidence: Iterable[str], facts: Iterable[LogFacts]) -> list[model.Context]:
    """For each of the first quotes the lines around it, where the scan kept them (all of a small log, the ends and the surroundings
    of tracebacks of a large one). A quote that an earlier context shows has none of its own."""
    logs = {clean(log.name): log for log in facts}
    found: list[model.Context] = []
    shown: set[tuple[str, int]] = set()
    for quote in evidence:
        name = next((name for name in sorted(logs, key=len, reverse=True) if quote.startswith(f"{name}:")), None)
        number = re.match(r"(\d{1,18}): ", quote[len(name) + 1 :]) if name is not None else None
        if name is None or number is None or (name, line := int(number[1])) in shown:
            continue
        lines = _around(logs[name], line)
        if len(lines) < 2:
            continue
        shown |= {(name, other) for other in lines}
        found.append(model.Context(name, line, "\n".join(f"{other}: {_shown(lines[other])}" for other in sorted(lines))))
        if len(found) == MAX_CONTEXTS:
            break
    return found


def _around(log: LogFacts, line: int) -> dict[int, LogLine]:
    """Line numbers and lines, without gaps. Of a line that was drawn over, what stood last."""
    for excerpt in log.excerpts:
        if excerpt and excerpt[0].line <= line <= excerpt[-1].line:
            return {at.line: at for at in excerpt if line - BEFORE <= at.line <= line + AFTER}
    return {}


def _shown(at: LogLine) -> str:
    text = clean(at.raw).replace("\n", " ").rstrip()
    if _ENCODED.fullmatch(text):
        return "…"
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
