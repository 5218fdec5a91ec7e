"""The component: what is compiled, and what its container does with whatever it is given."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest

from check_failed_run import component
from check_failed_run.component import OUTPUT_PARAMETERS, Request, collect, main, run_in_container
from check_failed_run.record import RunRecord
from check_failed_run.sources.kubeflow import SPEC_FILE, FinalStatus, collect_run_folder, find_run_folder, read_status

ROOT = Path(__file__).resolve().parent.parent
VERTEX_JOB = "projects/123456/locations/europe-west4/pipelineJobs/training-20260101120000"
FAILED = {
    "state": "FAILED",
    "error": {"code": 9, "message": "The DAG failed because some tasks failed. The failed tasks are: [train]."},
    "pipelineJobResourceName": VERTEX_JOB,
    "pipelineTaskName": "exit-handler-1",
}
LOCAL = {
    "state": "FAILED",
    "pipeline_job_resource_name": "local-pipeline-exit-handler-1",
    "pipeline_task_name": "exit-handler-1",
    "error": {"code": 1.0, "message": "Task exit-handler-1 failed."},
}
JOB_NAME = "training-2026-01-01-12-00-00-000001"
NAN_LOG = "".join(f"step {n}/100 loss={2.0 / n:.4f} grad_norm=1.2 lr=0.01\n" for n in range(1, 40)) + (
    "step 40/100 loss=nan grad_norm=nan lr=0.01\n"
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 146, in train\n'
    '    raise FloatingPointError(f"loss is {loss} at step {step}")\n'
    "FloatingPointError: loss is nan at step 40\n"
)


def spec() -> dict:
    """The compiled form of (ingest -> train -> deploy) under an exit handler, as far as it is read."""

    def task(name: str, *after: str, component: str | None = None, **more) -> dict:
        return {"componentRef": {"name": f"comp-{component or name}"}, "taskInfo": {"name": name}, "dependentTasks": list(after), **more}

    final = {"inputs": {"parameters": {"status": {"taskFinalStatus": {"producerTask": "exit-handler-1"}}}}}
    return {
        "components": {
            "comp-exit-handler-1": {"dag": {"tasks": {t: task(t, *a) for t, a in {"ingest": (), "train": ("ingest",), "deploy": ("train",)}.items()}}},
            "comp-train": {"executorLabel": "exec-train"},
        },
        "deploymentSpec": {"executors": {"exec-train": {"container": {"image": "trainer:1"}}}},
        "root": {"dag": {"tasks": {"exit-handler-1": task("exit-handler-1"), "check-failed-run": task("check-failed-run", "exit-handler-1", **final)}}},
    }


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A pipeline root as kfp.local leaves it: ingest ended well, train failed, the exit task runs."""
    run = tmp_path / "root" / JOB_NAME
    for name in ("ingest", "train", "check-failed-run"):
        (run / name).mkdir(parents=True)
    (run / "ingest" / "log").write_text("wrote 4 shards\n")
    (run / "ingest" / "rows").write_text("1024")
    (run / "ingest" / "executor_output.json").write_text("{}")
    (run / "train" / "log").write_text(NAN_LOG)
    (run / "train" / "config.yaml").write_text("learning_rate: 0.01\n")
    (run / "check-failed-run" / "old.log").write_text("CUDA out of memory\n")
    for age, name in enumerate(("train", "ingest")):
        for file in (run / name).iterdir():
            os.utime(file, (1_700_000_000 - age * 60,) * 2)
    return run


def outputs(folder: Path) -> dict[str, str]:
    return {name: str(folder / "out" / name) for name in ("report", "card", "page", *OUTPUT_PARAMETERS)}


def answer(**values) -> dict:
    return {"report": {"primary_cause": "oom", "confidence": "high", "decision": "GO", "retry": "change-first", "fingerprint": "1:00"}} | values


# ------------------------------------------------------------------------------------------------------ compiling


def test_compiled_component_is_current(tmp_path, monkeypatch):
    pytest.importorskip("kfp")
    environment = {k: v for k, v in os.environ.items() if k != component.IMAGE_ENV}
    subprocess.run([sys.executable, "-m", "check_failed_run.kfp_component", str(tmp_path / "c.yaml")], check=True, env=environment, cwd=ROOT)
    text = (tmp_path / "c.yaml").read_text()
    committed = (ROOT / "component" / "component.yaml").read_text()
    without_version = [[line for line in t.splitlines() if not line.startswith("sdkVersion")] for t in (text, committed)]
    assert without_version[0] == without_version[1], "make component"


