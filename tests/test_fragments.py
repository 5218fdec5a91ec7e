"""Short logs, each about one step of the reasoning: the verdict, and the line that it points at (marked ``>>``)."""

from __future__ import annotations

import pytest

from check_failed_run.api import diagnose
from check_failed_run.record import RunRecord
from check_failed_run.sources.log_files import add_text


def steps(first: int, last: int, text: str = "step {n} loss {loss:.4f}", loss=lambda n: 2.0 / (1 + n / 10)) -> str:
    return "".join(text.format(n=n, loss=loss(n)) + "\n" for n in range(first, last))


def stack(error: str, *, file: str = "/app/train.py", function: str = "main", module: bool = True) -> str:
    top = f'  File "{file}", line 90, in <module>\n    main()\n' if module else ""
    return f'Traceback (most recent call last):\n{top}  File "{file}", line 12, in {function}\n    work()\n{error}\n'


SUMMARY = (
    "E0602 11:41:20.580000 140251 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 1 (pid: 302) of binary: /usr/bin/python\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
)
END = "training finished\n"

FRAGMENTS = {
    # curves
    "a loss scale that grows is no loss": (steps(1, 60, "step {n} loss {loss:.4f} loss_scale {n}"), "none", "healthy"),
    "a loss that comes back is no divergence": (steps(1, 60, loss=lambda n: 9.0 if n == 30 else 2.0 / (1 + n / 10)) + END, "none", "healthy"),
    "a loss that stays up is": (steps(1, 80, loss=lambda n: 1.0 - n / 100 if n < 40 else 3.0 + n / 20), "optimization-divergence", "diverged"),
    "a squared error is a loss too": ("".join(f'{{"hour": {n}, "train_mse": {10.0 if n < 20 else 10.0 * 1.5 ** (n - 20):.2f}}}\n' for n in range(60)), "optimization-divergence", "diverged"),
    "columns below a header": ("epoch,lr,train_mse,val_mse\n" + "".join(f"{n},0.01,{3.0 - n / 20 if n < 20 else 2.0 + (n - 20):.3f},4.0\n" for n in range(40)), "optimization-divergence", "diverged"),
    "a term may grow while the total falls": (steps(1, 60, "step {n} loss {loss:.4f} kl_loss {n}") + END, "none", "healthy"),
    "adversarial losses have no level": ("".join(f"step {n} d_loss {0.7 - n / 200:.3f} g_loss {0.7 + n / 20:.3f}\n" for n in range(1, 80)) + END, "none", "healthy"),
    "NaN that lasts": (steps(1, 150) + ">>" + steps(150, 160, "step {n} loss nan"), "nan-inf", "diverged"),
    "one NaN that heals": (steps(1, 50) + "step 50 loss nan\n" + steps(51, 120) + END, "none", "healthy"),
    # exceptions
    "an exception without a known meaning is not blamed on its launcher": (steps(1, 40) + stack(">>app.errors.Odd: flux at 7") + SUMMARY, "unknown", "crashed"),
    "a logged traceback after which the run trains on": (
        "".join(f"2026-01-01 10:00:{n:02d} step {n} loss {2 / n:.3f}\n" for n in range(1, 20)) + "2026-01-01 10:00:20 ERROR could not report\n" + stack("ConnectionRefusedError: [Errno 111] Connection refused")
        + "".join(f"2026-01-01 10:00:{n:02d} step {n} loss {2 / n:.3f}\n" for n in range(21, 50)), "none", "healthy"),
    "buffered steps behind a fatal traceback prove nothing": (steps(1, 10) + stack(">>MemoryError") + steps(10, 20), "oom", "crashed"),
    "a checkpoint that can't be unpacked": (steps(1, 30) + stack(">>ValueError: Unpack failed: incomplete input", function="restore"), "io-checkpoint", "crashed"),
    "a bad batch after good ones": (steps(1, 30) + stack(">>KeyError: 'north'", function="step"), "data-pipeline", "crashed"),
    "the same at the start is not the data's fault": (stack("KeyError: 'north'", function="step"), "config-error", "crashed"),
    "a client library says what grpc said": (
        "Traceback (most recent call last):\n  File \"/usr/lib/python3.11/site-packages/grpc/_channel.py\", line 1010, in _end\n    raise _InactiveRpcError(state)\n"
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.PERMISSION_DENIED\n\tdetails = \"Permission 'aiplatform.models.upload' denied on resource 'x'\"\n>\n\n"
        "The above exception was the direct cause of the following exception:\n\n" + stack(">>google.api_core.exceptions.PermissionDenied: 403 Permission 'aiplatform.models.upload' denied on resource 'x'"),
        "cloud-permissions-quota", "crashed"),
    # what follows
    "SIGABRT only follows from what was printed before": (
        steps(1, 30) + ">>h:81:1 [4] transport/net_ib.cc:1647 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<54862> with status=12 opcode=0 len=0 vendor err 129\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\nERROR:composer.cli.launcher:Rank 20 crashed with exit code -6.\n", "nccl-distributed", "crashed"),
    "a kill without a reason stays one": (steps(1, 30) + ">>trainer-1 exited with code 137\n", "process-crash", "crashed"),
    "a kill beside the kernel's record": (steps(1, 30) + "Killed\n[11.1] Out of memory: Killed process 77 (python) total-vm:99kB, anon-rss:98kB\n", "oom", "crashed"),
    "a skipped batch": (steps(1, 20) + "| WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 694.00 MiB\n"
                        "| WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass\n" + steps(20, 60) + END, "none", "healthy"),
    "advice is no error": (steps(1, 60) + "If you see CUDA out of memory, lower the batch size.\n" + END, "none", "healthy"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragment(name):
    text, primary, status = FRAGMENTS[name]
    marked = next((n for n, line in enumerate(text.split("\n"), 1) if line.startswith(">>")), None)
    record = RunRecord()
    add_text("train.log", text.replace(">>", ""), record)
    report = diagnose(record, run_id="fragment")
    assert (report.primary_cause, report.run_status) == (primary, status), report.root_cause
    if marked is not None:
        assert report.failure_point.line == marked, report.failure_point
    if primary == "unknown":
        assert report.primary_cause_confidence <= 0.3 and report.missing


@pytest.mark.parametrize(("task", "primary"), [(None, "evaluation-mismatch"), ("classification", "evaluation-mismatch"), ("regression", "none")])
def test_what_is_trained_sets_which_scores_are_odd(task, primary):
    record = RunRecord(task=task)
    add_text("train.log", "".join(f"epoch {n} train_loss {2.0 / n:.3f} val_acc 1.0000\n" for n in range(1, 12)), record)
    assert diagnose(record, run_id="fragment").primary_cause == primary
