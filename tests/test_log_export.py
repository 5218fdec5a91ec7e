"""Exports of Cloud Logging in the shapes that people hand over."""

from __future__ import annotations

import json

import pytest

from check_failed_run import diagnose, read

TEXT = """epoch 0 step 10 loss 2.1
epoch 0 step 20 loss 2.0
Traceback (most recent call last):
  File "/app/train.py", line 9, in <module>
    y = model(x)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which 1.00 GiB is free.
""".splitlines()


def entries():
    for number, line in enumerate(TEXT):
        stamp = f"2026-11-20T10:00:{number:02d}{'.5' if number % 2 else ''}Z"
        yield {"insertId": f"i{number}", "timestamp": stamp, "severity": "ERROR", "resource": {"type": "ml_job"}, **({"textPayload": line} if number % 2 else {"jsonPayload": {"message": line + "\n"}})}


SHAPES = {
    "array, newest first": lambda es: json.dumps(es[::-1], indent=2),
    "array, oldest first": lambda es: json.dumps(es),
    "lines, newest first": lambda es: "\n".join(map(json.dumps, es[::-1])) + "\n",
    "lines, oldest first": lambda es: "\n".join(map(json.dumps, es)) + "\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_diagnosis(tmp_path, shape):
    path = tmp_path / "entries.json"
    path.write_text(SHAPES[shape](list(entries())))
    report = diagnose(read([str(path)]), run_id="x")
    assert report.primary_cause == "oom" and report.run_status == "crashed"
    assert report.failure_point.line == 6 and report.failure_point.location == "/app/train.py:9" and report.failure_point.step == 20


def test_json_that_is_no_export_stays_what_it_was(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"timestamp": "2026", "textPayload": 1, "lr": 0.1}))
    (tmp_path / "train.log").write_text("\n".join(TEXT) + "\n")
    record = read([str(tmp_path / "config.json"), str(tmp_path / "train.log")])
    assert [c.name.rsplit("/", 1)[-1] for c in record.configs] == ["config.json"] and len(record.logs) == 1
