"""A local stand-in of the Google APIs as real servers: gRPC for Vertex AI and Cloud Logging, HTTP for GCS.

    python -m tests.cloud JOBS_DIR       serves every case below a folder (format: tests/cases/jobs)

    with serve([folder]) as cloud:
        env = {**os.environ, **cloud.environ}
        cloud.fault("logging", "PERMISSION_DENIED")
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULTS = ("PERMISSION_DENIED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "hang", "cut")
APIS = ("pipelines", "jobs", "logging", "storage")


@dataclass
class Fault:
    kind: str
    first: int | None = None  # only the first N calls; None: all
    after: int = 0  # not before N calls went well


@dataclass
class State:
    """What the servers know. JSON is the API's own (camelCase)."""

    pipeline_jobs: dict[str, dict[str, Any]] = field(default_factory=dict)  # by resource name
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, dict[str, tuple[bytes, int]]] = field(default_factory=dict)  # bucket: name: (bytes, generation)
    projects: dict[str, str] = field(default_factory=dict)  # id: number
    faults: dict[str, Fault] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)  # (API, method)
    denied: set[str] = field(default_factory=set)  # storage permissions that testPermissions does not grant
    quota: int | None = None  # entries.list requests a minute
    lock: threading.Lock = field(default_factory=threading.Lock)
    generation: int = 1
    stopped: threading.Event = field(default_factory=threading.Event)

    def add_case(self, folder: Path) -> None:
        """Load one case: pipeline_job.json, custom_jobs.json, log_entries.json, objects/."""
        job = json.loads((folder / "pipeline_job.json").read_text())
        self.add_pipeline(job)
        case = json.loads((folder / "case.json").read_text()) if (folder / "case.json").is_file() else {}
        if case.get("project") and case.get("project_number"):
            self.projects[case["project"]] = case["project_number"]
        if (folder / "custom_jobs.json").is_file():
            for item in json.loads((folder / "custom_jobs.json").read_text()):
                self.jobs[item["name"]] = item
        if (folder / "log_entries.json").is_file():
            self.entries += json.loads((folder / "log_entries.json").read_text())
        root = folder / "objects"
        for path in sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else []:
            bucket, *rest = path.relative_to(root).parts
            self.put(bucket, "/".join(rest), path.read_bytes())

    def add_pipeline(self, job: dict[str, Any]) -> None:
        self.pipeline_jobs[job["name"]] = job

    def put(self, bucket: str, name: str, data: bytes) -> int:
        with self.lock:
            self.generation += 1
            self.objects.setdefault(bucket, {})[name] = (data, self.generation)
            return self.generation

    def note(self, api: str, method: str) -> str | None:
        """Record a call; the fault that it must have, or None."""
        with self.lock:
            self.calls.append((api, method))
            number = sum(a == api for a, _ in self.calls)
            fault = self.faults.get(api)
            if fault is None or number <= fault.after or (fault.first is not None and number - fault.after > fault.first):
                return None
            return fault.kind


@dataclass
class Stand:
    """Running servers."""

    state: State
    environ: dict[str, str]

    @property
    def calls(self) -> list[tuple[str, str]]:
        return list(self.state.calls)

    def count(self, api: str) -> int:
        return sum(a == api for a, _ in self.state.calls)

    def fault(self, api: str, kind: str, *, first: int | None = None, after: int = 0) -> None:
        assert api in APIS and kind in FAULTS, (api, kind)
        self.state.faults[api] = Fault(kind, first, after)

    def reset(self) -> None:
        self.state.faults.clear()
        self.state.calls.clear()


@contextmanager
def serve(folders: list[Path] | None = None, *, state: State | None = None, quota: int | None = None) -> Iterator[Stand]:
    """Servers for the cases in ``folders``, on ports that the system chooses."""
    from tests.cloud import gcs, grpc_apis

    state = state or State()
    state.quota = quota
    for folder in folders or []:
        state.add_case(folder)
    server, port = grpc_apis.start(state)
    web, web_port = gcs.start(state)
    try:
        yield Stand(state, {
            "AIPLATFORM_EMULATOR_HOST": f"127.0.0.1:{port}",
            "LOGGING_EMULATOR_HOST": f"127.0.0.1:{port}",
            "STORAGE_EMULATOR_HOST": f"127.0.0.1:{web_port}",
        })  # fmt: skip
    finally:
        state.stopped.set()
        server.stop(None)
        web.shutdown()
        web.server_close()


def hang(state: State) -> None:
    """Keep a caller waiting, until the servers stop."""
    state.stopped.wait(timeout=300)
    time.sleep(0)
