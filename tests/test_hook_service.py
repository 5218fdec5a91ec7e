"""The hook as a running server: tokens, marks, messages, duplicates, crashes. Google's APIs are tests/cloud, receivers are real servers."""

from __future__ import annotations

import base64
import datetime
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cloud import State, serve
from tests.test_hook_events import ENTRY, wrapped

JOBS = Path(__file__).resolve().parent / "cases" / "jobs"
AUDIENCE, ACCOUNT = "https://hook.example.com/", "pusher@acme.iam.gserviceaccount.com"


class Receiver:
    """An HTTP server that keeps what it gets; ``status`` is what it answers."""

    def __init__(self):
        self.got: list[tuple[str, dict, dict]] = []
        self.status, self.lock = 200, threading.Lock()
        self.answers: dict[str, bytes] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with outer.lock:
                    status = outer.status() if callable(outer.status) else outer.status
                    if status < 300:
                        outer.got.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                data = outer.answers.get(self.path, b"{}")
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Service:
    """``check-failed-run serve`` as a process that can be killed and started again on the same port."""

    def __init__(self, environment: dict[str, str]):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment = {**os.environ, **environment, "PORT": str(self.port), "PYTHONUNBUFFERED": "1"}
        self.process: subprocess.Popen | None = None

    def start(self) -> Service:
        self.process = subprocess.Popen([sys.executable, "-m", "check_failed_run.cli", "serve"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2) as answer:
                    assert answer.read() == b"ok\n"
                    return self
            except OSError:
                assert self.process.poll() is None, "the service ended"
                time.sleep(0.05)
        raise AssertionError("the service does not answer")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def post(self, body: bytes, headers: dict[str, str] | None = None, path: str = "/", method: str = "POST") -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers={"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0  # killed under it


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


def event(job: dict, state: str = "PIPELINE_STATE_FAILED") -> bytes:
    _, number, _, region, _, identity = job["name"].split("/")
    labels = {"resource_container": f"projects/{number}", "location": region, "pipeline_job_id": identity}
    return wrapped({**ENTRY, "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": labels}, "jsonPayload": {"state": state}})


def environment(cloud, receiver, **more: str) -> dict[str, str]:
    return {**cloud.environ, "FAILURE_HOOK_BUCKET": "reports", "FAILURE_HOOK_INSECURE": "true", "FAILURE_HOOK_WEBHOOK_URL": receiver.url, "FAILURE_HOOK_COOLDOWN": "0", **more}


def case(name: str) -> dict:
    return json.loads((JOBS / name / "pipeline_job.json").read_text())


def bucket(state: State) -> dict[str, bytes]:
    return {name: data for name, (data, _) in state.objects.get("reports", {}).items()}


def test_one_failure_one_message_and_its_report(receiver):
    with serve([JOBS / "vertex-oom-cuda-train"]) as cloud:
        cloud.state.put("reports", "keep", b"")
        service = Service(environment(cloud, receiver)).start()
        try:
            assert [service.post(event(case("vertex-oom-cuda-train"))) for _ in range(3)] == [200, 200, 200]
            assert service.post(event(case("vertex-oom-cuda-train"), "PIPELINE_STATE_SUCCEEDED")) == 200
        finally:
            service.kill()
        ((_, headers, body),) = receiver.got
        assert body["primary_cause"] == "oom" and body["run_status"] == "crashed" and body["fixes"] and headers["Idempotency-Key"] == body["key"]
        names = bucket(cloud.state)
        (report,) = [n for n in names if n.endswith("check-failed-run.json")]
        assert json.loads(names[report])["primary_cause"] == "oom" and body["report"] == f"gs://reports/{report}"
        assert any(n.endswith("card.md") for n in names)


def test_a_failed_send_is_sent_by_the_next_delivery(receiver):
    with serve([JOBS / "vertex-nan-assertion"]) as cloud:
        cloud.state.put("reports", "keep", b"")
        service = Service(environment(cloud, receiver)).start()
        try:
            receiver.status = 503
            assert service.post(event(case("vertex-nan-assertion"))) == 503 and receiver.got == []
            receiver.status = 200
            assert service.post(event(case("vertex-nan-assertion"))) == 200
            assert service.post(event(case("vertex-nan-assertion"))) == 200
        finally:
            service.kill()
        assert len(receiver.got) == 1
        # the diagnosis was made once: the second delivery found its report
        assert sum(method == "GetPipelineJob" for _, method in cloud.calls) == 1


def test_bad_requests_change_nothing(receiver, tmp_path):
    key, certificate = _key()
    receiver.answers["/certs"] = json.dumps({"k1": certificate}).encode()
    with serve([JOBS / "vertex-oom-cuda-train"]) as cloud:
        cloud.state.put("reports", "keep", b"")
        settings = environment(cloud, receiver, FAILURE_HOOK_INSECURE="false", FAILURE_HOOK_AUDIENCE=AUDIENCE, FAILURE_HOOK_SERVICE_ACCOUNT=ACCOUNT, FAILURE_HOOK_CERTIFICATES=f"{receiver.url}/certs")
        service = Service(settings).start()
        good = event(case("vertex-oom-cuda-train"))
        other, _ = _key()
        tokens = {
            "no token": None,
            "no bearer": "Basic abc",
            "rubbish": "Bearer abc.def.ghi",
            "wrong audience": f"Bearer {_token(key, aud='https://other/')}",
            "expired": f"Bearer {_token(key, exp=-3600)}",
            "wrong issuer": f"Bearer {_token(key, iss='https://evil.example.com')}",
            "wrong account": f"Bearer {_token(key, email='other@acme.iam.gserviceaccount.com')}",
            "another key": f"Bearer {_token(other)}",
        }
        try:
            for name, token in tokens.items():
                assert service.post(good, {"Authorization": token} if token else {}) == 401, name
            authorized = {"Authorization": f"Bearer {_token(key)}"}
            answers = {
                "broken base64": service.post(json.dumps({"message": {"data": "%%%"}}).encode(), authorized),
                "unknown event": service.post(wrapped({"a": 1}), authorized),
                "no JSON": service.post(b"hello", authorized),
                "empty": service.post(b"", authorized),
                "a list": service.post(b"[]", authorized),
            }
            assert set(answers.values()) == {200}, answers
            assert service.post(b"x" * (3 << 20), authorized) in (413, 0)
            assert service.post(b"", authorized, method="GET") == 405
            assert service.post(b"", authorized, path="/other") == 404
            assert list(bucket(cloud.state)) == ["keep"] and receiver.got == []
            assert service.post(good, authorized) == 200 and len(receiver.got) == 1
        finally:
            service.kill()


def test_bursts_duplicates_and_kills(receiver):
    """40 failures, each delivered several times in any order, the service killed meanwhile: one message for each in the end."""
    state = State()
    jobs = []
    for number in range(40):
        job = json.loads((JOBS / "vertex-iam-act-as" / "pipeline_job.json").read_text())
        job["name"] = f"{job['name']}-{number}"
        state.add_pipeline(job)
        jobs.append(job)
    state.put("reports", "keep", b"")
    rng = random.Random(5)
    with serve(state=state) as cloud:
        flaky = iter(lambda: 503 if rng.random() < 0.1 else 200, None)
        receiver.status = lambda: next(flaky)
        service = Service(environment(cloud, receiver, FAILURE_HOOK_DEADLINE="4")).start()
        waiting = [event(job) for job in jobs for _ in range(2)] + [event(job) for job in rng.sample(jobs, 12)]
        kills = 0
        try:
            for round_ in range(30):
                rng.shuffle(waiting)
                answers: list[tuple[bytes, int]] = []
                lock = threading.Lock()

                def deliver(bodies, answers=answers, lock=lock):
                    for body in bodies:
                        status = service.post(body)
                        with lock:
                            answers.append((body, status))

                threads = [threading.Thread(target=deliver, args=(waiting[i::4],)) for i in range(4)]
                for thread in threads:
                    thread.start()
                if round_ < 3:
                    time.sleep(rng.uniform(0.3, 1.5))
                    service.kill()
                    kills += 1
                for thread in threads:
                    thread.join()
                if round_ < 3:
                    service.start()
                waiting = [body for body, status in answers if not 200 <= status < 300]
                if not waiting:
                    break
                time.sleep(0.5)
        finally:
            service.kill()
    sent = Counter(headers["Idempotency-Key"] for _, headers, _ in receiver.got)
    assert waiting == [] and kills == 3
    assert len(sent) == 40  # none lost; a receiver that honours the key has one of each
    assert sum(sent.values()) - 40 <= kills * 4  # sent twice only where it was killed between sending and the mark


def test_the_same_failure_again_counts_up_and_is_quiet_for_a_while(receiver):
    state = State()
    jobs = []
    for number in range(3):
        job = json.loads((JOBS / "vertex-iam-act-as" / "pipeline_job.json").read_text())
        job["name"] = f"{job['name']}-{number}"
        state.add_pipeline(job)
        jobs.append(job)
    state.put("reports", "keep", b"")
    with serve(state=state) as cloud:
        service = Service(environment(cloud, receiver)).start()
        try:
            assert [service.post(event(job)) for job in jobs[:2]] == [200, 200]
        finally:
            service.kill()
        assert [body["count"] for _, _, body in receiver.got] == [1, 2] and receiver.got[1][2]["since"]
        service = Service(environment(cloud, receiver, FAILURE_HOOK_COOLDOWN="3600")).start()
        try:
            assert service.post(event(jobs[2])) == 200
        finally:
            service.kill()
        assert len(receiver.got) == 2  # quiet, and its report is in the bucket
        assert sum(n.endswith("check-failed-run.json") for n in bucket(state)) == 3


def test_serve_says_what_is_missing():
    done = subprocess.run([sys.executable, "-m", "check_failed_run.cli", "serve"], capture_output=True, text=True, env={k: v for k, v in os.environ.items() if not k.startswith("FAILURE_HOOK")}, timeout=60)
    assert done.returncode == 2 and "FAILURE_HOOK_BUCKET" in done.stderr and "Traceback" not in done.stderr


# tokens -------------------------------------------------------------------------------------------------------------


def _key():
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    return key, certificate.public_bytes(serialization.Encoding.PEM).decode()


def _token(key, *, aud: str = AUDIENCE, iss: str = "https://accounts.google.com", email: str = ACCOUNT, exp: int = 3600) -> str:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    now = int(time.time())
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")  # noqa: E731
    signed = part({"alg": "RS256", "kid": "k1", "typ": "JWT"}) + b"." + part({"aud": aud, "iss": iss, "email": email, "email_verified": True, "iat": now - 10 + min(0, exp), "exp": now + exp, "sub": "1"})
    signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
