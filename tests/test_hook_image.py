"""The hook as it is deployed: the image with ``serve``, Pub/Sub's requests over HTTP, killed containers."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import urllib.request
from collections import Counter

import pytest
from conftest import IMAGE
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.cloud import State, serve
from tests.test_hook_service import JOBS, Receiver, Service, bucket, case, environment, event

pytestmark = pytest.mark.image
testcontainers_config.ryuk_disabled = True  # the reaper is an image of a registry; each test stops its own container
FAILURES = int(os.environ.get("TEST_HOOK_FAILURES", "50"))  # 350 make 500 events
DUPLICATES = FAILURES * 3 // 7  # 30 % of the events


class Container(Service):
    """The service in its image, on the host's network."""

    def __init__(self, environment: dict[str, str]):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment = {**environment, "PORT": str(self.port)}
        self.container: DockerContainer | None = None

    def start(self) -> Container:
        container = DockerContainer(IMAGE).with_command("serve").with_tmpfs_mount("/tmp").with_kwargs(network_mode="host", read_only=True, cap_drop=["ALL"])
        for name, value in self.environment.items():
            container.with_env(name, value)
        self.container = container.start()
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2) as answer:
                    assert answer.read() == b"ok\n"
                    return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError(self.container.get_logs())

    def kill(self) -> None:
        self.container.get_wrapped_container().kill(signal="SIGKILL")
        self.container.stop()


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


def test_one_failure_one_message(receiver):
    with serve([JOBS / "vertex-oom-cuda-train"]) as cloud:
        cloud.state.put("reports", "keep", b"")
        service = Container(environment(cloud, receiver)).start()
        try:
            assert [service.post(event(case("vertex-oom-cuda-train"))) for _ in range(2)] == [200, 200]
            log = service.container.get_logs()[0].decode()
        finally:
            service.kill()
        ((_, _, body),) = receiver.got
        assert body["primary_cause"] == "oom"
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        assert lines and all({"severity", "message"} <= line.keys() for line in lines)


def test_events_in_bursts(receiver):
    """Duplicates, any order, the container killed three times: in the end one message a failure, none lost."""
    state, rng, jobs = State(), random.Random(11), []
    template = case("vertex-iam-act-as")
    for number in range(FAILURES):
        job = {**template, "name": f"{template['name']}-{number}"}
        state.add_pipeline(job)
        jobs.append(job)
    state.put("reports", "keep", b"")
    waiting = [event(job) for job in jobs] + [event(job) for job in rng.sample(jobs, DUPLICATES)]
    rng.shuffle(waiting)
    kills, started = 0, time.monotonic()
    with serve(state=state) as cloud:
        service = Container(environment(cloud, receiver, FAILURE_HOOK_DEADLINE="10")).start()
        try:
            for round_ in range(40):
                answers: list[tuple[bytes, int]] = []
                lock = threading.Lock()

                def deliver(bodies, answers=answers, lock=lock):
                    for body in bodies:
                        status = service.post(body)
                        with lock:
                            answers.append((body, status))

                threads = [threading.Thread(target=deliver, args=(waiting[i::8],)) for i in range(8)]
                for thread in threads:
                    thread.start()
                if round_ < 3:
                    time.sleep(rng.uniform(2, 6))
                    service.kill()
                    kills += 1
                for thread in threads:
                    thread.join()
                if round_ < 3:
                    service.start()
                waiting = [body for body, status in answers if not 200 <= status < 300]
                if not waiting:
                    break
                rng.shuffle(waiting)
                time.sleep(0.5)
        finally:
            service.kill()
        reports = [name for name in bucket(cloud.state) if name.endswith("check-failed-run.json")]
    sent = Counter(headers["Idempotency-Key"] for _, headers, _ in receiver.got)
    print(f"{FAILURES + DUPLICATES} events, {FAILURES} failures, {kills} kills, {sum(sent.values())} messages, {time.monotonic() - started:.0f} s")
    assert waiting == [] and kills == 3 and len(reports) == FAILURES
    assert len(sent) == FAILURES
    assert sum(sent.values()) - FAILURES <= kills * 4  # twice only where it was killed between sending and the mark
