"""Vertex AI from end to end: the command and the component against the stand-in of the Google APIs.

The cases of tests/cases/jobs are run as a person and as an exit task would; built jobs hold the rest: refusals
before a task ran, loops, retries, budgets, and every fault of every API.
"""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from check_failed_run.pipeline import JobNotFound, VertexRun, open_run
from check_failed_run.record import RunRecord
from check_failed_run.report.schema import validate
from check_failed_run.sources import clients, cloud_logging, gcs, vertex
from tests.cloud import FAULTS, serve
from tests.vertex_builder import ACCOUNT, EXITED, JOB, MISSING_KEY, NAME, NUMBER, OOM, PROJECT, REGION, TRAIN, Builder, at, seconds

CASES = Path(__file__).parent / "cases" / "jobs"
CASE_NAMES = sorted(path.name for path in CASES.iterdir() if (path / "case.json").is_file())
WRAPPED = (
    "com.google.cloud.ai.platform.common.errors.AiPlatformException: code={}, message={}, cause=null; Failed to create custom job for the task. "
    "Task: Project number: 400200300100, Job id: 123, Task id: -5, Task name: train, Task state: DRIVER_SUCCEEDED, Execution name: projects/x/executions/99; "
    "Failed to handle the pipeline task. Task: Project number: 400200300100, Job id: 123, Task id: -5, Task name: train, Task state: DRIVER_SUCCEEDED"
)


@pytest.fixture(scope="module")
def cloud():
    with serve([CASES / name for name in CASE_NAMES]) as stand:
        yield stand


def environ(stand, tmp_path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CLOUDSDK_", "GOOGLE_", "CHECK_FAILED_RUN", "CLOUD_ML"))}
    return {**clean, **stand.environ, "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"), "HOME": str(tmp_path)}