def test_component_loads_and_has_the_outputs():
    components = pytest.importorskip("kfp.components")
    loaded = components.load_component_from_file(str(ROOT / "component" / "component.yaml"))
    assert loaded.name == "check-failed-run"
    spec_outputs = loaded.component_spec.outputs
    assert set(spec_outputs) == {"report", "card", "page", *OUTPUT_PARAMETERS}
    assert spec_outputs["page"].type == "system.HTML@0.0.1"
    assert spec_outputs["card"].type == "system.Markdown@0.0.1"
    inputs = loaded.component_spec.inputs
    assert {name for name, value in inputs.items() if value.type == "String"} == set(inputs) - {"status"}


def test_image_carries_the_package_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert component.IMAGE.endswith(f":{version}")


def test_exit_handler_in_a_pipeline(tmp_path, monkeypatch):
    kfp = pytest.importorskip("kfp")
    monkeypatch.setenv(component.IMAGE_ENV, "registry.example/check-failed-run:7")

    @kfp.dsl.component(base_image="python:3.12")
    def work():
        pass

    @kfp.dsl.pipeline(name="p")
    def pipeline(name: str = "x"):
        with kfp.dsl.ExitHandler(component.exit_handler(run_id=name, deadline_seconds=300)):
            work()

    kfp.compiler.Compiler().compile(pipeline, str(tmp_path / "p.yaml"))
    import yaml

    compiled = yaml.safe_load((tmp_path / "p.yaml").read_text())
    task = compiled["root"]["dag"]["tasks"]["check-failed-run"]
    assert task["cachingOptions"] == {}
    assert task["inputs"]["parameters"]["status"] == {"taskFinalStatus": {"producerTask": "exit-handler-1"}}
    assert task["inputs"]["parameters"]["run_id"] == {"componentInputParameter": "name"}
    assert compiled["deploymentSpec"]["executors"]["exec-check-failed-run"]["container"]["image"] == "registry.example/check-failed-run:7"


def test_exit_handler_refuses_lists():
    pytest.importorskip("kfp")
    with pytest.raises(TypeError, match="logs: give a plain string"):
        component.exit_handler(logs=["a", "b"])


def test_importing_is_cheap():
    code = "import sys, check_failed_run, check_failed_run.component, check_failed_run.sources.kubeflow; print([m for m in sys.modules if m.split('.')[0] in ('kfp', 'docker', 'yaml', 'grpc') or m.startswith(('google.auth', 'google.cloud.', 'google.api'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------- the final status


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(FAILED), FinalStatus("FAILED", 9, FAILED["error"]["message"], VERTEX_JOB, "exit-handler-1")),
        (json.dumps(LOCAL), FinalStatus("FAILED", 1, "Task exit-handler-1 failed.", "local-pipeline-exit-handler-1", "exit-handler-1")),
        ('{"state": "COMPLETE", "error": {}, "pipelineJobResourceName": "run-7"}', FinalStatus("SUCCEEDED", job="run-7")),
        ('{"state": "CANCELED"}', FinalStatus("CANCELLED")),
        ('{"state": "SUCCEEDED", "error": {"code": 0, "message": ""}}', FinalStatus("SUCCEEDED")),
        ('{"state": "FAILED", "error": {"code": "nine", "message": "x"}}', FinalStatus("FAILED", None, "x")),
        ('{"state": "FAILED", "error": null}', FinalStatus("FAILED")),
        ("{'state': 'FAILED', 'error': {'code': 9.0}}", FinalStatus("FAILED", 9)),
        (json.dumps(json.dumps({"state": "FAILED"})), FinalStatus("FAILED")),
        ("", None),
        ("null", None),
        ("{}", None),
    ],
)
def test_read_status(text, expected):
    assert read_status(text) == expected


@pytest.mark.parametrize("text", ["{{$.inputs.parameters['status']}}", "[1]", "FAILED", "{" * 5000])
def test_read_status_refuses(text):
    with pytest.raises(ValueError, match="final status"):
        read_status(text)


@pytest.mark.parametrize(("job", "platform"), [(VERTEX_JOB, "vertex"), ("local-pipeline-exit-handler-1", "local"), ("nightly-run", "kfp"), (None, "kfp")])
def test_platform(job, platform):
    assert FinalStatus("FAILED", job=job).platform == platform


# ----------------------------------------------------------------------------------------------- the pipeline root


