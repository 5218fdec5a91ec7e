"""The HTTP service: one failure event in, its report in the bucket, one message per target out.

Every step leaves a mark in the bucket (:mod:`failure_hook.ledger`), so that a delivery that comes twice does nothing
and one that was broken off is finished by the next. 2xx: done, or never to be done. 5xx: try again.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from failure_hook import messages
from failure_hook.events import Event, NotAnEvent, parse
from failure_hook.ledger import Ledger, LedgerError, key_of
from failure_hook.send import SendError, send
from failure_hook.settings import Settings, from_environment

if TYPE_CHECKING:
    from flask import Flask

ISSUERS = ("accounts.google.com", "https://accounts.google.com")
REPORT, CARD = "check-failed-run.json", "card.md"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str


class Refused(Exception):
    """A request without a valid token."""


def log(severity: str, text: str, **fields: Any) -> None:
    """One JSON line as Cloud Logging reads it."""
    print(json.dumps({"severity": severity, "message": text, **fields}, ensure_ascii=False), file=sys.stdout, flush=True)


class Hook:
    """Handles requests.

    Args:
        settings: see there.
        ledger: the marks.
        diagnose: event to (report dict, card); raises for what may work later.
    """

    def __init__(self, settings: Settings, ledger: Ledger, diagnose: Callable[[Event, Settings], tuple[dict[str, Any], str]]):
        self.settings, self.ledger, self.diagnose = settings, ledger, diagnose

    def handle(self, headers: dict[str, str], body: bytes, trace: str = "") -> Answer:
        """Answer one push request."""
        fields = {"logging.googleapis.com/trace": trace} if trace else {}
        try:
            self._check_token(headers)
        except Refused as error:
            log("WARNING", f"refused: {error}", **fields)
            return Answer(401, "unauthorized")
        try:
            event = parse(headers, body)
        except NotAnEvent as error:
            log("WARNING", f"not an event, acknowledged: {error}", **fields)
            return Answer(200, "not an event")
        fields |= {"job": event.name, "state": event.state, "messageId": event.message_id}
        if not event.failed:
            return Answer(200, "no failure")
        try:
            return self._work(event, fields)
        except LedgerError as error:
            log("ERROR", f"the bucket does not answer: {error}", **fields)
            return Answer(503, "try again")

    def _work(self, event: Event, fields: dict[str, Any]) -> Answer:
        key = key_of(event.key)
        if self.ledger.is_done(key):
            return Answer(200, "done already")
        if not self.ledger.claim(key):
            return Answer(503, "another instance works on it")
        try:
            answer = self._report_and_tell(event, key, fields)
        except Exception:
            self.ledger.release(key)
            raise
        if answer.status >= 500:
            self.ledger.release(key)
        return answer

    def _report_and_tell(self, event: Event, key: str, fields: dict[str, Any]) -> Answer:
        folder = f"reports/{event.name.rsplit('/', 1)[-1]}/{event.state}-{key[:8]}"
        known = self.ledger.get(f"{folder}/answer.json")
        if known is not None and "report" in known:
            report, card = known["report"], known["card"]
        else:
            try:
                report, card = self.diagnose(event, self.settings)
            except Exception as error:
                log("ERROR", f"the diagnosis failed: {type(error).__name__}: {error}", **fields)
                return Answer(500, "the diagnosis failed")
            self.ledger.put(f"{folder}/{REPORT}", json.dumps(report, indent=2, ensure_ascii=False) + "\n", "application/json")
            self.ledger.put(f"{folder}/{CARD}", card, "text/markdown; charset=utf-8")
            self.ledger.put(f"{folder}/answer.json", json.dumps({"report": report, "card": card}), "application/json")
            log("ERROR", f"{report.get('primary_cause')}: {report.get('summary')}", **fields, primary_cause=report.get("primary_cause"),
                confidence=report.get("primary_cause_confidence"), decision=report.get("decision"), fingerprint=report.get("fingerprint"), report=self.ledger.uri(f"{folder}/{REPORT}"))  # fmt: skip
        owner, targets = self.settings.route(event.name, {**dict(event.labels), **(report.get("environment", {}).get("labels") or {})})
        fingerprint = key_of(str(report.get("fingerprint") or key))
        thread = self.ledger.thread(fingerprint, key)
        if thread.last_sent is not None and self.ledger.clock() - thread.last_sent < self.settings.cooldown and not any(self.ledger.was_sent(key, t.name) for t in targets):
            log("INFO", f"quiet: the same failure was told {self.ledger.clock() - thread.last_sent:.0f} s ago ({thread.count} so far)", **fields)
            self.ledger.finish(key)
            return Answer(200, "quiet")
        since = datetime.datetime.fromtimestamp(thread.first, datetime.UTC).date().isoformat() if thread.count > 1 else ""
        notice = messages.notice(report, card, key=key, name=event.name, link=self.ledger.uri(f"{folder}/{REPORT}"), owner=owner, count=thread.count, since=since)
        failed = False
        for target in targets:
            if self.ledger.was_sent(key, target.name):
                continue
            try:
                send(target, notice)
            except SendError as error:
                log("ERROR", f"not sent: {error}", **fields, target=target.name)
                failed = failed or not error.lasting
                continue
            self.ledger.mark_sent(key, target.name)
            self.ledger.mark_thread(fingerprint)
        if failed:
            return Answer(503, "a message could not be sent")
        self.ledger.finish(key)
        return Answer(200, "told")

    def _check_token(self, headers: dict[str, str]) -> None:
        """The push subscription's OIDC token: signature, issuer, audience, expiry, account."""
        if self.settings.insecure and not self.settings.audience:
            return
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request
        from google.oauth2 import id_token

        given = next((v for k, v in headers.items() if k.lower() == "authorization"), "")
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused("no bearer token")
        try:
            claims = id_token.verify_token(token.strip(), Request(), audience=self.settings.audience, certs_url=self.settings.certificates)
        except (ValueError, GoogleAuthError) as error:
            raise Refused(str(error)[:200]) from None
        if claims.get("iss") not in ISSUERS:
            raise Refused("the issuer is not Google")
        if self.settings.account and (claims.get("email") != self.settings.account or not claims.get("email_verified")):
            raise Refused("the token is another account's")