def command(stand, tmp_path: Path, *args: str, timeout: float = 120) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "check_failed_run.cli", *args, "--out-dir", str(tmp_path)]
    return subprocess.run(argv, env=environ(stand, tmp_path), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


def report_of(tmp_path: Path) -> dict:
    report = json.loads((tmp_path / "check-failed-run.json").read_text())
    validate(report)
    return report


def look(stand, monkeypatch, *, deadline: float = 60.0, now: float = 65, record: RunRecord | None = None, **options):
    for name, value in stand.environ.items():
        monkeypatch.setenv(name, value)
    run = VertexRun(NAME, clients.Clients(NUMBER, REGION, deadline), **options)
    report = run.look(record or RunRecord(), now=seconds(now), run_id="test")
    validate(report.to_dict())
    return report


def failing(lines=OOM, **extra) -> Builder:
    b = Builder()
    b.task("load", end=5)
    b.task("train", "FAILED", 5, 30, after=("load",), error=(3, EXITED), lines=lines, **extra)
    b.task("register", "NOT_TRIGGERED", 30, after=("train",))
    return b


def refused(code: int, message: str) -> Builder:
    b = Builder()
    b.task("load", end=5)
    b.task("train", "FAILED", 5, 6, after=("load",), error=(code, message), ran=False)
    b.task("register", "NOT_TRIGGERED", 6, after=("train",))
    return b


# ---------------------------------------------------------------------------------------------- the cases


@pytest.mark.parametrize("name", CASE_NAMES)
def test_case_by_the_command(name, cloud, tmp_path):
    case = json.loads((CASES / name / "case.json").read_text())
    cloud.reset()
    done = command(cloud, tmp_path, "--vertex-pipeline", case["pipeline_job"], "--now", case["as_of"], "--once")
    assert done.returncode == 0, done.stderr
    check_case(case, report_of(tmp_path))
    assert f"Pipeline: {case['pipeline_job']}\nPipeline state: " in done.stdout
    assert f"Failed tasks: {','.join(case['failed_tasks']) or 'none'}\n" in done.stdout
    assert len(cloud.calls) <= 12, cloud.calls


@pytest.mark.parametrize("name", [n for n in CASE_NAMES if json.loads((CASES / n / "case.json").read_text()).get("pipeline_task_final_status")])
def test_case_by_the_exit_task(name, cloud, tmp_path):
    case = json.loads((CASES / name / "case.json").read_text())
    cloud.reset()
    status = json.dumps(case["pipeline_task_final_status"])
    argv = [sys.executable, "-m", "check_failed_run.component", "--status", status, "--report", str(tmp_path / "check-failed-run.json"), "--card", str(tmp_path / "card.md")]
    done = subprocess.run(argv, env=environ(cloud, tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check_case(case, report_of(tmp_path))
    assert case["pipeline_job"] in (tmp_path / "card.md").read_text()


def check_case(case: dict, report: dict) -> None:
    pipeline = report["pipeline"]
    assert report["primary_cause"] in (case["primary"], *case.get("accept", ()))
    assert pipeline["name"] == case["pipeline_job"]
    assert pipeline["first_failed_task"] == case["first_failed_task"]
    assert sorted(pipeline["failed_tasks"]) == sorted(case["failed_tasks"])
    assert sorted(pipeline["not_triggered_tasks"]) == sorted(case["not_triggered_tasks"])
    assert pipeline["last_succeeded_task"] == case["last_succeeded_task"]
    quoted = "\n".join(report["evidence"])
    assert not case["evidence"] or any(re.search(pattern, quoted) for pattern in case["evidence"]) or case["primary"] == "cloud-permissions-quota"
    assert not any(f"/workerpool{n}-" in command for n in range(4) for command in report["next_commands"])  # no file of that name exists
    for failure in pipeline["failures"]:
        assert failure["primary_cause"] and failure["log"] and failure["attempts"] >= 1
    assert any(command.startswith("gcloud logging read ") and "resource.labels.job_id" in command for command in report["next_commands"])
    assert any(command.startswith("gcloud ai custom-jobs describe ") for command in report["next_commands"])
    assert any("console.cloud.google.com/vertex-ai/locations/" in command for command in report["next_commands"])


# ---------------------------------------------------------------------------------------------- finding the job


def test_a_job_is_found_by_id_display_name_and_address(cloud, tmp_path, monkeypatch):
    case = json.loads((CASES / "vertex-oom-cuda-train" / "case.json").read_text())
    for name, value in cloud.environ.items():
        monkeypatch.setenv(name, value)
    project, region, job_id = case["project"], case["region"], case["pipeline_job"].rsplit("/", 1)[-1]
    display = json.loads((CASES / "vertex-oom-cuda-train" / "pipeline_job.json").read_text())["displayName"]
    cloud.reset()
    assert open_run(job_id, project=project, region=region).name.endswith(job_id)
    assert open_run(display, project=project, region=region).name == case["pipeline_job"]
    address = f"https://console.cloud.google.com/vertex-ai/locations/{region}/pipelines/runs/{job_id}?project={project}"
    assert open_run(address).name == f"projects/{project}/locations/{region}/pipelineJobs/{job_id}"
    done = command(cloud, tmp_path, "--vertex-pipeline", display, "--project", project, "--region", region, "--now", case["as_of"], "--once")
    assert done.returncode == 0 and report_of(tmp_path)["primary_cause"] == "oom"


def test_a_job_that_is_not_there(cloud, tmp_path):
    cloud.reset()
    done = command(cloud, tmp_path, "--vertex-pipeline", "no-such-job", "--project", "quillfern-nlp", "--region", "us-central1", "--once")
    assert done.returncode == 2
    assert "no pipeline job has the id or display name 'no-such-job' in us-central1 of project quillfern-nlp" in done.stderr
    assert "gcloud ai pipeline-jobs list" in done.stderr and "Traceback" not in done.stderr


def test_a_full_name_that_does_not_exist(cloud, tmp_path):
    cloud.reset()
    done = command(cloud, tmp_path, "--vertex-pipeline", "projects/1/locations/us-central1/pipelineJobs/gone", "--once")
    assert done.returncode == 2 and "there is no such pipeline job" in done.stderr and "--region=us-central1 --project=1" in done.stderr


def test_three_launchers_cost_few_calls(monkeypatch):
    b = Builder()
    for number in range(3):
        child = f"projects/{NUMBER}/locations/{REGION}/customJobs/555000111222333444{number}"
        resources = json.dumps({"resources": [{"resourceType": "CustomJob", "resourceUri": f"https://{REGION}-aiplatform.googleapis.com/v1/{child}"}]})
        b.task(f"train-{number}", "FAILED", 5, 40 + number, error=(3, EXITED), lines=["polling"] * 900, metadata={"output:gcp_resources": resources})
        b.jobs.append({"name": child, "state": "JOB_STATE_FAILED", "startTime": at(6), "endTime": at(38), "error": {"code": 3, "message": EXITED}, "jobSpec": {}})
        for index, line in enumerate(OOM):
            b.entry(child.rsplit("/", 1)[-1], "workerpool0-0", 7 + index, line)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
        assert len(stand.calls) <= 12, stand.calls
    assert [f.primary_cause for f in report.pipeline.failures] == ["oom"] * 3


def test_without_a_project_the_error_says_what_to_do(cloud, tmp_path):
    done = command(cloud, tmp_path, "--vertex-pipeline", "some-job", "--once")
    assert done.returncode == 2
    assert "--project" in done.stderr and "gcloud config set project" in done.stderr


def test_project_and_region_come_from_the_gcloud_configuration(monkeypatch, tmp_path):
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "CLOUD_ML_PROJECT_ID", "GCLOUD_PROJECT", "CLOUDSDK_AI_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_REGION", "CLOUDSDK_COMPUTE_REGION", "CLOUDSDK_ACTIVE_CONFIG_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert clients.default_region() == "us-central1"
    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("work\n")
    (tmp_path / "configurations" / "config_work").write_text("[core]\nproject = acme\n[compute]\nregion = europe-north1\n")
    assert (clients.default_project(), clients.default_region()) == ("acme", "europe-north1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "other")
    assert clients.default_project() == "other"


@pytest.mark.parametrize("bad", ["a b", "p;rm -rf /", "../x"])
def test_odd_projects_are_refused(bad):
    with pytest.raises(JobNotFound, match="not a valid name"):
        open_run("job", project=bad, region="us-central1")


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("code", "message", "primary", "named"),
    [
        (8, WRAPPED.format("RESOURCE_EXHAUSTED", "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_a100_gpus"), "cloud-permissions-quota", "custom_model_training_nvidia_a100_gpus"),
        (8, "Resources are insufficient in region: europe-west1. Please try a different region or use a different accelerator.", "cloud-permissions-quota", "europe-west1"),
        (7, WRAPPED.format("PERMISSION_DENIED", "You do not have permission to act as service account: trainer@acme-ml.iam.gserviceaccount.com. (or it may not exist)."), "cloud-permissions-quota", "trainer@acme-ml"),
        (7, "Permission 'aiplatform.customJobs.create' denied on resource '//aiplatform.googleapis.com/projects/acme-ml/locations/europe-west1' (or it may not exist).", "cloud-permissions-quota", "aiplatform.customJobs.create"),
        (3, WRAPPED.format("INVALID_ARGUMENT", "The image europe-west1-docker.pkg.dev/acme-ml/train/app:v9 does not exist."), "pipeline-orchestration", "train/app:v9"),
        (7, "Vertex AI Service Agent 'service-400200300100@gcp-sa-aiplatform-cc.iam.gserviceaccount.com' should be granted access to the image europe-west1-docker.pkg.dev/acme-ml/t/a:1", "cloud-permissions-quota", "gcp-sa-aiplatform-cc"),
        (3, 'Machine type "a4-mega-8g" is not supported.', "cloud-permissions-quota", "a4-mega-8g"),
        (9, "Reserved range: 'vertex-range' not found for consumer project 400200300100", "cloud-permissions-quota", "vertex-range"),
        (7, "Permission denied on Cloud KMS key projects/p/locations/r/keyRings/k/cryptoKeys/c: the service agent needs permission cloudkms.cryptoKeyVersions.useToEncrypt", "cloud-permissions-quota", "cloudkms.cryptoKeyVersions.useToEncrypt"),
        (3, "Failed to resolve inputs: artifact dataset of task load not found", "pipeline-orchestration", "artifact dataset"),
        (8, "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again.", "oom", "workerpool0"),
    ],
)  # fmt: skip
def test_refused_before_the_task_ran(code, message, primary, named, monkeypatch):
    with serve(state=refused(code, message).state()) as stand:
        report = look(stand, monkeypatch)
        assert stand.count("jobs") == stand.count("logging") == 0  # there is no job to ask about
    assert report.primary_cause == primary
    assert named in "\n".join([*report.evidence, report.root_cause])
    assert any(message[:200] in line or message in line for line in report.evidence)
    assert report.pipeline.first_failed_task == "train" and report.pipeline.not_triggered_tasks == ["register"]
    provisioning = code == 8 and primary == "cloud-permissions-quota"
    assert ("pipeline-orchestration" in report.contributing_factors) == provisioning
    if primary == "cloud-permissions-quota":
        assert f"the tasks run as {ACCOUNT}" in report.contributing_factors


def test_the_command_for_act_as_names_both_accounts(monkeypatch):
    message = "You do not have permission to act as service account: trainer@acme-ml.iam.gserviceaccount.com. (or it may not exist)."
    with serve(state=refused(7, message).state()) as stand:
        report = look(stand, monkeypatch)
    wanted = f"add-iam-policy-binding trainer@acme-ml.iam.gserviceaccount.com --member=serviceAccount:{ACCOUNT} --role=roles/iam.serviceAccountUser"
    assert any(wanted in command for command in report.next_commands)


# ---------------------------------------------------------------------------------------------- tasks


def test_loop_iterations_that_fail_alike_are_one_finding(monkeypatch):
    b = Builder()
    loop = b.task("for-loop-1", "FAILED", 0, 40, group=True)
    for number in range(20):
        one = b.task(f"for-loop-1-{number}", "FAILED", 1, 30, parent=loop, loop_of=loop)
        lines = MISSING_KEY if number == 7 else [line.replace("2.00 GiB", f"{number + 1}.50 GiB") for line in OOM]
        b.task("train", "FAILED", 2, 20 + number / 10, parent=one, error=(3, EXITED), lines=lines)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
        assert stand.count("logging") <= 3
    assert [(f.name, f.primary_cause, f.count) for f in report.pipeline.failures] == [("train", "oom", 19), ("train", "config-error", 1)]
    assert "19 of its iterations alike" in report.proximate_cause
    assert report.pipeline.failed_tasks == ["train"] and report.pipeline.tasks == {"FAILED": 20}


def test_independent_failures_in_parallel_branches_are_two(monkeypatch):
    b = Builder()
    b.task("train", "FAILED", 5, 30, error=(3, EXITED), lines=OOM)
    b.task("publish", "FAILED", 5, 12, error=(3, EXITED), lines=MISSING_KEY)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.pipeline.first_failed_task == "publish" and report.primary_cause == "config-error"
    assert [(f.name, f.primary_cause) for f in report.pipeline.failures] == [("publish", "config-error"), ("train", "oom")]
    assert "task train failed by itself: oom" in report.contributing_factors
    assert any(cause.class_ == "oom" for cause in report.secondary_causes)
    assert any(finding.title.startswith("train: ") for finding in report.findings)


def test_a_job_with_three_failed_tasks_costs_few_calls(monkeypatch):
    b = Builder()
    for number, lines in enumerate((OOM, MISSING_KEY, OOM)):
        b.task(f"train-{number}", "FAILED", 5, 30 + number, error=(3, EXITED), lines=lines)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
        assert len(stand.calls) <= 12, stand.calls
    assert len(report.pipeline.failures) == 3


def test_a_retried_task_is_judged_by_its_last_attempt(monkeypatch):
    with serve(state=failing(failed_lines=[MISSING_KEY, MISSING_KEY]).state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom"
    assert report.pipeline.failures[0].attempts == 3 and "3 attempts were made" in report.proximate_cause


def test_a_launcher_is_not_the_failure_even_without_its_metadata(monkeypatch):
    b = Builder()
    child = f"projects/{NUMBER}/locations/{REGION}/customJobs/5550001112223334445"
    poll = f"INFO:root:Job {child} is in a non-final state 3. Waiting for 20 seconds for next poll."
    b.task("custom-training-job", "FAILED", 5, 40, error=(3, EXITED), image="gcr.io/ml-pipeline/google-cloud-pipeline-components:2.22.0",
           lines=[poll, poll, "Traceback (most recent call last):", '  File "/usr/local/lib/python3.11/site-packages/google_cloud_pipeline_components/container/v1/custom_job/launcher.py", line 57, in <module>', "    main(sys.argv[1:])", "ValueError: Job failed with value error in error state: 5."])  # fmt: skip
    b.jobs.append({"name": child, "state": "JOB_STATE_FAILED", "startTime": at(6), "endTime": at(38), "error": {"code": 3, "message": EXITED}, "jobSpec": {}})
    for number, line in enumerate(OOM):
        b.entry("5550001112223334445", "workerpool0-0", 7 + number, line)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom" and report.evidence[0].startswith("custom-training-job/workerpool0-0:")
    assert "gcloud ai custom-jobs describe 5550001112223334445 --region=europe-west1 --project=400200300100" in report.next_commands


def test_a_child_of_another_service_is_named_with_its_command(monkeypatch):
    resources = json.dumps({"resources": [{"resourceType": "DataflowJob", "resourceUri": "https://dataflow.googleapis.com/v1b3/projects/acme-ml/locations/europe-west1/jobs/2026-05-04_05-00-00-1"}]})
    b = Builder()
    b.task("dataflow-python", "FAILED", 5, 30, error=(3, EXITED), lines=["RuntimeError: Job failed with error state: 5."], metadata={"output:gcp_resources": resources})
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    wanted = "gcloud dataflow jobs describe 2026-05-04_05-00-00-1 --region=europe-west1 --project=acme-ml"
    assert wanted in report.next_commands and any(item.how == wanted for item in report.missing)


def test_a_cancelled_job(monkeypatch):
    b = Builder("CANCELLED", end=30)
    b.task("train", "CANCELLED", 5, 30, error=(1, "CANCELED"), lines=TRAIN)
    b.task("register", "NOT_TRIGGERED", 30, after=("train",))
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "pipeline-orchestration" and report.pipeline.failed_tasks == []
    assert any("protoPayload.methodName" in command and "--project=400200300100" in command for command in report.next_commands)


def test_who_cancelled_is_told(monkeypatch):
    b = Builder("CANCELLED", end=30)
    b.task("train", "CANCELLED", 5, 30, error=(1, "CANCELED"), lines=TRAIN)
    b.entries.append({
        "insertId": "a1", "timestamp": at(29), "severity": "NOTICE", "logName": f"projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Factivity",
        "resource": {"type": "audited_resource", "labels": {"method": "google.cloud.aiplatform.v1.PipelineService.CancelPipelineJob", "service": "aiplatform.googleapis.com"}},
        "protoPayload": {"@type": "type.googleapis.com/google.cloud.audit.AuditLog", "methodName": "google.cloud.aiplatform.v1.PipelineService.CancelPipelineJob",
                         "resourceName": NAME, "authenticationInfo": {"principalEmail": "ada@acme.example"}},
    })  # fmt: skip
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert any("CancelPipelineJob was called by ada@acme.example at 2026-05-04T12:29:00" in text for text in report.contributing_factors)


def test_a_time_limit_is_told_from_a_person(monkeypatch):
    b = failing(TRAIN, job_state="CANCELLED", job_error=(1, "CANCELED"))
    b.jobs[-1]["jobSpec"]["scheduling"] = {"timeout": "1500s"}
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "pipeline-orchestration"
    assert any("ran for 1500 s and its timeout is 1500s" in text for text in report.contributing_factors)


def test_a_healthy_job_is_quiet(monkeypatch):
    b = Builder("SUCCEEDED")
    b.task("load", end=5)
    b.task("train", start=5, end=30, after=("load",), lines=[*TRAIN, "training finished"])
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
        assert len(stand.calls) <= 3
    assert (report.run_status, report.primary_cause, report.decision) == ("healthy", "none", "GO")
    assert report.findings == [] and report.missing == []


def test_a_job_that_succeeded_with_spoilt_training_is_told(monkeypatch):
    b = Builder("SUCCEEDED")
    lost = [f"step {n}/400 loss=nan grad_norm=nan lr=0.01" for n in range(80, 400, 10)]
    b.task("train", start=5, end=30, lines=[*TRAIN[:8], *lost])
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "nan-inf" and report.run_status == "diverged"
    assert report.pipeline.failed_tasks == [] and report.summary.startswith("Task train ended well, but")


def test_the_exit_task_of_a_healthy_run_is_quiet(monkeypatch):
    b = Builder("RUNNING", end=None)
    group = b.task("exit-handler-1", "SUCCEEDED", 0, 31, group=True)
    b.task("train", start=5, end=30, parent=group, lines=[*TRAIN, "training finished"], failed_lines=[OOM])
    b.task("optional", "NOT_TRIGGERED", 30, parent=group)
    b.task("check-failed-run", "RUNNING", 32, after=("exit-handler-1",), exit_task=True)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch, exit_handler=True, said="SUCCEEDED", now=33)
    assert (report.run_status, report.primary_cause, report.decision) == ("healthy", "none", "GO")


@pytest.mark.parametrize(
    ("message", "primary"),
    [
        ("Failed to create pipeline job. Error: The image europe-docker.pkg.dev/p/r/i:1 does not exist.", "pipeline-orchestration"),
        ("Failed to create pipeline job. Error: Service account `sa@p.iam.gserviceaccount.com` does not have `[storage.objects.get, storage.objects.create]` IAM permission(s) to the bucket `b`.", "cloud-permissions-quota"),
        ("Something else.", "unknown"),
    ],
)
def test_a_job_that_was_refused_as_a_whole(message, primary, monkeypatch):
    b = Builder("FAILED", end=1, error={"code": 3, "message": message})
    b.task("train", details=False)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.run_status == "crashed" and report.primary_cause == primary
    assert report.pipeline.not_triggered_tasks == ["train"] and message[:60] in report.root_cause + " ".join(report.evidence)


def test_the_error_of_a_child_job_is_judged(monkeypatch):
    name = f"projects/{NUMBER}/locations/{REGION}/batchPredictionJobs/777000111222333444"
    resources = json.dumps({"resources": [{"resourceType": "BatchPredictionJob", "resourceUri": f"https://{REGION}-aiplatform.googleapis.com/v1/{name}"}]})
    b = Builder()
    b.task("model-batch-predict", "FAILED", 5, 30, error=(3, EXITED), lines=["RuntimeError: Job failed with error state: 5."], metadata={"output:gcp_resources": resources})
    b.jobs.append({"name": name, "displayName": "predict", "state": "JOB_STATE_FAILED", "endTime": at(28), "error": {"code": 8, "message": "Quota exhausted. Please reach out to vertex-ai support for batch prediction quota"}})
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "cloud-permissions-quota"
    assert f"gcloud ai batch-prediction-jobs describe 777000111222333444 --region={REGION} --project={NUMBER}" in report.next_commands


def test_a_failed_task_whose_log_looks_well_is_not_called_healthy(monkeypatch):
    with serve(state=failing([*TRAIN, "training finished"]).state()) as stand:
        report = look(stand, monkeypatch)
    assert report.run_status == "crashed" and report.primary_cause in ("unknown", "pipeline-orchestration", "process-crash")
    assert report.primary_cause_confidence <= 0.5


def test_a_state_that_lags_behind_is_not_believed(monkeypatch):
    b = Builder("RUNNING", end=None)
    group = b.task("guard", "FAILED", 0, 31, group=True, error=(9, "The DAG failed because some tasks failed."))
    b.task("train", "RUNNING", 5, parent=group, job_state="FAILED", job_error=(3, EXITED), lines=OOM)
    b.task("check-failed-run", "RUNNING", 32, after=("guard",), exit_task=True)
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch, exit_handler=True, said="FAILED", now=33)
    assert report.primary_cause == "oom" and report.pipeline.first_failed_task == "train"


# ---------------------------------------------------------------------------------------------- logs


def test_logs_that_are_gone_are_said_to_be_gone(monkeypatch):
    b = failing()
    b.entries.clear()
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch, now=60 * 24 * 45 + 60)
        recent = look(stand, monkeypatch)
    assert any("45 days ago and its entries are gone" in item.why for item in report.missing)
    assert any("roles/logging.logWriter" in item.why and ACCOUNT in item.how for item in recent.missing)


def test_a_long_log_is_read_at_both_ends_and_the_gap_is_told(monkeypatch):
    b = failing([*[f"step {n}/90000 loss={2 / (1 + n / 50):.4f} grad_norm=1.2 lr=0.01" for n in range(6000)], *OOM[len(TRAIN):]])
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
        assert len(stand.calls) <= 12
    assert report.primary_cause == "oom" and report.failure_point.location == "/app/train.py:88"
    assert any("were not read (limit of reads)" in item.reason for item in report.skipped)


def test_a_log_that_did_not_decide_is_read_as_a_whole(monkeypatch):
    quiet = [f"working on part {n}" for n in range(1500)]
    b = failing([*quiet, *OOM[len(TRAIN):], *quiet, *quiet])
    for entry in b.entries:
        entry["severity"] = "INFO"
    with serve(state=b.state()) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom"


def test_a_pipeline_of_500_tasks_stays_within_the_read_quota(tmp_path):
    b = Builder()
    loop = b.task("for-loop-1", "FAILED", 0, 40, group=True)
    lines = [f"step {n}/9999 loss={2 / (1 + n / 50):.4f} grad_norm=1.2 lr=0.01" for n in range(300)] + OOM[len(TRAIN):]
    for number in range(40):
        one = b.task(f"for-loop-1-{number}", "FAILED", 1, 30, parent=loop, loop_of=loop)
        b.task("prepare", start=1, end=2, parent=one, ran=False)
        b.task("train", "FAILED", 2, 20 + number / 10, parent=one, after=("prepare",), error=(3, EXITED), lines=lines)
        for part in range(10):
            b.task(f"score-{part}", details=False, parent=one, after=("train",))
    with serve(state=b.state(), quota=60) as stand:
        import resource

        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = command(stand, tmp_path, "--vertex-pipeline", NAME, "--now", at(65), "--once")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        reads = stand.count("logging")
    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path)
    assert reads < 60
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 60
    assert [(f["name"], f["primary_cause"], f["count"]) for f in report["pipeline"]["failures"]] == [("train", "oom", 40)]
    assert report["pipeline"]["tasks"] == {"FAILED": 40, "NOT_TRIGGERED": 400, "SUCCEEDED": 40}


