"""What the example pipeline's tasks do: a small softmax regression on synthetic data, with numpy.

``python -m pipelines.steps STEP --name value ...`` runs one step. ``run`` is what a task calls: it runs the
step as a child process and keeps what it prints in a log file among the task's outputs, since kfp.local
prints a task's output and keeps no copy.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

FAILURES = ("none", "nan", "oom", "data", "config", "kill")
FEATURES, CLASSES, SHARDS, ROWS = 16, 4, 4, 256

logger = logging.getLogger("train")


def run(step: str, log: str, **values: object) -> None:
    """Run ``step`` in a child process; its output goes to stdout and to the file ``log``.

    Raises:
        SystemExit: with the child's exit code, or 128 + the number of the signal that ended it.
    """
    command = [sys.executable, "-m", "pipelines.steps", step]
    for name, value in values.items():
        command += [f"--{name.replace('_', '-')}={value}"]
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"}
    with open(log, "w", encoding="utf-8") as file:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
        for line in child.stdout:
            sys.stdout.write(line)
            file.write(line)
            file.flush()
        code = child.wait()
        if code:
            ended = f"died with <Signals.{signal.Signals(-code).name}: {-code}>" if code < 0 else f"returned non-zero exit status {code}"
            line = f"subprocess.CalledProcessError: Command 'python -m pipelines.steps {step}' {ended}.\n"
            sys.stdout.write(line)
            file.write(line)
    if code:
        sys.stdout.flush()
        raise SystemExit(code if code > 0 else 128 - code)


def ingest(out: str, corrupt: bool) -> None:
    """Write the shards as CSV: FEATURES numbers and a label per row. ``corrupt`` spoils one value of one row."""
    import numpy as np

    rng = np.random.default_rng(7)
    weights = np.random.default_rng(1).normal(size=(FEATURES, CLASSES))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        x = rng.normal(size=(ROWS, FEATURES))
        y = (x @ weights + rng.normal(scale=0.5, size=(ROWS, CLASSES))).argmax(1)
        rows = [",".join(f"{v:.5f}" for v in row) + f",{label}" for row, label in zip(x, y, strict=True)]
        if corrupt and shard == 2:
            cells = rows[117].split(",")
            cells[5] = "0.3\ufffd1"
            rows[117] = ",".join(cells)
        (folder / f"shard-{shard:03d}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        logger.info("wrote %s (%d rows)", folder / f"shard-{shard:03d}.csv", ROWS)


def validate(data: str) -> None:
    """Count shards, rows and columns. Values are not parsed here, so a corrupt one gets through."""
    shards = sorted(Path(data).glob("shard-*.csv"))
    if len(shards) != SHARDS:
        raise ValueError(f"expected {SHARDS} shards in {data}, found {len(shards)}")
    for shard in shards:
        rows = shard.read_text(encoding="utf-8").splitlines()
        if len(rows) != ROWS or any(row.count(",") != FEATURES for row in rows):
            raise ValueError(f"{shard}: wrong number of rows or columns")
        logger.info("%s: %d rows, %d columns", shard.name, len(rows), FEATURES + 1)


def load_shard(path: Path):
    """(features, labels) of one shard: float64 [ROWS, FEATURES], int64 [ROWS]."""
    import numpy as np

    table = np.loadtxt(path, delimiter=",", encoding="utf-8")
    return table[:, :FEATURES], table[:, FEATURES].astype(np.int64)


def softmax(z):
    import numpy as np

    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def train(data: str, model: str, failure: str, learning_rate: float, steps: int, batch_size: int, memory_limit: int) -> None:
    """Train and write the weights to ``model``; fails for real in the way that ``failure`` names."""
    import resource

    import numpy as np

    logger.info("python %s numpy %s", sys.version.split()[0], np.__version__)
    if failure == "nan":
        learning_rate = 2e3
    if failure == "oom":
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
        batch_size = 1 << 24
    logger.info("learning_rate=%g batch_size=%d steps=%d", learning_rate, batch_size, steps)

    mean, scale = np.zeros(FEATURES), np.ones(FEATURES)
    if failure == "config":
        statistics = np.load(os.environ.get("FEATURE_STATS", "/mnt/features/v3/feature_stats.npz"))
        mean, scale = statistics["mean"], statistics["scale"]

    features, labels = [], []
    for shard in sorted(Path(data).glob("shard-*.csv")):
        logger.info("loading %s", shard)
        x, y = load_shard(shard)
        features.append((x - mean) / scale)
        labels.append(y)
    features, labels = np.concatenate(features), np.concatenate(labels)

    hidden = 64
    rng = np.random.default_rng(3)
    w1 = rng.normal(scale=0.3, size=(FEATURES, hidden))
    w2 = rng.normal(scale=0.3, size=(hidden, CLASSES))
    for step in range(1, steps + 1):
        index = rng.integers(0, len(features), size=batch_size)
        x, y = features[index], labels[index]
        h = np.maximum(x @ w1, 0.0)
        p = softmax(h @ w2)
        loss = float(-np.log(p[np.arange(batch_size), y] + 1e-300).mean())
        dz = p.copy()
        dz[np.arange(batch_size), y] -= 1.0
        dz /= batch_size
        g2 = h.T @ dz
        g1 = x.T @ ((dz @ w2.T) * (h > 0))
        norm = float(np.sqrt((g1**2).sum() + (g2**2).sum()))
        if step <= 5 or step % 20 == 0 or not np.isfinite(loss):
            logger.info("step %d/%d loss=%.4f grad_norm=%.4f lr=%g", step, steps, loss, norm, learning_rate)
        if not np.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} at step {step}")
        if failure == "kill" and step == steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        w1 -= learning_rate * g1
        w2 -= learning_rate * g2
    Path(model).parent.mkdir(parents=True, exist_ok=True)
    with open(model, "wb") as file:
        np.savez(file, w1=w1, w2=w2)
    logger.info("saved model to %s", model)
    logger.info("training finished after %d steps", steps)


def evaluate(data: str, model: str, out: str) -> None:
    """Accuracy on the last shard, written to ``out``."""
    import numpy as np

    with np.load(model) as weights:
        w1, w2 = weights["w1"], weights["w2"]
    x, y = load_shard(sorted(Path(data).glob("shard-*.csv"))[-1])
    accuracy = float(((np.maximum(x @ w1, 0.0) @ w2).argmax(1) == y).mean())
    logger.info("eval_accuracy=%.4f", accuracy)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(f"{accuracy:.4f}", encoding="utf-8")


def deploy(model: str, accuracy: float) -> None:
    """Say what would be served."""
    logger.info("serving %s (accuracy %.4f)", model, accuracy)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="pipelines.steps")
    commands = parser.add_subparsers(dest="step", required=True)
    for name, options in {
        "ingest": {"out": str, "corrupt": json.loads},
        "validate": {"data": str},
        "train": {"data": str, "model": str, "failure": str, "learning_rate": float, "steps": int, "batch_size": int, "memory_limit": int},
        "evaluate": {"data": str, "model": str, "out": str},
        "deploy": {"model": str, "accuracy": float},
    }.items():
        command = commands.add_parser(name)
        for option, kind in options.items():
            command.add_argument(f"--{option.replace('_', '-')}", type=kind, required=True)
    values = vars(parser.parse_args(argv))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    step = values.pop("step")
    logger.name = step
    globals()[step](**values)


if __name__ == "__main__":
    main()