def diagnose_event(event: Event, settings: Settings) -> tuple[dict[str, Any], str]:
    """The report and card for an event, within the deadline."""
    from check_failed_run.record import RunRecord
    from check_failed_run.report.markdown import render

    if event.kind == "build":
        from failure_hook.builds import diagnose_build

        report = diagnose_build(event, settings)
    else:
        from check_failed_run.pipeline import open_run

        report = open_run(event.name, deadline=settings.deadline).look(RunRecord(targets=[event.name]))
    return report.to_dict(), render(report)


def create_app(settings: Settings | None = None, *, diagnose: Callable[..., Any] = diagnose_event) -> Flask:
    """The Flask application."""
    from flask import Flask, request

    settings = settings or from_environment()
    hook = Hook(settings, Ledger(_bucket(settings.bucket), settings.prefix, lease=1.5 * settings.deadline + 2), diagnose)
    app = Flask("failure_hook")
    app.config["MAX_CONTENT_LENGTH"] = 2 << 20

    @app.get("/healthz")
    def healthz() -> tuple[str, int]:
        return "ok\n", 200

    @app.post("/")
    def push() -> tuple[str, int]:
        trace = (request.headers.get("X-Cloud-Trace-Context") or "").split("/")[0]
        answer = hook.handle(dict(request.headers), request.get_data(), trace)
        return answer.text + "\n", answer.status

    return app


def _bucket(name: str) -> Any:
    import os

    from google.cloud import storage

    host = os.environ.get("STORAGE_EMULATOR_HOST")
    if host:
        from google.auth.credentials import AnonymousCredentials

        client = storage.Client(project="local", credentials=AnonymousCredentials(), client_options={"api_endpoint": host if "://" in host else f"http://{host}"})
    else:
        client = storage.Client()
    return client.bucket(name)


def serve(port: int, workers: int = 1, threads: int = 4) -> None:
    """Run under gunicorn until told to stop."""
    from gunicorn.app.base import BaseApplication

    class Server(BaseApplication):
        def load_config(self) -> None:
            for name, value in {"bind": f"0.0.0.0:{port}", "workers": workers, "threads": threads, "timeout": 0, "graceful_timeout": 25, "accesslog": None}.items():
                self.cfg.set(name, value)

        def load(self) -> Flask:
            return create_app()

    Server().run()
