"""Which lines are worth a look: all cues of the catalogue in one multi-pattern database.

Stage one finds literal cues in the bytes, with Vectorscan through ``hyperscan`` in block mode, or with
``google-re2`` where that has no wheel. Stage two (``Signature.match``) runs only on the lines found here.
Both engines give the same (line, cue) pairs: cues are plain literals.

The compiled database is cached, keyed by library version, machine and catalogue. A cache folder that is
missing or read-only is no error.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from check_failed_run.catalogue.model import Role, Signature

CACHE_ENV = "CHECK_FAILED_RUN_CACHE"
ENGINE_ENV = "CHECK_FAILED_RUN_ENGINE"  # "hyperscan" or "re2"; default: hyperscan where it can be imported

REGION_CUES: tuple[str, ...] = (
    "Traceback (most recent call last)",
    "Fatal Python error",
    "Exception Group Traceback",
    "Root Cause (first observed failure)",
    "(most recent call first):",
    "terminate called after throwing",
)
"""Cues whose surroundings are kept whole in large logs: the readers of tracebacks need them."""


class Matcher:
    """The cue database of a set of signatures.

    Harmless lines and advice only matter where something else matched, or an exception ended: their cues are not
    in the database, which would stop at every warning of a healthy log, but are looked for in such lines.

    Attributes:
        signatures: in catalogue order, without those that only silence.
        silencers: signatures of harmless lines and advice.
        by_cue: for each cue id, the indexes of the signatures that name it.
        region_ids: cue ids that open a region (see REGION_CUES).
    """

    def __init__(self, signatures: Iterable[Signature], engine: str | None = None):
        signatures = tuple(signatures)
        self.signatures = tuple(s for s in signatures if s.role not in (Role.HARMLESS, Role.ADVICE))
        self.silencers = tuple(s for s in signatures if s.role in (Role.HARMLESS, Role.ADVICE))
        self.cues, self.by_cue = _index(self.signatures)
        self._quiet_cues, self._by_quiet_cue = _index(self.silencers)
        for cue in REGION_CUES:
            if (cue, False) not in self.cues:
                self.cues.append((cue, False))
                self.by_cue.append([])
        self.region_ids = frozenset(i for i, (cue, _) in enumerate(self.cues) if cue in REGION_CUES)
        engine = engine or os.environ.get(ENGINE_ENV) or "hyperscan"
        build = _hyperscan if engine == "hyperscan" and _hyperscan_works() else _re2
        self.engine = "hyperscan" if build is _hyperscan else "re2"
        self._scan = build(self.cues)
        self._scan_quiet = build(self._quiet_cues) if self._quiet_cues else lambda data: []

    def silencers_of(self, text: str) -> list[Signature]:
        """The harmless and advice signatures that match a cleaned line."""
        found = {i for _, cue in self._scan_quiet(text.encode("utf-8", "replace")) for i in self._by_quiet_cue[cue]}
        return [self.silencers[i] for i in sorted(found) if self.silencers[i].match(text)]

    def scan(self, data: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
        """(end offset, cue id) of cues in ``data``, in order of offset; at least one pair per line and cue."""
        found = self._scan(data)
        found.sort()
        return found


def _index(signatures: tuple[Signature, ...]) -> tuple[list[tuple[str, bool]], list[list[int]]]:
    """The distinct cues with whether case is ignored, and for each the indexes of the signatures that name it."""
    cues: dict[tuple[str, bool], list[int]] = {}
    for index, signature in enumerate(signatures):
        for cue in signature.cues:
            cues.setdefault((cue.lower() if signature.ignore_case else cue, signature.ignore_case), []).append(index)
    return list(cues), list(cues.values())


def segment_bounds(data: bytes | bytearray, start: int, end: int, size: int) -> tuple[int, int]:
    """The segment (between line ends, ``\\n`` or ``\\r``) around data[start:end], within the first ``size`` bytes."""
    line_start = data.rfind(b"\n", 0, start) + 1
    segment_start = data.rfind(b"\r", line_start, start) + 1 or line_start
    line_end = data.find(b"\n", end, size)
    if line_end < 0:
        line_end = size
    segment_end = data.find(b"\r", end, line_end)
    return segment_start, line_end if segment_end < 0 else segment_end


def _digest(cues: list[tuple[str, bool]]) -> str:
    return hashlib.sha256(repr(cues).encode()).hexdigest()[:20]


def cache_folders() -> list[Path]:
    """Where a compiled database may lie: the folder named by the environment, the one shipped, the user's."""
    folders = []
    if os.environ.get(CACHE_ENV):
        folders.append(Path(os.environ[CACHE_ENV]))
    home = os.environ.get("XDG_CACHE_HOME") or (os.path.join(os.environ["HOME"], ".cache") if os.environ.get("HOME") else "")
    if home:
        folders.append(Path(home) / "check-failed-run")
    return folders


