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
