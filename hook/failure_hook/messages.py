"""One message from a report: for Slack, Google Chat, e-mail, a webhook, and a GitHub comment.

Log text is a stranger's. Each format escapes what it would otherwise read as markup, mentions or links, and stays
within its target's limits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

SLACK_TEXT, CHAT_TEXT, COMMENT_TEXT = 2800, 3800, 60_000  # characters; Slack blocks hold 3,000, Chat messages 4,096, comments 65,536
EVIDENCE = 2


@dataclass(frozen=True, slots=True)
class Notice:
    """What a message says.

    Attributes:
        key: identity of the failure; the same for every delivery.
        subject: one line.
        report: the report as a dict.
        card: the Markdown card.
        link: where the report lies.
        owner: who is asked to look, or "".
        count, since: how often this fingerprint has failed, and since when (ISO date), or 1 and "".
    """

    key: str
    subject: str
    report: dict[str, Any]
    card: str
    link: str
    owner: str = ""
    count: int = 1
    since: str = ""

    @property
    def again(self) -> str:
        return f"{_ordinal(self.count)} time since {self.since}" if self.count > 1 else ""


def notice(report: dict[str, Any], card: str, *, key: str, name: str, link: str, owner: str = "", count: int = 1, since: str = "") -> Notice:
    """The message for a report about ``name``."""
    short = name.rsplit("/", 1)[-1]
    cause = report.get("primary_cause") or "unknown"
    again = f" ({_ordinal(count)} time)" if count > 1 else ""
    return Notice(key, f"{short}: {cause}{again}", report, card, link, owner, count, since)


def slack(notice: Notice) -> dict[str, Any]:
    """The body for an incoming webhook: blocks, no mentions, no unfurling."""
    report = notice.report
    lines = [f"*{_slack(notice.subject)}*", _slack(_cut(report.get("root_cause") or report.get("summary") or "", 900))]
    if notice.again:
        lines.append(_slack(notice.again))
    for quote in (report.get("evidence") or [])[:EVIDENCE]:
        lines.append(f"```{_slack(_cut(quote, 500))}```")
    fix = (report.get("fixes") or [{}])[0]
    if fix.get("action"):
        lines.append(f"Next: {_slack(_cut(fix['action'], 400))} ({_slack(fix.get('risk', ''))})")
    lines.append(f"{report.get('decision')}, confidence {report.get('confidence')}" + (f", owner {_slack(notice.owner)}" if notice.owner else ""))
    lines.append(_slack(notice.link))
    text = _cut("\n".join(line for line in lines if line), SLACK_TEXT)
    return {"text": _slack(_cut(notice.subject, 200)), "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}], "unfurl_links": False, "unfurl_media": False}


def chat(notice: Notice) -> dict[str, Any]:
    """The body for a Google Chat webhook; threads by fingerprint where the space allows it."""
    report = notice.report
    lines = [notice.subject, _cut(report.get("root_cause") or "", 900), notice.again]
    lines += [_cut(q, 500) for q in (report.get("evidence") or [])[:EVIDENCE]]
    fix = (report.get("fixes") or [{}])[0]
    lines += [f"Next: {fix['action']} ({fix.get('risk')})" if fix.get("action") else "", f"{report.get('decision')}, confidence {report.get('confidence')}", notice.link]
    text = _cut("\n".join(_chat(line) for line in lines if line), CHAT_TEXT)
    return {"text": text, "thread": {"threadKey": str(report.get("fingerprint") or notice.key)}}


def webhook(notice: Notice) -> dict[str, Any]:
    """The body for a generic webhook: the facts, no markup."""
    report = notice.report
    return {
        "key": notice.key, "subject": notice.subject, "owner": notice.owner, "count": notice.count, "since": notice.since, "report": notice.link,
        **{k: report.get(k) for k in ("run_status", "primary_cause", "primary_cause_confidence", "root_cause", "decision", "confidence", "retry", "fingerprint")},
        "pipeline": (report.get("pipeline") or {}).get("name"),
        "evidence": (report.get("evidence") or [])[:5],
        "fixes": (report.get("fixes") or [])[:3],
    }  # fmt: skip


def mail(notice: Notice, sender: str, recipients: list[str]) -> EmailMessage:
    """A plain-text message; the same failure always has the same Message-ID, the same fingerprint one thread."""
    message = EmailMessage()
    message["Subject"] = _header(notice.subject)
    message["From"], message["To"] = _header(sender), ", ".join(_header(r) for r in recipients)
    message["Date"] = formatdate(usegmt=True)
    domain = sender.rsplit("@", 1)[-1].strip(" >") or "localhost"
    message["Message-ID"] = f"<{notice.key}@{domain}>"
    fingerprint = str(notice.report.get("fingerprint") or "").replace(":", "-")
    if fingerprint:
        message["References"] = f"<thread-{fingerprint}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    report = notice.report
    body = [report.get("root_cause") or report.get("summary") or "", notice.again, "", *(report.get("evidence") or [])[:8], ""]
    body += [f"{n}) {f.get('action')} | risk={f.get('risk')} | {f.get('expected_impact')}" for n, f in enumerate((report.get("fixes") or [])[:3], 1)]
    body += ["", f"Decision: {report.get('decision')}, confidence {report.get('confidence')}", notice.link]
    message.set_content("\n".join(_printable(line) for line in body) + "\n")
    return message


def comment(notice: Notice) -> str:
    """A GitHub comment or job summary. The first line is a mark by which it is found and updated."""
    return _cut(f"<!-- check-failed-run:{notice.key} -->\n{notice.card}\n\n{notice.again}", COMMENT_TEXT)


# text ---------------------------------------------------------------------------------------------------------------


def _slack(text: Any) -> str:
    """Slack's three control characters; with ``verbatim`` nothing else becomes a link or mention. A zero-width space breaks ``@here``."""
    clean = _printable(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return clean.replace("@", "@\u200b").replace("*", "\u2217").replace("`", "\u02b9")


def _chat(text: Any) -> str:
    """Google Chat reads <...>, *bold*, _italic_, ~strike~ and `code`."""
    table = {ord("<"): "‹", ord(">"): "›", ord("*"): "∗", ord("`"): "ʹ", ord("~"): "∼", ord("@"): "@\u200b"}
    return _printable(str(text)).translate(table)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _header(text: str) -> str:
    return _printable(text)[:300]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def to_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
