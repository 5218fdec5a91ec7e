"""A run of open-source Kubeflow Pipelines by its id: the REST API, the pods' logs, the artifact store behind the user interface."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from check_failed_run.pipeline import KfpRun
from check_failed_run.record import RunRecord
from check_failed_run.report.schema import validate
from check_failed_run.sources.kubeflow import vertex_like
from tests.vertex_builder import OOM, at

RUN, SPACE = "0b7a1c52-8c1e-4c39-9a53-3f1f5a2d9e11", "team-a"


def task(name: str, *after: str, **more) -> dict:
    return {"componentRef": {"name": f"comp-{name}"}, "taskInfo": {"name": name}, "dependentTasks": list(after), **more}


def spec() -> dict:
    final = {"inputs": {"parameters": {"status": {"taskFinalStatus": {"producerTask": "exit-handler-1"}}}}}
    return {
        "components": {"comp-exit-handler-1": {"dag": {"tasks": {"load": task("load"), "train": task("train", "load"), "register": task("register", "train")}}}},
        "root": {"dag": {"tasks": {"exit-handler-1": task("exit-handler-1"), "check-failed-run": task("check-failed-run", "exit-handler-1", **final)}}},
    }


def node(name: str, state: str, number: int, *children: int, error: str | None = None, pod: bool = False) -> dict:
    return {
        "run_id": RUN, "task_id": f"t{number}", "display_name": name, "state": state, "start_time": at(number), "end_time": at(number + 1),
        **({"pod_name": f"wf-{number}"} if pod else {}), **({"error": {"code": 2, "message": error}} if error else {}),
        "child_tasks": [{"task_id": f"t{child}"} for child in children],
    }  # fmt: skip


def run(state: str = "RUNNING") -> dict:
    return {
        "run_id": RUN, "display_name": "nightly", "state": state, "created_at": at(0), "pipeline_spec": {"pipeline_spec": spec(), "platform_spec": {}},
        "runtime_config": {"parameters": {"lr": 0.01}},
        "run_details": {"task_details": [
            node("root", "RUNNING", 0, 1, 2), node("root-driver", "SUCCEEDED", 1, pod=True), node("exit-handler-1", "FAILED", 2, 3, 4, 6, 7, 9),
            node("exit-handler-1-driver", "SUCCEEDED", 3, pod=True), node("load-driver", "SUCCEEDED", 4, pod=True), node("load", "SUCCEEDED", 5),
            node("train-driver", "SUCCEEDED", 6, pod=True), node("train", "FAILED", 7, 8), node("executor", "FAILED", 8, error="Error (exit code 1)", pod=True),
            node("register", "SKIPPED", 9), node("check-failed-run", "RUNNING", 10, pod=True),
        ]},
    }  # fmt: skip


@contextmanager
def server(answers: dict) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that gives ``answers[path]``: (status, content type, bytes); (0, ...) never answers."""
    asked: list[str] = []
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            status, kind, body = answers.get(urlparse(self.path).path, (404, "text/plain", b"no such page"))
            if status == 0:
                stopped.wait(60)
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{web.server_port}", asked
    finally:
        stopped.set()
        web.shutdown()
        web.server_close()


def pages(state: str = "RUNNING", *, pods: bool = True, archive: bool = False) -> dict:
    log = "".join(f"{at(7)} {line}\n" for line in OOM).encode()
    answers = {f"/apis/v2beta1/runs/{RUN}": (200, "application/json", json.dumps(run(state)).encode())}
    if pods:
        items = [
            {"metadata": {"name": "wf-8-main", "annotations": {"workflows.argoproj.io/node-name": "wf.root.exit-handler-1.train.executor"}}, "spec": {"containers": []}, "status": {"phase": "Failed"}},
            {"metadata": {"name": "wf-6", "annotations": {"workflows.argoproj.io/node-name": "wf.root.exit-handler-1.train-driver"}}, "spec": {"containers": []}, "status": {"phase": "Succeeded"}},
        ]
        answers[f"/api/v1/namespaces/{SPACE}/pods"] = (200, "application/json", json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}).encode())
        answers[f"/api/v1/namespaces/{SPACE}/pods/wf-8-main/log"] = (200, "text/plain", log)
    if archive:
        answers["/k8s/pod/logs"] = (200, "text/plain", log)
    return answers


@pytest.fixture
def kubeconfig(monkeypatch, tmp_path):
    def point(url: str) -> None:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(config))
        from kubernetes.config import kube_config

        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))

    return point


def look(url: str, **options):
    report = KfpRun(RUN, url, namespace=SPACE, deadline=options.pop("deadline", 30), **options).look(RunRecord(), run_id="test")
    validate(report.to_dict())
    return report


def test_nodes_are_folded_into_the_specs_tasks():
    job = vertex_like(run())
    tasks = {detail["taskName"]: detail for detail in job["jobDetail"]["taskDetails"]}
    assert {name: detail["state"] for name, detail in tasks.items()} == {
        "exit-handler-1": "FAILED", "load": "SUCCEEDED", "train": "FAILED", "register": "NOT_TRIGGERED", "check-failed-run": "RUNNING",
    }  # fmt: skip
    assert tasks["train"]["error"]["message"] == "Error (exit code 1)" and tasks["train"]["pods"] == ["wf-8"]