def test_run_folder_with_the_compiled_pipeline(run_folder):
    (run_folder.parent / SPEC_FILE).write_text(json.dumps(spec()))
    record = RunRecord()
    pipeline = collect_run_folder(run_folder, record, read_status(json.dumps(LOCAL)), name="p", own=run_folder / "check-failed-run" / "report")
    states = {task.name: task.state for task in pipeline.tasks}
    assert states == {"exit-handler-1": "FAILED", "ingest": "SUCCEEDED", "train": "FAILED", "deploy": "NOT_TRIGGERED"}
    train = next(t for t in pipeline.tasks if t.name == "train")
    assert (train.image, train.depends_on, train.parent) == ("trainer:1", ("exit-handler-1.ingest",), "exit-handler-1")
    assert (pipeline.platform, pipeline.state, pipeline.error_code) == ("local", "FAILED", 1)
    assert [(log.name, log.task) for log in record.logs] == [("ingest/log", "ingest"), ("train/log", "train")]
    assert [c.name for c in record.configs] == ["train/config.yaml"]


def test_run_folder_alone(run_folder):
    record = RunRecord()
    pipeline = collect_run_folder(run_folder, record, FinalStatus("FAILED"), name="p", own=run_folder / "check-failed-run" / "report")
    assert {task.name: task.state for task in pipeline.tasks} == {"ingest": "SUCCEEDED", "train": "FAILED"}


def test_run_folder_where_the_failed_task_wrote_nothing(run_folder):
    (run_folder.parent / SPEC_FILE).write_text(json.dumps(spec()))
    for file in (run_folder / "train").iterdir():
        file.unlink()
    (run_folder / "train").rmdir()
    pipeline = collect_run_folder(run_folder, RunRecord(), FinalStatus("FAILED"), name="p", own=run_folder / "check-failed-run" / "report")
    assert {t.name: t.state for t in pipeline.tasks if not t.is_group} == {"ingest": "SUCCEEDED", "train": "FAILED", "deploy": "NOT_TRIGGERED"}


def test_run_folder_of_a_run_that_ended_well(run_folder):
    pipeline = collect_run_folder(run_folder, RunRecord(), FinalStatus("SUCCEEDED"), name="p", own=run_folder / "check-failed-run")
    assert {t.state for t in pipeline.tasks} == {"SUCCEEDED"}


def test_vertex_folders(tmp_path):
    run = tmp_path / "123456" / "training-20260101120000"
    (run / "train_-4021331337").mkdir(parents=True)
    (run / "train_-4021331337" / "train.log").write_text(NAN_LOG)
    assert find_run_folder(tmp_path, VERTEX_JOB, None) == run
    record = RunRecord()
    pipeline = collect_run_folder(run, record, read_status(json.dumps(FAILED)), name=VERTEX_JOB)
    assert [(t.id, t.name, t.state) for t in pipeline.tasks] == [("-4021331337", "train", "FAILED")]
    assert pipeline.platform == "vertex"
    assert [log.task for log in record.logs] == ["train"]


def test_run_folder_names_stay_inside_the_root(tmp_path):
    assert find_run_folder(tmp_path, "..", "../etc") is None


def test_collect_for_a_local_run(run_folder):
    request = Request(status=json.dumps(LOCAL), job_name=JOB_NAME, pipeline_root=str(run_folder.parent), own=str(run_folder / "check-failed-run" / "report"))
    record = collect(request)
    assert [log.name for log in record.logs] == ["ingest/log", "train/log"]
    assert record.pipeline.name == JOB_NAME
    assert not record.missing


@pytest.mark.parametrize(("status", "how"), [(FAILED, "curl"), (LOCAL, "tee"), ({"state": "FAILED", "pipelineJobResourceName": "run-7"}, "kubectl")])
def test_collect_names_what_is_missing(status, how):
    record = collect(Request(status=json.dumps(status), pipeline_root="gs://bucket/root"))
    assert how in record.missing[0].how
    assert [s.input for s in record.skipped] == ["gs://bucket/root"]
    assert record.pipeline.state == "FAILED"


def test_collect_reads_further_logs(tmp_path):
    (tmp_path / "a.log").write_text(NAN_LOG)
    record = collect(Request(logs=f"{tmp_path / 'a.log'}, {tmp_path / 'none.log'}"))
    assert len(record.logs) == 1
    assert [s.input for s in record.skipped] == [str(tmp_path / "none.log")]


# -------------------------------------------------------------------------------------------------- the container


def test_outputs_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(component, "_diagnose", lambda request, send: send(**answer(text="Status: crashed\n", card="# card\n", page="<p>")))
    assert run_in_container(status=json.dumps(FAILED), **outputs(tmp_path)) == 0
    out = tmp_path / "out"
    assert json.loads((out / "report").read_text())["primary_cause"] == "oom"
    assert ((out / "card").read_text(), (out / "page").read_text()) == ("# card\n", "<p>")
    assert {name: (out / name).read_text() for name in OUTPUT_PARAMETERS} == answer()["report"]
    assert sorted(p.name for p in out.iterdir()) == sorted(["report", "card", "page", *OUTPUT_PARAMETERS])
    assert capsys.readouterr().out == "Status: crashed\n"


