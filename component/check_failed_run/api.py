"""The public call: a RunRecord in, a Report out."""

from __future__ import annotations

import time as clock
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from check_failed_run.record import RunRecord
from check_failed_run.report.model import Report
from check_failed_run.scanning.facts import LogFacts
from check_failed_run.scanning.matcher import Matcher


def read(inputs: Sequence[str], *, last: int | None = None, framework: str | None = None, task: str | None = None) -> RunRecord:
    """What the named files, folders and globs hold, as one run.

    Args:
        inputs: paths and globs; ``-`` for standard input.
        last: read only the last N lines of each log.
        framework, task: as on the command line.

    Raises:
        InputError: an input cannot be read or holds no log; the message says what to do.
    """
    from check_failed_run.sources.log_files import collect, shorten_names

    record = RunRecord(framework=framework, task=task)
    collect(list(inputs), record, last=last)
    shorten_names(record)
    return record


def scan(record: RunRecord, *, matcher: Matcher | None = None, progress: Callable[[str, int], None] | None = None) -> list[LogFacts]:
    """Scan every log of ``record`` once. What cannot be read is added to ``record.skipped``."""
    from check_failed_run.catalogue import signatures
    from check_failed_run.record import SkippedInput
    from check_failed_run.scanning.scan import scan_stream

    matcher = matcher or Matcher(signatures())
    facts = []
    for log in record.logs:
        try:
            stream = log.open()
        except OSError as error:
            record.skipped.append(SkippedInput(log.name, error.strerror or str(error)))
            continue
        line, offset = 1, 0
        if hasattr(stream, "prepare"):
            stream.prepare()
            line, offset = 1 + stream.skipped_lines, stream.skipped_bytes
        report = (lambda count, name=log.name: progress(name, count)) if progress else None
        found = scan_stream(stream, log.name, matcher, rank=log.rank, start_line=line, start_offset=offset, progress=report)
        if log.seekable:
            stream.close()
        record.skipped += [SkippedInput(log.name, note) for note in found.notes if note.startswith("reading stopped")]
        facts.append(found)
    return facts


def diagnose(
    record: RunRecord,
    *,
    run_id: str | None = None,
    now: float | None = None,
    matcher: Matcher | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Report:
    """Diagnose one run.

    Args:
        record: what the sources found; ``record.logs`` are read here.
        run_id: the report's run_id; a UUID when absent.
        now: seconds since the epoch taken as the moment of looking (stalls are judged against it); None
            means that the logs alone decide.
        progress: called with a log's name and the number of bytes just read.
    """
    from check_failed_run.analysis import analyse
    from check_failed_run.planning.fixes import plan
    from check_failed_run.report.build import build
    from check_failed_run.report.redact import redact

    started = clock.perf_counter()
    facts = scan(record, matcher=matcher, progress=progress)
    if now is not None:
        record.now = now
    diagnosis = analyse(facts, record)
    steps = plan(diagnosis, record)
    report = build(
        diagnosis,
        record,
        steps,
        run_id=run_id or str(uuid.uuid4()),
        timestamp=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        duration=round(clock.perf_counter() - started, 3),
        facts=facts,
    )
    return redact(report)