def test_a_cache_hit_is_not_a_task_that_was_left_out():
    one = run()
    one["run_details"]["task_details"] = [node("load-driver", "SUCCEEDED", 1), node("executor", "SKIPPED", 2), node("load", "SKIPPED", 3, 2)]
    assert {d["taskName"]: d["state"] for d in vertex_like(one)["jobDetail"]["taskDetails"]}["load"] == "SKIPPED"


def test_newer_servers_spell_states_and_pods_otherwise():
    one = run()
    for item in one["run_details"]["task_details"]:
        item["status"] = item.pop("state")
        item["pods"] = [{"name": item.pop("pod_name")}] if "pod_name" in item else []
    tasks = {d["taskName"]: d for d in vertex_like(one)["jobDetail"]["taskDetails"]}
    assert tasks["train"]["state"] == "FAILED" and tasks["train"]["pods"] == ["wf-8"]


def test_a_failed_run_is_diagnosed_from_its_pods(kubeconfig):
    with server(pages()) as (url, asked):
        kubeconfig(url)
        report = look(url, exit_handler=True)
    assert report.primary_cause == "oom" and report.evidence[0].startswith("train/wf-8-main:")
    assert report.pipeline.platform == "kfp" and report.pipeline.name == RUN
    assert (report.pipeline.first_failed_task, report.pipeline.not_triggered_tasks, report.pipeline.last_succeeded_task) == ("train", ["register"], "load")
    assert f"kubectl -n {SPACE} logs wf-8-main -c main" in report.next_commands
    assert parse_qs(urlparse(asked[1]).query)["labelSelector"] == [f"pipeline/runid={RUN}"]


def test_pods_that_are_gone_are_read_from_the_artifact_store(kubeconfig):
    with server(pages(pods=False, archive=True)) as (url, _):
        kubeconfig(url)
        report = look(url)
    assert report.primary_cause == "oom" and report.evidence[0].startswith("train/wf-8:")
    assert any(item.why.startswith("pods.list:") for item in report.missing)


def test_what_cannot_be_read_is_named(kubeconfig):
    with server(pages(pods=False)) as (url, _):
        kubeconfig(url)
        report = look(url)
    assert report.run_status == "crashed" and report.pipeline.first_failed_task == "train"
    assert any(item.how.startswith("kubectl ") for item in report.missing)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, 0])
def test_faults_of_the_api_are_gaps(status, kubeconfig):
    with server({f"/apis/v2beta1/runs/{RUN}": (status, "application/json", b"{}")}) as (url, _):
        kubeconfig(url)
        report = look(url, deadline=4)
    gap = next(item for item in report.missing if item.why.startswith("runs.get:"))
    assert gap.how.startswith("kubectl ")
    assert report.run_status == "unknown" and report.primary_cause == "unknown"


def test_an_answer_that_is_no_json(kubeconfig):
    with server({f"/apis/v2beta1/runs/{RUN}": (200, "text/html", b"<html>sign in</html>")}) as (url, _):
        kubeconfig(url)
        report = look(url)
    assert any(item.why.startswith("runs.get:") for item in report.missing)


@pytest.mark.parametrize("odd", [{"run_details": []}, {"run_details": {"task_details": [{"child_tasks": ["x"]}]}}, {"pipeline_spec": {"root": {"dag": {"tasks": {"a": 1}}}}}])
def test_an_answer_of_another_shape(odd, kubeconfig):
    with server({f"/apis/v2beta1/runs/{RUN}": (200, "application/json", json.dumps(run() | odd).encode())}) as (url, _):
        kubeconfig(url)
        report = look(url)
    assert report.pipeline is not None or any(item.why.startswith("runs.get:") for item in report.missing)


def test_the_exit_task_on_kubeflow_pipelines(kubeconfig, monkeypatch, tmp_path):
    from check_failed_run.component import run_in_container

    status = {"state": "RUNNING", "error": {}, "pipelineJobResourceName": "nightly-x7k2p", "pipelineTaskName": "exit-handler-1"}
    with server(pages()) as (url, _):
        kubeconfig(url)
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", url)
        assert run_in_container(status=json.dumps(status), job_id=RUN, report=str(tmp_path / "report.json"), deadline=30) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["pipeline"]["first_failed_task"] == "train" and report["pipeline"]["platform"] == "kfp"
    assert report["pipeline"]["not_triggered_tasks"] == ["register"]


def test_the_command_line_options(kubeconfig):
    from check_failed_run.cli import Misuse
    from check_failed_run.watch import watch_kfp

    options = {"kfp_run": RUN, "host": None, "namespace": SPACE, "once": True, "interval": 60.0, "run_id": "test", "quiet": True}
    for host, run_id in ((None, RUN), ("ftp://x", RUN), ("http://x", "../etc")):
        with pytest.raises(Misuse):
            watch_kfp(RunRecord(), options | {"host": host, "kfp_run": run_id}, Misuse)
    with server(pages("FAILED")) as (url, _):
        kubeconfig(url)
        report = watch_kfp(RunRecord(), options | {"host": url}, Misuse)
    assert report.primary_cause == "oom" and report.pipeline.state == "FAILED"