def test_filters_are_bound_in_time_and_hold_only_numbers():
    query = cloud_logging.job_filter(["12", 'x" OR "y', "34"], seconds(0), seconds(1))
    assert query == 'resource.type="ml_job" AND resource.labels.job_id=("12" OR "34") AND timestamp>="2026-05-04T12:00:00.000Z" AND timestamp<="2026-05-04T12:01:00.000Z"'


def test_the_service_repeats_a_traceback_and_it_is_taken_once():
    log = cloud_logging.JobLog("1")
    log.add([cloud_logging.Entry("1", "workerpool0-0", 10**18 + n, str(n), line) for n, line in enumerate(OOM)])
    log.add([cloud_logging.Entry("1", "service", 10**18 + 99, "s", "\n".join([EXITED, *OOM[-4:]]) + "\n\nTo find out more about why your job exited please check the logs: https://x")])
    log.add(log.entries[:3])  # the same entries in another page
    replica, service = cloud_logging.log_sources(log, "train")
    assert replica.open().read().count(b"\n") == len(OOM)
    assert service.open().read().decode().count("\n") == 1


def test_replicas_get_the_rank_of_their_first_process():
    info = vertex.job_info({"jobSpec": {"workerPoolSpecs": [{"machineSpec": {"acceleratorCount": 8}, "replicaCount": "1"}, {"machineSpec": {"acceleratorCount": 8}, "replicaCount": "2"}]}})
    log = cloud_logging.JobLog("1", [cloud_logging.Entry("1", name, 10**18, name, "x") for name in ("workerpool0-0", "workerpool1-0", "workerpool1-1")])
    assert [source.rank for source in cloud_logging.log_sources(log, "t", info=info)] == [0, 8, 16]
    single = cloud_logging.JobLog("1", [cloud_logging.Entry("1", "workerpool0-0", 10**18, "a", "x")])
    assert [source.rank for source in cloud_logging.log_sources(single, "t")] == [None]


