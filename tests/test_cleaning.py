from datetime import UTC, datetime

import pytest

from check_failed_run.scanning.cleaning import Cleaner, looks_like_srun

CASES = [
    # raw, text, rank, source, level
    ("[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):", 3, None, None),
    ("[default3]:[rank3]:[E1112 07:12:13.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog", "[Rank 3] Watchdog", 3, None, "E"),
    ("[rank1]:[W812 10:00:00.000361028 TCPStore.cpp:106] [c10d] sendBytes failed", "[c10d] sendBytes failed", 1, None, "W"),
    ("\x1b[36m(RayTrainWorker pid=10406, ip=10.0.0.1)\x1b[0m loss 0.5", "loss 0.5", None, "RayTrainWorker pid=10406, ip=10.0.0.1", None),
    ("(worker 3) RuntimeError: x", "RuntimeError: x", 3, None, None),
    ("[pod/worker-1/pytorch] step 3", "step 3", None, "pod/worker-1/pytorch", None),
    ("2026-01-02T03:04:05.123456789Z stdout F step 3", "step 3", None, None, None),
    ("2026-01-02 03:04:05,123 - INFO - trainer - step 3", "step 3", None, None, "I"),
    ("2026-01-02 03:04:05,123 - trainer.core - WARNING - Loss is nan.", "Loss is nan.", None, None, "W"),
    ("10/30/2024 03:00:19 - INFO - step 20 loss 5.2355", "step 20 loss 5.2355", None, None, "I"),
    ("10/02/2026 19:12:03 - INFO - __main__ - hello", "hello", None, None, "I"),
    ("[INFO|trainer.py:2409] 2026-10-02 19:12:03,000 >> ***** Running training *****", "***** Running training *****", None, None, "I"),
    ("[2026-05-01 10:00:00,123] [INFO] [engine.py:12:step] [Rank 0] step=10", "step=10", 0, None, "I"),
    ("I0415 23:59:41.118120 140001 checkpoint_manager.py:701] saved", "saved", None, None, "I"),
    ("W0000 00:00:1700000000.123456 1 x.cc:1] y", "W0000 00:00:1700000000.123456 1 x.cc:1] y", None, None, None),
    ("[Mon Oct  2 19:12:03 2023] Out of memory: Killed process 1", "Out of memory: Killed process 1", None, None, None),
    ("Oct  2 19:12:03 gpu-7 kernel: Out of memory", "kernel: Out of memory", None, "gpu-7", None),
    ("plain text: 3: not a prefix", "plain text: 3: not a prefix", None, None, None),
    ("{'loss': 0.5, 'epoch': 1.0}", "{'loss': 0.5, 'epoch': 1.0}", None, None, None),
    ("[0]\ttrain-auc:0.85", "[0]\ttrain-auc:0.85", None, None, None),
]


@pytest.mark.parametrize(("raw", "text", "rank", "source", "level"), CASES)
def test_prefixes(raw, text, rank, source, level):
    cleaned = Cleaner().clean(raw)
    assert (cleaned.text, cleaned.rank, cleaned.source, cleaned.level) == (text, rank, source, level)


def test_times_become_utc_seconds():
    expected = datetime(2026, 5, 1, 10, 0, 0, 123000, tzinfo=UTC).timestamp()
    for raw in ("2026-05-01 10:00:00,123 - INFO - x - y", "[2026-05-01 10:00:00,123] [INFO] [a.py:1:f] y", "2026-05-01T12:00:00.123+02:00 y"):
        assert Cleaner().clean(raw).time == pytest.approx(expected)


def test_a_time_without_a_date_takes_the_last_date_seen():
    cleaner = Cleaner()
    cleaner.clean("2026-05-01 10:00:00 a")
    assert cleaner.clean("11:00:00 b").time == datetime(2026, 5, 1, 11, tzinfo=UTC).timestamp()


def test_cloud_logging_json_lines():
    raw = '{"timestamp":"2026-05-01T10:00:00.5Z","severity":"ERROR","resource":{"labels":{"task_name":"workerpool0-0"}},"jsonPayload":{"message":"Traceback (most recent call last):\\n  File \\"a.py\\", line 1"}}'
    lines = Cleaner().clean_all(raw)
    assert [c.text for c in lines] == ["Traceback (most recent call last):", '  File "a.py", line 1']
    assert {c.source for c in lines} == {"workerpool0-0"} and {c.level for c in lines} == {"E"}
    assert lines[0].time == datetime(2026, 5, 1, 10, 0, 0, 500000, tzinfo=UTC).timestamp()


def test_json_metrics_are_no_envelope():
    assert Cleaner().clean_all('{"step": 1, "loss": 0.5}')[0].text == '{"step": 1, "loss": 0.5}'


def test_srun_labels_are_told_from_counters():
    assert looks_like_srun(["0: a", "1: b", "0: c", "1: d"])
    assert not looks_like_srun(["0:\tlearn: 0.3", "1:\tlearn: 0.2", "2:\tlearn: 0.1"])
    assert not looks_like_srun(["a", "b", "0: c", "d"])
    assert Cleaner(srun_labels=True).clean("12: [rank12]: x").rank == 12
