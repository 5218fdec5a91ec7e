"""The hook's Terraform: it parses, every reference leads somewhere, the README tells the truth, and roles are the least."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hcl2
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "hook" / "terraform"


def load(name: str) -> dict:
    with (FOLDER / name).open() as file:
        return hcl2.load(file)


def bare(text: str) -> str:
    return text.strip('"')


@pytest.fixture(scope="module")
def resources() -> dict[str, dict]:
    found = {}
    for block in load("main.tf")["resource"]:
        for kind, named in block.items():
            for name, body in named.items():
                if isinstance(body, dict):
                    found[f"{bare(kind)}.{bare(name)}"] = body
    return found


def variables() -> dict[str, dict]:
    return {bare(name): body for block in load("variables.tf")["variable"] for name, body in block.items() if isinstance(body, dict)}


def test_references_lead_somewhere(resources):
    text = "".join((FOLDER / name).read_text() for name in ("main.tf", "outputs.tf"))
    read = {f"{bare(kind)}.{bare(name)}" for block in load("main.tf")["data"] for kind, named in block.items() for name in named}
    for kind, name in re.findall(r"\b(google_[a-z0-9_]+)\.([a-z_]+)\b", text):
        assert f"{kind}.{name}" in resources.keys() | read, f"{kind}.{name}"
    used = set(re.findall(r"\bvar\.([a-z_]+)", text))
    assert used == set(variables())


def test_the_sink_filters_what_the_hook_takes(resources):
    from failure_hook.events import FAILED_PIPELINE

    text = resources["google_logging_project_sink.failures"]["filter"]
    assert "aiplatform.googleapis.com/PipelineJob" in text and "pipeline_job_events" in text
    default = variables()["states"]["default"]
    assert {bare(s) for s in default} == set(FAILED_PIPELINE)


def test_roles_are_the_least(resources):
    roles = {bare(body["role"]) for body in resources.values() if "role" in body}
    assert roles == {
        "roles/pubsub.publisher", "roles/pubsub.subscriber", "roles/run.invoker", "roles/storage.objectUser", "roles/storage.objectViewer",
        "roles/aiplatform.viewer", "roles/logging.viewer", "roles/secretmanager.secretAccessor",
    }  # fmt: skip
    page = (FOLDER / "README.md").read_text()
    assert all(role in page for role in roles)


def test_the_service_gets_what_it_demands(resources):
    from failure_hook.settings import from_environment

    text = json.dumps(resources["google_cloud_run_v2_service.hook"])
    named = set(re.findall(r"FAILURE_HOOK_[A-Z_]+[A-Z]", text))
    assert {"FAILURE_HOOK_BUCKET", "FAILURE_HOOK_AUDIENCE", "FAILURE_HOOK_SERVICE_ACCOUNT", "FAILURE_HOOK_COOLDOWN"} <= named
    from_environment({name: "1" for name in named if not name.endswith("_")})


def test_the_readme_tells_every_variable_and_output():
    page = (FOLDER / "README.md").read_text()
    for name, body in variables().items():
        default = "" if "default" not in body else "`" + re.search(rf'variable "{name}" {{.*?default\s+= (.*?)\n', (FOLDER / "variables.tf").read_text(), re.S)[1] + "`"
        kind = re.sub(r"^\$\{|\}$", "", bare(str(body["type"])))
        assert f"| {name} | {kind} | {default} | {bare(body['description'])} |" in page, name
    for block in load("outputs.tf")["output"]:
        for name, body in block.items():
            if isinstance(body, dict):
                assert f"| {bare(name)} | {bare(body['description'])} |" in page, name
