"""The example pipeline: its steps fail for real, and the exit handler says why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("kfp")

ROOT = Path(__file__).resolve().parent.parent
CAUSES = {"nan": "nan-inf", "oom": "oom", "data": "data-pipeline", "config": "config-error", "kill": "process-crash", "none": "none"}


def local(out: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pipelines.local", "--out", str(out), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def check(done: subprocess.CompletedProcess, out: Path, failure: str) -> None:
    """The text report, and the exit handler's outputs below the pipeline root."""
    assert done.returncode == 0, done.stderr + (out / "console.log").read_text()[-4000:]
    (run,) = out.glob("training-*")
    task = run / "check-failed-run"
    report = json.loads((task / "report").read_text())
    assert report["primary_cause"] == CAUSES[failure], done.stdout
    assert f"Report: {task / 'report'}" in done.stdout
    assert f"Card:   {task / 'card'}" in done.stdout
    assert f"Pipeline: {run.name}" in done.stdout
    for name in ("primary_cause", "confidence", "decision", "retry", "fingerprint"):
        assert (task / name).read_text() == str(report[name])
    assert (task / "card").read_text().strip()
    pipeline = report["pipeline"]
    if failure == "none":
        assert (pipeline["state"], pipeline["failed_tasks"], report["decision"]) == ("SUCCEEDED", [], "GO")
        assert pipeline["tasks"] == {"SUCCEEDED": 5}
    else:
        assert (pipeline["state"], pipeline["failed_tasks"]) == ("FAILED", ["train"])
        assert set(pipeline["not_triggered_tasks"]) == {"evaluate", "deploy"}
        assert pipeline["last_succeeded_task"] == "validate"
        assert report["failure_point"]["input"] == "train/log"


@pytest.mark.parametrize("failure", CAUSES)
def test_as_processes(failure, tmp_path):
    check(local(tmp_path, "--failure", failure, "--runner", "subprocess"), tmp_path, failure)


@pytest.mark.image
@pytest.mark.parametrize("failure", CAUSES)
def test_in_containers(failure, tmp_path):
    from conftest import IMAGE

    check(local(tmp_path, "--failure", failure, "--runner", "docker", "--image", IMAGE), tmp_path, failure)


def test_docker_that_was_asked_for_and_is_not_there(tmp_path):
    command = [sys.executable, "-m", "pipelines.local", "--runner", "docker", "--out", str(tmp_path)]
    environment = os.environ | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1
    assert "DockerRunner cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_compiles_for_a_backend(tmp_path):
    target = tmp_path / "training.json"
    environment = os.environ | {"CHECK_FAILED_RUN_IMAGE": "registry.example/check-failed-run:1", "TRAINING_IMAGE": "registry.example/train:1"}
    subprocess.run([sys.executable, "-m", "pipelines.training", str(target)], cwd=ROOT, check=True, env=environment, timeout=120)
    compiled = json.loads(target.read_text())
    executors = compiled["deploymentSpec"]["executors"]
    images = {name: executor["container"]["image"] for name, executor in executors.items()}
    assert images.pop("exec-check-failed-run") == "registry.example/check-failed-run:1"
    assert set(images.values()) == {"registry.example/train:1"}
    assert not any("pip install" in " ".join(e["container"]["command"]) for e in executors.values())
    exit_task = compiled["root"]["dag"]["tasks"]["check-failed-run"]
    assert exit_task["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
