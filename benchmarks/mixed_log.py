"""A large training log as several trainers would have written it: dict lines, Megatron lines, bars, JSON lines, NCCL INFO, warnings.

    python -m benchmarks.mixed_log OUT MIB

The same size gives the same bytes. One rank runs out of memory in the middle; the others time out at the end.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

WARNINGS = (
    "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:295: FutureWarning: `torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "Token indices sequence length is longer than the specified maximum sequence length for this model (5123 > 4096). Running this sequence through the model will result in indexing errors",
    "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.",
)
TALK = (
    "INFO config: timeout=1800 retries=3 on_error=skip nan_check=True oom_score_adj=0 log_level=info",
    "INFO eval: wer=0.1234 error_rate=0.0312 failed=0 skipped=2 killed=0 memory_allocated=61.2GiB",
    "DEBUG dataloader: shard 00123-of-02048.tar opened in 0.021s, 0 errors, prefetch queue 16/16",
    "INFO checkpoint: saving step to gs://bucket/run-17/ckpt (sharded, 512 files) ... done in 41.2s",
    "INFO gcs: retrying GET https://storage.googleapis.com/bucket/o/shard after transient 200 (attempt 1)",
)
FAILURE = """[rank5]: Traceback (most recent call last):
[rank5]:   File "/app/train.py", line 812, in <module>
[rank5]:     main()
[rank5]:   File "/app/train.py", line 640, in main
[rank5]:     loss = trainer.training_step(batch)
[rank5]:   File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl
[rank5]:     return self._call_impl(*args, **kwargs)
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 5 has a total capacity of 79.15 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.11 GiB memory in use. Of the allocated memory 70.20 GiB is allocated by PyTorch, and 0.91 GiB is reserved by PyTorch but unallocated.
"""


def _end() -> Iterator[str]:
    for rank in range(64):
        if rank != 5:
            yield f"[rank{rank}]:[E1203 09:41:{rank % 60:02d}.120311 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88213, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800077 milliseconds before timing out.\n"
    yield "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"


def pieces(size: int) -> Iterator[str]:
    """Pieces of a log of about ``size`` bytes."""
    rng = random.Random(7)
    noise = [rng.random() for _ in range(1 << 16)]
    written, step, failed = 0, 0, False
    while written < size:
        step += 1
        u, v = noise[step & 0xFFFF], noise[(step * 7 + 13) & 0xFFFF]
        loss = 1.8 + 8 * math.exp(-step / 4e5) + 0.05 * v
        piece = _piece(v, step, u, loss)
        if not failed and written > size / 2:
            failed, piece = True, piece + "\n" + FAILURE
        written += len(piece)
        yield piece
    yield "\n"
    yield from _end()


def _piece(kind: float, step: int, u: float, loss: float) -> str:
    rate = 5e-5 * (1 - step / 6e6)
    clock = f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
    if kind < 0.33:
        return f"{{'loss': {loss:.4f}, 'grad_norm': {0.2 + u:.6f}, 'learning_rate': {rate:.6e}, 'epoch': {step / 1e6:.4f}}}\n"
    if kind < 0.45:
        return (
            f" [2026-11-03 {clock}] iteration {step:8d}/ 6000000 | consumed samples: {step * 1024:12d} | elapsed time per iteration (ms): {1200 + 50 * u:.1f} | "
            f"learning rate: {rate:.6E} | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {0.2 + u:.3f} | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
    if kind < 0.62:
        return f"\r {step // 60000 % 100:3d}%|{'█' * (step // 600000 % 10)}{'▏' if u < 0.5 else ' '}         | {step}/6000000 [{clock}<12:33,  {1 + u:.2f}it/s, loss={loss:.3f}]"
    if kind < 0.74:
        return f'{{"step": {step}, "loss": {loss:.6f}, "grad_norm": {0.2 + u:.4f}, "lr": {rate:.6e}, "tokens_per_sec": {41000 + 1000 * u:.1f}}}\n'
    if kind < 0.92:
        return f"2026-11-03 {clock},{int(u * 1000):03d} - INFO - trainer - [rank0] step={step} loss={loss:.4f} grad_norm={0.2 + u:.3f} lr={rate:.3e} dt={1.1 + u / 10:.3f}s\n"
    if kind < 0.985:
        channel, a = int(u * 24), int(u * 64)
        return f"node-{int(u * 8)}:{1200 + a}:{1300 + a} [{int(u * 8)}] NCCL INFO Channel {channel:02d}/0 : {a}[{int(u * 8)}] -> {(a + 1) % 64}[{int(u * 8)}] via P2P/CUMEM/read\n"
    if kind < 0.993:
        return WARNINGS[step % len(WARNINGS)] + "\n"
    return f"2026-11-03 {clock} {TALK[step % len(TALK)]}\n"


def write(path: Path, mib: int) -> None:
    """Write a log of ``mib`` MiB."""
    with path.open("w", encoding="utf-8") as file:
        for piece in pieces(mib << 20):
            file.write(piece)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
