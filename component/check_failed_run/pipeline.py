"""A pipeline run, from its name to one report.

The job is read, its tasks are put in order, the jobs, logs and files behind the failed (or running) ones are fetched
within a budget, each is diagnosed by the engine on its own logs, and the diagnoses become one Report: that of the
task that failed first, with the others beside it. What cannot be read is a named gap; the rest goes on.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from check_failed_run.analysis.dag import Dag, read_dag
from check_failed_run.analysis.stall import LEAST_GAP, TIMES
from check_failed_run.record import ConfigFile, LogSource, MissingEvidence, PipelineRecord, RunRecord, TaskRecord
from check_failed_run.report.build import HIGH, level, normalise, quoted
from check_failed_run.report.model import FailedTask, Finding, Missing, Report, SecondaryCause, Skipped
from check_failed_run.report.redact import redact
from check_failed_run.scanning.matcher import Matcher
from check_failed_run.sources import cloud_logging, gcs, kubeflow, vertex
from check_failed_run.sources.clients import Clients, Fault
from check_failed_run.sources.clients import now as clock

MAX_DIAGNOSED = 60  # failed tasks that the engine looks at, each on its own
MAX_JOBS = 6  # tasks whose jobs are asked for by name
MAX_RUNNING = 3
SURE = 0.5  # below this, the first failed task's log is read as a whole
QUIET = ("healthy", "running", "recovered")
OPEN = ("RUNNING", "PENDING", "UNKNOWN")  # states of a task that has not ended
_LABELLED = re.compile(r"\S+Z (?P<label>[A-Za-z][\w -]{2,30}?) ?[:=] (?P<value>\S.{2,300})$")
_NUMBER = re.compile(r"(?<![\w.-])\d{3,}s?(?![\w-])(?!\.\d)")
_WRAPPED = re.compile(r"AiPlatformException: code=[A-Z_]+, message=(?P<text>[^\n]{1,4000}?), cause=")


class JobNotFound(Exception):
    """The named job does not exist or cannot be looked for; the message says what to do."""


@dataclass(slots=True)
class Target:
    """A task to diagnose, with what was found out about it."""

    task: TaskRecord
    failed: bool
    infos: list[vertex.JobInfo] = field(default_factory=list)
    children: list[vertex.Child] = field(default_factory=list)
    record: RunRecord = field(default_factory=RunRecord)
    report: Report | None = None
    log: str | None = None  # name of the log that was read
    same: list[TaskRecord] = field(default_factory=list)  # other iterations that failed alike

    @property
    def job_ids(self) -> list[str]:
        """CustomJob ids: the last attempt's, and those that it started. A launcher whose job failed only passes that on, so it is left out."""
        passed_on = any(info.name == child.name and info.state in ("FAILED", "CANCELLED", "EXPIRED") for child in self.children for info in self.infos)
        own = [] if passed_on and any(child.kind == "customJobs" for child in self.children) else list(self.task.jobs[-1:])
        names = [*own, *(child.name for child in self.children if child.kind == "customJobs")]
        return [job for job in dict.fromkeys(name.rsplit("/", 1)[-1] for name in names) if job.isdigit()]

    def info(self, job_id: str) -> vertex.JobInfo | None:
        return next((info for info in self.infos if info.id == job_id), None)


