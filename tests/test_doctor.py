"""``doctor``: yes, no or unknown for each permission, against servers that grant, deny or fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cloud import State, serve


def run(cloud, *args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "check_failed_run.cli", "doctor", "--project", "acme", "--region", "us-central1", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **cloud.environ})


def answers(done) -> dict[str, str]:
    return {line.split()[1]: line.split()[0] for line in done.stdout.splitlines() if line[:1] not in (" ", "")}


ALL = {"aiplatform.pipelineJobs.get", "aiplatform.customJobs.get", "logging.logEntries.list", "storage.objects.list", "storage.objects.get", "storage.objects.create"}


@pytest.fixture
def cloud():
    state = State()
    state.put("root", "x", b"")
    with serve(state=state) as servers:
        yield servers


def test_everything_granted(cloud):
    done = run(cloud, "--bucket", "gs://root/pipelines")
    assert done.returncode == 0 and answers(done) == dict.fromkeys(ALL, "yes"), done.stdout + done.stderr


def test_what_is_denied_comes_with_the_command(cloud):
    cloud.fault("jobs", "PERMISSION_DENIED")
    cloud.state.denied.add("storage.objects.create")
    done = run(cloud, "--bucket", "root")
    found = answers(done)
    assert done.returncode == 1 and found["aiplatform.customJobs.get"] == "no" and found["storage.objects.create"] == "no"
    assert found["aiplatform.pipelineJobs.get"] == "yes"
    assert "add-iam-policy-binding acme" in done.stdout and "--role=roles/aiplatform.viewer" in done.stdout and "--role=roles/storage.objectCreator" in done.stdout


def test_what_fails_is_unknown(cloud):
    cloud.fault("logging", "INTERNAL")
    done = run(cloud)
    found = answers(done)
    assert done.returncode == 0 and found["logging.logEntries.list"] == "unknown" and found["storage.objects.get"] == "unknown"


def test_no_project_is_misuse(tmp_path):
    environment = {k: v for k, v in os.environ.items() if "PROJECT" not in k} | {"HOME": str(tmp_path), "AIPLATFORM_EMULATOR_HOST": "127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-m", "check_failed_run.cli", "doctor"], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2 and "--project" in done.stderr