def boom(request, send):
    raise RuntimeError("no luck")


def exhausted(request, send):
    raise MemoryError


def killed(request, send):
    os.kill(os.getpid(), signal.SIGKILL)


def silent(request, send):
    return


def half(request, send):
    send(pipeline={**component._pipeline_summary(collect(request)), "failed_tasks": ["train"]})
    time.sleep(60)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (boom, "RuntimeError: no luck"),
        (exhausted, "ran out of memory"),
        (killed, "ended by signal SIGKILL"),
        (silent, "ended with code 0"),
        (half, "the deadline of 1 seconds passed"),
    ],
)
def test_a_report_is_written_whatever_happens(broken, reason, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(component, "_diagnose", broken)
    started = time.monotonic()
    assert run_in_container(status=json.dumps(FAILED), deadline="1", run_id="r-1", **outputs(tmp_path)) == 0
    assert time.monotonic() - started < 10
    report = json.loads((tmp_path / "out" / "report").read_text())
    assert reason in report["root_cause"]
    assert reason in report["missing"][0]["why"]
    assert (report["run_id"], report["primary_cause"], report["decision"], report["run_status"]) == ("r-1", "unknown", "NO-GO", "crashed")
    assert report["pipeline"]["name"] == VERTEX_JOB
    assert report["pipeline"]["failed_tasks"] == (["train"] if broken is half else [])
    assert (tmp_path / "out" / "primary_cause").read_text() == "unknown"
    assert (tmp_path / "out" / "card").read_text().strip()
    assert "Decision: NO-GO" in capfd.readouterr().out


def test_a_report_is_written_on_sigterm(tmp_path, monkeypatch):
    monkeypatch.setattr(component, "_diagnose", half)
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert run_in_container(status=json.dumps(FAILED), deadline=60, **outputs(tmp_path)) == 0
    assert "SIGTERM" in json.loads((tmp_path / "out" / "report").read_text())["root_cause"]


def test_outputs_that_cannot_be_written(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(component, "_diagnose", boom)
    (tmp_path / "file").write_text("")
    assert run_in_container(report=str(tmp_path / "file" / "report"), card=str(tmp_path / "card")) == 0
    assert "cannot be written" in capfd.readouterr().err
    assert (tmp_path / "card").exists()


def test_values_with_placeholders_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(component, "_diagnose", boom)
    placeholder = "{{$.inputs.parameters['pipelinechannel--x']}}"
    run_in_container(status=placeholder, artifacts=placeholder, logs=f"/data/{placeholder}", deadline=placeholder, **outputs(tmp_path))
    skipped = json.loads((tmp_path / "out" / "report").read_text())["skipped"]
    assert {s["input"] for s in skipped} == {"input artifacts", "input logs", "input deadline"}
    record = collect(Request(status=placeholder))
    assert [(s.input, s.reason) for s in record.skipped] == [("input status", "the final status is not JSON")]


def test_main_takes_pairs(tmp_path, monkeypatch, capfd):
    seen = {}
    monkeypatch.setattr(component, "run_in_container", lambda **values: seen.update(values) or 0)
    monkeypatch.setattr(component.run_in_container, "__kwdefaults__", run_in_container.__kwdefaults__, raising=False)
    assert main(["--status", "{}", "--run-id", "-7", "--job-name", "", "--colour", "red", "--deadline"]) == 0
    assert seen == {"status": "{}", "run_id": "-7", "job_name": ""}
    assert "--colour: unknown option" in capfd.readouterr().err


def test_a_real_diagnosis(run_folder):
    (run_folder.parent / SPEC_FILE).write_text(json.dumps(spec()))
    own = run_folder / "check-failed-run"
    paths = {name: str(own / name) for name in ("report", "card", *OUTPUT_PARAMETERS)}
    arguments = ["--status", json.dumps(LOCAL), "--job-name", JOB_NAME, "--pipeline-root", str(run_folder.parent)]
    for name, path in paths.items():
        arguments += [f"--{name.replace('_', '-')}", path]
    done = subprocess.run([sys.executable, "-m", "check_failed_run.component", *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(Path(paths["report"]).read_text())
    assert report["primary_cause"] == "nan-inf"
    assert report["pipeline"]["failed_tasks"] == ["train"]
    assert report["failure_point"]["input"] == "train/log"
    assert all(Path(paths[name]).read_text() == str(report[name]) for name in OUTPUT_PARAMETERS)
    assert "Primary cause: nan-inf" in done.stdout
    assert "Pipeline: " in done.stdout
