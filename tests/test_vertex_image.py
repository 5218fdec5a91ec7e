"""Vertex AI from the built image: the command, and the exit task with its outputs."""

import json

import pytest
from conftest import IMAGE
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.cloud import serve
from tests.test_hook_service import JOBS

pytestmark = pytest.mark.image
testcontainers_config.ryuk_disabled = True  # the reaper is an image of a registry; each test removes its own container
NAME = "vertex-oom-cuda-train"


def run(command: list[str], environment: dict[str, str], folder, entrypoint: list[str] | None = None) -> tuple[int, str]:
    """(exit code, output) of one container on the host's network, with ``folder`` as its working directory."""
    folder.chmod(0o777)
    container = DockerContainer(IMAGE).with_command(command).with_volume_mapping(str(folder), "/w", "rw").with_kwargs(network_mode="host", read_only=True, working_dir="/w", **({"entrypoint": entrypoint} if entrypoint else {}))
    for name, value in environment.items():
        container.with_env(name, value)
    with container:
        code = container.get_wrapped_container().wait(timeout=120)["StatusCode"]
        return code, b"".join(container.get_logs()).decode()


def test_a_job_by_its_id(tmp_path):
    case = json.loads((JOBS / NAME / "case.json").read_text())
    with serve([JOBS / NAME]) as cloud:
        code, output = run(["--vertex-pipeline", case["pipeline_job"].rsplit("/", 1)[-1], "--project", case["project"], "--region", case["region"], "--once", "--now", case["as_of"]], cloud.environ, tmp_path)
    assert code == 0, output
    report = json.loads((tmp_path / "check-failed-run.json").read_text())
    assert report["primary_cause"] == case["primary"] and report["pipeline"]["first_failed_task"] == case["first_failed_task"]
    assert "Primary cause: oom" in output


def test_the_exit_task(tmp_path):
    case = json.loads((JOBS / NAME / "case.json").read_text())
    status = {"state": "FAILED", "error": {"code": 9, "message": "failed"}, "pipelineJobResourceName": case["pipeline_job"], "pipelineTaskName": "exit-handler-1"}
    outputs = {"--report": "report/r.json", "--card": "card/c.md", "--page": "page/p.html", "--primary-cause": "p/primary", "--decision": "p/decision"}
    with serve([JOBS / NAME]) as cloud:
        arguments = [x for pair in outputs.items() for x in (pair[0], f"/w/{pair[1]}")]
        code, output = run(["-m", "check_failed_run.component", "--status", json.dumps(status), *arguments], cloud.environ, tmp_path, entrypoint=["python3"])
    assert code == 0, output
    assert json.loads((tmp_path / "report" / "r.json").read_text())["primary_cause"] == case["primary"]
    assert (tmp_path / "p" / "primary").read_text() == case["primary"] and (tmp_path / "p" / "decision").read_text() == "NO-GO"
    assert (tmp_path / "page" / "p.html").read_text().startswith("<!doctype html") and "oom" in (tmp_path / "card" / "c.md").read_text()
