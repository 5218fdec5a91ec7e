"""The report as JUnit XML, for CI systems that show test results.

The elements and attributes that Jenkins, GitLab and GitHub test reporters read, as described in
https://github.com/testmoapp/junitxml. A run is one test case; a pipeline is one test case for each of its tasks.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from check_failed_run.report.model import FailedTask, GraphTask, Report
from check_failed_run.report.sarif import FAILED, log_place
from check_failed_run.report.text import render as plain

# XML 1.0 takes no other characters, not even as references.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# States of tasks that did not fail; anything else passed.
_NOT_RUN = {"NOT_TRIGGERED": "not triggered", "CANCELLED": "cancelled", "PENDING": "not started", "RUNNING": "still running", "SKIPPED": "cached"}


def render(report: Report) -> str:
    """The XML text, ending in a newline. A failure is a ``<failure>``, a run whose cause is unknown an ``<error>``."""
    suite = ET.Element("testsuite", {"name": report.skill_name, "timestamp": report.timestamp.removesuffix("Z")})
    _properties(suite, report)
    cases = _tasks(report) if report.pipeline and (report.pipeline.graph or report.pipeline.failures) else []
    if not any(case.find("failure") is not None or case.find("error") is not None for case in cases):
        cases.insert(0, _run(report))
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = xml_text(plain(report))
    root = ET.Element("testsuites", {"name": report.skill_name})
    for element in (root, suite):
        element.set("tests", str(len(cases)))
        for kind, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(kind, str(sum(case.find(name) is not None for case in cases)))
        element.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def xml_text(value: str) -> str:
    """``value`` without the characters that XML 1.0 forbids; ElementTree escapes the rest."""
    return _NOT_XML.sub("�", value)


def _properties(suite: ET.Element, report: Report) -> None:
    group = ET.SubElement(suite, "properties")
    for name in ("run_id", "run_status", "framework", "primary_cause", "primary_cause_confidence", "decision", "retry", "fingerprint"):
        ET.SubElement(group, "property", {"name": name, "value": xml_text(str(getattr(report, name)))})


def _run(report: Report) -> ET.Element:
    case = _case("run", report.framework)
    if place := log_place(report, None):
        case.set("file", xml_text(place[0]))
        case.set("line", str(place[1]))
    if report.primary_cause == "unknown" and report.run_status in FAILED:
        _failure(case, "error", report)
    elif report.primary_cause != "none" and report.run_status in FAILED:
        _failure(case, "failure", report)
    elif report.run_status == "running":
        ET.SubElement(case, "skipped", {"message": "still running"})
    return case


def _tasks(report: Report) -> list[ET.Element]:
    pipeline = report.pipeline
    assert pipeline is not None
    known = {task.name: task for task in pipeline.failures}
    graph = [task for task in pipeline.graph if not task.is_group] or [GraphTask(name, name, "FAILED") for name in known]
    first = next((task.id for task in graph if task.failed_first), None)
    first = first or next((task.id for task in graph if task.name == pipeline.first_failed_task), None)
    cases = []
    seen: dict[str, int] = {}
    for task in graph:
        seen[task.name] = seen.get(task.name, 0) + 1
        name = task.name if seen[task.name] == 1 else f"{task.name} [{seen[task.name]}]"  # readers merge cases of one name
        case = _case(name, pipeline.name.rsplit("/", 1)[-1], task.seconds)
        if task.state == "FAILED" and task.id == first:
            _failure(case, "failure" if report.primary_cause != "unknown" else "error", report)
        elif task.state == "FAILED":
            _task_failure(case, known.get(task.name))
        elif task.state in _NOT_RUN:
            ET.SubElement(case, "skipped", {"message": _NOT_RUN[task.state]})
        cases.append(case)
    return cases


def _case(name: str, group: str, seconds: float | None = None) -> ET.Element:
    return ET.Element("testcase", {"name": xml_text(name), "classname": xml_text(group), "time": f"{seconds or 0:.3f}"})


def _failure(case: ET.Element, kind: str, report: Report) -> None:
    lines = [report.root_cause, "", *report.evidence]
    if report.fixes:
        lines += ["", *(f"{n}) {fix.action} (risk: {fix.risk}; validate: {fix.validate})" for n, fix in enumerate(report.fixes, 1))]
    if report.next_commands:
        lines += ["", *report.next_commands]
    element = ET.SubElement(case, kind, {"type": report.primary_cause, "message": xml_text(report.summary)})
    element.text = xml_text("\n".join(lines))


def _task_failure(case: ET.Element, task: FailedTask | None) -> None:
    message = (task and (task.root_cause or task.error)) or "the task failed"
    element = ET.SubElement(case, "failure", {"type": (task and task.primary_cause) or "failed", "message": xml_text(message)})
    element.text = xml_text("\n".join([*(filter(None, [task.error])), *task.evidence])) if task else ""
