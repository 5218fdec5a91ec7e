"""Exports of Cloud Logging: a JSON array of entries (``gcloud logging read --format=json``), or lines of JSON that begin with the newest.

Both are put in order, oldest first, one entry a line; the log's name says so, since lines are numbered in that order.
"""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

from check_failed_run.record import LogSource

MAX_EXPORT = 64 << 20  # bytes that are put in order in memory
ORDERED = " (oldest first)"


def read_export(name: str, data: bytes) -> LogSource | None:
    """The export as an ordered log; None where ``data`` is none, or is in order already."""
    entries = _array(data) if data.lstrip()[:1] == b"[" else _newest_first(data)
    if entries is None:
        return None
    entries = sorted(entries, key=lambda e: (_time(e), str(e.get("insertId", ""))))
    text = "\n".join(json.dumps(e, ensure_ascii=False) for e in entries).encode() + b"\n"
    return LogSource(name + ORDERED, lambda: io.BytesIO(text), size=len(text))


def _array(data: bytes) -> list[dict[str, Any]] | None:
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(loaded, list) or not loaded or not all(_is_entry(e) for e in loaded):
        return None
    return loaded


def _newest_first(data: bytes) -> list[dict[str, Any]] | None:
    entries = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not _is_entry(entry):
            return None
        entries.append(entry)
    times = [_time(e) for e in entries]
    if len(times) < 3 or times[0] <= times[-1] or any(a < b for a, b in itertools.pairwise(times)):
        return None
    return entries


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("timestamp"), str) and any(k in entry for k in ("textPayload", "jsonPayload", "protoPayload"))


def _time(entry: dict[str, Any]) -> str:
    head, _, fraction = entry["timestamp"].rstrip("Z").partition(".")
    return f"{head}.{fraction:0<9}"


def may_be_export(head: bytes) -> bool:
    """Whether a file's first bytes look like one."""
    first = head.lstrip()[:2000]
    return first[:1] in (b"[", b"{") and b'"timestamp"' in head and b"ayload" in head