class VertexRun:
    """One Vertex AI PipelineJob, looked at once or again and again.

    Args:
        name: full resource name of the job.
        clients: access to its project.
        own_task: task id of the exit task that asks, where it knows it.
        exit_handler: whether an exit task of this job asks.
        said: what the exit task was told of the state (SUCCEEDED, FAILED, CANCELLED), if anything.
    """

    def __init__(self, name: str, clients: Clients, *, own_task: str | None = None, exit_handler: bool = False, said: str | None = None):
        self.name, self.clients = name, clients
        self.own_task, self.exit_handler, self.said = own_task, exit_handler, said
        self.pipeline: PipelineRecord | None = None
        self.lost: Fault | None = None  # why the job could not be read
        self.dag: Dag | None = None
        self.callers: list[str] = []  # who cancelled the job, as the audit log tells
        self._logs: dict[str, cloud_logging.JobLog] = {}
        self._infos: dict[str, vertex.JobInfo] = {}
        self._reader = cloud_logging.Reader(clients)
        self._matcher: Matcher | None = None

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.pipeline is not None and self.pipeline.state in vertex.JOB_ENDED

    def look(
        self,
        base: RunRecord,
        *,
        run_id: str | None = None,
        now: float | None = None,
        known: Callable[[RunRecord], None] | None = None,
        fallback: Callable[[RunRecord], None] | None = None,
    ) -> Report:
        """Diagnose the job as it is now.

        Args:
            base: what is known already (framework, task, further logs, gaps). Filled, and kept unchanged by a second look.
            now: the moment of looking, in seconds since the epoch; the clock's when absent.
            known: called once the tasks are known.
            fallback: fills ``base`` from elsewhere when the job cannot be read at all.
        """
        base = replace(base, skipped=list(base.skipped), missing=list(base.missing), logs=list(base.logs), configs=list(base.configs), checkpoints=list(base.checkpoints))
        moment = now if now is not None else clock()
        self._reader.renew()
        self.callers = []
        self._read_job(base, moment)
        if self.pipeline is None:
            if fallback is not None:
                fallback(base)
            return redact(self._without_job(base, run_id))
        base.pipeline = self.pipeline
        if known is not None:
            known(base)
        targets = self._targets()
        self._read_jobs(targets, base)
        if any(self._settle(target) for target in targets):
            targets = self._retarget(targets)
        self._read_logs(targets, base, moment)
        self._read_files(targets, base)
        for target in targets[:MAX_DIAGNOSED]:
            self._diagnose(target, base, moment, run_id, first=target is targets[0])
        self._who_cancelled(targets, base)
        if targets and targets[0].failed and targets[0].report is not None and targets[0].report.primary_cause == "evaluation-mismatch":
            self._compare_with_training(targets[0], base)
        report = self._merge(targets, base, run_id)
        report.duration_seconds = round(self.clients.deadline - self.clients.left, 3)
        return redact(report)

    # --- reading

    def _read_job(self, base: RunRecord, moment: float) -> None:
        try:
            job = vertex.get_job(self.clients, self.name)
        except Fault as fault:
            self.clients.gap(fault, base)
            self.lost = fault
            if self.pipeline is None:
                self.pipeline = self._from_events(base, moment)
                self.dag = read_dag(self.pipeline) if self.pipeline else None
            return
        self.lost = None
        self.pipeline = vertex.pipeline_record(job, own_task=self.own_task, exit_handler=self.exit_handler)
        self.pipeline.name = self.pipeline.name or self.name
        if self.pipeline.service_account and self.exit_handler:
            self.clients.principal = self.pipeline.service_account
        elif self.exit_handler and str(self.pipeline.details.get("project", "")).isdigit():
            self.clients.principal = f"{self.pipeline.details['project']}-compute@developer.gserviceaccount.com"
        self.dag = read_dag(self.pipeline)

    def _from_events(self, base: RunRecord, moment: float) -> PipelineRecord | None:
        """The tasks as the pipeline's own log events tell them, where the job itself cannot be read."""
        m = vertex.JOB_NAME.match(self.name)
        if m is None:
            return None
        entries: list[dict[str, Any]] = []
        token = ""
        for _ in range(5):
            try:
                raw, token = cloud_logging.read_page(self.clients, cloud_logging.events_filter(m["id"], _created(m["id"], moment)), token=token)
            except Fault as fault:
                self.clients.gap(fault, base)
                break
            entries += [cloud_logging.event_of(item) for item in raw]
            if not token:
                break
        job = vertex.job_from_events(self.name, entries)
        return vertex.pipeline_record(job, own_task=self.own_task, exit_handler=self.exit_handler) if job else None

    def _targets(self) -> list[Target]:
        assert self.dag is not None and self.pipeline is not None
        dag = self.dag
        if dag.failed:
            return [Target(task, True) for task in [*dag.independent, *dag.followed][:MAX_DIAGNOSED]]
        if self.pipeline.state == "CANCELLED" or (dag.cancelled and self.pipeline.state in ("FAILED", "CANCELLING")):
            return [Target(task, True) for task in dag.cancelled[:MAX_RUNNING]]
        if self._well:  # training may have gone wrong without failing
            longest = sorted((t for t in dag.leaves if t.state == "SUCCEEDED" and t.jobs and not t.is_exit_task), key=lambda t: ((t.start or 0.0) - (t.end or 0.0), t.id))
            return [Target(task, False) for task in longest[:MAX_RUNNING]]
        return [Target(task, self._doubted) for task in sorted(dag.running, key=lambda t: (t.start or 0.0, t.id))[:MAX_RUNNING]]

    @property
    def _well(self) -> bool:
        """Whether everything ended well; an exit task asks while the job itself is still running."""
        assert self.dag is not None and self.pipeline is not None
        if self.pipeline.state == "SUCCEEDED":
            return True
        dag = self.dag
        open_tasks = any(t.state in OPEN and not t.is_exit_task for t in dag.leaves)
        return self.exit_handler and self.said != "FAILED" and bool(dag.leaves) and not (dag.failed or dag.cancelled or open_tasks) and self.pipeline.state == "RUNNING"

    @property
    def _doubted(self) -> bool:
        """The job is said to have failed though no task is marked so."""
        return bool(self.pipeline and (self.pipeline.state == "FAILED" or self.said == "FAILED"))

    def _read_jobs(self, targets: list[Target], base: RunRecord) -> None:
        for target in targets:
            target.children = list(target.task.details.get("children") or ())
        for target in targets[:MAX_JOBS]:
            if target.task.state == "SUCCEEDED":
                continue
            launched = target.task.state == "FAILED" and any(child.kind in vertex.JOB_KINDS for child in target.children)
            for name in () if launched else target.task.jobs[-1:]:  # a launcher's own job says less than the one that it started
                self._info(name, vertex.Child("customJobs", name), target, base)
            for child in target.children:
                self._info(child.name, child, target, base)

    def _info(self, name: str, child: vertex.Child, target: Target, base: RunRecord) -> None:
        info = self._infos.get(name)
        if info is None or info.state not in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"):
            try:
                found = vertex.get_child(self.clients, child)
            except Fault as fault:
                self.clients.gap(fault, base)
                return
            if found is None:
                command = child.command(self.clients.project, self.clients.region)
                if target.failed:
                    base.missing.append(MissingEvidence(
                        f"the {child.kind} that task {target.task.name} started", "its reason is kept by another service", command or f"see {child.name} in the console",
                    ))  # fmt: skip
                return
            info = self._infos[name] = found
        target.infos.append(info)

    def _settle(self, target: Target) -> bool:
        """A task that looks open while its job is over has failed; whether that changed anything."""
        main = target.info(target.task.jobs[-1].rsplit("/", 1)[-1]) if target.task.jobs else None
        if target.task.state not in ("RUNNING", "UNKNOWN") or main is None or main.state not in ("FAILED", "CANCELLED", "EXPIRED"):
            return False
        if not (self._doubted or self.over):
            return False  # the task's own state follows its job's within a minute
        target.task.state = "FAILED" if main.state != "CANCELLED" else "CANCELLED"
        target.task.end = target.task.end or main.end
        target.task.error_message = target.task.error_message or main.message
        target.task.details["state_from"] = f"job {main.id}"
        target.failed = True
        return True

    def _retarget(self, targets: list[Target]) -> list[Target]:
        assert self.pipeline is not None
        self.dag = read_dag(self.pipeline)
        by_id = {target.task.id: target for target in targets}
        return [by_id.get(t.task.id, t) for t in self._targets()]

    def _read_logs(self, targets: list[Target], base: RunRecord, moment: float) -> None:
        self._fetch(targets, targets)
        for target in targets[:MAX_JOBS]:  # a launcher's log names the job that it polls, should gcp_resources be missing
            if target.children or not target.task.jobs:
                continue
            log = self._logs.get(target.job_ids[0]) if target.job_ids else None
            named = vertex.children_in_log("\n".join(e.text for e in log.entries[:2000])) if log else []
            own = {name.rsplit("/", 1)[-1] for task in self._all_tasks() for name in task.jobs}
            found = [child for child in named if child.id not in own][:1]
            if found and _is_launcher(target.task):
                target.children = found
                for child in found:
                    self._info(child.name, child, target, base)
                self._fetch([target], targets)
        fault = self._reader.fault
        if fault is not None:
            self.clients.gap(fault, base)

    def _all_tasks(self) -> list[TaskRecord]:
        return self.pipeline.tasks if self.pipeline else []

    def _fetch(self, some: list[Target], order: list[Target]) -> None:
        wanted = []
        for target in some:
            for job in target.job_ids:
                known, over = self._logs.get(job), target.task.state in vertex.ENDED
                if known is None or known.fault is not None or not known.entries:
                    wanted.append(cloud_logging.Wanted(job, target.task.start, target.task.end if over else None))
                elif not known.final:
                    self._reader.read_newer(known)
                    known.final = over
        if wanted:
            self._logs.update(self._reader.read(wanted))
            for item in wanted:
                self._logs[item.job].final = item.end is not None

    def _read_files(self, targets: list[Target], base: RunRecord) -> None:
        assert self.pipeline is not None
        failed = [target for target in targets if target.failed][:MAX_JOBS]
        found = gcs.collect_outputs(self.clients, self.pipeline, [target.task for target in failed], base) if failed else {}
        for target in failed:
            part = found.get(target.task.id)
            if part is not None:
                target.record.logs += part.logs
                target.record.configs += part.configs
        if not targets:
            return
        first = targets[0]
        lines = [entry.text for job in first.job_ids for entry in (self._logs[job].entries[-3000:] if job in self._logs else ())]
        output = next((info.output for info in reversed(first.infos) if info.output), None)
        folders = gcs.checkpoint_folders(lines, output, limit=1)
        if folders:
            gcs.collect_checkpoints(self.clients, folders, first.record)
            base.missing += first.record.missing
            first.record.missing = []

    # --- judging

    def _diagnose(self, target: Target, base: RunRecord, moment: float, run_id: str | None, *, first: bool) -> None:
        from check_failed_run.api import diagnose

        assert self.pipeline is not None
        task, record = target.task, target.record
        record.framework, record.task = base.framework, base.task
        record.now = moment if task.state not in vertex.ENDED else None
        record.failed = target.failed if target.failed or task.state not in vertex.ENDED else False
        files = list(record.logs)
        logs = self._task_logs(target, base, moment)
        record.logs = [*logs, *files, *_errors(target), *_settings(target), *(base.logs if first else ())]
        record.configs += [c for c in (_values("pipeline parameters", self.pipeline.details.get("parameters")), _values(f"{task.name} inputs", task.details.get("inputs"))) if c]
        if first:
            record.configs += base.configs
            record.pipeline = self.pipeline
            if record.framework is None and base.framework:
                record.framework = base.framework
        report = diagnose(record, run_id=run_id, now=record.now, matcher=self._engine())
        if first and target.failed and _undecided(report) and self._whole_log(target):
            record.logs = [*self._task_logs(target, base, moment), *files, *_errors(target), *_settings(target), *base.logs]
            report = diagnose(record, run_id=run_id, now=record.now, matcher=self._engine())
        for job in target.job_ids:
            if job in self._logs:
                cloud_logging.note_gap(self._logs[job], f"log of {task.name}", base)
        target.report = self._corrected(report, target, moment)
        _quote_settings(target)
        _drop_local(target.report, [log.name for log in record.logs if log.task == task.id])
        target.log = next((log.name for log in record.logs if log.task == task.id and not log.name.endswith("/service")), None)
        record.logs = []  # their bytes are no longer needed

    def _who_cancelled(self, targets: list[Target], base: RunRecord) -> None:
        """Whether a person, a time limit or a parent stopped what is CANCELLED: the audit log and the job's own times tell."""
        assert self.pipeline is not None
        stopped = [t for t in targets if t.failed and (t.task.state == "CANCELLED" or any(info.state == "CANCELLED" for info in t.infos))]
        for target in stopped:
            for info in target.infos:
                if target.report is not None and info.state == "CANCELLED" and (ran := vertex.ran_into_timeout(info)) is not None:
                    _add_once(target.report.contributing_factors, f"job {info.id} ran for {ran:.0f} s and its timeout is {info.timeout or vertex.DEFAULT_TIMEOUT}")
                    return
        m = vertex.JOB_NAME.match(self.name)
        if not (stopped or self.pipeline.state == "CANCELLED") or m is None:
            return
        ids = [m["id"], *(job for target in stopped for job in target.job_ids)]
        start = self.pipeline.start or next((t.task.start for t in stopped if t.task.start), 0.0)
        end = self.pipeline.end or max((t.task.end for t in stopped if t.task.end), default=None) or start + 90 * 86400
        try:
            raw, _ = cloud_logging.read_page(self.clients, cloud_logging.cancel_filter(ids, start, end + cloud_logging.AFTER))
        except Fault as fault:
            self.clients.gap(fault, base, "who cancelled the job")
            return
        callers = [caller for caller in map(cloud_logging.caller_of, raw) if caller is not None]
        for moment, method, principal in callers[:2]:
            self.callers.append(f"{method} was called by {principal} at {vertex.rfc3339(moment)}")
        for target in stopped:
            if target.report is not None:
                target.report.contributing_factors += [line for line in self.callers if line not in target.report.contributing_factors]

    def _compare_with_training(self, target: Target, base: RunRecord) -> None:
        """What the failed evaluation and the training before it print under the same label, with other values."""
        assert self.dag is not None and target.report is not None
        before = self.dag.upstream.get(target.task.id, frozenset())
        trained = [t for t in self.dag.leaves if t.id in before and t.state == "SUCCEEDED" and t.jobs]
        trained.sort(key=lambda t: ((t.start or 0.0) - (t.end or 0.0), t.id))
        for task in trained[:1]:  # the longest one before it
            other = Target(task, False)
            self._fetch([other], [other])
            if self._reader.fault is not None:
                self.clients.gap(self._reader.fault, base)
                return
            left, right = (_labelled(self._lines(item)) for item in (target, other))
            for label in [label for label in left if label in right and left[label][0] != right[label][0]][:2]:
                for _, quote in (left[label], right[label]):
                    _add_once(target.report.evidence, quote)
                target.report.contributing_factors.append(f"{target.task.name} and {task.name} print other values of {label!r}")

    def _lines(self, target: Target) -> list[tuple[str, int, str]]:
        """(name, line number, line) of the replicas' logs."""
        found = []
        for job in target.job_ids:
            for source in cloud_logging.log_sources(self._logs[job], target.task.name) if job in self._logs else ():
                if not source.name.endswith("/service"):
                    found += [(source.name, number, line) for number, line in enumerate(source.open().read().decode("utf-8", "replace").splitlines(), 1)]
        return found

    def _engine(self) -> Matcher:
        from check_failed_run.catalogue import signatures

        if self._matcher is None:
            self._matcher = Matcher(signatures())
        return self._matcher

    def _whole_log(self, target: Target) -> bool:
        return any([self._reader.read_whole(self._logs[job]) for job in target.job_ids if job in self._logs and self.clients.left > 30])

    def _task_logs(self, target: Target, base: RunRecord, moment: float) -> list[LogSource]:
        assert self.pipeline is not None
        task, sources = target.task, []
        own = task.jobs[-1].rsplit("/", 1)[-1] if task.jobs else None
        for job in reversed(target.job_ids):
            log = self._logs.get(job)
            if log is None:
                continue
            if not log.entries:
                cloud_logging.note_absence(log, task, self.pipeline, base, self.clients.project, moment)
                continue
            prefix = f"{task.name}/launcher" if job == own and len(target.job_ids) > 1 else task.name
            found = cloud_logging.log_sources(log, prefix, info=target.info(job), task=task.id)
            if log.complete and all(source.name.endswith("/service") for source in found) and target.failed and not task.details.get("refused"):
                cloud_logging.note_silence(log, task, self.pipeline, base, self.clients.project)
            sources += found
        return sources

    def _corrected(self, report: Report, target: Target, moment: float) -> Report:
        """What the logs alone cannot know: the platform's verdict on the task."""
        task = target.task
        if not target.failed:
            return self._unfailed(report, target, moment)
        if report.run_status in QUIET or (report.primary_cause == "none"):
            error = f" Its error: {_one_line(task.error_message)}" if task.error_message else ""
            word = "was cancelled" if task.state == "CANCELLED" else "failed"
            report.run_status, report.primary_cause, report.primary_cause_confidence = "crashed", "unknown", min(report.primary_cause_confidence, 0.3)
            report.confidence, report.decision, report.retry = "low", "NO-GO", "stop"
            report.root_cause = f"Task {task.name} {word}, and what was read of its log shows no cause.{error}"
            report.summary = report.root_cause[:240]
            report.findings, report.fixes = [], []
        if _only_wrapper(report):
            report.primary_cause_confidence = min(report.primary_cause_confidence, 0.4)
            report.confidence, report.decision = level(report.primary_cause_confidence), "NO-GO"
        if task.details.get("refused"):
            _quote_errors(report, target)
        if report.primary_cause == "cloud-permissions-quota" and self._refused(target) and "pipeline-orchestration" not in report.contributing_factors:
            report.contributing_factors.append("pipeline-orchestration")
        return report

    def _unfailed(self, report: Report, target: Target, moment: float) -> Report:
        """A task that runs, or ended well."""
        if target.task.state in vertex.ENDED:
            wrong = report.run_status in ("diverged", "degraded") and report.primary_cause_confidence >= HIGH
            return report if wrong else replace(report, run_status="healthy", primary_cause="none")
        main = target.infos[0] if target.infos else None
        if main is not None and main.state in ("QUEUED", "PENDING") and main.created:
            report.contributing_factors.append(f"task {target.task.name} has waited for machines for {max(0, int((moment - main.created) // 60))} minutes (JOB_STATE_{main.state})")
        if report.primary_cause == "stalled" and self._in_rhythm(report, target, moment):
            report = replace(report, primary_cause="none", primary_cause_confidence=0.8, confidence=level(0.8), decision="GO", retry="stop", findings=[], fixes=[], evidence=report.evidence[:2],
                             failure_point=None, secondary_causes=[], next_commands=[], missing=[], run_status="running")  # fmt: skip
            report.proximate_cause = ""
        if report.run_status == "healthy":
            report.run_status = "running"
        if report.run_status == "running":
            last = report.last_progress
            step = f" It is at step {last.step}{f' of {last.total_steps}' if last.total_steps else ''}." if last is not None and last.step is not None else ""
            report.root_cause = report.summary = f"Task {target.task.name} is running, and nothing in its log shows a failure.{step}"
        return report

    def _in_rhythm(self, report: Report, target: Target, moment: float) -> bool:
        """Whether the last step is recent, against the task's own pace: a log that merely ends says nothing of a run that goes on."""
        times = sorted(e.time for job in target.job_ids if job in self._logs for e in self._logs[job].entries if e.source != "service")
        if not times:
            return True  # not started, or no log: nothing shows that it stands still
        last = vertex.seconds(report.last_progress.timestamp) if report.last_progress is not None else None
        if last is None:
            gaps = sorted(b - a for a, b in pairwise(times[-500:]))
            return moment - times[-1] <= max(LEAST_GAP, TIMES * (gaps[len(gaps) // 2] if gaps else 0.0))
        points = max((series.count for series in report.metrics.values()), default=1)
        return moment - last <= max(LEAST_GAP, TIMES * (last - times[0]) / max(points, 1))

    def _refused(self, target: Target) -> bool:
        """Whether resources were refused before any line of the task's own program was printed."""
        texts = [target.task.error_message or "", *(info.message or "" for info in target.infos)]
        codes = {target.task.error_code, *(info.code for info in target.infos)}
        last = target.job_ids[-1] if target.job_ids else None
        ran = last in self._logs and any(entry.source != "service" for entry in self._logs[last].entries)
        if target.children:
            ran = any(child.id in self._logs and any(e.source != "service" for e in self._logs[child.id].entries) for child in target.children)
        return not ran and (8 in codes or any("RESOURCE_EXHAUSTED" in text for text in texts))

    # --- one report

    def _without_job(self, base: RunRecord, run_id: str | None) -> Report:
        from check_failed_run.api import diagnose

        report = diagnose(base, run_id=run_id, now=None)
        report.missing = [item for item in report.missing if not _about_exit(item)]
        state = base.pipeline.state if base.pipeline else "UNKNOWN"
        if report.run_status in QUIET:
            failed = state in ("FAILED", "CANCELLED")
            report.run_status = "crashed" if failed else "unknown"
            report.primary_cause, report.primary_cause_confidence, report.confidence = "unknown", 0.0, "low"
            report.decision, report.retry, report.fixes, report.findings = "NO-GO", "stop", [], []
            report.root_cause = f"The pipeline job could not be read, and nothing else shows a cause.{f' Its state is {state}.' if failed else ''}"
            report.summary = report.root_cause
        report.next_commands = _unique([*report.next_commands, *_job_commands(self.name), *[item.how for item in base.missing if item.how.startswith("kubectl ")]])
        return report

    def _merge(self, targets: list[Target], base: RunRecord, run_id: str | None) -> Report:
        from check_failed_run.api import diagnose

        assert self.pipeline is not None and self.dag is not None
        done = [target for target in targets if target.report is not None]
        well = self._well and all(target.report is not None and target.report.run_status in QUIET for target in done)
        if not done or well:
            base.logs += _pipeline_error(self.pipeline)
            return self._quiet(diagnose(base, run_id=run_id, now=None, matcher=self._engine()))
        groups = _grouped(done)
        rest = self._count_rest(groups)
        lead = _lead(groups)
        main = lead.report
        assert main is not None
        if main.pipeline is None:  # the leading failure is not the first target
            main.pipeline = done[0].report.pipeline if done[0].report else None
        main.missing = [item for item in main.missing if not _about_exit(item)]
        for item in main.missing:
            if lead.job_ids:
                item.how = item.how.replace('"<job>"', f'"{lead.job_ids[-1]}"')
        for item in base.missing:
            _add_once(main.missing, Missing(item.what, item.why, item.how))
        for skipped in base.skipped:
            _add_once(main.skipped, Skipped(skipped.input, skipped.reason))
        if main.pipeline is not None:
            main.pipeline.failures = [self._failure(group) for group in groups if group[0].failed]
            main.pipeline.failures += [FailedTask(t.name, t.state, _one_line(t.error_message) if t.error_message else None, t.exit_code, t.attempts) for t in rest]
        if len(self.dag.failed) > MAX_DIAGNOSED:
            more = f"{len(self.dag.failed) - MAX_DIAGNOSED} more failed tasks were not diagnosed each"
            main.truncated = f"{main.truncated}; {more}" if main.truncated else more
        others = [group for group in groups if group[0] is not lead]
        if not lead.failed and main.run_status not in QUIET:
            how = "is running" if lead.task.state not in vertex.ENDED else "ended well"
            main.summary = f"Task {lead.task.name} {how}, but: {main.summary}"[:240]
        if lead.failed:
            self._tell_first(main, lead, next(group for group in groups if group[0] is lead))
            independent = {task.id for task in self.dag.independent}
            for group in others:
                self._tell_other(main, group[0], group, independent)
        main.next_commands = _unique([*(_with_project(c, self.clients.project) for c in main.next_commands[:3]), *self._commands(lead)])
        self._name_account(main, lead)
        return main

    def _name_account(self, report: Report, lead: Target) -> None:
        """Whom a refusal concerns: the account that the tasks run as, where the job names it."""
        account = self.pipeline.service_account if self.pipeline else None
        account = next((info.service_account for info in lead.infos[:1] if info.service_account), None) or account
        if report.primary_cause != "cloud-permissions-quota" or not account or not re.fullmatch(r"[\w.+-]+@[\w.-]+", account):
            return
        _add_once(report.contributing_factors, f"the tasks run as {account}")
        report.next_commands = [command.replace("serviceAccount:SUBMITTER", f"serviceAccount:{account}") for command in report.next_commands]
        for fix in report.fixes:
            if fix.command:
                fix.command = fix.command.replace("serviceAccount:SUBMITTER", f"serviceAccount:{account}")

    def _count_rest(self, groups: list[list[Target]]) -> list[TaskRecord]:
        """Failed tasks beyond the limit are counted with those of the same name; the others are returned."""
        assert self.dag is not None
        looked = {target.task.id for group in groups for target in group}
        left = []
        for task in self.dag.failed if groups[0][0].failed else ():
            if task.id in looked:
                continue
            alike = max((group for group in groups if group[0].task.name == task.name), key=len, default=None)
            if alike is not None:
                alike[0].same.append(task)
            else:
                left.append(task)
        return left

    def _tell_first(self, report: Report, lead: Target, group: list[Target]) -> None:
        assert self.dag is not None and self.pipeline is not None
        task, lost = lead.task, self.dag.blast.get(lead.task.id, [])
        times = _count(group)
        word = "was cancelled" if task.state == "CANCELLED" else "failed first" if len(self.dag.failed) > times else "failed"
        parts = [f"Task {task.name} {word}" + (f" ({times} of its iterations alike)" if times > 1 else "")]
        if lost:
            parts.append(f"{len(lost)} task{'s' if len(lost) > 1 else ''} did not run because of it ({', '.join(lost[:6])}{', …' if len(lost) > 6 else ''})")
        if task.attempts > 1:
            parts.append(f"{task.attempts} attempts were made")
        report.proximate_cause = f"{'; '.join(parts)}. {report.proximate_cause}".strip()
        if not report.summary.startswith("Task "):
            report.summary = f"Task {task.name}: {report.summary}"[:240]

    def _tell_other(self, report: Report, other: Target, group: list[Target], independent: set[str]) -> None:
        found = other.report
        assert found is not None
        by_itself = other.task.id in independent
        times = f" ({_count(group)} iterations)" if _count(group) > 1 else ""
        if by_itself:
            report.contributing_factors.append(f"task {other.task.name}{times} failed by itself: {found.primary_cause}")
            if found.primary_cause not in ("none", "unknown", report.primary_cause):
                report.secondary_causes.append(SecondaryCause(found.primary_cause, found.primary_cause_confidence, (found.evidence or [_one_line(found.root_cause)])[0]))
            fix = found.findings[0] if found.findings else None
            if fix is not None:
                report.findings.append(Finding(f"F{len(report.findings) + 1:03d}", fix.severity, f"{other.task.name}{times}: {fix.title}", fix.description, fix.fix))
        for item in found.missing[:3]:
            _add_once(report.missing, item)
        for skipped in found.skipped[:10]:
            _add_once(report.skipped, skipped)

    def _failure(self, group: list[Target]) -> FailedTask:
        target, report = group[0], group[0].report
        task = target.task
        job = target.job_ids[-1] if target.job_ids else None
        read = target.log
        decided = report is not None and report.primary_cause not in ("none",)
        message = task.error_message or next((info.message for info in target.infos if info.message), None)
        codes = [vertex.exit_code(text) for text in (task.error_message, *(info.message for info in target.infos))]
        return FailedTask(
            name=task.name,
            state=task.state,
            error=_one_line(message) if message else None,
            exit_code=next((code for code in codes if code is not None), None),
            attempts=task.attempts,
            log=read or (_log_link(job, self.clients.project) if job else None),
            primary_cause=report.primary_cause if decided and report else None,
            confidence=report.primary_cause_confidence if decided and report else None,
            root_cause=report.root_cause if report else None,
            evidence=report.evidence[:3] if report else [],
            count=_count(group),
        )

    def _quiet(self, report: Report) -> Report:
        """The report where no task is to blame: the run goes on, ended well, or its reason is outside the tasks."""
        report.missing = [item for item in report.missing if not _about_exit(item)]
        assert self.pipeline is not None
        state, error = self.pipeline.state, self.pipeline.error_message
        if state == "FAILED" or (self.said == "FAILED" and state != "SUCCEEDED"):
            line = f"The pipeline failed and no task is marked as failed.{f' Its error: {_one_line(error)}' if error else ''}"
            if report.run_status in QUIET or report.primary_cause in ("none", "unknown") or _only_wrapper(report):
                report.run_status, report.primary_cause, report.primary_cause_confidence, report.confidence = "crashed", "unknown", 0.2, "low"
                report.decision, report.retry, report.root_cause, report.summary = "NO-GO", "stop", line, line[:240]
                report.missing.append(Missing("the task that failed", "no task of the job is marked as failed", _job_commands(self.name)[0]))
        elif state == "CANCELLED":
            report.run_status, report.primary_cause, report.primary_cause_confidence = "crashed", "pipeline-orchestration", 0.7
            report.confidence, report.decision, report.retry = level(0.7), "NO-GO", "stop"
            report.root_cause = report.summary = " ".join(["The pipeline was cancelled before a task had failed.", *(f"{line}." for line in self.callers)])
            report.next_commands.append(_cancel_command(self.name, self.pipeline))
        elif not self._well:
            report.run_status = "running" if report.run_status == "healthy" else report.run_status
            report.root_cause = report.summary = f"The pipeline is {state.lower()}; no task has failed."
        else:
            report.root_cause = report.summary = "Every task of the pipeline ended well."
            report.primary_cause_confidence = max(report.primary_cause_confidence, 0.9)
            report.confidence = level(report.primary_cause_confidence)
        report.next_commands = _unique([*report.next_commands, *_job_commands(self.name)])
        return report

    def _commands(self, target: Target) -> list[str]:
        """Exact commands: the log that was read, the job behind it, the pipeline job, its page in the console."""
        commands, task = [], target.task
        project, region = self.clients.project, self.clients.region
        if target.job_ids:
            end = task.end + cloud_logging.AFTER if task.end else None
            query = cloud_logging.job_filter(target.job_ids, (task.start or 0.0) - cloud_logging.BEFORE if task.start else None, end)
            shape = "value(timestamp,resource.labels.task_name,textPayload,jsonPayload.message)"
            commands.append(f"gcloud logging read {shlex.quote(query)} --project={project} --order=asc --limit=5000 --format='{shape}'")
            commands += [f"gcloud ai custom-jobs describe {job} --region={region} --project={project}" for job in target.job_ids[-1:]]
        commands += [c for child in target.children if child.kind != "customJobs" and (c := child.command(project, region))]
        return [*commands, *_job_commands(self.name)]


class KfpRun(VertexRun):
    """One run of open-source Kubeflow Pipelines.

    Args:
        run_id: id of the run.
        host: address of the Kubeflow Pipelines API.
        namespace: where its pods are; this pod's own, else ``kubeflow``, when absent.
    """

    def __init__(self, run_id: str, host: str, *, namespace: str | None = None, deadline: float = 600.0, exit_handler: bool = False, said: str | None = None):
        self.space = namespace or kubeflow.namespace()
        super().__init__(run_id, Clients(self.space, "", deadline), exit_handler=exit_handler, said=said)
        self.host = host
        self._pods: list[kubeflow.Pod] | None = None
        self._api: Any = None

    def _read_job(self, base: RunRecord, moment: float) -> None:
        self._pods = None
        try:
            run = self.clients.call("runs.get", lambda timeout: kubeflow.get_run(self.host, self.name, timeout), resource=self.name)
        except Fault as fault:
            self.clients.gap(fault, base)
            return
        try:
            job = kubeflow.vertex_like(run)
            pods = {detail["taskId"]: detail.get("pods") or [] for detail in job["jobDetail"]["taskDetails"]}
            self.pipeline = vertex.pipeline_record(job, exit_handler=self.exit_handler)
        except vertex.SHAPE_ERRORS as error:
            self.clients.gap(Fault("runs.get", 500, f"the answer has a shape that is not known ({type(error).__name__})", self.name), base)
            return
        self.pipeline.name, self.pipeline.platform = self.pipeline.name or self.name, "kfp"
        self.pipeline.details["console"] = f"{self.host.rstrip('/')}/#/runs/details/{self.name}"
        for task in self.pipeline.tasks:
            task.details["pods"] = pods.get(task.id, [])
            task.details["refused"] = False
        self.dag = read_dag(self.pipeline)

    def _read_jobs(self, targets: list[Target], base: RunRecord) -> None:
        """There are no jobs behind a task, only pods."""

    def _read_files(self, targets: list[Target], base: RunRecord) -> None:
        """Artifacts lie in a store of the cluster; the pods' logs are what is read."""

    def _read_logs(self, targets: list[Target], base: RunRecord, moment: float) -> None:
        for target in targets[: 2 * MAX_JOBS]:
            for pod in self._pods_of(target.task, base)[:2]:
                data = self._pod_log(pod, base)
                if data:
                    target.record.logs.append(LogSource(f"{target.task.name}/{pod}", lambda data=data: io.BytesIO(data), len(data), task=target.task.id))
            if not target.record.logs and target.failed:
                how = f"kubectl -n {shlex.quote(self.space)} get pods -l pipeline/runid={shlex.quote(self.name)}"
                base.missing.append(MissingEvidence(f"the log of task {target.task.name}", "no pod of it is left, and the artifact store gave no log", how))

    def _pods_of(self, task: TaskRecord, base: RunRecord) -> list[str]:
        if self._pods is None:
            try:
                self._api = self._api or self.clients.call("pods.list", lambda timeout: kubeflow.kubernetes_api(), service="kubernetes")
                self._pods = self.clients.call("pods.list", lambda timeout: kubeflow.list_pods(self._api, self.space, self.name, timeout), service="kubernetes")
            except Fault as fault:
                self.clients.gap(fault, base)
                self._pods = []
        own = sorted((pod for pod in self._pods if pod.ran(task.name)), key=lambda pod: (pod.phase != "Failed", pod.name))
        return [pod.name for pod in own] or list(task.details.get("pods") or [])

    def _pod_log(self, pod: str, base: RunRecord) -> bytes:
        fault: Fault | None = None
        if self._api is not None:
            try:
                return self.clients.call("pods.log", lambda timeout: kubeflow.read_pod_log(self._api, self.space, pod, timeout), resource=pod, service="kubernetes")
            except Fault as error:
                fault = error
        try:
            return self.clients.call("pods.log", lambda timeout: kubeflow.read_archived_log(self.host, self.space, self.name, pod, timeout), resource=pod, service="archive")
        except Fault as error:
            self.clients.gap(fault or error, base)
            return b""

    def _commands(self, target: Target) -> list[str]:
        space, run = shlex.quote(self.space), shlex.quote(self.name)
        pods = [log.removeprefix(f"{target.task.name}/") for log in (target.log,) if log and not log.endswith("/error")]
        return [*(f"kubectl -n {space} logs {shlex.quote(pod)} -c main" for pod in pods), f"kubectl -n {space} get pods -l pipeline/runid={run}", f"# console: {self.host.rstrip('/')}/#/runs/details/{self.name}"]


def _errors(target: Target) -> list[LogSource]:
    """What the platform says of the task and its jobs, as a small log that the catalogue judges like any other."""
    lines: list[tuple[int, str]] = []
    said: set[str] = set()
    for message, end in [(info.message, info.end) for info in reversed(target.infos)] + [(target.task.error_message, target.task.end)]:
        for line in [*_inner(message or ""), *(message or "").split("\n")][:200]:
            if line.strip() and line.strip() not in said and not line.startswith(cloud_logging.MORE):
                said.add(line.strip())
                lines.append((int((end or target.task.end or 0) * 1e9), line))
    if not lines:
        return []
    lines.sort(key=lambda item: item[0])
    data = cloud_logging.text_of(lines).encode("utf-8", "replace")
    return [LogSource(f"{target.task.name}/error", lambda: io.BytesIO(data), len(data), task=target.task.id)]


def _quote_settings(target: Target) -> None:
    """The job's settings that have the very number which the failure names (a time limit, a count of replicas)."""
    report = target.report
    if report is None or report.failure_point is None or not target.failed:
        return
    numbers = set(_NUMBER.findall(re.sub(r"^\S+Z ", "", report.failure_point.text)))
    for source in target.record.logs:
        if source.name.endswith("/job settings"):
            for number, line in enumerate(source.open().read().decode("utf-8", "replace").splitlines(), 1):
                if numbers & set(_NUMBER.findall(line)):
                    _add_once(report.evidence, f"{source.name}:{number}: {quoted(line)}")


def _drop_local(report: Report, names: list[str]) -> None:
    """Commands on a log file: the logs of a task are no files here, and the command that reads them comes with the others."""
    report.next_commands = [command for command in report.next_commands if not any(name in command for name in names)]
    for fix in report.fixes:
        if fix.command and any(name in fix.command for name in names):
            fix.command = None
    report.missing = [item for item in report.missing if not any(name in item.how for name in names)]


def _labelled(lines: list[tuple[str, int, str]]) -> dict[str, tuple[str, str]]:
    """label: (value, quoted line) of lines ``<time> label: value``, where a label occurs once."""
    found: dict[str, tuple[str, str]] = {}
    often: set[str] = set()
    for name, number, line in lines[:5000]:
        m = _LABELLED.match(line)
        if m is None or m["label"] in often:
            continue
        if m["label"] in found:
            often.add(m["label"])
            del found[m["label"]]
            continue
        found[m["label"]] = (m["value"].strip(), f"{name}:{number}: {quoted(line)}")
    return found


def _only_wrapper(report: Report) -> bool:
    """Whether the cause is nothing but a line that says that the task failed."""
    point = report.failure_point
    roles = {signal.role for signal in report.signals if point is not None and (signal.input, signal.line) == (point.input, point.line)}
    return roles == {"cascade"}


def _quote_errors(report: Report, target: Target) -> None:
    """A task that was refused has nothing but its error: quote it as it stands."""
    for source in target.record.logs:
        if source.name == f"{target.task.name}/error":
            for number, line in enumerate(source.open().read().decode("utf-8", "replace").splitlines()[:3], 1):
                _add_once(report.evidence, f"{source.name}:{number}: {quoted(line)}")


def _inner(message: str) -> list[str]:
    """What the service's exception wraps: ``AiPlatformException: code=X, message=Y, cause=null; ...`` says Y, and repeats itself."""
    return list(dict.fromkeys(m["text"].strip() for m in _WRAPPED.finditer(message[:20000])))[:5]


def _pipeline_error(pipeline: PipelineRecord) -> list[LogSource]:
    """The error of a job that no task explains (it was refused as a whole), as a small log."""
    if pipeline.state != "FAILED" or not pipeline.error_message:
        return []
    lines = [*_inner(pipeline.error_message), *pipeline.error_message.split("\n")][:200]
    data = cloud_logging.text_of((int((pipeline.end or 0) * 1e9), line) for line in dict.fromkeys(lines) if line.strip()).encode("utf-8", "replace")
    return [LogSource("pipeline/error", lambda: io.BytesIO(data), len(data))]


def _settings(target: Target) -> list[LogSource]:
    """The settings of the job that ran the task's program, as the API spells them."""
    if not target.infos or not target.failed:
        return []
    info = target.infos[-1]
    shown = {"state": f"JOB_STATE_{info.state}", "scheduling": {k: v for k, v in (("timeout", info.timeout), ("strategy", info.strategy), ("restartJobOnWorkerRestart", info.restarts)) if v}}
    shown |= {f"workerPoolSpecs[{number}]": {k: v for k, v in pool.items() if k != "args" and v} for number, pool in enumerate(info.pools)}
    data = "".join(f"{json.dumps(key)}: {json.dumps(value)[:2000]}\n" for key, value in shown.items() if value).encode("utf-8", "replace")
    return [LogSource(f"{target.task.name}/job settings", lambda: io.BytesIO(data), len(data), task=target.task.id)]


def _values(name: str, values: Any) -> ConfigFile | None:
    from check_failed_run.sources.log_files import flatten

    return ConfigFile(name, tuple(flatten(values).items())) if isinstance(values, dict) and values else None


def _grouped(targets: list[Target]) -> list[list[Target]]:
    """Targets that failed alike (the same task of several iterations, the same fingerprint) together, in order."""
    groups: dict[tuple, list[Target]] = {}
    for target in targets:
        report = target.report
        alike = (report.primary_cause, report.fingerprint) if report is not None and report.primary_cause != "unknown" else ("unknown", normalise(target.task.error_message or ""))
        groups.setdefault((target.task.name, *alike), []).append(target)
    return list(groups.values())


def _count(group: list[Target]) -> int:
    return len(group) + sum(len(target.same) for target in group)


def _lead(groups: list[list[Target]]) -> Target:
    """The failure that the report is about: the first one, unless running tasks were looked at and one of them is in trouble."""
    first = groups[0][0]
    if not first.failed:
        for group in groups:
            if group[0].report is not None and group[0].report.run_status not in QUIET:
                return group[0]
    return first


def _created(job_id: str, moment: float) -> float:
    """A moment before the job was made, to bound a query: its id mostly ends in its time, else a year is searched."""
    from datetime import UTC, datetime

    m = re.search(r"(20\d{12})$", job_id)
    try:
        return datetime.strptime(m[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp() - 2 * 86400 if m else moment - 366 * 86400
    except ValueError:
        return moment - 366 * 86400


def _about_exit(item: Missing) -> bool:
    """The advice for local logs to look for the exit code: here the platform says how a task ended."""
    return "check-failed-run LOG" in item.how


def _with_project(command: str, project: str) -> str:
    """``gcloud logging read`` of the catalogue's own commands, in the job's project."""
    return f"{command} --project={project}" if command.startswith("gcloud logging read") and "--project" not in command else command


def _undecided(report: Report) -> bool:
    return report.primary_cause in ("unknown", "none") or report.primary_cause_confidence < SURE


def _is_launcher(task: TaskRecord) -> bool:
    words = " ".join([task.image or "", *task.details.get("command", ())])
    return "google_cloud_pipeline_components" in words or "google-cloud-pipeline-components" in words


def _one_line(text: str, limit: int = 500) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _unique(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _add_once(items: list, item: Any) -> None:
    if item not in items:
        items.append(item)


def _log_link(job: str, project: str) -> str:
    from urllib.parse import quote

    query = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job}"', safe="")
    return f"https://console.cloud.google.com/logs/query;query={query}?project={quote(project)}"


def _job_commands(name: str) -> list[str]:
    m = vertex.JOB_NAME.match(name)
    if m is None:
        return []
    described = f"gcloud ai pipeline-jobs describe {shlex.quote(m['id'])} --region={shlex.quote(m['region'])} --project={shlex.quote(m['project'])} --format=json"
    return [described, f"# console: {vertex.console(m['project'], m['region'], m['id'])}"]


def _cancel_command(name: str, pipeline: PipelineRecord) -> str:
    m = vertex.JOB_NAME.match(name)
    since = f' AND timestamp>="{vertex.rfc3339(pipeline.start)}"' if pipeline.start else ""
    query = f'logName:"cloudaudit.googleapis.com" AND protoPayload.methodName:"CancelPipelineJob"{since}'
    return f"gcloud logging read {shlex.quote(query)} --project={shlex.quote(m['project'] if m else 'PROJECT')} --limit=20"


# ---------------------------------------------------------------------------------------------- entry points


def open_run(text: str, *, project: str | None = None, region: str | None = None, deadline: float = 600.0) -> VertexRun:
    """The run that a user names by resource name, id, display name (the newest) or console address.

    Raises:
        JobNotFound: it cannot be found; the message says what to do.
    """
    from check_failed_run.sources import clients

    full = vertex.job_name(text, None, None)
    m = vertex.JOB_NAME.match(full or "")
    project = m["project"] if m else project or clients.default_project()
    region = m["region"] if m else region or clients.default_region()
    if not project:
        raise JobNotFound("no project is known. Add --project, set GOOGLE_CLOUD_PROJECT, or run: gcloud config set project PROJECT")
    for value, option in ((project, "--project"), (region, "--region")):
        if not re.fullmatch(r"[\w.:-]{1,100}", value):
            raise JobNotFound(f"{option}: {value!r} is not a valid name.")
    access = Clients(project, region, deadline)
    if full is not None:
        return VertexRun(full, access)
    fault: Fault | None = None
    name = vertex.job_name(text, project, region)
    if name is not None:
        try:
            vertex.get_job(access, name)
            return VertexRun(name, access)
        except Fault as error:
            fault = error
            if error.status != 404:
                return VertexRun(name, access)  # it may well exist: the report says what could not be read
    try:
        found = vertex.find_job(access, text)
    except Fault as error:
        raise JobNotFound(f"--vertex-pipeline {text}: {error.reason()}. {_hint(access, error)}") from None
    if found is None:
        where = f"in {region} of project {project}"
        raise JobNotFound(f"no pipeline job has the id or display name {text!r} {where}{' (' + fault.reason() + ')' if fault and fault.status != 404 else ''}. List them: gcloud ai pipeline-jobs list --region={region} --project={project}")
    return VertexRun(found, access)


def _hint(access: Clients, fault: Fault) -> str:
    note = RunRecord()
    access.gap(fault, note)
    return f"Try: {note.missing[0].how}" if note.missing else ""


__all__ = ["JobNotFound", "KfpRun", "VertexRun", "open_run"]
