"""Sending one message. A target that did not say yes has not got it; the caller tries again with the next delivery."""

from __future__ import annotations

import smtplib
import ssl
from typing import Any

from failure_hook import messages
from failure_hook.messages import Notice
from failure_hook.settings import Target

SECONDS = 15.0


class SendError(Exception):
    """A message that was not accepted. ``lasting`` tells that the same message will never be."""

    def __init__(self, text: str, *, lasting: bool = False):
        super().__init__(text)
        self.lasting = lasting


def send(target: Target, notice: Notice) -> None:
    """Send ``notice`` to ``target``.

    Raises:
        SendError: it was not accepted.
    """
    senders[target.type](target, notice)


def _slack(target: Target, notice: Notice) -> None:
    _post(target, messages.slack(notice), notice)


def _chat(target: Target, notice: Notice) -> None:
    url = target.get("url")
    _post(target, messages.chat(notice), notice, url=f"{url}{'&' if '?' in url else '?'}messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD")


def _webhook(target: Target, notice: Notice) -> None:
    _post(target, messages.webhook(notice), notice)


def _post(target: Target, body: dict[str, Any], notice: Notice, url: str | None = None) -> None:
    """POST JSON. The same failure always carries the same Idempotency-Key."""
    import requests

    headers = {"Content-Type": "application/json; charset=utf-8", "Idempotency-Key": notice.key}
    try:
        answer = requests.post(url or target.get("url"), data=messages.to_json(body), headers=headers, timeout=SECONDS, allow_redirects=False)
    except requests.RequestException as error:
        raise SendError(f"{target.name}: {type(error).__name__}") from None  # the text may hold the URL, which is a secret
    if not 200 <= answer.status_code < 300:
        raise SendError(f"{target.name}: answered {answer.status_code}", lasting=answer.status_code in (400, 401, 403, 404, 405, 410, 413))


def _mail(target: Target, notice: Notice) -> None:
    recipients = [r.strip() for r in target.get("recipients").split(",") if r.strip()]
    message = messages.mail(notice, target.get("sender"), recipients)
    host, port = target.get("host"), int(target.get("port", "587"))
    try:
        with smtplib.SMTP(host, port, timeout=SECONDS) as server:
            if target.get("tls", "true").lower() == "true":
                server.starttls(context=ssl.create_default_context())
            if target.get("user"):
                server.login(target.get("user"), target.get("password"))
            server.send_message(message, to_addrs=recipients)
    except smtplib.SMTPRecipientsRefused as error:
        raise SendError(f"{target.name}: every recipient was refused ({len(error.recipients)})", lasting=True) from None
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise SendError(f"{target.name}: {type(error).__name__}: {error}") from None


def _github(target: Target, notice: Notice) -> None:
    """A comment on an issue or pull request; an earlier one about the same failure is updated."""
    import requests

    base = target.get("api", "https://api.github.com").rstrip("/")
    folder = f"{base}/repos/{target.get('repository')}/issues/{target.get('issue')}/comments"
    headers = {"Authorization": f"Bearer {target.get('token')}", "Accept": "application/vnd.github+json"}
    text = messages.comment(notice)
    mark = text.split("\n", 1)[0]
    try:
        listed = requests.get(folder, params={"per_page": 100}, headers=headers, timeout=SECONDS)
        if listed.status_code != 200:
            raise SendError(f"{target.name}: listing comments answered {listed.status_code}", lasting=listed.status_code in (401, 404, 410))
        known = next((c for c in listed.json() if str(c.get("body", "")).startswith(mark)), None)
        if known:
            answer = requests.patch(f"{base}/repos/{target.get('repository')}/issues/comments/{int(known['id'])}", json={"body": text}, headers=headers, timeout=SECONDS)
        else:
            answer = requests.post(folder, json={"body": text}, headers=headers, timeout=SECONDS)
    except (requests.RequestException, ValueError) as error:
        raise SendError(f"{target.name}: {type(error).__name__}") from None
    if not 200 <= answer.status_code < 300:
        raise SendError(f"{target.name}: answered {answer.status_code}", lasting=answer.status_code in (401, 403, 404, 410, 422))


senders = {"slack": _slack, "chat": _chat, "webhook": _webhook, "mail": _mail, "github": _github}
