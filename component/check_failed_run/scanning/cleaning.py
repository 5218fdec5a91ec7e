"""From a raw segment to its text: terminal escapes, JSON envelopes and prefixes are taken off and read.

Prefixes are peeled one at a time from the left, in whatever order launchers have stacked them:
``[default3]:[rank3]:[E1112 07:12:13.123456 ProcessGroupNCCL.cpp:629] [Rank 3] ...``.
"""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

MAX_TEXT = 4096  # characters of a segment that are kept

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
ANSI_BYTES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_MONTHS = {m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)}

_ISO = r"(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T_](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d| UTC)?"
_LEVEL = r"(?P<level>DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE|SUCCESS|debug|info|warning|warn|error|critical|fatal)"

# Each entry peels one prefix. Groups: rank, source, level and the parts of a time.
_PREFIXES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(p)
    for p in (
        r"\[rank(?P<rank>\d{1,6})\]:\s?",  # torch >= 2.2: torch._logging and excepthook
        r"\[default(?P<rank>\d{1,4})\]:\s?",  # torchrun --tee: role name and local rank
        r"\[(?P<rank>\d{1,4})\]:\s(?=\S)",  # torchrun >= 2.7 short form
        r"\[?(?:RANK|rank)[ _=:]?(?P<rank>\d{1,6})\]\s?[:|-]?\s+",  # "[Rank 3]" of c10d stays: its messages are quoted with it
        r"\((?:[Ww]orker|[Rr]ank) (?P<rank>\d{1,5})\)\s?",
        r"\[process=(?P<rank>\d{1,5})\](?:\[thread=[^\]]{0,60}\])?\s?",
        r"\[rank: (?P<rank>\d{1,5})\]\s?",
        r"\[(?P<level>[IWEF]) [\w./+-]+:\d+\]\s?",  # c10 without a time
        r"\[NeMo (?P<level>[DIWE]) " + _ISO + r" [\w.]+:\d+\]\s?",
        r"\[R(?P<rank>\d{1,5})\]\s*[:|]?\s*",
        r"\[(?P<source>pod/[^\]\s]{1,200})\]\s",  # kubectl logs --prefix
        r"\((?P<source>[A-Za-z_][\w.:<>-]{0,80}(?:\([^()]{0,80}\))?,? ?(?:pid|ip)=[^()]{1,80})\)\s?",  # Ray
        r"\((?P<source>pid=\d+[^()]{0,60})\)\s?",  # Ray, raylet
        r"(?P<source>[a-z0-9][\w.-]{1,60})\s{1,12}\|\s",  # docker compose
        rf"{_ISO} (?:stdout|stderr) [FP] ",  # CRI
        r"\[(?P<level>[A-Z]+)\|[\w./-]+:\d+\] " + _ISO + r" >> ",  # transformers, default handler
        rf"{_ISO} ?\| ?{_LEVEL}\s*\| ?[\w.<>-]+:[\w.<>-]+:\d+ ?- ",  # loguru
        rf"\[{_ISO}\] ?\[{_LEVEL}\] ?\[[\w./-]+:\d+:[\w<>.-]+\] ?(?:\[Rank (?P<rank>-?\d+)\] ?)?",  # DeepSpeed
        rf"\[{_ISO}\] ?\[{_LEVEL}\]\s?",
        rf"\[{_ISO}\] ?\[[\w.:-]+\] ?\[{_LEVEL}\]\s?[-:]?\s?",  # Hydra
        rf"\[{_ISO}\] ?\([\w.]+ \d+\): {_LEVEL} ",  # Swin style
        rf"\[{_ISO}[^\]]{{0,40}}\]:?\s?",
        rf"{_ISO} ?[|-] ?{_LEVEL}\s*[|-] ?(?:[\w.<>/-]+(?::[\w<>.-]+)* ?[|-] )?",
        rf"{_ISO} ?[|-] ?[\w.<>/-]+ ?[|-] ?{_LEVEL}\s*[|-] ",
        rf"{_ISO},? ?\[?{_LEVEL}\]?:?\s(?:[\w.]+\.py:\d+\]? ?)?",
        rf"{_ISO}:?\s?",
        r"(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>20\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d+))? ?(?:- " + _LEVEL + r" - (?:[\w.]+ - )?)?",
        r"(?P<mo>\d\d)/(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d+))? ?(?:- (?:[\w./-]+ - )?" + _LEVEL + r" - )?",  # mmengine
        r"\[(?P<mo>\d\d)/(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?: [\w.]+)?\]:?\s(?:" + _LEVEL + r": )?",  # detectron2
        r"\[(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y2>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\]\s?(?:" + _LEVEL + r"\s+)?",  # rich
        r"\[?(?P<level>[IWEF])(?P<mo>\d{1,2})(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d+)\s+(?:\d+\s+)?[\w./+-]+:\d+\]\s?",  # glog, absl, c10
        r"\[?(?P<level>[IWEF])(?P<y2>\d\d)(?P<mo>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d+)\s+(?:\d+\s+)?[\w./+-]+:\d+\]\s?",
        r"\[(?P<wd>Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<mon>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d) (?P<y>20\d\d)\]\s?",  # dmesg -T
        r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d) (?P<source>[\w.-]+) (?=[\w./-]+(?:\[\d+\])?: )",
        r"\[ {0,6}(?P<uptime>\d{1,8}\.\d{6})\]\s",  # dmesg
        r"\[?(?P<h>[01]\d|2[0-3]):(?P<mi>[0-5]\d):(?P<s>[0-5]\d)(?:[.,](?P<f>\d+))?\]?:? (?:\[?" + _LEVEL + r"\]?:? )?",
        r"\[?" + _LEVEL + r"\]?:?\s{1,8}(?=" + _ISO + r")",
        r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,80}:",  # logging.basicConfig
        r"\[(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]:?\s",
    )
)
_SRUN = re.compile(r"\s{0,4}(?P<rank>\d{1,5}): ?")
_BRACKET_RANK = re.compile(r"\[(?:Rank|rank) (?P<rank>\d{1,6})\]")
_JSON_TEXT_KEYS = ("message", "msg", "log", "text", "textPayload")
_JSON_TIME_KEYS = ("timestamp", "time", "ts", "@timestamp", "asctime", "receiveTimestamp")
_JSON_LEVEL_KEYS = ("severity", "level", "levelname", "lvl")


