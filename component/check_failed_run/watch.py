"""Watching a pipeline run: look, wait, look again, until it ends, is diagnosed, or makes steady progress again."""

from __future__ import annotations

import re
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
    return _watch(run, record, options, misuse, sleep)


def watch_kfp(record: RunRecord, options: dict[str, Any], misuse: type[Exception], *, sleep: Callable[[float], None] = time.sleep) -> Report:
    """As :func:`watch_vertex`, for the run ``options["kfp_run"]`` of the Kubeflow Pipelines at ``options["host"]``.

    ``options["namespace"]``, where present, says where the run's pods are.
    """
    from check_failed_run.pipeline import KfpRun

    host = options.get("host") or ""
    if not host.startswith(("http://", "https://")):
        raise misuse("--kfp-run: --host is missing or no address. Name the Kubeflow Pipelines API, as in --host http://localhost:8888 (kubectl port-forward svc/ml-pipeline 8888).")
    if not re.fullmatch(r"[\w.-]{1,128}", options["kfp_run"]):
        raise misuse(f"--kfp-run: {options['kfp_run']!r} is no run id. It is the last part of the run's address in the user interface.")
    return _watch(KfpRun(options["kfp_run"], host, namespace=options.get("namespace")), record, options, misuse, sleep)


def _watch(run: VertexRun, record: RunRecord, options: dict[str, Any], misuse: type[Exception], sleep: Callable[[float], None]) -> Report:
    progress = _Steadiness()
    report: Report | None = None
    try:
        while True:
            run.clients.renew(run.clients.deadline)
            report = run.look(record, run_id=options["run_id"], now=record.now)
            if run.pipeline is None and run.lost is not None and run.lost.status == 404:
                where = f"--region={run.clients.region} --project={run.clients.project}"
                raise misuse(f"{run.name}: there is no such pipeline job. List them: gcloud ai pipeline-jobs list {where}")
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