def test_entries_that_an_agent_split_are_joined():
    parts = [cloud_logging.Entry("1", "workerpool0-0", 10**18 + n, str(n), text, split=("u", n)) for n, text in enumerate(("one ", "two ", "three"))]
    (source,) = cloud_logging.log_sources(cloud_logging.JobLog("1", parts), "t")
    assert source.open().read().decode().endswith("Z one two three\n")


# ---------------------------------------------------------------------------------------------- storage


def with_objects(builder: Builder, files: dict[str, bytes]):
    state = builder.state()
    train = next(d for d in builder.details if d["taskName"] == "train")
    for name, data in files.items():
        state.put("acme-pipelines", name.format(task=f"root/{NUMBER}/{JOB}/train_{train['taskId']}"), data)
    return state


def test_logs_and_configurations_in_the_output_folder_are_read(monkeypatch):
    b = failing(["starting"])
    files = {"{task}/train.log": "\n".join(OOM).encode(), "{task}/train_args.json": b'{"learning_rate": 0.5}', "{task}/model.bin": b"\0" * 99, "{task}/executor_output.json": b"{}"}
    with serve(state=with_objects(b, files)) as stand:
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom" and report.evidence[0].startswith("train/train.log:")


def test_checkpoints_are_found_where_the_log_says(monkeypatch):
    lines = [*TRAIN, "saved checkpoint to gs://acme-pipelines/ckpt/step_000190.pt", *OOM[len(TRAIN):]]
    b = failing(lines)
    files = {f"ckpt/step_{n:06d}.pt": b"x" * (400 if n < 190 else 30) for n in (100, 130, 160, 190)}
    with serve(state=with_objects(b, files)) as stand:
        report = look(stand, monkeypatch)
    assert report.checkpoints.newest_complete == "gs://acme-pipelines/ckpt/step_000160.pt"
    assert report.checkpoints.partial == ["gs://acme-pipelines/ckpt/step_000190.pt"]


