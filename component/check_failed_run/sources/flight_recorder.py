"""Dumps of PyTorch's NCCL flight recorder, one a rank: what each rank waits in, and where ranks differ.

A dump is a pickle (torch/csrc/distributed/c10d/FlightRecorder.hpp, ``dump_nccl_trace``: dicts, lists, strings and
numbers only) or the same as JSON. It is never unpickled: its opcodes are walked by :mod:`pickletools`, and anything that
could name a class or call a function ends the reading.
"""

from __future__ import annotations

import json
import pickletools
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_DUMP = 64 << 20  # bytes
MAX_OPCODES = 4_000_000
MAX_OPEN = 20  # calls of one rank that are listed
_DUMP_NAME = re.compile(r"(?i)(?:.*[_.-])?(?:nccl_trace|comm_lib_trace|fr_trace|flight_recorder|nccl_dump)_(?:rank_?)?(\d{1,6})(?:\.(?:pkl|pickle|json))?$")
_RANK_NAME = re.compile(r"(?i).*(?:rank|trace)_?(\d{1,6})(?:\.(?:pkl|pickle|json))?$")


class DumpError(ValueError):
    """The file is no dump that can be read. The message says why."""


# --- a pickle of plain values, without an unpickler

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING", "STRING", "BINBYTES", "SHORT_BINBYTES",
})  # fmt: skip
_MARK = object()


def read_plain_pickle(data: bytes) -> Any:
    """The dicts, lists, tuples, strings and numbers of a pickle.

    Raises:
        DumpError: it holds anything else (a class, a call, a persistent id), is damaged, or too large.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise DumpError(f"more than {MAX_OPCODES} values")
            name = opcode.name
            if name == "STOP":
                return stack.pop()
            _step(name, argument, stack, memo)
    except DumpError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError, RecursionError) as error:
        raise DumpError(f"damaged pickle ({type(error).__name__})") from None
    raise DumpError("the pickle has no end: it was cut")


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _VALUES:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({} if name == "EMPTY_DICT" else [])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        size = int(name[-1])
        stack[-size:] = [stack[-size:]]
    elif name in ("TUPLE", "LIST"):
        stack.append(_to_mark(stack))
    elif name == "DICT":
        items = _to_mark(stack)
        stack.append(_pairs(items))
    elif name == "APPEND":
        item = stack.pop()
        stack[-1].append(item)
    elif name == "APPENDS":
        items = _to_mark(stack)
        stack[-1].extend(items)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        stack[-1].update(_pairs([key, value]))
    elif name == "SETITEMS":
        items = _to_mark(stack)
        stack[-1].update(_pairs(items))
    elif name not in ("PROTO", "FRAME"):
        raise DumpError(f"a pickle that holds more than plain values ({name}); it is not loaded")


def _to_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise IndexError("no mark")
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {tuple(k) if isinstance(k, list) else k: v for k, v in zip(items[::2], items[1::2], strict=True)}


# --- dumps


@dataclass(slots=True)
class Call:
    """One collective of one rank."""

    group: str
    seq: int
    op: str
    state: str
    shape: str
    frame: str | None
    p2p: bool
    time: float | None  # when it was enqueued, seconds since the epoch
    timeout: float  # seconds


@dataclass(slots=True)
class Dump:
    """What one rank's recorder held."""

    rank: int
    version: str
    calls: list[Call] = field(default_factory=list)


def rank_of_dump(name: str, head: bytes) -> int | None:
    """The rank of a dump, by its name (nccl_trace_rank_3, comm_lib_trace_rank_3) or by name and first bytes; None where it is none.

    The name's beginning is the user's (TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE); the rank is appended to it.
    """
    if m := _DUMP_NAME.match(name):
        return int(m[1])
    m = _RANK_NAME.match(name)
    if m and head[:1] in (b"\x80", b"{") and b"version" in head and (b"entries" in head or b"pg_config" in head or b"nccl_version" in head):
        return int(m[1])
    return None


