import io
import random

import pytest

from check_failed_run.catalogue.model import Reject, Role, Signature
from check_failed_run.scanning import scan as scan_module
from check_failed_run.scanning.matcher import Matcher
from check_failed_run.scanning.scan import scan_stream

OOM = Signature("oom/x", "oom", Role.CAUSE, "k", ("out of memory",), r"(?P<what>CUDA|HIP) out of memory", "p", "m", ("CUDA out of memory",), (Reject("a", "b"),))
NOISE = Signature("harmless/x", "", Role.HARMLESS, "k", ("not a failure",), r"not a failure", "p", "m", ("not a failure",), (Reject("a", "b"),))
FOLD = Signature("io/x", "io-checkpoint", Role.CAUSE, "k", ("no space left",), r"no space left", "p", "m", ("No space left",), (Reject("a", "b"),), ignore_case=True)


def scanned(data: bytes, engine: str = "hyperscan", **kwargs):
    return scan_stream(io.BytesIO(data), "log", Matcher((OOM, NOISE, FOLD), engine=engine), **kwargs)


def places(facts):
    return {name: (table.count, [(h.at.line, h.at.offset, h.at.raw) for h in table.hits()]) for name, table in sorted(facts.signatures.items())}


def test_lines_offsets_and_groups():
    facts = scanned(b"a\nb CUDA out of memory c\n10%\r50%\rHIP out of memory\nlast")
    hits = facts.signatures["oom/x"].hits()
    assert [(h.at.line, h.at.raw, h.group("what")) for h in hits] == [(2, "b CUDA out of memory c", "CUDA"), (3, "HIP out of memory", "HIP")]
    assert facts.lines == 4
    data = b"a\nb CUDA out of memory c\n10%\r50%\rHIP out of memory\nlast"
    assert all(data[h.at.offset :].decode().startswith(h.at.raw) for h in hits)


def test_harmless_silences_the_line_and_case_is_folded():
    facts = scanned(b"CUDA out of memory (not a failure)\nNO SPACE LEFT on device\n")
    assert places(facts).keys() == {"harmless/x", "io/x"}


def test_escapes_are_matched_through_and_quoted_raw():
    facts = scanned(b"x\n\x1b[31mCUDA out\x1b[0m of memory\n")
    hit = facts.signatures["oom/x"].hits()[0]
    assert hit.at.line == 2 and hit.at.raw == "\x1b[31mCUDA out\x1b[0m of memory" and hit.at.text == "CUDA out of memory"


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_engines_and_chunk_sizes_give_the_same_facts(engine, monkeypatch):
    monkeypatch.setattr(scan_module, "WHOLE", 40_000)
    monkeypatch.setattr(scan_module, "HEAD", 4_000)
    monkeypatch.setattr(scan_module, "TAIL", 8_000)
    monkeypatch.setattr(scan_module, "METRIC_CELLS", ((20_000, 64), (1 << 40, 512)))
    monkeypatch.setattr(scan_module, "MIN_CHUNK", 1)
    rng = random.Random(7)
    lines = []
    for step in range(9000):
        lines.append(f"step {step} loss {1 / (1 + step):.4f}")
        if rng.random() < 0.004:
            lines.append(rng.choice(["CUDA out of memory", "HIP out of memory (not a failure)", "no space left", "1%\r2%\rCUDA out of memory\r3%"]))
    data = "\n".join(lines).encode()
    whole = scanned(data, engine)
    assert whole.notes and len(whole.metrics) <= 1000
    for chunk in (5_000, 16_384, 1 << 20):
        other = scanned(data, engine, chunk=chunk)
        assert places(other) == places(whole)
        assert [(p.line, p.values) for p in other.metrics] == [(p.line, p.values) for p in whole.metrics]
        assert other.lines == whole.lines


def test_a_hundred_megabyte_line_is_bounded():
    class Long(io.RawIOBase):
        left = 100 << 20

        def readinto(self, buffer):
            count = min(len(buffer), self.left)
            buffer[:count] = b"x" * count
            self.left -= count
            return count

    facts = scan_stream(Long(), "log", Matcher((OOM,)))
    assert facts.size == 100 << 20 and facts.lines == 1
    assert all(len(line.raw) <= scan_module.MAX_RAW for excerpt in facts.excerpts for line in excerpt)


def test_a_read_error_keeps_what_was_read():
    class Broken(io.RawIOBase):
        sent = False

        def readinto(self, buffer):
            if self.sent:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            self.sent = True
            buffer[:19] = b"CUDA out of memory\n"
            return 19

    facts = scan_stream(Broken(), "log", Matcher((OOM,)))
    assert facts.signatures["oom/x"].count == 1 and not facts.complete and "reading stopped" in facts.notes[0]
