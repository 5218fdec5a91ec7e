"""Watching a job: it ends, is diagnosed, goes on, stands still, recovers, or is interrupted. No test waits or reads the clock."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from check_failed_run import watch
from check_failed_run.cli import Misuse
from check_failed_run.pipeline import VertexRun
from check_failed_run.record import RunRecord
from check_failed_run.sources import clients
from check_failed_run.watch import watch_vertex
from tests.cloud import serve
from tests.vertex_builder import EXITED, NAME, NUMBER, OOM, REGION, Builder, at, seconds

OPTIONS = {"vertex_pipeline": NAME, "project": None, "region": None, "once": False, "interval": 60.0, "run_id": "test", "quiet": True}


def running(lines: list[str], **extra) -> Builder:
    b = Builder("RUNNING", end=None)
    b.task("load", end=1)
    b.task("train", "RUNNING", 1, after=("load",), lines=lines, **extra)
    return b


def step(n: int) -> str:
    return f"step {n}/400 loss={2.0 / (1 + n / 50):.4f} grad_norm=1.2 lr=0.01"


class Scene:
    """A stand-in whose job changes between looks, and a clock that moves with the waiting."""

    def __init__(self, stand, builder: Builder, monkeypatch, minute: float):
        self.stand, self.builder, self.minute = stand, builder, minute
        self.waits: list[float] = []
        self.changes: list = []
        for name, value in stand.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("check_failed_run.pipeline.clock", lambda: seconds(self.minute))
        self.run = VertexRun(NAME, clients.Clients(NUMBER, REGION, 60))

    @property
    def job_id(self) -> str:
        return self.builder.jobs[-1]["name"].rsplit("/", 1)[-1]

    def say(self, *lines: str) -> None:
        for line in lines:
            self.minute += 1
            self.builder.entry(self.job_id, "workerpool0-0", self.minute, line)
            self.stand.state.entries.append(self.builder.entries[-1])

    def end(self, state: str, error: tuple[int, str] | None = None) -> None:
        detail = next(d for d in self.builder.details if d["taskName"] == "train")
        detail |= {"state": state, "endTime": at(self.minute), **({"error": {"code": error[0], "message": error[1]}} if error else {})}
        self.builder.jobs[-1] |= {"state": f"JOB_STATE_{state}", "endTime": at(self.minute), **({"error": {"code": error[0], "message": error[1]}} if error else {})}
        self.builder.job |= {"state": f"PIPELINE_STATE_{state}", "endTime": at(self.minute)}
        self.stand.state.add_pipeline(self.builder.build())

    def sleep(self, length: float) -> None:
        self.waits.append(length)
        self.minute += length / 60
        assert self.changes, "watched on after the scene was over"
        change = self.changes.pop(0)
        if change:
            change()

    def watch(self, **options):
        return watch_vertex(RunRecord(), {**OPTIONS, **options}, Misuse, sleep=self.sleep, opened=self.run)


@pytest.fixture
def scene(monkeypatch):
    b = running([step(n) for n in range(20)])
    with serve(state=b.state()) as stand:
        yield Scene(stand, b, monkeypatch, 22)


def test_once_is_one_look(scene):
    report = scene.watch(once=True)
    assert (report.run_status, report.primary_cause, report.decision) == ("running", "none", "GO")
    assert "step 19 of 400" in report.summary and scene.waits == []


def test_it_watches_until_the_job_ends_well(scene):
    scene.changes = [lambda: scene.say(step(30)), lambda: scene.say(step(40)), lambda: (scene.say(*[step(n) for n in range(50, 401, 50)], "training finished"), scene.end("SUCCEEDED"))]
    report = scene.watch(interval=30.0)
    assert (report.run_status, report.primary_cause) == ("healthy", "none")
    assert scene.waits == [30.0, 30.0, 30.0]


def test_it_watches_until_a_failure_is_diagnosed(scene):
    scene.changes = [lambda: scene.say(step(30)), lambda: (scene.say(*OOM[-4:]), scene.end("FAILED", (3, EXITED)))]
    report = scene.watch()
    assert report.primary_cause == "oom" and report.pipeline.first_failed_task == "train"
    assert len(scene.waits) == 2


def test_a_failed_task_ends_the_watch_though_the_job_goes_on(scene):
    def fail():
        scene.say(*OOM[-4:])
        scene.end("FAILED", (3, EXITED))
        scene.builder.job["state"] = "PIPELINE_STATE_RUNNING"
        scene.builder.job.pop("endTime")
        scene.stand.state.add_pipeline(scene.builder.build())

    scene.changes = [fail]
    assert scene.watch().primary_cause == "oom"


def test_silence_far_beyond_its_own_rhythm_is_a_stall(scene):
    scene.changes = [None, None, None]
    report = scene.watch(interval=600.0)
    assert (report.primary_cause, report.run_status) == ("stalled", "hung")
    assert any("step 19/400" in line for line in report.evidence)
    assert len(scene.waits) in (1, 2)


def test_a_slow_rhythm_is_no_stall(monkeypatch):
    b = Builder("RUNNING", end=None)
    b.task("train", "RUNNING", 0)
    for n in range(8):
        b.entry(b.jobs[-1]["name"].rsplit("/", 1)[-1], "workerpool0-0", 30 * n, f"epoch {n}/40 loss={2 / (n + 1):.3f}")
    with serve(state=b.state()) as stand:
        scene = Scene(stand, b, monkeypatch, 210 + 40)
        assert scene.watch(once=True).run_status == "running"


def test_each_look_reads_only_what_is_new(scene):
    scene.changes = [lambda: scene.say(step(30)), lambda: scene.say(step(40)), lambda: scene.end("SUCCEEDED")]
    scene.watch()
    assert scene.stand.count("logging") <= 5
    assert scene.stand.count("pipelines") == 4


def test_trouble_that_passes_ends_the_watch_when_progress_is_stable_again(scene, monkeypatch):
    looks = iter([("hung", "unknown", 20), ("running", "none", 21), ("running", "none", 22), ("running", "none", 23), ("running", "none", 24)])
    real = scene.run.look

    def look(*args, **options):
        report = real(*args, **options)
        report.run_status, report.primary_cause, number = next(looks)
        report.last_progress.step = number
        return report

    monkeypatch.setattr(scene.run, "look", look)
    scene.changes = [None] * 6
    scene.watch(interval=1.0)
    assert len(scene.waits) == 3


def test_ctrl_c_leaves_the_report_of_what_is_known(scene):
    def interrupt():
        raise KeyboardInterrupt

    scene.changes = [lambda: scene.say(step(30)), interrupt]
    report = scene.watch()
    assert report.run_status == "running" and report.last_progress.step == 30


def test_ctrl_c_before_anything_is_known_is_passed_on(scene, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(scene.run, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.watch()


def test_a_moment_given_is_one_look(scene):
    record = RunRecord(now=seconds(23))
    report = watch_vertex(record, OPTIONS, Misuse, sleep=scene.sleep, opened=scene.run)
    assert report.run_status == "running" and scene.waits == []


def test_a_fault_in_one_look_is_forgotten_in_the_next(scene):
    scene.stand.fault("logging", "PERMISSION_DENIED", first=1)
    scene.changes = [None, lambda: scene.end("SUCCEEDED")]
    report = scene.watch()
    assert report.missing == [] and report.run_status == "healthy"


def test_a_job_that_waits_for_machines_says_so(monkeypatch):
    b = running([])
    b.jobs[-1]["state"] = "JOB_STATE_PENDING"
    with serve(state=b.state()) as stand:
        report = Scene(stand, b, monkeypatch, 91).watch(once=True)
    assert report.run_status == "running"
    assert "task train has waited for machines for 90 minutes (JOB_STATE_PENDING)" in report.contributing_factors


def test_the_command_is_interrupted_and_leaves_a_report(tmp_path):
    b = running([step(n) for n in range(20)])
    with serve(state=b.state()) as stand:
        env = {**os.environ, **stand.environ}
        argv = [sys.executable, "-m", "check_failed_run.cli", "--vertex-pipeline", NAME, "--interval", "3600", "--out-dir", str(tmp_path)]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        ends = time.monotonic() + 60
        line = ""
        while "next look" not in line and time.monotonic() < ends and process.poll() is None:
            line = process.stderr.readline()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    report = json.loads((tmp_path / "check-failed-run.json").read_text())
    assert report["run_status"] in ("running", "hung")  # the wall clock is long after the builder's moment
    assert "Pipeline state: RUNNING" in out


def test_the_clock_is_read_in_one_place():
    from pathlib import Path

    package = Path(watch.__file__).parent
    readers = [p.name for p in package.glob("sources/*.py") if "time.time()" in p.read_text()]
    assert readers == ["clients.py"]
    assert all("time.time()" not in (package / name).read_text() for name in ("pipeline.py", "watch.py"))
