"""The post-steps of Cloud Build, GitHub and GitLab, run as these run them: the same commands, in real containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import junitparser
import pytest
import yaml
from conftest import EXAMPLE_IMAGE, IMAGE

pytestmark = pytest.mark.image
HOOK = Path(__file__).resolve().parent.parent / "hook"
OOM = 'import sys\nfor n in range(1, 40): print(f"step {n} loss {2 - n / 100:.3f}", flush=True)\nraise MemoryError("Unable to allocate 48.0 GiB")\n'
FINE = 'for n in range(1, 40): print(f"step {n} loss {2 - n / 100:.3f}")\nprint("training finished")\n'
SILENT = "import sys\nprint('step 1 loss 2.0')\nsys.exit(3)\n"
KILLED = "import os, signal\nprint('step 1 loss 2.0', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture(scope="module")
def train_image() -> str:
    """A training image as most are: root, with Python."""
    name = "check-failed-run-test-training:root"
    subprocess.run(["docker", "build", "-q", "-t", name, "-"], input=f"FROM {EXAMPLE_IMAGE}\nUSER 0\n".encode(), check=True, capture_output=True)
    return name


@pytest.fixture
def workspace(tmp_path) -> Path:
    """As Cloud Build makes it: only root may write. Readable for all, and its parents too."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.owner() == os.environ.get("USER", "root") or os.geteuid() == 0:
            parent.chmod(parent.stat().st_mode | 0o055)
        if parent == Path("/tmp") or parent == Path(os.environ.get("TMPDIR", "/tmp")):
            break
    return folder


# Cloud Build ------------------------------------------------------------------------------------------------------


@dataclass
class Build:
    status: str = "SUCCESS"
    steps: dict[str, tuple[str, int]] = field(default_factory=dict)  # id: (status, exit code)
    log: str = ""


def run_build(file: Path, workspace: Path, **substitutions: str) -> Build:
    """Cloud Build's semantics: substitutions, steps in order over one /workspace, the first failing one ends the build unless it may fail."""
    spec = yaml.safe_load(file.read_text())
    values = {"PROJECT_ID": "p", "LOCATION": "europe-west4", "BUILD_ID": "b-1", **spec["substitutions"], **substitutions}

    def fill(text: str) -> str:
        def one(m: re.Match[str]) -> str:
            if m[0] == "$$":
                return "$"
            return fill(values[m[1] or m[2]])  # an unknown substitution is an error, as it is there

        return re.sub(r"\$\$|\$\{([A-Z_][A-Z0-9_]*)\}|\$([A-Z_][A-Z0-9_]*)", one, text)

    build = Build()
    for step in spec["steps"]:
        assert step.keys() <= {"id", "name", "entrypoint", "args", "allowFailure", "env"}, "a field that this runner does not know"
        if build.status != "SUCCESS":
            build.steps[step["id"]] = ("QUEUED", -1)
            continue
        command = ["docker", "run", "--rm", "--network", "none", "-v", f"{workspace}:/workspace", "-w", "/workspace"]
        command += ["--entrypoint", step["entrypoint"]] if "entrypoint" in step else []
        done = subprocess.run([*command, fill(step["name"]), *map(fill, step["args"])], capture_output=True, text=True, timeout=120)
        build.log += done.stdout + done.stderr
        build.steps[step["id"]] = ("SUCCESS" if done.returncode == 0 else "FAILURE", done.returncode)
        if done.returncode and not step.get("allowFailure"):
            build.status = "FAILURE"
    return build


@pytest.mark.parametrize(("program", "build_status", "train", "check", "cause"), [
    (OOM, "FAILURE", 1, 1, "oom"),
    (FINE, "SUCCESS", 0, 0, "none"),
    (SILENT, "FAILURE", 3, 3, "unknown"),
    (KILLED, "FAILURE", 137, 1, "process-crash"),
])  # fmt: skip
def test_cloud_build(workspace, train_image, program, build_status, train, check, cause):
    (workspace / "train.py").write_text(program)
    build = run_build(HOOK / "cloudbuild" / "cloudbuild.yaml", workspace, _TRAIN_IMAGE=train_image, _TRAIN="python3 train.py", _CHECK_IMAGE=IMAGE)
    assert {name: code for name, (_, code) in build.steps.items()} == {"train": train, "check-failed-run": check}, build.log
    assert build.status == build_status
    report = json.loads((workspace / "check-failed-run" / "check-failed-run.json").read_text())
    assert report["primary_cause"] == cause and report["run_id"] == "b-1"
    assert f"Primary cause: {cause}" in build.log and "step 1 loss" in build.log


