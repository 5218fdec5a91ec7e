"""How right and how sure: diagnoses every labelled case and prints what it got right.

    python -m benchmarks.accuracy [--cases FOLDER ...] [--update] [--check] [--show]

``--update`` writes the tables into README.md between their marks and the figures into
benchmarks/accuracy.json; ``--check`` fails (exit 1) where a figure is lower than the one written there;
``--show`` prints every case that is not right.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from check_failed_run.api import diagnose
from check_failed_run.catalogue import signatures
from check_failed_run.catalogue.model import CLASSES
from check_failed_run.record import RunRecord
from check_failed_run.scanning.matcher import Matcher
from check_failed_run.sources.log_files import collect

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benchmarks" / "accuracy.json"
START, END = "<!-- accuracy:start -->", "<!-- accuracy:end -->"
OK_STATUS = ("healthy", "recovered")


@dataclass
class Result:
    case: dict[str, Any]
    report: Any
    got: str
    confidence: float
    top1: bool
    strict: bool
    checks: dict[str, float] = field(default_factory=dict)  # status, evidence, point, location, step, fixes: 0..1


def run_case(folder: Path, matcher: Matcher) -> Result:
    case = json.loads((folder / "case.json").read_text())
    record = RunRecord()
    collect([str(folder / name) for name in case.get("inputs", ["train.log"])], record)
    report = diagnose(record, run_id="case", matcher=matcher)
    return judge(case, report)


def judge(case: dict[str, Any], report: Any) -> Result:
    """The same rules as the cases' own README states."""
    got = report.primary_cause
    if case["primary"] == "none" or case["run_status"] == "recovered":
        right = got == "none" or report.run_status in OK_STATUS
        return Result(case, report, got, report.primary_cause_confidence, right, right)
    strict = got == case["primary"]
    result = Result(case, report, got, report.primary_cause_confidence, strict or got in case.get("accept", []), strict)
    checks = result.checks
    checks["status"] = float(report.run_status == case["run_status"])
    quoted = "\n".join(report.evidence)
    if case.get("evidence"):
        checks["evidence"] = sum(bool(re.search(p, quoted)) for p in case["evidence"]) / len(case["evidence"])
    point = report.failure_point
    if case.get("failure_line"):
        checks["point"] = float(point is not None and abs(point.line - case["failure_line"]) <= 2)
    if case.get("location"):
        base = lambda p: re.sub(r"^.*/", "", str(p or ""))  # noqa: E731
        checks["location"] = float(point is not None and base(point.location) == base(case["location"]))
    if case.get("step") is not None:
        checks["step"] = float(point is not None and point.step is not None and abs(point.step - case["step"]) <= 1)
    checks["fixes"] = float(bool(report.fixes) and all(f.action and f.risk and f.expected_impact and f.validate for f in report.fixes))
    return result


def figures(results: list[Result]) -> dict[str, float]:
    failed = [r for r in results if r.checks]
    quiet = [r for r in results if not r.checks]
    out = {
        "cases": len(results),
        "top1": _mean([r.top1 for r in results]),
        "strict": _mean([r.strict for r in results]),
        "healthy_ok": _mean([r.top1 for r in quiet]),
    }
    for name in ("status", "evidence", "point", "location", "step", "fixes"):
        out[name] = _mean([r.checks[name] for r in failed if name in r.checks])
    pairs = [(r.confidence, float(r.top1)) for r in results]
    out["brier"] = _mean([(c - y) ** 2 for c, y in pairs])
    out["ece"] = sum(abs(sum(c for c, _ in b) - sum(y for _, y in b)) for b in bins(pairs).values()) / max(1, len(pairs))
    out["sure_wrong"] = sum(r.confidence >= 0.8 and not r.top1 for r in results)
    return {k: round(v, 4) for k, v in out.items()}


def _mean(values: list[Any]) -> float:
    return sum(map(float, values)) / len(values) if values else 1.0


