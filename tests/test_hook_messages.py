"""Messages: within their targets' limits, log text as text, and really accepted by servers of their protocols."""

from __future__ import annotations

import email
import email.policy
import json
import socket

import pytest

from failure_hook import messages
from failure_hook.send import SendError, send
from failure_hook.settings import SettingsError, Target, from_environment
from tests.test_hook_service import Receiver

HOSTILE = "<!channel> <@U1> @here *bold* `code` ``` <https://evil.example.com|click> & _it_ ~s~ \x1b[31m\r\nBcc: a@b.c"
REPORT = {
    "primary_cause": "oom", "root_cause": HOSTILE, "summary": HOSTILE, "evidence": [f"train.log:1: {HOSTILE}" * 40] * 9, "decision": "NO-GO", "confidence": "high",
    "fixes": [{"action": HOSTILE * 20, "risk": "safe", "expected_impact": "x"}] * 5, "fingerprint": "1:abc", "run_status": "crashed",
}  # fmt: skip


def notice(**more):
    return messages.notice(REPORT, "# card\n" + "x" * 100_000, key="k" * 32, name="projects/1/locations/r/pipelineJobs/job-1", link="gs://b/r.json", owner="ads", **more)


def test_slack_has_no_mention_no_link_and_fits():
    body = messages.slack(notice(count=7, since="2026-11-01"))
    text = body["blocks"][0]["text"]["text"]
    assert len(text) <= 3000 and body["blocks"][0]["text"]["verbatim"] and "7th time since 2026-11-01" in text
    for bad in ("<!", "<@", "<http", "@here", "@channel", "\x1b"):
        assert bad not in text and bad not in body["text"]
    assert text.count("```") % 2 == 0


def test_chat_fits_and_threads_by_fingerprint():
    body = messages.chat(notice())
    assert len(body["text"]) <= 4096 and "<" not in body["text"] and "*" not in body["text"] and body["thread"] == {"threadKey": "1:abc"}


def test_mail_headers_cannot_be_injected():
    message = messages.mail(notice(), "Hook <hook@example.com>", ["a@example.com"])
    parsed = email.message_from_bytes(bytes(message), policy=email.policy.default)
    assert parsed["Bcc"] is None and parsed["Message-ID"] == f"<{'k' * 32}@example.com>" and "\n" not in parsed["Subject"]


def test_a_comment_fits_and_carries_its_mark():
    text = messages.comment(notice())
    assert len(text) <= 65_536 and text.startswith(f"<!-- check-failed-run:{'k' * 32} -->\n")


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


@pytest.mark.parametrize("kind", ["slack", "chat", "webhook"])
def test_posts_are_sent_with_a_key(receiver, kind):
    send(Target(kind, kind, (("url", receiver.url + "/hook"),)), notice())
    ((path, headers, body),) = receiver.got
    assert path.startswith("/hook") and headers["Idempotency-Key"] == "k" * 32 and body


@pytest.mark.parametrize(("status", "lasting"), [(500, False), (429, False), (404, True), (410, True), (302, False)])
def test_what_a_refusal_means(receiver, status, lasting):
    receiver.status = status
    with pytest.raises(SendError) as error:
        send(Target("t", "webhook", (("url", receiver.url + "/secret-path"),)), notice())
    assert error.value.lasting is lasting and "secret-path" not in str(error.value)


def test_nobody_listens():
    with pytest.raises(SendError) as error:
        send(Target("t", "webhook", (("url", "http://127.0.0.1:9/secret-path"),)), notice())
    assert not error.value.lasting and "secret-path" not in str(error.value)


def test_mail_reaches_a_real_server():
    from aiosmtpd.controller import Controller

    class Box:
        def __init__(self):
            self.got = []

        async def handle_RCPT(self, server, session, envelope, address, options):
            if address.startswith("nobody"):
                return "550 no such user"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server, session, envelope):
            self.got.append(envelope)
            return "250 OK"

    box = Box()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    controller = Controller(box, hostname="127.0.0.1", port=int(port))
    controller.start()
    try:
        options = {"host": "127.0.0.1", "port": port, "tls": "false", "sender": "hook@example.com"}
        send(Target("m", "mail", tuple({**options, "recipients": "a@example.com, b@example.com"}.items())), notice())
        with pytest.raises(SendError) as error:
            send(Target("m", "mail", tuple({**options, "recipients": "nobody@example.com"}.items())), notice())
    finally:
        controller.stop()
    (envelope,) = box.got
    assert envelope.rcpt_tos == ["a@example.com", "b@example.com"] and b"Decision: NO-GO" in envelope.content and error.value.lasting


def test_a_github_comment_is_made_then_updated(receiver):
    target = Target("g", "github", (("api", receiver.url), ("issue", "7"), ("repository", "acme/ml"), ("token", "t")))
    listing = "/repos/acme/ml/issues/7/comments?per_page=100"
    receiver.answers[listing] = b"[]"
    send(target, notice())
    assert receiver.got[0][0] == "/repos/acme/ml/issues/7/comments"
    receiver.answers[listing] = json.dumps([{"id": 5, "body": "other"}, {"id": 9, "body": receiver.got[0][2]["body"]}]).encode()
    with pytest.raises(SendError):  # the receiver has no PATCH: it shows that an update was tried, not a second comment
        send(target, notice())
    assert len(receiver.got) == 1


def test_settings_and_routes(tmp_path):
    (tmp_path / "url").write_text("https://hooks.example.com/x\n")
    config = tmp_path / "routes.toml"
    config.write_text(f"""
[[route]]
labels = {{team = "ads"}}
pipeline = "ctr-*"
owner = "ads-oncall"
slack = "ads"

[[route]]
webhook = "all"

[targets.ads]
type = "slack"
url_file = "{tmp_path / 'url'}"

[targets.all]
type = "webhook"
url = "https://x.example.com"
""")
    settings = from_environment({"FAILURE_HOOK_BUCKET": "b", "FAILURE_HOOK_AUDIENCE": "a", "FAILURE_HOOK_CONFIG": str(config)})
    owner, targets = settings.route("projects/p/locations/r/pipelineJobs/ctr-1", {"team": "ads"})
    assert owner == "ads-oncall" and [t.name for t in targets] == ["ads"] and targets[0].get("url") == "https://hooks.example.com/x"
    assert [t.name for t in settings.route("projects/p/locations/r/pipelineJobs/x", {"team": "ads"})[1]] == ["all"]


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({}, "BUCKET"),
        ({"FAILURE_HOOK_BUCKET": "b"}, "AUDIENCE"),
        ({"FAILURE_HOOK_BUCKET": "b", "FAILURE_HOOK_INSECURE": "true", "FAILURE_HOOK_COOLDOWN": "soon"}, "COOLDOWN"),
        ({"FAILURE_HOOK_BUCKET": "b", "FAILURE_HOOK_INSECURE": "true", "FAILURE_HOOK_CONFIG": "/no/such/file"}, "/no/such/file"),
        ({"FAILURE_HOOK_BUCKET": "b", "FAILURE_HOOK_INSECURE": "true", "FAILURE_HOOK_SLACK_URL_FILE": "/no/such/file"}, "url_file"),
    ],
)
def test_wrong_settings_say_what_to_do(environment, word):
    with pytest.raises(SettingsError) as error:
        from_environment(environment)
    assert word in str(error.value)
