"""A user's own signatures from a TOML file: the same fields as the catalogue's, held to the same rules.

    [[signature]]
    id = "user/license-server"
    class = "config-error"
    kind = "licence server not reached"
    cues = ["cannot reach licence server"]
    pattern = 'cannot reach licence server (?P<host>\\S+)'
    prints = "our launcher"
    means = "The training container has no route to the licence server."
    matches = ["ERROR cannot reach licence server lic-01"]

    [[signature.rejects]]
    line = "licence server lic-01 reached"
    why = "it works"

    [[signature.rejects]]
    line = "retrying licence server, 2 of 5"
    why = "not the end"

    [[signature.fixes]]
    action = "Ask for a route to {host}"
    change = "permission"
    impact = "the container starts"
    validate = "the first 50 steps are logged"

Patterns are run by RE2, so that none can take more than linear time; look-around and back-references do not exist there.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from check_failed_run.catalogue.model import CLASSES, Change, Fix, Reject, Role, Signature

MAX_BYTES = 1 << 20
MAX_SIGNATURES = 2000
_ROLES = ("cause", "cascade", "confirmation", "context", "harmless")


class SignatureError(ValueError):
    """A file of signatures that cannot be used. The message says where and why."""


@dataclass(frozen=True)
class UserSignature(Signature):
    """A signature whose patterns RE2 runs."""

    @cached_property
    def _compiled(self) -> Any:
        return _compile(self.pattern, self.ignore_case)

    @cached_property
    def _unless(self) -> Any:
        return _compile(self.unless, self.ignore_case) if self.unless else None


def read_signatures(path: str | Path) -> tuple[Signature, ...]:
    """The signatures of a TOML file.

    Raises:
        SignatureError: the file cannot be read, is no TOML, or a signature breaks a rule: a field is missing or
            unknown, an example does not do what it must, a cue is not in a line that must match.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SignatureError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise SignatureError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SignatureError(f"{path}: no valid TOML: {error}") from None
    entries = table.get("signature")
    if not isinstance(entries, list) or not entries or set(table) - {"signature"}:
        raise SignatureError(f"{path}: it must hold [[signature]] tables and nothing else")
    if len(entries) > MAX_SIGNATURES:
        raise SignatureError(f"{path}: more than {MAX_SIGNATURES} signatures")
    found: dict[str, Signature] = {}
    for number, entry in enumerate(entries, 1):
        name = entry.get("id") if isinstance(entry, dict) and isinstance(entry.get("id"), str) else f"number {number}"
        try:
            signature = _signature(entry)
        except SignatureError as error:
            raise SignatureError(f"{path}: signature {name}: {error}") from None
        if signature.id in found:
            raise SignatureError(f"{path}: signature {name}: the id is there twice")
        found[signature.id] = signature
    return tuple(found.values())


def _signature(entry: Any) -> Signature:
    if not isinstance(entry, dict):
        raise SignatureError("it must be a table")
    known = {f.name for f in fields(Signature)} - {"cls", "marks", "since"} | {"class"}
    unknown = sorted(set(entry) - known)
    if unknown:
        raise SignatureError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name in ("id", "kind", "pattern", "prints", "means"):
        values[name] = _text(entry, name)
    if "/" not in values["id"] or values["id"].split("/")[0] in (*CLASSES, "marker", "harmless", "advice", "trend", "exception"):
        raise SignatureError("id must be <group>/<name>, with a group of your own (user/my-failure)")
    role = entry.get("role", "cause")
    if role not in _ROLES:
        raise SignatureError(f"role must be one of {', '.join(_ROLES)}")
    values["role"] = Role(role)
    cls = entry.get("class", "")
    if (cls not in CLASSES) != (role == "harmless") or (role == "harmless" and cls):
        raise SignatureError(f"class must be one of {', '.join(CLASSES)}; a harmless signature has none")
    values["cls"] = cls
    values["cues"] = _texts(entry, "cues", least=1)
    values["matches"] = _texts(entry, "matches", least=1)
    values["rejects"] = tuple(Reject(_text(r, "line"), _text(r, "why")) for r in _tables(entry, "rejects", least=2))
    values["fixes"] = tuple(_fix(f) for f in _tables(entry, "fixes", least=0))
    for name in ("not_shown", "unless", "status"):
        if name in entry:
            values[name] = _text(entry, name)
    for name in ("outranks", "references"):
        values[name] = _texts(entry, name, least=0)
    for name in ("fatal", "ignore_case", "in_traceback"):
        if name in entry:
            if not isinstance(entry[name], bool):
                raise SignatureError(f"{name} must be true or false")
            values[name] = entry[name]
    if entry.get("specificity", 2) not in (1, 2, 3):
        raise SignatureError("specificity must be 1, 2 or 3")
    values["specificity"] = entry.get("specificity", 2)
    signature = UserSignature(**values)
    _check(signature)
    return signature


def _check(signature: Signature) -> None:
    for cue in signature.cues:
        if len(cue) < 4 or not cue.isascii() or set(cue) & set("\"\\\x1b\n\r\t"):
            raise SignatureError(f"cue {cue!r} must be at least 4 ASCII characters without quotes, backslashes and control characters")
    for line in signature.matches:
        if not signature.match(line):
            raise SignatureError(f"the pattern does not match its own example {line!r}")
        low = line.lower()
        if not any(cue.lower() in low if signature.ignore_case else cue in line for cue in signature.cues):
            raise SignatureError(f"no cue stands in the example {line!r}; without one the pattern is never tried")
    for reject in signature.rejects:
        if signature.match(reject.line):
            raise SignatureError(f"the pattern matches {reject.line!r}, which it must not ({reject.why})")
    if signature.match(""):
        raise SignatureError("the pattern matches an empty line")


def _fix(entry: dict[str, Any]) -> Fix:
    try:
        change = Change(entry.get("change", "code"))
    except ValueError:
        raise SignatureError(f"a fix's change must be one of {', '.join(c.value for c in Change)}") from None
    unknown = set(entry) - {"action", "change", "impact", "validate", "time_to_try", "command"}
    if unknown:
        raise SignatureError(f"unknown field {sorted(unknown)[0]!r} of a fix")
    command = _text(entry, "command") if "command" in entry else None
    time_to_try = _text(entry, "time_to_try") if "time_to_try" in entry else "10 min"
    return Fix(_text(entry, "action"), change, _text(entry, "impact"), _text(entry, "validate"), time_to_try, command=command)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        raise SignatureError(f"{name} must be a text")
    if len(value) > 4000:
        raise SignatureError(f"{name} is longer than 4,000 characters")
    return value


def _texts(entry: dict[str, Any], name: str, *, least: int) -> tuple[str, ...]:
    value = entry.get(name, [])
    if not isinstance(value, list) or len(value) < least or not all(isinstance(v, str) and v for v in value):
        raise SignatureError(f"{name} must be a list of {'at least one text' if least else 'texts'}")
    return tuple(value)


def _tables(entry: dict[str, Any], name: str, *, least: int) -> list[dict[str, Any]]:
    value = entry.get(name, [])
    if not isinstance(value, list) or len(value) < least or not all(isinstance(v, dict) for v in value):
        raise SignatureError(f"{name} must be at least {least} tables [[signature.{name}]]")
    return value


def _compile(pattern: str, ignore_case: bool) -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        raise SignatureError(f"pattern {pattern!r}: {text} (RE2 syntax: no look-around, no back-references)") from None
