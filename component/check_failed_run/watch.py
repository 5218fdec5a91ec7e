"""Watching a Vertex AI job: look, wait, look again, until it ends, is diagnosed, or makes steady progress again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from check_failed_run.pipeline import JobNotFound, VertexRun, open_run
from check_failed_run.record import RunRecord
from check_failed_run.report.model import Report

TROUBLE = ("crashed", "hung", "diverged", "degraded")
STEADY = 3  # looks in a row with progress, after trouble, that count as stable again


def watch_vertex(
    record: RunRecord,
    options: dict[str, Any],
    misuse: type[Exception],
    *,
    sleep: Callable[[float], None] = time.sleep,
    opened: VertexRun | None = None,
) -> Report:
    """The report on the job that ``options["vertex_pipeline"]`` names.

    With ``once`` or ``now`` there is one look. Otherwise a job that has not ended is looked at every ``interval``
    seconds. Ctrl-C ends the watch with the report of what is known.

    Args:
        record: further logs and facts from the command line; ``record.now`` is ``--now``.
        options: ``vertex_pipeline``, ``project``, ``region``, ``once``, ``interval``, ``run_id``, ``quiet``.
        misuse: raised with a message where the job cannot be found.
        sleep, opened: how to wait, and the run; given by tests.
    """
    try:
        run = opened or open_run(options["vertex_pipeline"], project=options["project"], region=options["region"])
    except JobNotFound as error:
        raise misuse(str(error)) from None
    progress = _Steadiness()
    report: Report | None = None
    try:
        while True:
            run.clients.renew(run.clients.deadline)
            report = run.look(record, run_id=options["run_id"], now=record.now)
            if options["once"] or record.now is not None or not _goes_on(run, report, progress):
                return report
            _say(report, options)
            sleep(float(options["interval"]))
    except KeyboardInterrupt:
        if report is None:
            raise
        if not options["quiet"]:
            print("interrupted: this is what was known at the last look", file=sys.stderr)
        return report


def _goes_on(run: VertexRun, report: Report, progress: _Steadiness) -> bool:
    """Whether another look can tell more."""
    if run.over or run.pipeline is None:
        return False
    if report.primary_cause not in ("none", "unknown") and report.run_status in TROUBLE:
        return False
    return not progress.stable(report)


class _Steadiness:
    """Whether a run that was in trouble has advanced at several looks in a row."""

    def __init__(self) -> None:
        self._troubled = False
        self._step: tuple[float, float] | None = None
        self._advanced = 0

    def stable(self, report: Report) -> bool:
        self._troubled = self._troubled or report.run_status in (*TROUBLE, "recovered")
        last = report.last_progress
        step = (float(last.epoch or 0.0), float(last.step or 0)) if last is not None else None
        if step is not None and self._step is not None:
            self._advanced = self._advanced + 1 if step > self._step else 0
        self._step = step
        return self._troubled and report.run_status in ("recovered", "running", "healthy") and self._advanced >= STEADY


def _say(report: Report, options: dict[str, Any]) -> None:
    if options["quiet"]:
        return
    last = report.last_progress
    step = f", step {last.step}{f' of {last.total_steps}' if last.total_steps else ''}" if last is not None and last.step is not None else ""
    print(f"{report.timestamp} {report.run_status}{step}; next look in {options['interval']:g} s (Ctrl-C for the report)", file=sys.stderr)
