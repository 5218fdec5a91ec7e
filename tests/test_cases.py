"""The third ring: whole labelled runs. No figure may fall below what benchmarks/accuracy.json records."""

from __future__ import annotations

import json

import pytest

from benchmarks import accuracy


@pytest.fixture(scope="module")
def results():
    return accuracy.all_results([accuracy.ROOT / "tests" / "cases" / "logs", accuracy.ROOT / "tests" / "cases" / "fresh"])


def test_no_figure_falls(results):
    now, known = accuracy.figures(results), json.loads(accuracy.FIGURES.read_text())
    lower_is_better = ("brier", "ece", "sure_wrong")
    worse = {k: (now[k], v) for k, v in known.items() if (now[k] > v + 1e-9 if k in lower_is_better else now[k] < v - 1e-9)}
    assert worse == {}


def test_the_readme_shows_these_figures(results):
    page = (accuracy.ROOT / "README.md").read_text()
    assert accuracy.tables(results) in page, "run: python -m benchmarks.accuracy --update"


def test_every_report_holds_its_own_rules(results):
    for result in results:
        report = result.report
        assert 0 <= report.primary_cause_confidence <= 1
        assert len({r.class_ for r in report.ruled_out}) >= 12, result.case["id"]
        if report.primary_cause not in ("none", "unknown"):
            assert report.evidence and report.fixes and report.root_cause, result.case["id"]
        if report.decision == "GO" and report.fixes and report.run_status not in ("healthy", "recovered", "running"):
            assert report.fixes[0].risk == "safe", result.case["id"]


@pytest.mark.parametrize("number", range(8))
def test_both_engines_give_the_same_report(number):
    """hyperscan and its fallback, on a quarter of the cases."""
    from check_failed_run.api import diagnose, read
    from check_failed_run.catalogue import signatures
    from check_failed_run.scanning.matcher import Matcher

    engines = [Matcher(signatures(), engine=name) for name in ("hyperscan", "re2")]
    assert [m.engine for m in engines] == ["hyperscan", "re2"]
    for file in sorted((accuracy.ROOT / "tests" / "cases").rglob("logs/*/case.json"))[number::32]:
        inputs = [str(file.parent / name) for name in json.loads(file.read_text())["inputs"]]
        one, other = (diagnose(read(inputs), run_id="x", matcher=m).to_dict() for m in engines)
        for report in (one, other):
            report.pop("timestamp"), report.pop("duration_seconds")
        assert one == other, file.parent.name
