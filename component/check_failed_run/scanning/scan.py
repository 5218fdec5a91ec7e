"""One pass over the bytes of a log: LogFacts out, memory bounded whatever the size.

Small logs (up to ``WHOLE``) are kept whole. Of larger ones the pass keeps head, tail and the surroundings
of tracebacks; signatures are counted over every line; of the metric lines the first of each cell of an
absolute byte grid is read, coarser the further it gets, so that the result does not depend on how the bytes
were cut into chunks. In the end the front is thinned to the coarsest grid that was used.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from check_failed_run.catalogue.model import Role, Signature
from check_failed_run.scanning.cleaning import ANSI_BYTES, Cleaner, looks_like_srun
from check_failed_run.scanning.facts import Hit, LogFacts, LogLine, MetricPoint, SignatureFacts
from check_failed_run.scanning.matcher import Matcher, segment_bounds
from check_failed_run.scanning.metrics import PREFILTER, MetricReader
from check_failed_run.scanning.tracebacks import read_tracebacks

CHUNK = 256 << 10  # fits the second-level cache
WHOLE = 2 << 20  # logs up to this size are kept whole
HEAD = 192 << 10
TAIL = 512 << 10
TAIL_LINES = 500
REGION = 48 << 10  # bytes kept after a region cue
REGION_BEFORE = 4 << 10
MAX_REGIONS = 12  # kept from the front, and as many from the back
KEEP = 16  # hits kept from the front and from the back, per signature
MAX_RAW = 4096  # bytes of a segment that are decoded
METRIC_CELLS = ((8 << 20, 8 << 10), (64 << 20, 64 << 10), (1 << 30, 512 << 10), (8 << 30, 4 << 20), (64 << 30, 32 << 20), (1 << 62, 256 << 20))
"""(up to this offset, bytes of a cell): one metric line is read per cell, some 2,000 per eightfold size."""
MAX_MATCHED = 2_000  # matches per signature before its count becomes a lower bound
MAX_UNMATCHED = 1_000  # stage-two misses per cue before only one of its lines is looked at per grid cell, and the last ones
GRID = 1 << 20  # bytes of such a cell
POSTPONED = 512  # lines with such cues that are looked at when the end is known
MIN_CHUNK = 1 << 16  # a smaller first chunk would hold too little to tell how lines are prefixed


class Scanner:
    """Feeds on chunks of one log."""

    def __init__(self, name: str, matcher: Matcher, *, rank: int | None = None, start_line: int = 1, start_offset: int = 0):
        self.facts = LogFacts(name)
        self.facts.complete = start_offset == 0
        self._rank = rank
        self._matcher = matcher
        self._base = start_offset  # offset of the buffer's first byte
        self._line = start_line  # line number at the buffer's first byte
        self._first_line = start_line
        self._first_offset = start_offset
        self._cleaner: Cleaner | None = None
        self._whole: bytearray | None = bytearray()
        self._head = b""
        self._tail: deque[tuple[int, int, bytes]] = deque()  # line, offset, bytes of the last chunks
        self._regions: list[tuple[int, int, bytearray, int]] = []  # line, offset, bytes, wanted end offset
        self._before = b""  # the last REGION_BEFORE bytes before the buffer
        self._unmatched: dict[int, int] = {}
        self._worn: dict[int, int] = {}  # too frequent a cue, and the last grid cell in which it was looked at
        self._postponed: deque[tuple[int, int]] = deque(maxlen=POSTPONED)  # offset of a cue's last byte, cue
        self._cells: dict[int, MetricPoint] = {}  # by the cell's first offset
        self._reader = MetricReader()

    def feed(self, data: bytearray, size: int) -> None:
        """Take ``data[:size]``, which ends at a line end unless the log does not."""
        if self._cleaner is None:
            sample = bytes(data[: min(size, 1 << 16)]).decode("utf-8", "replace").split("\n")[:200]
            self._cleaner = Cleaner(srun_labels=looks_like_srun(sample))
        view = memoryview(data)[:size]
        try:
            if data.find(b"\x1b", 0, size) >= 0:
                clean = ANSI_BYTES.sub(b"", bytes(view))
                self._match_escaped(bytes(view), clean)
                next_line = self._line + data.count(b"\n", 0, size)
            else:
                next_line = self._match(data, size, view)
        finally:
            view.release()
        self._keep(data, size)
        if self._whole is None:
            self._sample_metrics(data, size)
        self._before = (self._before + bytes(data[max(0, size - REGION_BEFORE) : size]))[-REGION_BEFORE:]
        self._base += size
        self._line = next_line
        self.facts.size += size

    # signatures -----------------------------------------------------------------------------------

    def _match(self, data: bytearray, size: int, view: memoryview) -> int:
        """Match a chunk; the line number behind it."""
        found = self._matcher.scan(view)
        position, line = 0, self._line
        last = (-1, -1)
        cues: set[int] = set()
        bounds = (-1, -1)
        worn, base = self._worn, self._base
        for end, cue in found:
            if cue in worn and worn[cue] == (base + end) // GRID:
                self._postponed.append((base + end - 1, cue))
                continue
            if not (bounds[0] <= end - 1 < bounds[1]):
                if cues:
                    self._stage_two(data, bounds, line, cues)
                bounds = segment_bounds(data, end - 1, end, size)
                if bounds[0] >= position:
                    line += _line_ends(data, position, bounds[0])
                    position = bounds[0]
                cues = set()
            if (end, cue) != last:
                cues.add(cue)
                last = (end, cue)
        if cues:
            self._stage_two(data, bounds, line, cues)
        return line + _line_ends(data, position, size)

    def _match_escaped(self, raw: bytes, clean: bytes) -> None:
        """Match on text without terminal escapes; line numbers carry over, since escapes hold no line end."""
        found = self._matcher.scan(clean)
        if not found:
            return
        hits: dict[tuple[int, int], set[int]] = {}
        for end, cue in found:
            hits.setdefault(segment_bounds(clean, end - 1, end, len(clean)), set()).add(cue)
        raw_lines = raw.split(b"\n")
        starts = [0]
        for piece in raw_lines:
            starts.append(starts[-1] + len(piece) + 1)
        for (start, _end), cues in sorted(hits.items()):
            number = clean.count(b"\n", 0, start)
            segment = clean.count(b"\r", clean.rfind(b"\n", 0, start) + 1, start)
            pieces = raw_lines[number].split(b"\r")
            offset = starts[number] + sum(len(p) + 1 for p in pieces[:segment])
            self._stage_two(raw, (offset, offset + len(pieces[min(segment, len(pieces) - 1)])), self._line + number, cues)

    def _stage_two(self, data: bytes | bytearray, bounds: tuple[int, int], line: int, cues: set[int]) -> None:
        matcher = self._matcher
        start, end = bounds
        if not matcher.region_ids.isdisjoint(cues):
            self._open_region(data, start, line)
        if any(matcher.by_cue[cue] for cue in cues):
            offset = self._base + start
            segment = bytes(data[start : min(end, start + 4 * MAX_RAW)])
            if not self._match_segment(segment, line, offset, cues):  # nothing, or nothing that is still counted
                for cue in cues:
                    count = self._unmatched[cue] = self._unmatched.get(cue, 0) + 1
                    if count >= MAX_UNMATCHED and cue not in matcher.region_ids:
                        self._worn[cue] = offset // GRID

    def _match_segment(self, segment: bytes, line: int, offset: int, cues: set[int]) -> bool:
        """Record the signatures of ``cues`` that match; whether any did that is still counted."""
        matcher, facts = self._matcher, self.facts
        lines = None
        matched: list[tuple[Signature, LogLine, re.Match[str]]] = []
        for index in sorted({i for cue in cues for i in matcher.by_cue[cue]}):
            signature = matcher.signatures[index]
            if facts.signatures.get(signature.id, _NONE).count >= MAX_MATCHED:
                continue
            if lines is None:
                lines = self._lines_of(segment, line, offset)
            for item in lines:
                match = signature.match(item.text)
                if match:
                    matched.append((signature, item, match))
                    break
        if not matched:
            return False
        silencers = matcher.silencers_of(matched[0][1].text)
        harmless = [s for s in silencers if s.role is Role.HARMLESS]
        for signature in harmless:
            self._record(Hit(signature.id, matched[0][1]))
        if not harmless:
            for signature, item, match in matched:
                # alternatives of one pattern cannot share a group name: path2 is another place of path
                groups = tuple((k.rstrip("0123456789"), v) for k, v in match.groupdict().items() if v is not None)
                self._record(Hit(signature.id, item, groups))
        return True

    def _record(self, hit: Hit) -> None:
        table = self.facts.signatures.setdefault(hit.signature, SignatureFacts())
        table.count += 1
        if len(table.first) < KEEP:
            table.first.append(hit)
        else:
            table.last.append(hit)
            if len(table.last) > KEEP:
                del table.last[0]

    def _look_at_postponed(self) -> None:
        """Lines near the end whose cues had been too frequent to look at each of them."""
        if not self._postponed:
            return
        line, start, kept = self._tail_bytes() if self._whole is None else (self._first_line, self._first_offset, bytes(self._whole))
        for at, cue in self._postponed:
            if at >= start:
                first, end = segment_bounds(kept, at - start, at - start + 1, len(kept))
                segment = kept[first : min(end, first + 4 * MAX_RAW)]
                self._match_segment(segment, line + kept.count(b"\n", 0, first), start + first, {cue})
        for table in self.facts.signatures.values():
            table.last.sort(key=lambda h: h.at.offset)
        names = sorted({self._matcher.cues[cue][0] for _, cue in self._postponed})
        self.facts.notes.append(f"frequent words were looked at once per {GRID >> 10} KiB and at the end: {', '.join(names[:8])}")

    def _lines_of(self, segment: bytes, line: int, offset: int) -> list[LogLine]:
        raw = segment[:MAX_RAW].decode("utf-8", "replace")
        if segment[:1] == b"{" and len(segment) > MAX_RAW:
            cleaned = self._cleaner.clean_all(segment.decode("utf-8", "replace"))
        else:
            cleaned = self._cleaner.clean_all(raw)
        rank = self._rank
        return [LogLine(self.facts.name, line, offset, raw, c.text, c.rank if c.rank is not None else rank, c.source, c.time, c.level) for c in cleaned]

    # excerpts -------------------------------------------------------------------------------------

    def _keep(self, data: bytearray, size: int) -> None:
        for _line, offset, kept, wanted in self._regions:
            have = offset + len(kept)
            if have < wanted and have < self._base + size:
                kept += data[have - self._base : min(size, wanted - self._base)]
        if self._whole is not None:
            self._whole += memoryview(data)[:size]
            if len(self._whole) <= WHOLE:
                return
            whole, self._whole = self._whole, None
            self._head = bytes(whole[: whole.rfind(b"\n", 0, HEAD) + 1 or HEAD])
            base, line = self._base, self._line
            self._base, self._line = self._first_offset, self._first_line
            self._sample_metrics(whole, len(whole) - size)
            self._base, self._line = base, line
            self._tail.append((self._first_line, self._first_offset, bytes(whole)))
        else:
            self._tail.append((self._line, self._base, bytes(memoryview(data)[:size])))
            while self._base + size - self._tail[1][1] >= TAIL if len(self._tail) > 1 else False:
                self._tail.popleft()

    def _open_region(self, data: bytes | bytearray, start: int, line: int) -> None:
        """Mark the surroundings of a region cue as wanted; ``_keep`` copies the bytes."""
        offset = self._base + start
        if self._regions:
            first_line, first_offset, kept, wanted = self._regions[-1]
            if offset < wanted and wanted - first_offset < 4 * REGION:
                self._regions[-1] = (first_line, first_offset, kept, max(wanted, min(offset + REGION, first_offset + 4 * REGION)))
                return
        before = self._before if start < REGION_BEFORE else b""
        ahead = before + bytes(data[max(0, start - REGION_BEFORE) : start])
        ahead = ahead[-REGION_BEFORE:]
        ahead = ahead[ahead.find(b"\n") + 1 :] if len(ahead) == REGION_BEFORE else ahead
        kept = bytearray(ahead[: max(0, len(ahead) - start)])  # the part that lies before the buffer
        self._regions.append((line - ahead.count(b"\n"), offset - len(ahead), kept, offset + REGION))
        if len(self._regions) > 2 * MAX_REGIONS:
            del self._regions[MAX_REGIONS]

    # metrics --------------------------------------------------------------------------------------

    def _sample_metrics(self, data: bytearray, size: int) -> None:
        """Read the first metric line of each grid cell that starts in ``data[:size]``."""
        position, line, counted = 0, self._line, 0
        while position < size:
            first, end = self._cell_at(self._base + position)
            if first in self._cells:
                position = end - self._base
                continue
            found = PREFILTER.search(data, position, min(size, end - self._base + MAX_RAW))
            if not found:
                position = end - self._base
                continue
            start, stop = segment_bounds(data, found.start(), found.end(), size)
            line += data.count(b"\n", counted, start) if start > counted else 0
            counted = max(counted, start)
            own, _ = self._cell_at(self._base + start)
            if own not in self._cells:
                lines = self._lines_of(bytes(data[start : min(stop, start + MAX_RAW)]), line, self._base + start)
                point = next((p for p in map(self._reader.feed, lines) if p), None)
                if point is not None:
                    self.facts.metrics_seen += 1
                    self._cells[own] = point
            position = max(stop, position + 1)

    @staticmethod
    def _cell_at(offset: int) -> tuple[int, int]:
        """First offset and end of the grid cell that holds ``offset``."""
        cell = next(cell for limit, cell in METRIC_CELLS if offset < limit)
        first = offset - offset % cell
        return first, first + cell

    def _thinned(self) -> dict[int, MetricPoint]:
        """The sampled points, one per cell of the coarsest grid that was used, so that they lie evenly."""
        if not self._cells:
            return {}
        first, end = self._cell_at(max(self._cells))
        coarse = end - first
        kept: dict[int, MetricPoint] = {}
        for offset in sorted(self._cells):
            kept.setdefault(offset // coarse, self._cells[offset])
        if coarse > METRIC_CELLS[0][1]:
            self.facts.notes.append(f"metric lines were sampled: one per {coarse >> 10} KiB")
        return kept

    # result ---------------------------------------------------------------------------------------

    def finish(self) -> LogFacts:
        facts = self.facts
        self._look_at_postponed()
        last = b""
        if self._whole is not None:
            blocks = [(self._first_line, self._first_offset, bytes(self._whole))]
            last = bytes(self._whole[-1:])
        else:
            line, offset, tail = self._tail_bytes()
            last = tail[-1:]
            blocks = [(self._first_line, self._first_offset, self._head)]
            blocks += [(line, offset, bytes(kept)) for line, offset, kept, _ in self._regions]
            cut = len(tail)
            for _ in range(TAIL_LINES + 1):
                previous = tail.rfind(b"\n", 0, max(cut - 1, 0))
                if previous < 0:
                    cut = 0
                    break
                cut = previous + 1
            cut = max(cut, len(tail) - TAIL)
            blocks.append((line + tail.count(b"\n", 0, cut), offset + cut, tail[cut:]))
        facts.lines = self._line - 1 + (1 if last not in (b"", b"\n") else 0)
        for line, offset, block in _disjoint(blocks):
            facts.excerpts.append(self._split(block, line, offset))
        reader = MetricReader()
        points: dict[int, MetricPoint] = {p.offset: p for p in self._thinned().values()}
        seen = 0
        for number, excerpt in enumerate(facts.excerpts):
            facts.tracebacks += read_tracebacks(excerpt)
            if self._whole is None and number < len(facts.excerpts) - 1:
                continue
            for item in excerpt:
                point = reader.feed(item)
                if point is not None:
                    seen += 1
                    points[(item.offset, seen) if self._whole is not None else item.offset] = point
        self._silence_exceptions()
        facts.metrics = sorted(points.values(), key=lambda p: p.offset)
        facts.metrics_seen = max(seen, facts.metrics_seen)
        times = [item.time for excerpt in facts.excerpts for item in excerpt if item.time is not None]
        facts.first_time, facts.last_time = (times[0], times[-1]) if times else (None, None)
        return facts

    def _tail_bytes(self) -> tuple[int, int, bytes]:
        """Line, offset and bytes of what was kept of the end: TAIL bytes, whatever the chunks were."""
        line, offset, _ = self._tail[0]
        tail = b"".join(piece for _, _, piece in self._tail)
        cut = max(0, len(tail) - TAIL)
        cut = tail.find(b"\n", cut) + 1 or cut if cut else 0
        return line + tail.count(b"\n", 0, cut), offset + cut, tail[cut:]

    def _silence_exceptions(self) -> None:
        """Exceptions that the catalogue calls harmless or advice; nothing else of the line need have matched."""
        for traceback in self.facts.tracebacks:
            for exception in traceback.exceptions[:32]:
                for signature in self._matcher.silencers_of(exception.at.text):
                    self._record(Hit(signature.id, exception.at))

    def _split(self, block: bytes, line: int, offset: int) -> list[LogLine]:
        lines: list[LogLine] = []
        for number, piece in enumerate(block.split(b"\n"), line):
            start = offset
            if b"\r" in piece:
                segments = piece.split(b"\r")
                # a redrawn bar: the first, the last and whatever is not a bar are kept
                for index, segment in enumerate(segments):
                    if segment and (index < 2 or index > len(segments) - 12 or b"%|" not in segment):
                        lines += self._lines_of(segment, number, start)
                    start += len(segment) + 1
            elif piece:
                lines += self._lines_of(piece, number, start)
            offset += len(piece) + 1
        return lines


_NONE = SignatureFacts()


def _line_ends(data: bytearray, start: int, end: int) -> int:
    """Number of ``\\n`` in data[start:end]. Removing them is 1.7 times as fast as counting them (CPython 3.11)."""
    return end - start - len(data[start:end].replace(b"\n", b"")) if end - start > 4096 else data.count(b"\n", start, end)


def _disjoint(blocks: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Blocks in order of offset, overlaps cut off the later one's front."""
    result: list[tuple[int, int, bytes]] = []
    end = -1
    for line, offset, block in sorted(blocks, key=lambda b: (b[1], -len(b[2]))):
        if offset < end:
            skip = end - offset
            if skip >= len(block):
                continue
            cut = block.find(b"\n", skip - 1) + 1
            if cut == 0:
                continue
            line, offset, block = line + block.count(b"\n", 0, cut), offset + cut, block[cut:]
        if block:
            result.append((line, offset, block))
            end = offset + len(block)
    return result


