"""The order of what several logs say."""

from check_failed_run.api import diagnose
from check_failed_run.record import RunRecord
from check_failed_run.sources.log_files import add_text

CURVE = "".join(f'{{"step": {step}, "loss": {3 - step / 100:.4f}, "learning_rate": 0.0001}}\n' for step in range(10, 110, 10))


def _log(minute: int, error: str) -> str:
    return (
        "2026-05-01 12:00:00,000 INFO step 10 loss 2.9\n"
        f"2026-05-01 12:{minute:02d}:00,000 INFO step 100 loss 2.0\n"
        f"2026-05-01 12:{minute:02d}:30,000 ERROR training failed\n"
        f'Traceback (most recent call last):\n  File "/app/train.py", line 41, in <module>\n    main()\n{error}\n'
    )


LATER = _log(20, "PIL.UnidentifiedImageError: cannot identify image file '/data/7.jpg'")
FIRST = _log(10, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.10 GiB is free.")


def test_metrics_without_times_do_not_undo_the_order_of_logs_with_times():
    record = RunRecord()
    add_text("node-0.log", LATER, record)
    add_text("node-1.log", FIRST, record)
    without = diagnose(record, run_id="r")
    add_text("trainer_state.json", CURVE, record)
    report = diagnose(record, run_id="r")
    assert without.failure_point.input == report.failure_point.input == "node-1.log"
    assert report.primary_cause == without.primary_cause