def test_object_names_never_lead_out_of_the_folder(monkeypatch, tmp_path):
    b = failing(["starting"])
    monkeypatch.chdir(tmp_path)
    with serve(state=with_objects(b, {"{task}/../../etc/\x1b[31mevil\u202e.log": "\n".join(OOM).encode()})) as stand:
        report = look(stand, monkeypatch)
    assert list(tmp_path.iterdir()) == []
    text = json.dumps(report.to_dict(), ensure_ascii=False)
    assert ".." not in text.replace("...", "") and "\x1b" not in text and "\u202e" not in text
    assert gcs.shown("a/../../b\n/c") == "a/b?/c"


@pytest.mark.parametrize(("uri", "place"), [("gs://b1-x/a/b", ("b1-x", "a/b")), ("/gcs/bucket/x", ("bucket", "x")), ("gs://bucket", ("bucket", "")), ("s3://b/x", None), ("gs://B!/x", None), ("", None)])
def test_addresses(uri, place):
    assert gcs.split_uri(uri) == place


# ---------------------------------------------------------------------------------------------- faults

LOST = {"pipelines": "pipelineJobs.get", "jobs": "customJobs.get", "logging": "logEntries.list", "storage": "objects.list"}
ROLE = {"pipelines": "roles/aiplatform.viewer", "jobs": "roles/aiplatform.viewer", "logging": "roles/logging.viewer", "storage": "roles/storage.objectViewer"}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("api", LOST)
def test_every_fault_of_every_api_is_a_named_gap(api, kind, tmp_path):
    b = failing()
    train = b.jobs[-1]["name"].rsplit("/", 1)[-1]
    b.event(31, taskName="train", taskId="2", state="FAILED", startTime=at(5), endTime=at(30), error={"code": 3, "message": EXITED}, custom_job_id=train)
    b.event(31, taskName="register", taskId="3", state="NOT_TRIGGERED")
    status = {"state": "FAILED", "error": {"code": 9, "message": "The DAG failed because some tasks failed. The failed tasks are: [train]."}, "pipelineJobResourceName": NAME, "pipelineTaskName": "exit-handler-1"}
    with serve(state=b.state()) as stand:
        stand.fault(api, kind)
        argv = [sys.executable, "-m", "check_failed_run.component", "--status", json.dumps(status), "--deadline", "12", "--report", str(tmp_path / "check-failed-run.json"), "--card", str(tmp_path / "card.md")]
        done = subprocess.run(argv, env=environ(stand, tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path)
    gap = next(item for item in report["missing"] if item["why"].startswith(f"{LOST[api]}:"))
    assert gap["how"].startswith(("gcloud ", "check-failed-run "))
    if kind == "PERMISSION_DENIED":
        assert ROLE[api] in gap["why"] and f"--role={ROLE[api]}" in gap["how"] and "add-iam-policy-binding" in gap["how"]
        member = f"serviceAccount:{ACCOUNT}" if api != "pipelines" else "user:"
        assert member in gap["how"]
    assert report["pipeline"]["first_failed_task"] == "train"
    if api != "logging":
        assert report["primary_cause"] == "oom"  # the rest went on
    else:
        assert report["primary_cause"] != "oom" and report["run_status"] == "crashed"


def test_when_nothing_can_be_read_the_status_is_reported(tmp_path):
    b = failing()
    status = {"state": "FAILED", "error": {"code": 9, "message": "The DAG failed because some tasks failed. The failed tasks are: [train]."}, "pipelineJobResourceName": NAME}
    with serve(state=b.state()) as stand:
        for api in LOST:
            stand.fault(api, "PERMISSION_DENIED")
        argv = [sys.executable, "-m", "check_failed_run.component", "--status", json.dumps(status), "--report", str(tmp_path / "check-failed-run.json")]
        done = subprocess.run(argv, env=environ(stand, tmp_path), capture_output=True, text=True, timeout=60)
    report = report_of(tmp_path)
    assert done.returncode == 0 and report["run_status"] == "crashed" and report["primary_cause"] == "unknown"
    assert report["pipeline"]["state"] == "FAILED"
    assert {item["why"].split(":")[0] for item in report["missing"]} >= {"pipelineJobs.get", "logEntries.list"}


def test_a_quota_that_recovers_is_waited_for(monkeypatch):
    with serve(state=failing().state()) as stand:
        stand.fault("logging", "RESOURCE_EXHAUSTED", first=2)
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom" and report.missing == []


def test_reads_are_paced(monkeypatch):
    waits: list[float] = []
    moment = [0.0]
    monkeypatch.setattr(clients.time, "monotonic", lambda: moment[0])

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        moment[0] += seconds

    access = clients.Clients("p", "r", 600, sleep=sleep)
    for _ in range(clients.READS_PER_MINUTE + 1):
        access.call("logEntries.list", lambda timeout: None)
    assert len(waits) == 1 and 60 <= waits[0] <= 61


def test_a_project_of_googles_is_never_the_default(monkeypatch, tmp_path):
    import google.auth

    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "CLOUD_ML_PROJECT_ID", "GCLOUD_PROJECT", "AIPLATFORM_EMULATOR_HOST", "LOGGING_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr(google.auth, "default", lambda **_: (None, "f0a1b2c3d4e5-tp"))
    assert clients.default_project() is None


def test_every_call_names_the_jobs_own_project(monkeypatch):
    with serve(state=failing().state()) as stand:
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "f0a1b2c3-tp")
        report = look(stand, monkeypatch)
    assert report.primary_cause == "oom"
    assert all("-tp" not in text for text in report.next_commands)


# ---------------------------------------------------------------------------------------------- cost


def test_starting_is_cheap_and_imports_only_what_is_used():
    code = (
        "import sys, time\n"
        "from check_failed_run.pipeline import VertexRun\n"
        "assert not {'grpc', 'google.api_core', 'google.auth', 'google.cloud.storage'} & set(sys.modules), 'google is imported too early'\n"
        "from check_failed_run.sources.clients import Clients\n"
        "access = Clients('p', 'r')\n"
        "access.pipelines, access.jobs, access.logging, access.storage\n"
        "print(time.process_time())\n"
        "assert 'vertexai' not in sys.modules and 'google.cloud.bigquery' not in sys.modules and 'google.genai' not in sys.modules\n"
    )
    env = os.environ | {f"{name}_EMULATOR_HOST": "127.0.0.1:9" for name in ("AIPLATFORM", "LOGGING", "STORAGE")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4


def test_threads_do_not_outlive_the_look(monkeypatch):
    with serve(state=failing().state()) as stand:
        look(stand, monkeypatch)
    assert all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate())


def test_names_of_the_project_are_the_same_everywhere():
    assert PROJECT != NUMBER and NAME.startswith(f"projects/{NUMBER}/")
