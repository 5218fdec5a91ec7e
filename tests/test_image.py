"""The image as its users run it: any user, read-only, without a network."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import IMAGE

pytestmark = pytest.mark.image

LOG = "".join(f"step {n}/100 loss={2.0 / n:.4f}\n" for n in range(1, 30)) + (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 12, in <module>\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.20 GiB is free.\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.log").write_text(LOG)
    tmp_path.chmod(0o777)
    return tmp_path


def run(*arguments: str, flags: tuple[str, ...] = (), **more) -> subprocess.CompletedProcess:
    command = ["docker", "run", "--rm", "--network", "none", *flags, IMAGE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def mounted(folder: Path, *flags: str) -> tuple[str, ...]:
    return ("-v", f"{folder}:/w", "-w", "/w", *flags)


@pytest.mark.parametrize("user", [None, "0:0", "1234:5678"])
def test_a_mounted_log_as_any_user(folder, user):
    done = run("train.log", flags=mounted(folder, "--read-only", *(("--user", user) if user else ())))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Primary cause: oom" in done.stdout
    assert "train.log:33: torch.OutOfMemoryError" in done.stdout
    report = folder / "check-failed-run.json"
    assert json.loads(report.read_text())["primary_cause"] == "oom"
    if user:
        assert report.stat().st_uid == int(user.split(":")[0])


@pytest.mark.parametrize("flags", [("-i",), ("-i", "--read-only"), ("-i", "--read-only", "--user", "4321")])
def test_standard_input(flags):
    done = run("-", flags=flags, input=LOG)
    assert done.returncode == 0, done.stderr
    assert "Primary cause: oom" in done.stdout


def test_a_folder_that_cannot_be_written(folder):
    """The report's file is lost, the diagnosis is not."""
    folder.chmod(0o755)
    done = run("train.log", flags=mounted(folder, "--read-only", "--user", "1234:5678"))
    assert done.returncode == 0, done.stderr
    assert "Primary cause: oom" in done.stdout
    assert not (folder / "check-failed-run.json").exists()
    assert "check-failed-run.json" in done.stderr


def test_exit_codes(folder):
    (folder / "empty.log").write_text("")
    (folder / "vague.log").write_text("hello\nKilled\n")
    codes = {
        ("train.log", "--exit-code"): 1,
        ("train.log",): 0,
        ("none.log",): 2,
        ("empty.log",): 2,
        (): 2,
        ("--no-such-option",): 2,
        ("--version",): 0,
        ("--help",): 0,
    }
    assert {a: run(*a, flags=mounted(folder)).returncode for a in codes} == codes


def test_options_from_the_environment(folder):
    done = run("train.log", flags=mounted(folder, "-e", "CHECK_FAILED_RUN_FORMAT=json", "-e", "CHECK_FAILED_RUN_RUN_ID=r-1"))
    assert json.loads(done.stdout)["run_id"] == "r-1"


def test_what_is_in_the_image():
    script = "id -u; ls /opt/check-failed-run/cache; python3 -c 'import google.cloud.logging, google.cloud.storage, google.cloud.aiplatform; print(1)'; command -v pip"
    done = run("-c", script, flags=("--entrypoint", "sh"))
    user, cues, quiet, cloud, *pip = done.stdout.split()
    assert user != "0"
    assert cues.startswith("cues-") and quiet.startswith("cues-")
    assert cloud == "1", done.stderr
    assert not [p for p in pip if p.startswith("/opt/check-failed-run")]


def test_the_shipped_database_fits(folder):
    """The cache holds the database of this catalogue: nothing is compiled or written at run time."""
    script = "import os; before = os.listdir('/opt/check-failed-run/cache'); from check_failed_run.catalogue import signatures; from check_failed_run.scanning.matcher import Matcher; Matcher(signatures()); print(before == os.listdir('/opt/check-failed-run/cache'), len(before))"
    done = run("-c", script, flags=("--entrypoint", "python3", "--user", "0:0"))
    assert done.stdout.split() == ["True", "2"], done.stderr  # cues, and cues of what silences


def test_the_exit_handler(folder):
    status = json.dumps({"state": "FAILED", "error": {"code": 9, "message": "The DAG failed."}, "pipelineJobResourceName": "nightly-7"})
    arguments = ["--status", status, "--logs", "/w/train.log", "--report", "/w/out/report", "--card", "/w/out/card", "--retry", "/w/out/retry"]
    done = run("-m", "check_failed_run.component", *arguments, flags=mounted(folder, "--read-only", "--user", f"{os.getuid()}", "--entrypoint", "python3"))
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((folder / "out" / "report").read_text())
    assert (report["primary_cause"], report["pipeline"]["state"]) == ("oom", "FAILED")
    assert (folder / "out" / "retry").read_text() == report["retry"]
    assert "oom" in (folder / "out" / "card").read_text()


def test_labels_and_entry_point():
    done = subprocess.run(["docker", "image", "inspect", "--format", "{{json .Config}}", IMAGE], capture_output=True, text=True, check=True)
    config = json.loads(done.stdout)
    assert config["Entrypoint"] == ["check-failed-run"]
    assert config["User"] == "65532:65532"
    assert not [value for value in config["Env"] if value.startswith(("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"))]
