"""PipelineJobs, custom jobs and log entries for tests, in the JSON of the APIs; times are minutes after a fixed moment."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
PROJECT, NUMBER, REGION, JOB = "acme-ml", "400200300100", "europe-west1", "nightly-20260504120000"
PARENT = f"projects/{NUMBER}/locations/{REGION}"
NAME = f"{PARENT}/pipelineJobs/{JOB}"
ACCOUNT = "runner@acme-ml.iam.gserviceaccount.com"
TRAIN = [f"step {n}/400 loss={2.0 / (1 + n / 50):.4f} grad_norm=1.2 lr=0.01" for n in range(0, 200, 10)]
OOM = [
    *TRAIN,
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 88, in <module>',
    "    loss = step(batch)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.78 GiB of which 1.10 GiB is free.",
]
MISSING_KEY = [
    "loading settings",
    "Traceback (most recent call last):",
    '  File "/app/publish.py", line 12, in <module>',
    "    main()",
    "ModuleNotFoundError: No module named 'tabulate'",
]
EXITED = "The replica workerpool0-0 exited with a non-zero status of 1. Termination reason: Error."


def at(minutes: float) -> str:
    """RFC 3339 of so many minutes after the fixed moment."""
    return (EPOCH + timedelta(minutes=minutes)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(minutes: float) -> float:
    return EPOCH.timestamp() + 60 * minutes


class Builder:
    """Collects a job with everything behind it.

    ``task`` adds a task below ``parent`` (None: the run's own level) to the details and to the compiled spec;
    with ``details=False`` it is in the spec only, with ``spec=False`` in the details only.
    """

    def __init__(self, state: str = "FAILED", end: float | None = 60, **extra: Any):
        self.counter = itertools.count(1)
        self.details: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.entries: list[dict[str, Any]] = []
        self.components: dict[str, Any] = {}
        self.executors: dict[str, Any] = {}
        self.root_dag: dict[str, Any] = {"tasks": {}}
        self.dags: dict[str | None, dict[str, Any]] = {None: self.root_dag}
        self.root_id = "-77"
        self.job: dict[str, Any] = {
            "name": NAME, "displayName": "nightly", "state": f"PIPELINE_STATE_{state}", "createTime": at(0), "startTime": at(0), "updateTime": at(1),
            "serviceAccount": ACCOUNT, "runtimeConfig": {"gcsOutputDirectory": "gs://acme-pipelines/root", "parameterValues": {"lr": 0.01}}, **extra,
        }  # fmt: skip
        if end is not None:
            self.job["endTime"] = at(end)
        self.details.append({"taskId": self.root_id, "taskName": JOB, "state": state if state in ("FAILED", "RUNNING", "SUCCEEDED", "CANCELLED") else "RUNNING",
                             "createTime": at(0), "startTime": at(0), "execution": {"schemaTitle": "system.Run"}})  # fmt: skip

    def task(
        self, name: str, state: str = "SUCCEEDED", start: float = 0, end: float | None = None, *, parent: str | None = None, after: tuple[str, ...] = (),
        error: tuple[int, str] | None = None, lines: list[str] | None = None, failed_lines: list[list[str]] | None = None, group: bool = False,
        spec: bool = True, details: bool = True, loop_of: str | None = None, ran: bool | None = None, image: str = "trainer:1", command: list[str] | None = None,
        job_error: tuple[int, str] | None = None, job_state: str | None = None, metadata: dict[str, Any] | None = None, exit_task: bool = False, **spec_extra: Any,
    ) -> str:  # fmt: skip
        """Returns the task's id. ``lines`` are printed by its replica, one entry each, over its time."""
        task_id = str((-1) ** len(self.details) * (10**17 + next(self.counter) * 7919))
        if loop_of is not None:
            self.dags[task_id] = self.dags[loop_of]
        elif spec:
            entry: dict[str, Any] = {"componentRef": {"name": f"comp-{task_id}"}, "taskInfo": {"name": name}, **spec_extra}
            if after:
                entry["dependentTasks"] = list(after)
            if exit_task:
                entry["inputs"] = {"parameters": {"status": {"taskFinalStatus": {"producerTask": after[0] if after else "exit-handler-1"}}}}
                entry["triggerPolicy"] = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
            self.dags[parent]["tasks"].setdefault(name, entry)
            if group:
                self.components[f"comp-{task_id}"] = {"dag": self.dags.setdefault(task_id, {"tasks": {}})}
            else:
                self.components[f"comp-{task_id}"] = {"executorLabel": f"exec-{task_id}"}
                self.executors[f"exec-{task_id}"] = {"container": {"image": image, "command": command or ["python"]}}
        if not details:
            return task_id
        schema = "system.DagExecution" if group or loop_of else "system.ContainerExecution"
        detail: dict[str, Any] = {"taskId": task_id, "parentTaskId": parent or self.root_id, "taskName": name, "createTime": at(start), "state": state,
                                  "execution": {"schemaTitle": schema, "metadata": metadata or {}}}  # fmt: skip
        if state not in ("NOT_TRIGGERED", "PENDING"):
            detail["startTime"] = at(start)
        if end is not None:
            detail["endTime"] = at(end)
        if error:
            detail["error"] = {"code": error[0], "message": error[1]}
        if ran is None:
            ran = not group and loop_of is None and state in ("SUCCEEDED", "FAILED", "RUNNING", "CANCELLED")
        if ran:
            failed = [self._run(name, "FAILED", start, start + 1, some, (3, EXITED)) for some in failed_lines or []]
            fallback = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "CANCELLED": "CANCELLED"}.get(state, "RUNNING")
            main = self._run(name, job_state or fallback, start, end, lines or [], job_error or error)
            detail["executorDetail"] = {"containerDetail": {"mainJob": main, **({"failedMainJobs": failed} if failed else {})}}
        self.details.append(detail)
        return task_id

    def _run(self, name: str, state: str, start: float, end: float | None, lines: list[str], error: tuple[int, str] | None) -> str:
        job_id = str(3 * 10**18 + next(self.counter) * 104729)
        full = f"{PARENT}/customJobs/{job_id}"
        job: dict[str, Any] = {
            "name": full, "displayName": f"{JOB}-{name}", "state": f"JOB_STATE_{state}", "createTime": at(start), "startTime": at(start),
            "jobSpec": {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-8"}, "replicaCount": "1", "containerSpec": {"imageUri": "trainer:1"}}], "serviceAccount": ACCOUNT},
        }  # fmt: skip
        if end is not None and state != "RUNNING":
            job["endTime"] = at(end)
        if error and state in ("FAILED", "CANCELLED"):
            job["error"] = {"code": error[0], "message": error[1]}
        self.jobs.append(job)
        self.entry(job_id, "service", start, "Job is running.")
        last = end if end is not None else start + len(lines)
        for number, line in enumerate(lines):
            self.entry(job_id, "workerpool0-0", start + (last - start) * (number + 1) / (len(lines) + 2), line, "ERROR" if line.startswith(("Traceback", "  ", "torch")) else "INFO")
        if end is not None:
            self.entry(job_id, "service", end, "Job failed." if state == "FAILED" else "Job completed successfully.")
        return full

    def entry(self, job_id: str, source: str, minute: float, text: str, severity: str = "INFO") -> None:
        payload = {"textPayload": text} if source == "service" else {"jsonPayload": {"message": text + "\n", "levelname": severity}}
        self.entries.append({
            "insertId": f"i{len(self.entries):07d}", **payload, "timestamp": at(minute), "severity": severity, "logName": f"projects/{PROJECT}/logs/{source}",
            "resource": {"type": "ml_job", "labels": {"job_id": job_id, "project_id": PROJECT, "task_name": source}},
        })  # fmt: skip

    def event(self, minute: float, **payload: Any) -> None:
        """A pipeline or task event; ``custom_job_id`` becomes a label."""
        labels = {"pipeline_name": "nightly", "service_account": ACCOUNT}
        if "custom_job_id" in payload:
            labels["custom_job_id"] = payload.pop("custom_job_id")
        task = "taskName" in payload
        self.entries.append({
            "insertId": f"e{len(self.entries):07d}", "jsonPayload": {"pipelineName": "nightly", **({"payload": payload} if task else payload)}, "timestamp": at(minute), "severity": "INFO",
            "labels": labels, "logName": f"projects/{PROJECT}/logs/aiplatform.googleapis.com%2Fpipeline_job_{'task_' if task else ''}events",
            "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": {"resource_container": f"projects/{NUMBER}", "location": REGION, "pipeline_job_id": JOB}},
        })  # fmt: skip

    def build(self) -> dict[str, Any]:
        """The PipelineJob's JSON."""
        spec = {"root": {"dag": self.root_dag}, "components": self.components, "deploymentSpec": {"executors": self.executors}}
        return {**self.job, "pipelineSpec": spec, "jobDetail": {"taskDetails": list(reversed(self.details))}}

    def state(self) -> Any:
        """What the stand-in of the APIs serves."""
        from tests.cloud import State

        state = State()
        state.projects[PROJECT] = NUMBER
        state.add_pipeline(self.build())
        state.jobs.update({job["name"]: job for job in self.jobs})
        state.entries += self.entries
        state.objects.setdefault("acme-pipelines", {})
        return state
