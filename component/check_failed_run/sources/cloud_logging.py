"""Entries of Cloud Logging as logs: one a replica and attempt, lines in order, each entry once.

Severity says nothing about failure here (all of stderr is ERROR), so nothing is filtered by it. A line reads
``<timestamp> <message>``, as a container's own log would with time stamps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from check_failed_run.record import LogSource

_REPLICA = re.compile(r"workerpool(\d+)-(\d+)")
_RANKED = re.compile(r"\[(?:rank|default)\d+\]|\b[Rr]ank[ =:]\d")
SERVICE = "service"  # task_name of the platform's own lines


def job_filter(job_ids: Iterable[str], start: str | None, end: str | None = None) -> str:
    """The query for the lines of training jobs. Always bound in time: unbound queries see one day."""
    ids = [i for i in job_ids if re.fullmatch(r"[\w.-]{1,64}", i)]
    wanted = f'"{ids[0]}"' if len(ids) == 1 else "(" + " OR ".join(f'"{i}"' for i in ids) + ")"
    parts = ['resource.type="ml_job"', f"resource.labels.job_id={wanted}"]
    if start:
        parts.append(f'timestamp>="{start}"')
    if end:
        parts.append(f'timestamp<="{end}"')
    return " AND ".join(parts)


def message(entry: dict[str, Any]) -> str:
    """What the program printed: textPayload, jsonPayload.message, or the payload itself."""
    if isinstance(entry.get("textPayload"), str):
        return entry["textPayload"]
    payload = entry.get("jsonPayload")
    if isinstance(payload, dict):
        if isinstance(payload.get("message"), str):
            return payload["message"]
        return json.dumps(payload, ensure_ascii=False, sort_keys=True)
    payload = entry.get("protoPayload")
    if isinstance(payload, dict):
        status = payload.get("status") or {}
        who = (payload.get("authenticationInfo") or {}).get("principalEmail")
        return " ".join(str(p) for p in (payload.get("methodName"), f"by {who}" if who else "", status.get("message")) if p)
    return ""


def ordered(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By timestamp, then insertId; an entry that came twice once."""
    found = {(str(e.get("timestamp")), str(e.get("insertId"))): e for e in entries}
    return [e for _, e in sorted(found.items(), key=lambda item: (_sort_time(item[0][0]), item[0][1]))]


def _sort_time(text: str) -> str:
    """RFC 3339 with the fraction filled up, so that text order is time order."""
    head, _, fraction = text.rstrip("Z").partition(".")
    return f"{head}.{fraction:0<9}"


def replica_of(entry: dict[str, Any]) -> str:
    return str(((entry.get("resource") or {}).get("labels") or {}).get("task_name") or SERVICE)


def to_logs(entries: Iterable[dict[str, Any]], task: str, *, attempt: int | None = None, prefix: str = "") -> list[LogSource]:
    """One log a replica, the platform's own lines last. ``rank`` is the replica's number over all pools."""
    lines: dict[str, list[str]] = {}
    said: set[str] = set()
    for entry in ordered(entries):
        text = message(entry).rstrip("\n")
        replica = replica_of(entry)
        if replica == SERVICE:
            # the platform repeats its error with the whole traceback in one entry
            if text in said:
                continue
            said.add(text)
        stamp = str(entry.get("timestamp") or "")
        lines.setdefault(replica, []).extend(f"{stamp} {line}" for line in text.split("\n"))
    names = sorted(lines, key=_order)
    # a replica's number is its rank only where lines do not name ranks themselves (several processes a replica)
    several = sum(name != SERVICE for name in names) > 1 and not any(_RANKED.search(line) for name in names for line in lines[name][:2000])
    logs = []
    for number, replica in enumerate(names):
        data = ("\n".join(lines[replica]) + "\n").encode("utf-8", "replace")
        logs.append(text_log(f"{prefix}{task}/{replica}", data, task=task, attempt=attempt, rank=number if several and replica != SERVICE else None))
    return logs


def _order(name: str) -> tuple[int, int, int, str]:
    m = _REPLICA.fullmatch(name)
    return (0, int(m[1]), int(m[2]), "") if m else (1, 0, 0, name)


def text_log(name: str, data: bytes, *, task: str | None = None, attempt: int | None = None, rank: int | None = None) -> LogSource:
    """A log that is already in memory."""
    import io

    return LogSource(name, lambda: io.BytesIO(data), size=len(data), rank=rank, attempt=attempt, task=task)
