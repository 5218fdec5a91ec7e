"""The command as a user runs it: options, exit codes, bad input."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases" / "logs"
OOM = "step 1 loss 2.0\nstep 2 loss 1.9\nTraceback (most recent call last):\n  File \"train.py\", line 12, in <module>\n    main()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB is free.\n"
HEALTHY = "step 1 loss 2.0\nstep 2 loss 1.9\nstep 3 loss 1.7\ntraining finished\n"


def run(*args, stdin: bytes = b"", cwd=None, env=None):
    done = subprocess.run(
        [sys.executable, "-m", "check_failed_run.cli", *map(str, args)], input=stdin, capture_output=True, cwd=cwd, env={**os.environ, "NO_COLOR": "1", **(env or {})}, timeout=120
    )
    assert b"Traceback (most recent call last)" not in done.stderr, done.stderr.decode()
    return done


def report(folder) -> dict:
    return json.loads((Path(folder) / "check-failed-run.json").read_text())


def test_a_log_is_diagnosed_and_the_report_written(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    done = run("train.log", cwd=tmp_path)
    assert done.returncode == 0
    text = done.stdout.decode()
    assert text.startswith("Status: crashed\nFramework: ") and "\nPrimary cause: oom (confidence: 0." in text
    found = report(tmp_path)
    assert found["primary_cause"] == "oom" and found["failure_point"]["line"] == 6 and found["failure_point"]["location"] == "train.py:12"
    assert found["evidence"][0].startswith("train.log:6: torch.OutOfMemoryError: CUDA out of memory.")


@pytest.mark.parametrize(("text", "code"), [(OOM, 1), (HEALTHY, 0)])
def test_exit_code(tmp_path, text, code):
    (tmp_path / "train.log").write_text(text)
    assert run(tmp_path / "train.log", "--exit-code", "--out-dir", tmp_path).returncode == code


def test_undecided_exits_3(tmp_path):
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nfoo.WeirdError: zorp\n")
    done = run(tmp_path / "train.log", "--exit-code", "--out-dir", tmp_path)
    assert done.returncode == 3 and report(tmp_path)["primary_cause"] == "unknown" and report(tmp_path)["missing"]


def test_stdin_gz_glob_folder_and_traceback(tmp_path):
    assert run("-", "--out-dir", tmp_path, stdin=OOM.encode()).returncode == 0
    assert report(tmp_path)["evidence"][0].startswith("<stdin>:6:")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(OOM.encode()))
    run(tmp_path / "a.log.gz", "--out-dir", tmp_path)
    assert report(tmp_path)["primary_cause"] == "oom"
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank0.log").write_text(HEALTHY.replace("training finished\n", ""))
    (logs / "rank1.log").write_text(OOM)
    for target in (logs, f"{logs}/rank*.log"):
        run(target, "--out-dir", tmp_path)
        found = report(tmp_path)
        assert found["primary_cause"] == "oom" and found["failure_point"]["rank"] == 1
    run("--traceback", OOM, "--out-dir", tmp_path)
    assert report(tmp_path)["primary_cause"] == "oom"
    run("--traceback", "--out-dir", tmp_path, stdin=OOM.encode())
    assert report(tmp_path)["primary_cause"] == "oom"


@pytest.mark.parametrize(("name", "content", "words"), [
    ("missing.log", None, "no such file"),
    ("empty.log", b"", "empty file"),
    ("blank.log", b"\n\n   \n", "white space"),
    ("binary.log", bytes(range(256)) * 40, "binary file"),
    ("cut.log.gz", b"\x1f\x8b\x08\x00", "cannot be decompressed"),
])
def test_unreadable_input_exits_2_and_says_why(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = run(tmp_path / name, "--out-dir", tmp_path)
    assert done.returncode == 2 and words in done.stderr.decode() and not done.stdout
    assert not (tmp_path / "check-failed-run.json").exists()


def test_a_folder_without_a_log_exits_2(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "model.bin").write_bytes(b"\0" * 100)
    done = run(tmp_path / "d", "--out-dir", tmp_path)
    assert done.returncode == 2 and "holds no log" in done.stderr.decode()


def test_a_truncated_gzip_is_read_as_far_as_it_goes(tmp_path):
    whole = gzip.compress((OOM + "".join(f"line {i} {os.urandom(30).hex()}\n" for i in range(5000))).encode())
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    done = run(tmp_path / "a.log.gz", "--out-dir", tmp_path)
    assert done.returncode == 0
    found = report(tmp_path)
    assert any("reading stopped" in s["reason"] for s in found["skipped"])
    assert found["primary_cause"] == "oom"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "utf-32"])
def test_other_encodings(tmp_path, encoding):
    (tmp_path / "train.log").write_bytes(OOM.encode(encoding))
    run(tmp_path / "train.log", "--out-dir", tmp_path)
    found = report(tmp_path)
    assert found["primary_cause"] == "oom" and found["failure_point"]["line"] == 6


def test_invalid_utf8_and_gbk_are_quoted_with_replacement(tmp_path):
    (tmp_path / "train.log").write_bytes("显存不足\n".encode("gbk") + OOM.encode() + b"\xff\xfe\xfd\n")
    run(tmp_path / "train.log", "--out-dir", tmp_path)
    assert report(tmp_path)["failure_point"]["line"] == 7


def test_only_progress_bars(tmp_path):
    (tmp_path / "train.log").write_bytes(b"\r".join(b" %d%%|##| %d/200 [00:01<00:10,  9.00it/s]" % (i, 2 * i) for i in range(60)))
    done = run(tmp_path / "train.log", "--out-dir", tmp_path)
    assert done.returncode == 0 and report(tmp_path)["last_progress"]["step"] == 118


def test_misuse_exits_2_with_one_message(tmp_path):
    for args in ((), ("--framework", "cobol", "x"), ("--last", "0", "x"), ("--now", "yesterday", "x"), ("--nonsense",), ("--traceback", ""), ("explain", "oom/cuda-alocator"), ("explain",)):
        done = run(*args)
        assert done.returncode == 2 and done.stderr.strip() and not done.stdout, args


def test_last_reads_only_the_end_and_keeps_line_numbers(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"filler {i}\n" for i in range(5000)) + OOM)
    run(tmp_path / "train.log", "--last", "10", "--out-dir", tmp_path)
    found = report(tmp_path)
    assert found["failure_point"]["line"] == 5006
    run("-", "--last", "10", "--out-dir", tmp_path, stdin=(tmp_path / "train.log").read_bytes())
    assert report(tmp_path)["failure_point"]["line"] == 5006


def test_formats_and_output_file(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    done = run(tmp_path / "train.log", "--format", "json", "--out-dir", tmp_path, "--run-id", "r-1")
    assert json.loads(done.stdout) == report(tmp_path) and report(tmp_path)["run_id"] == "r-1"
    done = run(tmp_path / "train.log", "--format", "markdown", "-o", tmp_path / "card.md", "--out-dir", tmp_path)
    assert not done.stdout and "oom" in (tmp_path / "card.md").read_text()


def test_environment_twins(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    env = {"CHECK_FAILED_RUN_OUT_DIR": str(tmp_path / "out"), "CHECK_FAILED_RUN_FORMAT": "json", "CHECK_FAILED_RUN_RUN_ID": "from-env", "CHECK_FAILED_RUN_EXIT_CODE": "1"}
    (tmp_path / "out").mkdir()
    done = run(tmp_path / "train.log", env=env)
    assert done.returncode == 1 and json.loads(done.stdout)["run_id"] == "from-env" and (tmp_path / "out" / "check-failed-run.json").exists()


def test_read_only_out_dir_is_an_error_that_says_so(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = run(tmp_path / "train.log", "--out-dir", blocker / "sub")
    assert done.returncode == 2 and "out-dir" in done.stderr.decode().lower().replace("out_dir", "out-dir")


def test_the_same_input_gives_the_same_bytes(tmp_path):
    case = CASES / "oom-fsdp-rank5-behind-watchdogs" / "train.log"
    texts = [run(case, "--out-dir", tmp_path, "--run-id", "x").stdout for _ in range(2)]
    assert texts[0] == texts[1]


def test_the_local_command_imports_no_cloud_kfp_or_web_framework(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    code = (
        "import sys; from check_failed_run.cli import main\n"
        f"try: main([{str(tmp_path / 'train.log')!r}, '--out-dir', {str(tmp_path)!r}, '-q'])\n"
        "except SystemExit: pass\n"
        "bad = [m for m in sys.modules if m.startswith('google.cloud.') or m.split('.')[0] in ('kfp', 'flask', 'requests', 'grpc', 'pydantic', 'numpy', 'rich', 'docker')]\n"
        "print('BAD', bad, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BAD []" in done.stderr, done.stderr


def test_explain_and_signatures():
    assert b"oom" in run("explain", "oom").stdout
    rows = json.loads(run("signatures", "--format", "json").stdout)
    assert len(rows) >= 150 and {"id", "class", "role", "pattern", "matches", "rejects"} <= set(rows[0])
    assert run("explain", rows[0]["id"]).returncode == 0


def test_every_quote_stands_in_the_input(tmp_path):
    for case in sorted(CASES.iterdir())[::12]:
        names = json.loads((case / "case.json").read_text())["inputs"]
        run(*(case / n for n in names), "--out-dir", tmp_path)
        texts = {n: (case / n).read_bytes().decode("utf-8", "replace") for n in names}
        for quote in report(tmp_path)["evidence"]:
            name, line, text = re.match(r"(.*?):(\d+): (.*)", quote, re.S).groups()
            whole = next(t for n, t in texts.items() if n.endswith(name))
            raw = whole.split("\n")[int(line) - 1]
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]", "", raw)
            core = text.rstrip("…").rstrip()
            assert "[redacted" in core or core.strip()[:200] in plain or core.strip()[:100] in raw, (case.name, quote)


@pytest.mark.parametrize("arguments", [("--kfp-run", "r", "--vertex-pipeline", "1"), ("--kfp-run", "r"), ("--host", "http://h"), ("--kfp-run", "../x", "--host", "http://h")])
def test_a_run_is_named_once_and_with_its_host(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and b"Traceback" not in done.stderr and b"Error" in done.stderr


@pytest.mark.parametrize("name,start", [("html", b"<!doctype html"), ("sarif", b"{"), ("junit", b"<?xml"), ("github", b"::")])
def test_other_formats_are_printed(tmp_path, name, start):
    (tmp_path / "train.log").write_text("Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f(x)\nMemoryError\n")
    done = run(tmp_path / "train.log", "--out-dir", tmp_path, "--format", name)
    assert done.returncode == 0 and done.stdout.lower().startswith(start.lower())


def test_an_empty_log_and_an_exit_status(tmp_path):
    (tmp_path / "train.log").write_text("")
    assert run(tmp_path / "train.log", "--out-dir", tmp_path, "--exit-status", "0").returncode == 2
    done = run(tmp_path / "train.log", "--out-dir", tmp_path, "--exit-status", "137")
    found = report(tmp_path)
    assert done.returncode == 0 and found["primary_cause"] == "process-crash" and any("empty file" in item["why"] for item in found["missing"])
    run(tmp_path / "train.log", "--out-dir", tmp_path, "--exit-status", "1")
    assert report(tmp_path)["primary_cause"] == "unknown" and report(tmp_path)["run_status"] == "crashed"


@pytest.mark.parametrize(("status", "cause", "code"), [("0", "none", 0), ("1", "unknown", 3), ("137", "process-crash", 1), ("-11", "process-crash", 1), ("134", "process-crash", 1)])
def test_the_exit_status_of_a_run_whose_log_is_silent(tmp_path, status, cause, code):
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {2 - n / 1000:.3f}\n" for n in range(1, 60)))
    done = run(tmp_path / "train.log", "--out-dir", tmp_path, "--exit-status", status, "--exit-code")
    found = report(tmp_path)
    assert (found["primary_cause"], done.returncode) == (cause, code)
    assert found["run_status"] == ("healthy" if status == "0" else "crashed")


def test_the_report_goes_to_a_bucket(tmp_path):
    from tests.cloud import serve

    (tmp_path / "train.log").write_text("MemoryError\n")
    with serve([]) as cloud:
        cloud.state.objects["bucket"] = {}
        done = run(tmp_path / "train.log", "--out-dir", "gs://bucket/runs/7/", env=cloud.environ)
        assert done.returncode == 0, done.stderr
        assert json.loads(cloud.state.objects["bucket"]["runs/7/check-failed-run.json"][0])["primary_cause"] == "oom"
        done = run(tmp_path / "train.log", "--out-dir", "gs://", env=cloud.environ)
        assert done.returncode == 2 and b"Primary cause: oom" in done.stdout and b"Traceback" not in done.stderr
        cloud.fault("storage", "PERMISSION_DENIED")
        done = run(tmp_path / "train.log", "--out-dir", "gs://bucket/runs/8", env=cloud.environ)
        assert done.returncode == 2 and b"roles/storage.objectUser" in done.stderr and b"Primary cause: oom" in done.stdout