def test_cloud_build_whose_training_container_was_killed(workspace, train_image):
    def kill_when_started() -> None:
        for _ in range(600):
            if (workspace / "started").exists():
                running = subprocess.run(["docker", "ps", "-q", "--filter", f"volume={workspace}"], capture_output=True, text=True, check=True).stdout.split()
                subprocess.run(["docker", "kill", *running], check=True, capture_output=True)
                return
            time.sleep(0.1)

    killer = threading.Thread(target=kill_when_started)
    killer.start()
    build = run_build(HOOK / "cloudbuild" / "cloudbuild.yaml", workspace, _TRAIN_IMAGE=train_image, _TRAIN="touch started; sleep 60", _CHECK_IMAGE=IMAGE)
    killer.join()
    assert build.steps["train"] == ("FAILURE", 137)
    assert build.status == "FAILURE" and build.steps["check-failed-run"] == ("FAILURE", 1), build.log


# GitHub -----------------------------------------------------------------------------------------------------------


def run_action(workspace: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """The composite action's step, with its inputs and defaults as the runner gives them."""
    spec = yaml.safe_load((HOOK / "github" / "action.yml").read_text())
    given = {name: inputs.get(name.replace("-", "_"), body.get("default", "")) for name, body in spec["inputs"].items()}
    step = spec["runs"]["steps"][0]
    env = {name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda m: given[m[1]], value) for name, value in step["env"].items()}
    output, summary = workspace.parent / "output", workspace.parent / "summary"
    output.write_text("")
    summary.write_text("")
    env |= {"GITHUB_WORKSPACE": str(workspace), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_RUN_ID": "77", "GITHUB_ACTION_PATH": str(HOOK / "github"), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], env=env, capture_output=True, text=True, timeout=120)
    return done, dict(line.split("=", 1) for line in output.read_text().splitlines()), summary.read_text()


def test_github_action(workspace):
    (workspace / "out").mkdir()
    (workspace / "train.py").write_text("def f(x): ...\n\nf(1)\n")
    (workspace / "out" / "train.log").write_text('step 1 loss 2.0\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f(x)\nMemoryError\n')
    done, outputs, summary = run_action(workspace, log="out/train.log", image=IMAGE, exit_status="1")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error ") and "file=train.py,line=3" in done.stdout
    assert outputs == {"primary-cause": "oom", "report": "check-failed-run/check-failed-run.json", "sarif": "check-failed-run/check-failed-run.sarif"}
    assert json.loads((workspace / outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert json.loads((workspace / outputs["report"]).read_text())["run_id"] == "77"
    assert "oom" in summary and "<script" not in summary
    assert run_action(workspace, log="out/train.log", image=IMAGE, fail="false")[0].returncode == 0


@pytest.mark.parametrize("log", ["missing.log", "a; touch hacked", "$(touch hacked)", "x\n::set-output name=a::b"])
def test_github_action_without_a_log(workspace, log):
    done, outputs, _ = run_action(workspace, log=log, image=IMAGE)
    assert done.returncode == 2 and done.stdout.startswith("::error ") and "\n::" not in done.stdout
    assert outputs == {} and not (workspace / "hacked").exists()


# GitLab -----------------------------------------------------------------------------------------------------------


def test_gitlab_job(workspace):
    job = yaml.safe_load((HOOK / "gitlab" / "check-failed-run.yml").read_text())[".check-failed-run"]
    workspace.chmod(0o777)  # the runner's helper clones with an open umask
    (workspace / "train.log").write_text("step 1 loss 2.0\nMemoryError\n")
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "-v", f"{workspace}:/builds/run", "-w", "/builds/run", "-e", "CHECK_FAILED_RUN_LOG=train.log", "-e", "CI_PIPELINE_ID=5",
         "--entrypoint", "sh", IMAGE, "-ec", "\n".join(job["script"])],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Primary cause: oom" in done.stdout
    suites = junitparser.JUnitXml.fromfile(str(workspace / job["artifacts"]["reports"]["junit"]))
    assert suites.failures + suites.errors == 1
    assert (workspace / "check-failed-run" / "report.html").read_text().startswith("<!doctype html")
    assert json.loads((workspace / "check-failed-run" / "check-failed-run.json").read_text())["run_id"] == "5"
    assert job["image"]["entrypoint"] == [""] and job["when"] == "on_failure" and job["artifacts"]["when"] == "always"
