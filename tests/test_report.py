"""The report: building, schema, text, Markdown, files."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from check_failed_run.analysis.diagnosis import Cause, Diagnosis, Evidence
from check_failed_run.planning.fixes import plan
from check_failed_run.publish import files
from check_failed_run.publish.files import PublishError, to_json, write_report, write_text
from check_failed_run.record import Checkpoint, LogSource, MissingEvidence, PipelineRecord, RunRecord, SkippedInput, TaskRecord
from check_failed_run.report import markdown, schema, text
from check_failed_run.report.build import build, fingerprint, normalise
from check_failed_run.report.model import Report
from check_failed_run.report.redact import redact
from check_failed_run.scanning.facts import ExceptionInfo, Frame, LogLine, MetricPoint

ROOT = Path(__file__).parent.parent


def line(raw: str = "step 1433 loss=nan", number: int = 1433) -> LogLine:
    return LogLine("train.log", number, 100, raw, raw, time=1_760_000_000.5)


def point(step: int, loss: float) -> MetricPoint:
    return MetricPoint(step, step, "hf", "train", step, step / 100, 2000, None, (("loss", loss), ("lr", 1e-4)))


def nan_run(raw: str = "step 1433 loss=nan", **changes) -> Diagnosis:
    at = line(raw)
    cause = Cause("nan-inf", "trend/other", "loss becomes NaN", at, step=1433, summary="Loss is NaN from step 1433 on")
    points = [point(n, 2.0 - n / 1000 if n < 1433 else math.nan) for n in range(1, 1500)]
    base = Diagnosis(
        "diverged",
        "huggingface",
        cause,
        True,
        0.86,
        proximate="The loss stops being a number.",
        root_cause="The learning rate was too high for fp16.",
        secondary=[Cause("optimization-divergence", "trend/climb", "climbs", None, summary="loss climbs before", confidence=0.1)],
        contributing=["no gradient clipping"],
        evidence=[Evidence(at, "metrics"), Evidence(line("step 1432 loss=0.9", 1432), "metrics")],
        ruled_out=[("oom", "no memory message")],
        last_progress=point(1432, 0.5),
        series={"loss": points, "lr": points},
        went_wrong_at={"loss": 1433},
        attempts=[{"number": 1, "first_line": 1, "last_line": 1500, "outcome": "diverged", "input": "train.log"}],
        ranks=[{"rank": 0, "role": "failed-first", "line": 1433}],
        environment={"gpus": 8, "versions": {"torch": "2.4"}, "odd": math.inf},
        config={"learning_rate": 3e-4},
        values={"command": "python train.py --learning_rate 3e-4"},
        missing=[("gradient norms", "they tell when it began", "grep grad train.log")],
        signals=[{"signature": "nan-inf/x", "class": "nan-inf", "role": "cause", "input": "train.log", "line": 1433, "count": 3}],
    )
    return dataclasses.replace(base, **changes)


def a_record(**parts) -> RunRecord:
    parts.setdefault("logs", [LogSource("train.log", None)])
    return RunRecord(skipped=[SkippedInput("secret.log", "no permission")], missing=[MissingEvidence("dmesg", "why", "dmesg")], **parts)


def make(diagnosis: Diagnosis | None = None, record: RunRecord | None = None) -> Report:
    diagnosis, record = diagnosis or nan_run(), record or a_record()
    return redact(build(diagnosis, record, plan(diagnosis, record), run_id="r1", timestamp="2026-01-01T00:00:00Z", duration=0.1))


UNDECIDED = Diagnosis("unknown", "unknown", None, False, 0.1)
HEALTHY = Diagnosis("healthy", "pytorch", None, True, 0.97)


# --- building


def test_the_nan_report():
    report = make()
    assert report.primary_cause == "nan-inf" and report.confidence == "high" and report.decision == "NO-GO"
    assert report.evidence == ["train.log:1433: step 1433 loss=nan", "train.log:1432: step 1432 loss=0.9"]
    assert report.failure_point.line == 1433 and report.failure_point.timestamp == "2025-10-09T08:53:20.500Z"
    loss = report.metrics["loss"]
    assert loss.last == "NaN" and loss.count == 1499 and len(loss.points) <= 400 and loss.went_wrong_at == 1433
    assert (1433.0, "NaN") in loss.points and loss.points[0][0] == 1 and loss.points[-1][0] == 1499
    assert {item.class_ for item in report.ruled_out} == set(schema_classes()) - {"nan-inf", "optimization-divergence"}
    assert report.findings[0].id == "F001" and report.findings[0].severity == "blocker" and len(report.findings) == len(report.fixes)
    assert [m.what for m in report.missing] == ["gradient norms", "dmesg"]
    assert "\n" not in report.summary and "step 1433" in report.summary


def schema_classes() -> tuple[str, ...]:
    from check_failed_run.catalogue.model import CLASSES

    return CLASSES


@pytest.mark.parametrize(("confidence", "level"), [(0.8, "high"), (0.795, "medium"), (0.5, "medium"), (0.494, "low"), (1.2, "high")])
def test_levels(confidence, level):
    report = make(nan_run(confidence=confidence))
    assert report.confidence == level or (confidence == 0.795 and report.primary_cause_confidence == 0.8)
    assert 0 <= report.primary_cause_confidence <= 1


def test_undecided_and_healthy():
    unknown, healthy = make(UNDECIDED), make(HEALTHY)
    assert (unknown.primary_cause, unknown.decision, unknown.retry) == ("unknown", "NO-GO", "stop")
    assert (healthy.primary_cause, healthy.decision, healthy.findings, healthy.next_commands) == ("none", "GO", [], [])
    odd = nan_run(primary=Cause("unknown", "exception/Odd", "Odd", line("Odd: x")), decided=True, confidence=0.3)
    assert make(odd).primary_cause == "unknown"


def test_quotes_are_raw_clean_and_short():
    report = make(nan_run("\x1b[31mloss\u202e\x00=nan\x1b[0m  two  spaces" + "x" * 1000))
    quote = report.evidence[0]
    assert quote.startswith("train.log:1433: loss=nan  two  spacesxxx") and quote.endswith("…") and len(quote) <= 520


def test_checkpoints():
    record = a_record(
        checkpoints=[Checkpoint("out/checkpoint-1000", "hf", "complete", 1000), Checkpoint("out/checkpoint-1400", "hf", "partial", 1400), Checkpoint("out/c", "hf", "corrupt")]
    )
    found = make(record=record).checkpoints
    assert (found.newest_complete, found.newest, found.partial, found.corrupt, found.steps_lost) == (
        "out/checkpoint-1000",
        "out/checkpoint-1400",
        ["out/checkpoint-1400"],
        ["out/c"],
        432,
    )
    assert make().checkpoints is None


def test_secrets_leave_every_format():
    secret = "ghp_" + "a1B2" * 9
    report = make(nan_run(f"token {secret}", environment={"env": {"WANDB_API_KEY": "abc"}}, root_cause=f"uses {secret}"))
    for out in (to_json(report), text.render(report), markdown.render(report), markdown.summary_line(report)):
        assert (secret not in out and "[redacted:github-token]" in out) or out == markdown.summary_line(report)
    assert report.environment["env"]["WANDB_API_KEY"] == "[redacted:api-key]"


def test_pipeline():
    tasks = [
        TaskRecord("1", "prepare", "SUCCEEDED", end=10.0),
        TaskRecord("2", "train", "FAILED", depends_on=("1",), end=20.0, error_message="exit 1", exit_code=1, attempts=2),
        TaskRecord("3", "evaluate", "NOT_TRIGGERED", depends_on=("2",)),
        TaskRecord("4", "exit", "RUNNING", is_exit_task=True),
    ]
    name = "projects/p/locations/l/pipelineJobs/j"
    record = a_record(pipeline=PipelineRecord(name, "FAILED", tasks=tasks), logs=[LogSource("train.log", None, task="train")])
    report = make(record=record)
    pipeline = report.pipeline
    assert pipeline.failed_tasks == ["train"] and pipeline.not_triggered_tasks == ["evaluate"] and pipeline.last_succeeded_task == "prepare"
    assert pipeline.tasks == {"FAILED": 1, "NOT_TRIGGERED": 1, "SUCCEEDED": 1}
    assert pipeline.failures[0].primary_cause == "nan-inf" and pipeline.failures[0].log == "train.log"
    lines = text.render(report).splitlines()
    assert lines[4:7] == [f"Pipeline: {name}", "Pipeline state: FAILED", "Failed tasks: train"]
    schema.validate(json.loads(to_json(report)))


# --- fingerprint


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 79.1 GiB)", "RuntimeError: CUDA out of memory. Tried to allocate 20 GiB (GPU 3; 40 GiB)"),
        ("OSError: cannot read /data/a/b/x12.png", "OSError: cannot read /mnt/other/x7.png"),
        ("rank 3 failed at 2026-01-01 10:00:00", "rank 12 failed at 2025-12-31T23:59:59Z"),
        ("connect to node-3.cluster.local:29500 failed", "connect to node-17.cluster.local:29501 failed"),
        ("id 123e4567-e89b-12d3-a456-426614174000 0x7f00ab", "id 00000000-e89b-12d3-a456-426614174999 0x7f11cd"),
        ("shape [2, 3] is invalid", "shape [2, 3, 4, 5] is invalid"),
        ("loss=nan at step 3e-05", "loss=nan at step 0.1"),
    ],
)
def test_the_same_failure_has_one_fingerprint(a, b):
    assert normalise(a) == normalise(b)
    assert fingerprint(Cause("oom", "s", "k", line(a))) == fingerprint(Cause("oom", "s", "other kind text", line(b, 9), rank=3))


def test_other_failures_have_others():
    def of(cls="oom", signature="s", raw="RuntimeError: a", function="f"):
        info = ExceptionInfo("RuntimeError", raw, (Frame("a.py", 3, function, None, True), Frame("torch/x.py", 9, "lib", None, False)), line(raw))
        return fingerprint(Cause(cls, signature, "k", line(raw), exception=info))

    assert re.fullmatch(r"1:[0-9a-f]{16}", of())
    assert len({of(), of(cls="nan-inf"), of(signature="t"), of(raw="RuntimeError: b"), of(function="g")}) == 5


# --- schema


@pytest.mark.parametrize("diagnosis", [nan_run(), UNDECIDED, HEALTHY, nan_run(status="recovered", confidence=0.6)])
def test_reports_hold_the_schema(diagnosis):
    data = json.loads(to_json(make(diagnosis)))
    schema.validate(data)
    assert data["schema_version"] == "1.0" and list(data)[:2] == ["schema_version", "skill_name"]
    assert all("class_" not in json.dumps(item) for item in (data["ruled_out"], data["signals"], data["secondary_causes"]))
    for key in schema.json_schema()["required"]:
        assert key in data


def test_the_schema_refuses():
    import pydantic

    data = json.loads(to_json(make()))
    for broken in ({**data, "decision": "MAYBE"}, {**data, "extra": 1}, {k: v for k, v in data.items() if k != "summary"}):
        with pytest.raises(pydantic.ValidationError):
            schema.validate(broken)


def test_the_checked_in_schema_is_current():
    assert (ROOT / "references" / "check-failed-run.schema.json").read_text() == schema.text()
    assert "class" in schema.json_schema()["$defs"]["RuledOut"]["properties"]


def test_no_pydantic_without_the_schema():
    code = "import sys; import check_failed_run.report.build, check_failed_run.report.text, check_failed_run.report.markdown, check_failed_run.publish.files; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


# --- text


def test_the_text_report():
    out = text.render(make())
    lines = out.splitlines()
    assert lines[:4] == [
        "Status: diverged",
        "Framework: huggingface",
        "Primary cause: nan-inf (confidence: 0.86)",
        "Contributing factors: no gradient clipping",
    ]
    for title in ("Evidence:", "Root cause:", "Top fixes:", "Decision: NO-GO", "Confidence: high", "Next command(s):", "Ruled out:", "Missing evidence:", "Skipped:"):
        assert title in lines
    assert re.search(r"^1\) .+ \| risk=needs-approval \| expected impact=.+ \| validate=.+$", out, re.M)
    assert out[out.index("Next command(s):\n") :].splitlines()[1] == "- python train.py --learning_rate 3e-05"
    assert "\x1b" not in out


def test_colour_changes_no_character():
    report = make()
    coloured = text.render(report, color=True)
    assert coloured != text.render(report) and re.sub(r"\x1b\[[\d;]*m", "", coloured) == text.render(report)


# --- Markdown

HOSTILE = [
    "```\n# pwned",
    "`````` ~~~ ```",
    "| a | b |",
    "<script>alert(1)</script> <img src=x onerror=y>",
    "[click](http://evil.example) ![x](http://evil.example/a.png)",
    "@everyone fixes #12 see www.evil.example and mail a@b.example GH-12",
    "1. list",
    "- item",
    "# title",
    "a\\|b \\\\| c",
    "**bold** _em_ ~~x~~ &lt; $x$",
    "* \u202e \x1b[31m",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_log_text_is_never_markup(hostile):
    report = make(
        nan_run(
            hostile,
            root_cause=hostile,
            proximate=hostile,
            contributing=[hostile],
            ruled_out=[("oom", hostile)],
            missing=[(hostile, hostile, hostile)],
            framework=hostile,
            attempts=[{"number": n, "first_line": 1, "last_line": 2, "outcome": hostile} for n in (1, 2)],
            ranks=[{"rank": 1, "role": "followed", "what": hostile, "line": 3, "input": hostile}],
        )
    )
    out = markdown.render(report)
    fence, columns = "", 0
    for text_line in out.splitlines():
        if fence:
            if re.fullmatch(rf"{fence}`*\s*", text_line):
                fence = ""
            continue
        if found := re.match(r"(`{3,})(?:text|sh)$", text_line):
            fence = found.group(1)
            continue
        assert not re.match(r"\s*(?:```|~~~)", text_line), text_line
        # As GFM does it: cells first (a backslash takes the next character), then code spans.
        cells = re.sub(r"\\.", "", text_line).count("|")
        if text_line.startswith("| "):
            columns = columns or cells
            assert cells == columns, text_line
        else:
            columns = 0 if not text_line.startswith("|---") else columns
        bare = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"\\`", "", text_line))
        bare = re.sub(r"\\.", "", bare)
        assert not re.search(r"[<>\[\]]|@|://|www\.|(?<!#)#\d|\*(?!\*?(?:Cause|\s|$))", re.sub(r"^#{2,3} |\*\*Cause\.\*\*", "", bare)), text_line
        assert not re.match(r"# |1\. ", text_line)
    assert not fence
    assert "\u202e" not in out and "\x1b" not in out


def test_the_card_fits_one_screen():
    out = markdown.render(make()).splitlines()
    first_detail = next(n for n, text_line in enumerate(out) if text_line.startswith("### "))
    assert out[0] == "## NO-GO: nan-inf (0.86, high)" and first_detail <= 40


def test_summary_line():
    assert markdown.summary_line(make()).startswith("NO-GO nan-inf (0.86): ") and "\n" not in markdown.summary_line(make())


# --- files


def test_the_same_input_gives_the_same_bytes():
    assert to_json(make()) == to_json(make()) and text.render(make()) == text.render(make()) and markdown.render(make()) == markdown.render(make())


def test_json_has_no_nan_and_keeps_letters():
    out = to_json(make(nan_run("ünï 漢字", environment={"b": math.nan, "a": {"d": 1, "c": -math.inf}})))
    assert "ünï 漢字" in out and json.loads(out, parse_constant=lambda name: pytest.fail(name))["environment"] == {"a": {"c": "-Infinity", "d": 1}, "b": "NaN"}
    assert files._finite({"x": (math.nan, {2, 1}, Path("a"))}) == {"x": ["NaN", [1, 2], "a"]}


def test_writes_are_whole(tmp_path, monkeypatch):
    target = write_report(make(), tmp_path / "new" / "folder")
    assert target.name == "check-failed-run.json" and json.loads(target.read_text())["skill_name"] == "check-failed-run"
    before = target.read_text()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PublishError, match="no space left"):
        write_text(target, "half")
    assert target.read_text() == before and [p.name for p in target.parent.iterdir()] == [target.name]


def test_what_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(PublishError, match="--out-dir"):
        write_text(tmp_path / "file" / "x.json", "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PublishError, match="folder of that name"):
        write_text(tmp_path / "folder", "")

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    with pytest.raises(PublishError, match="no permission to write"):
        write_text(tmp_path / "x.json", "")
