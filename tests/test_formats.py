"""SARIF, JUnit and GitHub annotations: each held against its schema or read by a consumer."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from check_failed_run import api
from check_failed_run.record import RunRecord
from check_failed_run.report import github_annotations, junit, sarif
from check_failed_run.report.model import FailedTask, FailurePoint, GraphTask, Missing, Pipeline, Report, SecondaryCause
from check_failed_run.sources.log_files import add_text

ROOT = Path(__file__).resolve().parent.parent
LOG = """\
step 1/100 loss=2.1 lr=0.001
step 2/100 loss=2.0 lr=0.001
Traceback (most recent call last):
  File "/app/src/train.py", line 3, in <module>
    step(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.78 GiB of which 1.10 GiB is free.
"""
ODD = "a\x00b\x08c\x1b[31md\x7f\x85\ud800\ufffe <&>\"' ]]> %0A\r\n::error::x\n##[error]y é 漢 🙂"


def diagnosed(text: str = LOG, name: str = "train.log", **changes) -> Report:
    record = RunRecord(**changes)
    add_text(name, text, record)
    return api.diagnose(record, run_id="run-1")


def failed(**changes) -> Report:
    report = diagnosed()
    assert report.primary_cause == "oom"
    return dataclasses.replace(report, **changes)


def healthy() -> Report:
    report = diagnosed("epoch 1 step 100 loss=0.5\nepoch 2 step 200 loss=0.4\nTraining complete.\n")
    assert report.primary_cause == "none"
    return report


def unknown() -> Report:
    report = diagnosed("starting worker 0\nloading configuration\n", failed=True)
    assert report.primary_cause == "unknown"
    return report


def odd() -> Report:
    """Every free string is full of what formats choke on."""
    report = failed(secondary_causes=[SecondaryCause("nccl-distributed", 0.2, f"{ODD}:7: {ODD}")], missing=[Missing(ODD, ODD, ODD)], root_cause=ODD, summary=ODD, framework=ODD)
    report.failure_point = FailurePoint(ODD, 7, ODD, location=f"{ODD}:9")
    report.evidence = [f"{ODD}:7: {ODD}", ODD]
    report.next_commands = [ODD]
    report.fixes = [dataclasses.replace(fix, action=ODD, validate=ODD) for fix in report.fixes]
    return report


def a_pipeline(*, graph: bool = True) -> Pipeline:
    tasks = [
        GraphTask("1", "load", "SKIPPED", cached=True),
        GraphTask("2", "loop", "FAILED", is_group=True, depends_on=["1"]),
        GraphTask("3", "train", "SUCCEEDED", "2", seconds=60.5),
        GraphTask("4", "train", "FAILED", "2", failed_first=True, seconds=30),
        GraphTask("5", "report", "FAILED"),
        GraphTask("6", "deploy", "NOT_TRIGGERED", depends_on=["2"]),
    ]
    failures = [FailedTask("train", "FAILED", "exited with 1"), FailedTask("report", "FAILED", "403 denied", primary_cause="cloud-permissions-quota", evidence=["report/log:3: 403"])]
    return Pipeline("projects/p/locations/r/pipelineJobs/nightly", "FAILED", None, {"FAILED": 2}, ["train", "report"], ["deploy"], "train", "load", failures, graph=tasks if graph else [])


REPORTS = {"failed": failed, "healthy": healthy, "unknown": unknown, "odd": odd, "pipeline": lambda: failed(pipeline=a_pipeline())}


# ---------------------------------------------------------------------------------------------- SARIF


@pytest.fixture(scope="module")
def valid_sarif():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "tests" / "vendor" / "sarif" / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    checker = jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)

    def check(text: str) -> dict:
        log = json.loads(text)
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in checker.iter_errors(log)]
        assert errors == []
        return log

    return check


@pytest.mark.parametrize("kind", REPORTS)
def test_sarif_is_valid_and_within_the_limits(valid_sarif, kind, tmp_path):
    text = sarif.render(REPORTS[kind](), tmp_path)
    (run,) = valid_sarif(text)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(text) < 10_000_000 and len(run["results"]) < 25_000
    for rule in rules:
        assert len(rule["id"]) <= 255 and len(rule["name"]) <= 255
        assert len(rule["shortDescription"]["text"]) <= 1024 and len(rule["fullDescription"]["text"]) <= 1024
        assert len(rule["properties"]["tags"]) <= 20
        assert rule["help"]["text"].strip() and rule["help"]["markdown"].strip()
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["partialFingerprints"]["primaryLocationLineHash"]
        assert 0 < len(result["locations"]) <= 1000 and len(result.get("relatedLocations", [])) <= 1000
        for place in [*result["locations"], *result.get("relatedLocations", [])]:
            assert re.fullmatch(r"[A-Za-z0-9_.~%/:-]+", place["physicalLocation"]["artifactLocation"]["uri"])
    assert bool(run["results"]) == (kind != "healthy")


def test_the_schema_refuses_what_is_wrong(valid_sarif):
    with pytest.raises(AssertionError, match="startLine"):
        valid_sarif(re.sub(r'"startLine": \d+', '"startLine": 0', sarif.render(failed())))


def test_a_result_says_what_where_and_what_to_do(valid_sarif):
    report = failed()
    (run,) = valid_sarif(sarif.render(report))["runs"]
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][0]
    assert result["ruleId"] == rule["id"] and rule["id"].startswith("oom/")
    assert result["level"] == "error" and result["rank"] == pytest.approx(100 * report.primary_cause_confidence)
    assert result["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "file:///app/src/train.py"}, "region": {"startLine": 3}}
    assert report.root_cause in result["message"]["text"] and report.fixes[0].action in result["message"]["text"]
    assert report.fixes[0].action in rule["help"]["text"]
    related = result["relatedLocations"][0]["physicalLocation"]
    assert related["artifactLocation"]["uri"] == "train.log" and "OutOfMemoryError" in related["region"]["snippet"]["text"]


def test_a_path_of_a_container_becomes_one_of_the_checkout(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")
    result = json.loads(sarif.render(failed(), tmp_path))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "src/train.py"
    (tmp_path / "train.py").write_text("")
    assert sarif.in_root("/elsewhere/train.py", tmp_path) == "train.py"
    assert sarif.in_root("/app/src/train.py", tmp_path) == "src/train.py"
    for path in ("../train.py", "/app/../train.py", "other.py", "", "/", "a\0b", "x" * 5000):
        assert sarif.in_root(path, tmp_path) is None


def test_the_fingerprint_is_that_of_the_failure():
    def prints(report):
        return json.loads(sarif.render(report))["runs"][0]["results"][0]["partialFingerprints"]

    other = diagnosed(LOG.replace("2.00 GiB", "3.50 GiB").replace("step 2/100", "step 77/100"), name="other.log")
    assert prints(failed()) == prints(other) and "1:" in prints(other)["primaryLocationLineHash"]
    assert prints(failed()) != prints(unknown())


def test_other_causes_are_notes(valid_sarif):
    other = SecondaryCause("nccl-distributed", 0.2, "rank1.log:7: NCCL watchdog timeout")
    (run,) = valid_sarif(sarif.render(failed(secondary_causes=[other])))["runs"]
    first, second = run["results"]
    assert (second["ruleId"], second["level"]) == ("nccl-distributed", "note")
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "rank1.log"
    assert first["partialFingerprints"] != second["partialFingerprints"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("train.log", "train.log"),
        ("a b/ü:1.log", "a%20b/%C3%BC%3A1.log"),
        ("/app/x.py", "file:///app/x.py"),
        ("C:\\run\\x.py", "file:///C:/run/x.py"),
        ("gs://bucket/a b.log", "gs://bucket/a%20b.log"),
        ("javascript:x", "javascript%3Ax"),
    ],
)
def test_uris(path, expected):
    assert sarif.uri(path) == expected


# ---------------------------------------------------------------------------------------------- JUnit


def suite_of(report: Report):
    """Read as junitparser reads it."""
    junitparser = pytest.importorskip("junitparser")
    (suite,) = junitparser.JUnitXml.fromstring(junit.render(report).encode())
    return suite


@pytest.mark.parametrize("kind", REPORTS)
def test_junit_is_read_and_counted(kind):
    junitparser = pytest.importorskip("junitparser")
    report = REPORTS[kind]()
    suite = suite_of(report)
    results = [(type(result), case.name) for case in suite for result in case.result]
    assert suite.tests == len(list(suite))
    for count, of in ((suite.failures, junitparser.Failure), (suite.errors, junitparser.Error), (suite.skipped, junitparser.Skipped)):
        assert count == sum(found is of for found, _ in results)
    assert (suite.failures + suite.errors > 0) == (kind != "healthy")
    assert {p.name: p.value for p in suite.properties()}["primary_cause"] == report.primary_cause
    assert len({case.name for case in suite}) == suite.tests


def test_a_run_is_one_case():
    report = failed()
    (case,) = suite_of(report)
    (failure,) = case.result
    assert (case.name, failure.type, failure.message) == ("run", "oom", report.summary)
    assert report.evidence[0] in failure.text and report.fixes[0].action in failure.text
    (error,) = next(iter(suite_of(unknown()))).result
    assert error.type == "unknown"


@pytest.mark.parametrize("graph", [True, False])
def test_a_pipeline_is_a_case_for_each_task(graph):
    report = failed(pipeline=a_pipeline(graph=graph))
    cases = {case.name: case for case in suite_of(report)}
    name = "train [2]" if graph else "train"
    assert set(cases) == ({"load", "train", "train [2]", "report", "deploy"} if graph else {"train", "report"})
    assert cases[name].result[0].message == report.summary
    assert (cases["report"].result[0].type, cases["report"].result[0].message) == ("cloud-permissions-quota", "403 denied")
    if graph:
        assert cases["load"].result[0].message == "cached" and cases["deploy"].result[0].message == "not triggered"
        assert (cases["train"].result, cases["train"].time) == ([], 60.5)


def test_a_failed_pipeline_whose_tasks_all_passed_still_fails():
    pipeline = dataclasses.replace(a_pipeline(), graph=[GraphTask("1", "load", "SUCCEEDED")], failures=[])
    assert [(case.name, len(case.result)) for case in suite_of(failed(pipeline=pipeline))] == [("run", 1), ("load", 0)]


def test_xml_takes_every_text():
    root = ET.parse(io.BytesIO(junit.render(odd()).encode())).getroot()
    text = "".join(root.itertext())
    assert "é 漢 🙂" in text and "<&>\"' ]]>" in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", junit.render(odd()))
    assert junit.xml_text("a\x00b\ud800c\x0bd") == "a�b�c�d"


# ---------------------------------------------------------------------------------------------- GitHub annotations


def commands(output: str) -> list[tuple[str, dict[str, str], str]]:
    """As actions/runner reads a line (ActionCommand.TryParseV2)."""
    found = []
    for line in re.split(r"\r\n|\r|\n", output):
        if line.lstrip().startswith("::"):
            head, _, data = line.lstrip()[2:].partition("::")
            name, _, rest = head.partition(" ")
            properties = dict(part.split("=", 1) for part in rest.split(",") if part)
            for code, char in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
                properties = {k: v.replace(code, char) for k, v in properties.items()}
            for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
                data = data.replace(code, char)
            found.append((name, properties, data))
        else:
            assert not line, f"a line that is no command: {line!r}"
    return found


def test_annotations(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")
    report = failed(secondary_causes=[SecondaryCause("nccl-distributed", 0.2, "rank1.log:7: watchdog")], missing=[Missing("dmesg", "tells a kill", "dmesg -T")])
    error, warning, notice = commands(github_annotations.render(report, tmp_path))
    assert error[0] == "error" and error[1]["file"] == "src/train.py" and error[1]["line"] == "3"
    assert error[1]["title"] == f"oom ({report.primary_cause_confidence:.2f})"
    assert report.root_cause in error[2] and report.fixes[0].action in error[2] and "\n" in error[2]
    assert warning == ("warning", {"title": "nccl-distributed (0.20), beside it"}, "rank1.log:7: watchdog")
    assert notice == ("notice", {"title": "Missing: dmesg"}, "tells a kill\ndmesg -T")


def test_a_file_that_is_not_in_the_checkout_is_not_named(tmp_path):
    (error, *_) = commands(github_annotations.render(failed(), tmp_path))
    assert "file" not in error[1] and "train.log:" in error[2]
    (tmp_path / "train.log").write_text("")
    (error, *_) = commands(github_annotations.render(failed(failure_point=dataclasses.replace(failed().failure_point, location=None)), tmp_path))
    assert error[1]["file"] == "train.log"


def test_a_run_without_failure_is_a_notice():
    ((name, properties, text),) = commands(github_annotations.render(healthy()))
    assert (name, properties["title"]) == ("notice", "check-failed-run") and text.startswith("healthy: ")


def test_no_text_becomes_a_command():
    found = commands(github_annotations.render(odd()))
    assert [name for name, _, _ in found] == ["error", "warning", "notice"]
    assert all(set(properties) <= {"title", "file", "line"} for _, properties, _ in found)
    assert "%0A" in found[0][2] and "::error::x" in found[0][2], "what was escaped comes back as it was"


@pytest.mark.parametrize("value", ["a:b,c", "50 %0A", "x\r\ny", "::set-env name=A::b"])
def test_escapes_come_back(value):
    ((_, properties, text),) = commands(github_annotations.command("error", value, title=value))
    assert (properties["title"], text) == (value, value)
