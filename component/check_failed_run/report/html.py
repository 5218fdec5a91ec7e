"""The report as one HTML page that needs nothing else: no network, no file beside it.

The page works in a sandboxed frame without an origin and is readable without scripts. Jinja2 escapes every value;
what is marked safe is SVG built by ``plots`` and ``dag_picture`` from escaped trees, and the package's own style and
script. A Content-Security-Policy allows exactly these two by their hashes, so that nothing else could run even if
some text became markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from check_failed_run.report import dag_picture, plots
from check_failed_run.report.model import FailurePoint, Report

LINK_HOSTS = frozenset({
    "console.cloud.google.com", "cloud.google.com", "docs.cloud.google.com", "kubernetes.io", "www.kubeflow.org",
    "github.com", "docs.pytorch.org", "pytorch.org", "discuss.pytorch.org", "docs.nvidia.com", "developer.nvidia.com",
    "huggingface.co", "lightning.ai", "www.deepspeed.ai", "deepspeed.readthedocs.io", "www.tensorflow.org", "keras.io",
    "docs.jax.dev", "jax.readthedocs.io", "docs.python.org", "numpy.org", "scikit-learn.org", "xgboost.readthedocs.io",
    "lightgbm.readthedocs.io", "catboost.ai", "docs.ray.io", "slurm.schedmd.com", "docs.kernel.org", "www.kernel.org",
    "man7.org", "docs.docker.com",
})  # fmt: skip
"""Hosts that the page links to; any other address stays text."""

STATUS = {
    "crashed": ("bad", "✕", "Crashed"),
    "hung": ("bad", "⧗", "Hung"),
    "diverged": ("bad", "↗", "Diverged"),
    "degraded": ("warn", "▽", "Degraded"),
    "recovered": ("good", "↻", "Recovered"),
    "healthy": ("good", "✓", "Healthy"),
    "running": ("warn", "▶", "Running"),
    "unknown": ("warn", "?", "Status unknown"),
}
RETRY = {
    "retry": "Run it again unchanged",
    "retry-elsewhere": "Run it again on another machine",
    "change-first": "Change something before running it again",
    "stop": "Do not run it again before the cause is known",
}
RISK = {"safe": "safe", "needs-approval": "needs approval", "dangerous": "dangerous"}
_PLACE = re.compile(r"(.{1,400}?:\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Quote:
    """An evidence string in its parts; ``own`` marks the line where the failure starts, ``around`` are (is it the line, text)."""

    place: str
    text: str
    own: bool
    around: list[tuple[bool, str]]


def render(report: Report) -> str:
    """The page, ending in a newline. Needs Jinja2 and pygal. The same report gives the same bytes."""
    status, symbol, words = STATUS[report.run_status]
    graph = report.pipeline if report.pipeline and report.pipeline.graph else None
    return _template().render(
        r=report,
        tone=status,
        symbol=symbol,
        words=words,
        cause=_cause(report),
        decision=_decision(report),
        where=_where(report.failure_point),
        quotes=_quotes(report),
        charts=plots.charts(report),
        series=sorted(report.metrics.items()),
        lanes=plots.rank_lanes(report.ranks),
        dag=dag_picture.picture(graph) if graph else "",
        dag_tree=dag_picture.tree(graph) if graph else [],
        dag_counts=dag_picture.counts(graph) if graph else [],
        dag_states=dag_picture.STATES,
        environment=[(key, _words(value)) for key, value in report.environment.items() if value not in (None, "", [], {})],
        references=[url for url in _references(report) if link(url)],
        commands=[text for text in report.next_commands if text not in {fix.command for fix in report.fixes}],
        retry=RETRY,
        risk=RISK,
        **_assets(),
    )


def link(address: str | None) -> str:
    """``address`` where it may be a link of the page: https, a known host, no user, no port; else ""."""
    if not address or re.search(r"[\s\x00-\x1f\x7f\\]", address):
        return ""
    try:
        parts = urlsplit(address)
        known = parts.scheme == "https" and parts.netloc in LINK_HOSTS
    except ValueError:
        return ""
    return address if known else ""


def _cause(report: Report) -> str:
    from check_failed_run.catalogue import class_info

    if report.primary_cause == "none":
        return "No failure found"
    info = class_info().get(report.primary_cause)
    return info.title if info else "Cause not shown by the evidence"


def _decision(report: Report) -> tuple[str, str]:
    """(tone, what the decision means here)."""
    if report.decision == "GO":
        nothing = report.primary_cause == "none"
        return "good", "nothing to recover" if nothing else "the first step may be taken without approval"
    if report.primary_cause == "unknown":
        return "bad", "the evidence does not suffice"
    return "bad", "the step that recovers the run needs an approval or a decision"


def _where(point: FailurePoint | None) -> list[tuple[str, str]]:
    if point is None:
        return []
    parts = [("Log line", f"{point.input}:{point.line}"), ("Code", point.location), ("Exception", point.exception)]
    parts += [("Step", point.step), ("Epoch", point.epoch), ("Rank", point.rank), ("Time", _moment(point.timestamp))]
    return [(name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in parts if value is not None and value != ""]


def _moment(timestamp: str | None) -> str | None:
    """For people; the year is left out where the log has none, which gives 1970."""
    if timestamp is None:
        return None
    text = timestamp.replace("T", " ").replace("Z", " UTC")
    return text.removeprefix("1970-")


def _quotes(report: Report) -> list[Quote]:
    point = report.failure_point
    own = f"{point.input}:{point.line}" if point else None
    around = {f"{c.input}:{c.line}": [(line.startswith(f"{c.line}: "), line) for line in c.text.split("\n")] for c in report.context}
    quotes = []
    for text in report.evidence:
        m = _PLACE.fullmatch(text)
        quotes.append(Quote(m[1], m[2], m[1] == own, around.get(m[1], [])) if m else Quote("", text, False, []))
    return quotes


def _references(report: Report) -> list[str]:
    from check_failed_run.catalogue import by_id
    from check_failed_run.report.sarif import signature_of

    signature = by_id().get(signature_of(report) or "")
    return list(signature.references) if signature else []


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return str(value)


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    # The sources are the package's own; every value of a report is escaped.
    env = Environment(loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    env.filters["link"] = link
    env.filters["number"] = plots.number
    env.filters["series_title"] = plots.title_of
    return env.get_template("report.html")


@functools.cache
def _source(name: str) -> str:
    return resources.files("check_failed_run.report").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _assets() -> dict[str, str]:
    style, script = _source("style.css"), _source("script.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    return {"style": style, "script": script, "policy": policy}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