def scan_stream(
    stream,
    name: str,
    matcher: Matcher,
    *,
    rank: int | None = None,
    start_line: int = 1,
    start_offset: int = 0,
    chunk: int = CHUNK,
    progress: Callable[[int], None] | None = None,
) -> LogFacts:
    """Scan a binary stream (``readinto``) front to back.

    A truncated gzip stream or a read error ends the scan; ``facts.notes`` says where.
    """
    scanner = Scanner(name, matcher, rank=rank, start_line=start_line, start_offset=start_offset)
    chunk = max(chunk, MIN_CHUNK)
    buffer = bytearray(chunk)
    filled = 0
    while True:
        view = memoryview(buffer)
        try:
            count = stream.readinto(view[filled:])
        except (EOFError, OSError) as error:
            scanner.facts.notes.append(f"reading stopped after {scanner.facts.size + filled} bytes: {error}")
            scanner.facts.complete = False
            count = 0
        finally:
            view.release()
        if not count:
            break
        filled += count
        if filled < chunk:
            continue
        cut = buffer.rfind(b"\n", 0, filled) + 1 or buffer.rfind(b"\r", 0, filled) + 1 or filled
        scanner.feed(buffer, cut)
        rest = filled - cut
        buffer[:rest] = buffer[cut:filled]
        filled = rest
        if progress:
            progress(cut)
    if filled:
        scanner.feed(buffer, filled)
        if progress:
            progress(filled)
    return scanner.finish()
