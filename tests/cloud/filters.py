"""The part of the Logging query language that a reader of job logs sends, really evaluated; anything else is an error.

NOT binds first, then OR, then AND (the reverse of most languages). ``=``, ``!=`` and ``:`` ignore case, ``=~`` does
not; a missing payload key or label makes every comparison false.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

Entry = dict[str, Any]
Test = Callable[[Entry], bool]

_TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<op>!=|>=|<=|=~|!~|[=:<>()])|(?P<word>[\w.\-/*%@]+))')
_SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
_FIELDS = ("resource", "labels", "jsonPayload", "textPayload", "protoPayload", "severity", "timestamp", "receiveTimestamp", "logName", "insertId", "httpRequest", "trace")


class FilterError(ValueError):
    """A filter that the service would refuse, or that this stand-in does not know."""


def compile_filter(text: str) -> Test:
    """A test of log entries (as the API's JSON). An empty filter fits all."""
    if len(text) > 20_000:
        raise FilterError("the filter is longer than 20,000 characters")
    tokens = _tokens(text)
    if not tokens:
        return lambda entry: True
    parser = _Parser(tokens)
    test = parser.conjunction()
    if parser.left():
        raise FilterError(f"unexpected {parser.peek()[1]!r}")
    return test


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        m = _TOKEN.match(text, at)
        if not m:
            raise FilterError(f"cannot read the filter at {text[at : at + 20]!r}")
        found.append((m.lastgroup or "", m[m.lastgroup or 0]))
        at = m.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]):
        self.tokens, self.at = tokens, 0

    def left(self) -> bool:
        return self.at < len(self.tokens)

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.left() else ("", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def conjunction(self) -> Test:
        tests = [self.disjunction()]
        while self.left() and self.peek() != ("op", ")"):
            if self.peek() == ("word", "AND"):
                self.take()
            tests.append(self.disjunction())
        return lambda e: all(t(e) for t in tests)

    def disjunction(self) -> Test:
        tests = [self.negation()]
        while self.peek() == ("word", "OR"):
            self.take()
            tests.append(self.negation())
        return lambda e: any(t(e) for t in tests)

    def negation(self) -> Test:
        if self.peek() == ("word", "NOT"):
            self.take()
            inner = self.negation()
            return lambda e: not inner(e)
        if self.peek() == ("op", "("):
            self.take()
            inner = self.conjunction()
            if self.take() != ("op", ")"):
                raise FilterError("a parenthesis is not closed")
            return inner
        return self.comparison()

    def comparison(self) -> Test:
        kind, name = self.take()
        if kind not in ("word", "string"):
            raise FilterError(f"a field was expected, not {name!r}")
        path = [name]
        if kind == "word" and name.endswith(".") and self.peek()[0] == "string":  # labels."a/b"
            path = [*name.rstrip(".").split("."), _unquote(self.take()[1])]
        elif kind == "word":
            path = name.split(".")
        kind, op = self.take()
        if kind != "op" or op in "()":
            raise FilterError(f"bare words are not supported: {name!r}")
        if path[0] not in _FIELDS:
            raise FilterError(f"field not found: {path[0]}")
        if self.peek() == ("op", "("):
            self.take()
            values, joint = [self.value()], None
            while self.peek() != ("op", ")"):
                kind, word = self.take()
                if (kind, word) not in (("word", "OR"), ("word", "AND")) or joint not in (None, word):
                    raise FilterError("a list of values needs OR or AND between them")
                joint = word
                values.append(self.value())
            self.take()
            tests = [_compare(path, op, v) for v in values]
            return (lambda e: all(t(e) for t in tests)) if joint == "AND" else (lambda e: any(t(e) for t in tests))
        return _compare(path, op, self.value())

    def value(self) -> str:
        kind, text = self.take()
        if kind == "string":
            return _unquote(text)
        if kind == "word":
            return text
        raise FilterError(f"a value was expected, not {text!r}")


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _lookup(entry: Entry, path: list[str]) -> Any:
    value: Any = entry
    for number, key in enumerate(path):
        if not isinstance(value, dict):
            return None
        if key in value:
            value = value[key]
        elif ".".join(path[number:]) in value:
            return value[".".join(path[number:])]
        else:
            return None
    return value


def _compare(path: list[str], op: str, wanted: str) -> Test:
    if op in ("=~", "!~"):
        pattern = re.compile(wanted)

    def test(entry: Entry) -> bool:
        value = _lookup(entry, path)
        if path == ["severity"]:
            value = value or "DEFAULT"
            if wanted.upper() not in _SEVERITIES:
                raise FilterError(f"unknown severity {wanted}")
            return _order(op, _SEVERITIES.index(value), _SEVERITIES.index(wanted.upper()))
        if value is None:
            return False
        if path[0] in ("timestamp", "receiveTimestamp"):
            return _order(op, _time(str(value)), _time(wanted))
        text = str(value)
        if op == "=":
            return text.lower() == wanted.lower()
        if op == "!=":
            return text.lower() != wanted.lower()
        if op == ":":
            return wanted == "*" or wanted.lower() in text.lower()
        if op == "=~":
            return bool(pattern.search(text))
        if op == "!~":
            return not pattern.search(text)
        try:
            return _order(op, float(text), float(wanted))
        except ValueError:
            return False

    return test


def _order(op: str, a: Any, b: Any) -> bool:
    known = {"=": a == b, "!=": a != b, ">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}
    if op not in known:
        raise FilterError(f"{op} cannot compare this field")
    return known[op]


def _time(text: str) -> tuple[float, str]:
    head, _, fraction = text.rstrip("Z").partition(".")
    try:
        return datetime.fromisoformat(head + "+00:00").timestamp(), f"{fraction:0<9}"
    except ValueError:
        raise FilterError(f"no timestamp: {text}") from None