def read_dump(path: Path, rank: int) -> Dump:
    """Read one rank's dump.

    Raises:
        DumpError: it is none, too large, or holds more than plain values.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(MAX_DUMP + 1)
    if len(data) > MAX_DUMP:
        raise DumpError(f"a dump of more than {MAX_DUMP >> 20} MB")
    if data.lstrip()[:1] == b"{":
        try:
            loaded = json.loads(data)
        except (ValueError, RecursionError):
            raise DumpError("no valid JSON") from None
    else:
        loaded = read_plain_pickle(data)
    entries = loaded.get("entries") if isinstance(loaded, dict) else None
    if not isinstance(entries, list):
        raise DumpError("no flight recorder dump: it holds no list of entries")
    calls = [call for entry in entries if isinstance(entry, dict) and (call := _call(entry)) is not None]
    return Dump(rank, str(loaded.get("version"))[:20], calls)


def _call(entry: dict[Any, Any]) -> Call | None:
    p2p = entry.get("is_p2p") is True
    seq = entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id"))
    if not isinstance(seq, int):
        return None
    group = entry.get("process_group")
    names = [_word(g) for g in group[:2]] if isinstance(group, list) else [_word(entry.get("pg_id", 0))]
    created, timeout = entry.get("time_created_ns"), entry.get("timeout_ms")
    return Call(
        group=next((n for n in reversed(names) if n and n != "undefined"), "0") + (f" ({names[0]})" if len(names) > 1 and names[1] not in ("", "undefined", "default_pg") else ""),
        seq=seq,
        op=_word(entry.get("profiling_name")),
        state=_word(entry.get("state")),
        shape=f"{_shape(entry.get('input_sizes'))} {_shape_types(entry.get('input_dtypes'))}".strip(),
        frame=_frame(entry.get("frames")),
        p2p=p2p,
        time=created / 1e9 if isinstance(created, int | float) and 0 < created < 1e19 else None,
        timeout=timeout / 1e3 if isinstance(timeout, int | float) and 0 < timeout < 1e9 else 0.0,
    )


def _word(value: Any) -> str:
    return "".join(c for c in str(value)[:80] if c.isprintable()) if isinstance(value, str | int) else ""


def _shape(sizes: Any) -> str:
    if not isinstance(sizes, list):
        return ""
    return ", ".join(str([n for n in one[:8] if isinstance(n, int)]) for one in sizes[:3] if isinstance(one, list))


def _shape_types(types: Any) -> str:
    return ", ".join(dict.fromkeys(_word(t) for t in types[:3])) if isinstance(types, list) else ""


_LIBRARY = re.compile(r"site-packages|dist-packages|<frozen|/torch/|importlib|lib/python3")


def _frame(frames: Any) -> str | None:
    """The innermost frame outside of libraries, else the innermost."""
    if not isinstance(frames, list):
        return None
    usable = [f for f in frames[:64] if isinstance(f, dict) and isinstance(f.get("filename"), str)]
    chosen = next((f for f in usable if not _LIBRARY.search(f["filename"][:400])), usable[0] if usable else None)
    return f"{_word(chosen['filename'][-80:])}:{_word(chosen.get('line'))} in {_word(chosen.get('name'))}" if chosen else None


# --- what they say


def summary(dump: Dump) -> str:
    """One rank's open calls, a line each; empty where the rank waits for nothing."""
    last = max((c.seq for c in dump.calls if c.state == "completed"), default=None)
    out = [f"flight recorder of rank {dump.rank}: {len(dump.calls)} calls kept, last completed {last if last is not None else 'none'}"]
    waiting = [c for c in dump.calls if c.state not in ("completed", "")]
    for call in waiting[:MAX_OPEN]:
        kind = "point-to-point call" if call.p2p else "collective"
        where = f", called from {call.frame}" if call.frame else ""
        out.append(f"{_stamp(call)}rank {dump.rank}: {kind} {call.seq} {call.op} {call.shape} of process group {call.group} is {call.state}, not completed{where}")
    if len(waiting) > MAX_OPEN:
        out.append(f"rank {dump.rank}: {len(waiting) - MAX_OPEN} more calls are not completed")
    return "\n".join(out) + "\n"


def compare(dumps: list[Dump]) -> str:
    """Where ranks differ: the first call of a process group that some ranks never made, or made differently; empty where none does.

    Only groups in which a call is still open are looked at, and only ranks that have used the group.
    """
    groups: dict[str, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    for dump in dumps:
        for call in dump.calls:
            if not call.p2p:
                groups[call.group][dump.rank].setdefault(call.seq, call)
    out = []
    for group, ranks in sorted(groups.items()):
        still = [c.seq for calls in ranks.values() for c in calls.values() if c.state != "completed"]
        if len(ranks) < 2 or not still:
            continue
        out += _different(group, ranks) or _behind(group, ranks)
    return "".join(line + "\n" for line in out)


def _different(group: str, ranks: dict[int, dict[int, Call]]) -> list[str]:
    """The first sequence number under which ranks made different calls."""
    common = sorted({seq for calls in ranks.values() for seq, c in calls.items() if c.state != "completed"})
    for seq in common:
        made: dict[str, list[int]] = defaultdict(list)
        for rank, calls in sorted(ranks.items()):
            if seq in calls:
                made[calls[seq].op].append(rank)
        if len(made) > 1:
            how = "; ".join(f"{op} on ranks {_ranks(r)}" for op, r in sorted(made.items(), key=lambda kv: kv[1]))
            return [f"{_stamp(_first(ranks, seq), dumped=True)}Collective desync detected: ranks made different calls as collective {seq} of process group {group}: {how}"]
    return []


def _behind(group: str, ranks: dict[int, dict[int, Call]]) -> list[str]:
    """The first collective that some ranks wait in and others have not enqueued."""
    newest = {rank: max(calls) for rank, calls in ranks.items()}
    slowest = min(newest.values())
    absent = sorted(r for r, n in newest.items() if n == slowest)
    waiting = sorted(r for r, calls in ranks.items() if slowest + 1 in calls and calls[slowest + 1].state != "completed")
    if not waiting:
        return []
    call = ranks[waiting[0]][slowest + 1]
    last = ranks[absent[0]][slowest]
    return [
        f"{_stamp(call, dumped=True)}Collective desync detected: ranks {_ranks(absent)} have not reached collective {slowest + 1} ({call.op}) of process group {group}, "
        f"in which ranks {_ranks(waiting)} wait; their last is {slowest} ({last.op}, {last.state})" + (f", called from {last.frame}" if last.frame else "")
    ]


def _first(ranks: dict[int, dict[int, Call]], seq: int) -> Call:
    return next(calls[seq] for _, calls in sorted(ranks.items()) if seq in calls)


def _ranks(ranks: list[int]) -> str:
    return f"[{', '.join(map(str, ranks[:16]))}{', ...' if len(ranks) > 16 else ''}]"


def _stamp(call: Call, *, dumped: bool = False) -> str:
    """The time of a call as a line's prefix; with ``dumped`` the moment at which its time-out made the recorder dump."""
    if call.time is None:
        return ""
    moment = datetime.fromtimestamp(min(call.time + (call.timeout if dumped else 0.0), 4e9), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") + " "
