"""How fast, as ratios measured side by side in one run; CPU seconds, medians of several runs taken in turn.

    python -m benchmarks.speed [--mib 1024] [--runs 3] [--log FILE] [--update]

Compares the whole diagnosis of a mixed log with ripgrep counting the lines that match the catalogue's patterns
(look-around, which its engine lacks, taken out), with ripgrep counting the lines that hold one of the catalogue's
cues, and with reading the file. ``--update`` writes the table into README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import mixed_log
from check_failed_run.catalogue import signatures
from check_failed_run.catalogue.model import Role
from check_failed_run.scanning.matcher import Matcher

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- speed:start -->", "<!-- speed:end -->"


def measure(command: list[str]) -> tuple[float, float]:
    """(CPU seconds, peak resident MB) of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def without_lookaround(pattern: str) -> str:
    """A pattern as ripgrep's default engine takes it: look-around dropped, which only makes it match more."""
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    inner = r"(?:[^()\\\[\]]|\\.|\[(?:[^\]\\]|\\.)*\])"
    before = None
    while before != pattern:
        before = pattern
        pattern = re.sub(rf"\(\?<?[!=](?:{inner}|\((?:\?:)?{inner}*\))*\)", "", pattern)
    pattern = re.sub(r"([+*?}])\+", r"\1", pattern)
    return re.sub(r"\\([\"'`<> ])", r"\1", pattern)


def ripgrep_patterns(rg: str) -> tuple[list[str], int]:
    """The catalogue's patterns that ripgrep accepts, and how many it does not."""
    kept, refused = [], 0
    for signature in signatures():
        if signature.role in (Role.HARMLESS, Role.ADVICE):
            continue
        pattern = without_lookaround(signature.pattern)
        pattern = f"(?i:{pattern})" if signature.ignore_case else f"(?:{pattern})"
        if subprocess.run([rg, "--no-unicode", "-q", "-e", pattern], input=b"x", capture_output=True).returncode == 2:
            refused += 1
        else:
            kept.append(pattern)
    return kept, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    rg = shutil.which("rg")
    if rg is None:
        sys.exit("ripgrep (rg) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        log = args.log or Path(folder) / "mixed.log"
        if args.log is None:
            mixed_log.write(log, args.mib)
        small = Path(folder) / "small.log"
        small.write_bytes(log.read_bytes()[:100_000] if log.stat().st_size < 1 << 24 else log.open("rb").read(100_000))
        patterns, refused = ripgrep_patterns(rg)
        (Path(folder) / "patterns").write_text("\n".join(patterns) + "\n")
        cues = Matcher(signatures()).cues
        (Path(folder) / "cues").write_text("\n".join(f"(?i:{_plain(c)})" if fold else _plain(c) for c, fold in cues) + "\n")
        own = [sys.executable, "-m", "check_failed_run.cli", "--out-dir", folder, "-q"]
        commands = {
            "whole diagnosis": [*own, str(log)],
            f"rg --no-unicode -c, the catalogue's patterns ({len(patterns)}; {refused} it cannot take left out)": [rg, "--no-unicode", "-c", "-f", f"{folder}/patterns", str(log)],
            f"rg --no-unicode -c, the catalogue's {len(cues)} cues as literals": [rg, "--no-unicode", "-c", "-f", f"{folder}/cues", str(log)],
            "cat": ["cat", str(log)],
            "whole diagnosis of 100 KB": [*own, str(small)],
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(args.runs):
            for name, command in commands.items():
                measured[name].append(measure(command))
        size = log.stat().st_size
    text = table(measured, size)
    print(text)
    if args.update:
        page = (ROOT / "README.md").read_text()
        before, rest = page.split(START)
        (ROOT / "README.md").write_text(f"{before}{START}\n{text}{END}{rest.split(END)[1]}")
    return 0


def table(measured: dict[str, list[tuple[float, float]]], size: int) -> str:
    base = statistics.median(cpu for cpu, _ in measured["whole diagnosis"])
    lines = [f"A mixed log of {size / 2**30:.2f} GiB, CPU seconds (median of {len(measured['cat'])}):", "", "| | CPU s | GB/s | peak MB | of the diagnosis' time |", "|---|--:|--:|--:|--:|"]
    for name, runs in measured.items():
        cpu, peak = statistics.median(c for c, _ in runs), max(m for _, m in runs)
        if name.endswith("100 KB"):
            lines.append(f"| {name} | {cpu:.2f} | | {peak:.0f} | |")
        else:
            lines.append(f"| {name} | {cpu:.2f} | {size / cpu / 1e9:.2f} | {peak:.0f} | {cpu / base:.1f} |")
    return "\n".join(lines) + "\n"


def _plain(cue: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", cue)


if __name__ == "__main__":
    sys.exit(main())