def bins(pairs: list[tuple[float, float]]) -> dict[int, list[tuple[float, float]]]:
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        found[min(int(pair[0] * 10), 9)].append(pair)
    return dict(sorted(found.items()))


def tables(results: list[Result]) -> str:
    """Markdown: the figures, the table per class, the confusion matrix, the reliability table."""
    f = figures(results)
    percent = lambda v: f"{100 * v:.1f} %"  # noqa: E731
    lines = [f"{int(f['cases'])} labelled cases. Top-1 {percent(f['top1'])} (strict {percent(f['strict'])}), healthy runs called healthy {percent(f['healthy_ok'])}, "
             f"run status {percent(f['status'])}, evidence {percent(f['evidence'])}, failure line {percent(f['point'])}, location {percent(f['location'])}, step {percent(f['step'])}; "
             f"Brier score {f['brier']:.3f}, expected calibration error {f['ece']:.3f}, confident and wrong {int(f['sure_wrong'])}.", "",
             "| class | cases | right | strictly right | called so in error |", "|---|--:|--:|--:|--:|"]
    wanted = Counter(r.case["primary"] for r in results)
    for cls in [*CLASSES, "none"]:
        own = [r for r in results if r.case["primary"] == cls]
        false = sum(r.got == cls and not r.top1 for r in results)
        if own or false:
            lines.append(f"| {cls} | {wanted[cls]} | {sum(r.top1 for r in own)} | {sum(r.strict for r in own)} | {false} |")
    wrong = Counter((r.case["primary"], r.got) for r in results if not r.strict and not (not r.checks and r.top1))
    lines += ["", "Where the answer differs from the label (accepted second readings included):", "", "| label | answer | cases |", "|---|---|--:|"]
    lines += [f"| {a} | {b} | {n} |" for (a, b), n in sorted(wrong.items(), key=lambda kv: (-kv[1], kv[0]))] or ["| none | | 0 |"]
    lines += ["", "| confidence | cases | mean confidence | right |", "|---|--:|--:|--:|"]
    for index, pairs in bins([(r.confidence, float(r.top1)) for r in results]).items():
        lines.append(f"| {index / 10:.1f} to {(index + 1) / 10:.1f} | {len(pairs)} | {_mean([c for c, _ in pairs]):.2f} | {_mean([y for _, y in pairs]):.2f} |")
    return "\n".join(lines) + "\n"


def all_results(cases: list[Path]) -> list[Result]:
    matcher = Matcher(signatures())
    return [run_case(file.parent, matcher) for folder in cases for file in sorted(folder.rglob("case.json"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, nargs="+", default=[ROOT / "tests" / "cases" / "logs", ROOT / "tests" / "cases" / "fresh"])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    results = all_results(args.cases)
    if args.show:
        for r in results:
            missed = [k if v == 0 else f"{k} {v:.2f}" for k, v in r.checks.items() if v < 1]
            if not r.top1 or missed:
                p = r.report.failure_point
                where = f"{p.line}/{p.step}/{p.location}" if p else None
                print(f"{'part ' if r.top1 else 'WRONG'} {r.case['id']:56} want {r.case['primary']:>20}/{r.case['run_status']:9} got {r.got:>20}/{r.report.run_status:9} {r.confidence:.2f} {where} (want {r.case['failure_line']}/{r.case['step']}/{r.case['location']}) {' '.join(missed)}")
    text = tables(results)
    print(text)
    now = figures(results)
    if args.update:
        FIGURES.write_text(json.dumps(now, indent=1) + "\n")
        readme = ROOT / "README.md"
        page = readme.read_text()
        before, rest = page.split(START)
        readme.write_text(f"{before}{START}\n{text}{END}{rest.split(END)[1]}")
    if args.check:
        known = json.loads(FIGURES.read_text())
        worse = [f"{k}: {now[k]} is worse than {v}" for k, v in known.items() if k != "cases" and ((now[k] > v + 1e-9) if k in ("brier", "ece", "sure_wrong") else (now[k] < v - 1e-9))]
        if worse:
            print("\n".join(worse), file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