def _hyperscan_works() -> bool:
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return False
    return True


def _hyperscan(cues: list[tuple[str, bool]]):
    import hyperscan

    version = getattr(hyperscan, "__version__", "0")
    name = f"cues-{version}-{platform.machine()}-{sys.version_info.major}{sys.version_info.minor}-{_digest(cues)}.hs"
    database = None
    for folder in cache_folders():
        try:
            database = hyperscan.loadb((folder / name).read_bytes(), hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            break
        except (OSError, hyperscan.error, ValueError):
            database = None
    if database is None:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=[re.escape(cue).encode() for cue, _ in cues],
            ids=list(range(len(cues))),
            elements=len(cues),
            flags=[hyperscan.HS_FLAG_CASELESS if ignore_case else 0 for _, ignore_case in cues],
        )
        _store(name, hyperscan.dumpb(database))

    def scan(data):
        found: list[tuple[int, int]] = []
        append = found.append

        def on_match(cue_id, _start, end, _flags, _context):
            append((end, cue_id))

        database.scan(data, match_event_handler=on_match)
        return found

    return scan


def _store(name: str, blob: bytes) -> None:
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f".{name}.{os.getpid()}"
            temporary.write_bytes(blob)
            os.replace(temporary, folder / name)
            return
        except OSError:
            continue


def _re2(cues: list[tuple[str, bool]]):
    import re2

    options = re2.Options()
    options.max_mem = 256 << 20
    options.encoding = re2.Options.Encoding.LATIN1
    pattern = re2.compile(b"|".join((b"(?i:%s)" if ci else b"(?:%s)") % re.escape(cue).encode() for cue, ci in cues), options)
    plain = [(i, cue.encode()) for i, (cue, ci) in enumerate(cues) if not ci]
    folded = [(i, cue.encode()) for i, (cue, ci) in enumerate(cues) if ci]

    def scan(data):
        data = bytes(data)
        found: list[tuple[int, int]] = []
        position = 0
        for match in pattern.finditer(data):
            if match.start() < position:
                continue
            start, end = segment_bounds(data, match.start(), match.end(), len(data))
            line = data[start:end]
            found += [(start + line.index(cue) + len(cue), i) for i, cue in plain if cue in line]
            lower = line.lower()
            found += [(start + lower.index(cue) + len(cue), i) for i, cue in folded if cue in lower]
            position = end
        return found

    return scan


def main(argv: list[str]) -> int:
    """``python -m check_failed_run.scanning.matcher --warm DIR`` compiles the database into DIR."""
    from check_failed_run.catalogue import signatures

    if len(argv) != 2 or argv[0] != "--warm":
        print("usage: python -m check_failed_run.scanning.matcher --warm DIR", file=sys.stderr)
        return 2
    os.environ[CACHE_ENV] = argv[1]
    matcher = Matcher(signatures())
    print(f"{len(matcher.cues)} cues of {len(matcher.signatures)} signatures, engine {matcher.engine}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
