"""What the service is told: environment variables, and a TOML file of routes.

    [[route]]
    labels = {team = "ads"}       # all must be on the job; none: every job
    pipeline = "ctr-*"            # of the pipeline's display or job id, with * and ?
    owner = "ads-oncall"
    slack = "ads-alerts"          # name of a target below

    [targets.ads-alerts]
    type = "slack"                # slack, chat, webhook, mail, github
    url_file = "/secrets/slack"   # the URL is read from a mounted file (Secret Manager)
"""

from __future__ import annotations

import fnmatch
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TYPES = ("slack", "chat", "webhook", "mail", "github")
PREFIX = "FAILURE_HOOK_"


class SettingsError(ValueError):
    """A setting that is missing or wrong. The message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go. ``options`` hold what the type needs: url, recipients, repository, ..."""

    name: str
    type: str
    options: tuple[tuple[str, str], ...]

    def get(self, key: str, default: str = "") -> str:
        return dict(self.options).get(key, default)


@dataclass(frozen=True, slots=True)
class Route:
    labels: tuple[tuple[str, str], ...]
    pipeline: str
    owner: str
    targets: tuple[str, ...]

    def fits(self, name: str, labels: Mapping[str, str]) -> bool:
        return all(labels.get(k) == v for k, v in self.labels) and fnmatch.fnmatchcase(name.rsplit("/", 1)[-1], self.pipeline)


@dataclass(frozen=True, slots=True)
class Settings:
    """
    Attributes:
        bucket: bucket of reports and marks.
        prefix: folder in it.
        audience, account: of the push subscription's OIDC token; without an audience requests are refused.
        insecure: accept requests without a token (local use only).
        deadline: seconds that one diagnosis may take.
        cooldown: seconds in which the same fingerprint is not told again.
        certificates: address of the keys that sign tokens.
    """

    bucket: str
    prefix: str = "check-failed-run"
    audience: str = ""
    account: str = ""
    insecure: bool = False
    deadline: float = 300.0
    cooldown: float = 3600.0
    certificates: str = "https://www.googleapis.com/oauth2/v1/certs"
    targets: tuple[Target, ...] = ()
    routes: tuple[Route, ...] = field(default=())

    def route(self, name: str, labels: Mapping[str, str]) -> tuple[str, list[Target]]:
        """(owner, targets) for a job: those of the first route that fits; every target where no route is given."""
        by_name = {t.name: t for t in self.targets}
        if not self.routes:
            return labels.get("owner") or labels.get("team") or "", list(self.targets)
        for route in self.routes:
            if route.fits(name, labels):
                return route.owner or labels.get("owner") or labels.get("team") or "", [by_name[t] for t in route.targets]
        return "", []


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """
    Raises:
        SettingsError: BUCKET is missing, a number is none, the file is wrong, or neither an audience nor INSECURE is given.
    """
    env = os.environ if environment is None else environment

    def text(name: str, default: str = "") -> str:
        return (env.get(PREFIX + name) or default).strip()

    def number(name: str, default: float) -> float:
        try:
            value = float(text(name) or default)
        except ValueError:
            raise SettingsError(f"{PREFIX}{name}: {text(name)!r} is no number of seconds") from None
        if not 0 <= value <= 86400 * 30:
            raise SettingsError(f"{PREFIX}{name}: must be between 0 and 30 days, in seconds")
        return value

    if not text("BUCKET"):
        raise SettingsError(f"{PREFIX}BUCKET is not set: the bucket for reports and marks")
    insecure = text("INSECURE").lower() in ("1", "true", "yes")
    if not text("AUDIENCE") and not insecure:
        raise SettingsError(f"{PREFIX}AUDIENCE is not set: the audience of the push subscription's token (its push endpoint); {PREFIX}INSECURE=true accepts requests without a token")
    targets, routes = _file(text("CONFIG")) if text("CONFIG") else ((), ())
    return Settings(
        bucket=text("BUCKET"), prefix=text("PREFIX", "check-failed-run"), audience=text("AUDIENCE"), account=text("SERVICE_ACCOUNT"), insecure=insecure,
        deadline=number("DEADLINE", 300), cooldown=number("COOLDOWN", 3600), certificates=text("CERTIFICATES", "https://www.googleapis.com/oauth2/v1/certs"),
        targets=(*targets, *_simple(env)), routes=routes,
    )  # fmt: skip


def _simple(env: Mapping[str, str]) -> list[Target]:
    """Targets without a file: FAILURE_HOOK_SLACK_URL or _SLACK_URL_FILE, the same for CHAT and WEBHOOK."""
    found = []
    for kind in ("slack", "chat", "webhook"):
        url, file = env.get(f"{PREFIX}{kind.upper()}_URL"), env.get(f"{PREFIX}{kind.upper()}_URL_FILE")
        if url or file:
            found.append(_target(kind, {"type": kind, **({"url": url} if url else {"url_file": file})}))
    return found


def _file(path: str) -> tuple[tuple[Target, ...], tuple[Route, ...]]:
    try:
        table = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: no valid TOML: {error}") from None
    named = table.get("targets") or {}
    if not isinstance(named, dict):
        raise SettingsError(f"{path}: targets must be tables [targets.NAME]")
    targets = tuple(_target(name, entry) for name, entry in named.items())
    routes = []
    for number, entry in enumerate(table.get("route") or [], 1):
        if not isinstance(entry, dict):
            raise SettingsError(f"{path}: route {number} must be a table")
        wanted = tuple(str(entry[kind]) for kind in TYPES if kind in entry)
        unknown = [name for name in wanted if name not in named]
        if unknown:
            raise SettingsError(f"{path}: route {number} names the target {unknown[0]!r}, which is not among [targets]")
        labels = entry.get("labels") or {}
        routes.append(Route(tuple((str(k), str(v)) for k, v in labels.items()), str(entry.get("pipeline", "*")), str(entry.get("owner", "")), wanted))
    return targets, tuple(routes)


def _target(name: str, entry: Any) -> Target:
    if not isinstance(entry, dict) or entry.get("type") not in TYPES:
        raise SettingsError(f"target {name}: type must be one of {', '.join(TYPES)}")
    options = {k: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in entry.items() if k != "type"}
    for key in [k for k in options if k.endswith("_file")]:
        try:
            options[key.removesuffix("_file")] = Path(options.pop(key)).read_text().strip()
        except OSError as error:
            raise SettingsError(f"target {name}: {key}: {error.strerror or error}") from None
    needed = {"slack": ("url",), "chat": ("url",), "webhook": ("url",), "mail": ("host", "sender", "recipients"), "github": ("repository", "token", "issue")}[entry["type"]]
    for key in needed:
        if not options.get(key):
            raise SettingsError(f"target {name}: {key} (or {key}_file) is missing")
    return Target(name, entry["type"], tuple(sorted(options.items())))