class Cleaned(NamedTuple):
    text: str
    rank: int | None
    source: str | None
    time: float | None
    level: str | None


class Cleaner:
    """Cleans segments of one log.

    It keeps two facts about the log: whether ``srun -l`` numbers every line, and the last full date seen,
    which dates that lack a year or a day are completed with.
    """

    def __init__(self, srun_labels: bool = False):
        self.srun_labels = srun_labels
        self._year: int | None = None
        self._day: tuple[int, int, int] | None = None

    def clean(self, raw: str) -> Cleaned:
        """Clean one plain segment (not a JSON envelope)."""
        text = raw
        if "\x1b" in text:
            text = ANSI.sub("", text)
        text = _CONTROL.sub("", text).rstrip()
        rank = source = time = level = None
        if self.srun_labels and (m := _SRUN.match(text)):
            rank, text = int(m["rank"]), text[m.end() :]
        for _ in range(6):
            if not text or text[0] not in _PREFIX_START:
                break
            for pattern in _PREFIXES:
                m = pattern.match(text)
                if m:
                    break
            else:
                break
            if m.end() == 0:
                break
            groups = m.groupdict()
            if groups.get("rank") and rank is None:
                rank = max(int(groups["rank"]), 0)
            if groups.get("source") and source is None:
                source = groups["source"]
            if groups.get("level") and level is None:
                level = groups["level"][0].upper()
            if time is None and (groups.get("h") or groups.get("uptime")):
                time = self._time(groups)
            text = text[m.end() :]
        if rank is None and (m := _BRACKET_RANK.match(text)):
            rank = int(m["rank"])
        return Cleaned(text[:MAX_TEXT], rank, source, time, level)

    def clean_all(self, raw: str) -> list[Cleaned]:
        """Clean one segment; a JSON envelope may give several lines, anything else gives one."""
        if raw[:1] == "{" and (envelope := self._json(raw)) is not None:
            return envelope
        return [self.clean(raw)]

    def _json(self, raw: str) -> list[Cleaned] | None:
        try:
            entry = json.loads(raw)
        except ValueError:
            return None
        if not isinstance(entry, dict):
            return None
        payload = entry.get("jsonPayload") if isinstance(entry.get("jsonPayload"), dict) else entry
        message = entry.get("textPayload")
        if message is None:
            message = next((payload[k] for k in _JSON_TEXT_KEYS if isinstance(payload.get(k), str)), None)
        if not isinstance(message, str):
            return None
        time = next((_parse_iso(entry[k]) for k in _JSON_TIME_KEYS if isinstance(entry.get(k), str)), None)
        level = next((str(entry.get(k) or payload.get(k))[0].upper() for k in _JSON_LEVEL_KEYS if entry.get(k) or payload.get(k)), None)
        labels = (entry.get("resource") or {}).get("labels") if isinstance(entry.get("resource"), dict) else None
        source = (labels or {}).get("task_name") or (labels or {}).get("pod_name")
        lines = []
        for part in message.rstrip("\n").split("\n"):
            c = self.clean(part)
            lines.append(Cleaned(c.text, c.rank, c.source or source, time or c.time, level or c.level))
        return lines

    def _time(self, g: dict[str, str | None]) -> float | None:
        if g.get("uptime"):
            return float(g["uptime"])
        try:
            year = int(g["y"]) if g.get("y") else 2000 + int(g["y2"]) if g.get("y2") else self._year
            month = int(g["mo"]) if g.get("mo") else _MONTHS.get(g["mon"]) if g.get("mon") else None
            if month is None:
                if self._day is None:
                    year, month, day = 1970, 1, 1
                else:
                    year, month, day = self._day
            else:
                day = int(g["d"])
                self._day = (year or 1970, month, day)
            if g.get("y") or g.get("y2"):
                self._year = year
            moment = datetime(year or 1970, month, day, int(g["h"]), int(g["mi"]), int(g["s"]), tzinfo=UTC).timestamp()
        except (ValueError, KeyError):
            return None
        fraction = g.get("f")
        if fraction:
            moment += int(fraction[:6]) / 10 ** len(fraction[:6])
        zone = (g.get("z") or "").strip()
        if zone[:1] in "+-" and zone:
            sign = 1 if zone[0] == "+" else -1
            digits = zone[1:].replace(":", "")
            moment -= sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60)
        return moment


_PREFIX_START = frozenset("[(IWEF0123456789JFMASONDabcdefghijklmnopqrstuvwxyzCTRr ")


def _parse_iso(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time with 0 to 9 fraction digits, or None."""
    m = re.match(_ISO, text)
    if not m:
        return None
    return Cleaner()._time(m.groupdict())


def looks_like_srun(lines: list[str]) -> bool:
    """Whether ``srun -l`` wrote these lines: nearly every one starts with a task number, and several numbers occur or all are 0."""
    full = [line for line in lines if line.strip()]
    if len(full) < 3:
        return False
    numbered = [m["rank"] for line in full if (m := re.match(r" {0,4}(?P<rank>\d{1,5}): ", line + " "))]
    if len(numbered) < 0.8 * len(full):
        return False
    # a counter that only goes up (CatBoost's "10: learn: ...") is no task number
    values = [int(n) for n in numbered]
    return not all(b > a for a, b in itertools.pairwise(values))
