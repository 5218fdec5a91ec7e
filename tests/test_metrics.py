"""Every metric reader on its own samples, numbers in every spelling, and what must not become a point."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from check_failed_run.scanning import metrics
from check_failed_run.scanning.facts import LogLine
from check_failed_run.scanning.metrics import PREFILTER, MetricReader, parse_number

SAMPLES = [(reader, lines, expected) for reader, samples in metrics._READERS.items() for lines, expected in samples]
FIELDS = ("step", "epoch", "total_steps", "total_epochs", "kind")


def feed(lines, reader=None):
    reader = reader or MetricReader()
    point = None
    for n, text in enumerate([lines] if isinstance(lines, str) else lines, 1):
        point = reader.feed(LogLine("train.log", n, 0, text, text, rank=2, time=5.0))
    return point


@pytest.mark.parametrize(("reader", "lines", "expected"), SAMPLES, ids=[str(s[1])[:50] for s in SAMPLES])
def test_samples(reader, lines, expected):
    point = feed(lines)
    if expected is None:
        assert point is None
        return
    assert point is not None and point.reader == reader
    for key, value in expected.items():
        got = getattr(point, key) if key in FIELDS else point.get(key)
        if isinstance(value, float) and math.isnan(value):
            assert got is not None and math.isnan(got), (key, point)
        elif isinstance(value, float | int):
            assert got == pytest.approx(value), (key, point)
        else:
            assert got == value, (key, point)
    assert point.rank == 2 and point.time == 5.0


@pytest.mark.parametrize("text", ["nan", "NaN", "NAN", "Nan", "-nan", "+nan", "nan(ind)", "-nan(ind)", "nan(snan)", "nanxxx", "nan.0", "1.#QNAN", "-1.#IND", "1.#QNAN0", "tensor(nan)", "'nan'"])
def test_nan(text):
    assert math.isnan(parse_number(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [("inf", math.inf), ("-inf", -math.inf), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1.#INF", math.inf), ("-1.#INF00", -math.inf), ("Inf", math.inf), ("INF", math.inf),
     ("1e-05", 1e-5), ("1.2E+00", 1.2), ("1,234", 1234), ("1,234,567.5", 1234567.5), ("12.3k", 12300), ("2M", 2e6), ("97%", 97), ("-.5", -0.5), ("5.", 5), ("'0.25'", 0.25)],
)  # fmt: skip
def test_numbers(text, value):
    assert parse_number(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "abc", "nano", "information", "1.2.3", "0x1f", "12:30", "none", "1,2"])
def test_no_numbers(text):
    with pytest.raises(ValueError):
        parse_number(text)


@pytest.mark.parametrize(
    "text",
    [
        "Downloading shards:  50%|█████     | 1/2 [00:01<00:01,  1.20s/it]",
        "Writing model shards: 100%|██████████| 1/1 [00:00<00:00, 327.32it/s]",
        "Saving model checkpoint to out/checkpoint-500",
        "TrainingArguments(learning_rate=3e-05, num_train_epochs=3, warmup_steps=500, seed=42, loss=1)",
        "Step 0: NCCL WARN Call to ibv_create_qp failed",
        "2 of 3 workers at step 100",
        "rank 3: loss of connection after 12 s",
        "UserWarning: lr_scheduler.step() before optimizer.step() 5 times",
        "config: {'lr': 0.001, 'hidden': 512, 'layers': 12}",
        "    loss = criterion(out, y) / 4",
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)",
        "Trainable params: 1,234,567 || all params: 7,000,000 || trainable%: 0.17",
    ],
)
def test_not_metrics(text):
    assert feed(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "шаг 61000 потери 1.9067 скорость обуч. 1.10e-04 норма град. 0.250 ток/с 61565 ошибок 0",
        "步 61000 损失 1.9067 学习率 1.1e-4",
        "步数: 61000, 损失: 1.9067, 学习率: 1.1e-4",
        "ステップ 61000 損失 1.9067 学習率 1.1e-4",
        "étape 61000 perte 1.9067 lr 1.1e-4",
        "Schritt 61000 Verlust 1.9067 Lernrate 1.1e-4",
    ],
)
def test_other_languages(text):
    point = feed(text)
    assert point.step == 61000 and point.get("loss") == 1.9067 and point.get("lr") == pytest.approx(1.1e-4)


def test_evaluation_bar_inside_a_training_bar():
    reader = MetricReader()
    assert feed("  5%|▌         | 50/1000 [00:10<03:10,  5.00it/s]", reader).step == 50
    assert feed(" 50%|█████     | 5/10 [00:01<00:01,  5.00it/s]", reader) is None
    assert feed("  6%|▌         | 60/1000 [00:12<03:08,  5.00it/s]", reader).step == 60


def test_values_are_bounded():
    point = feed("{" + ", ".join(f"'rewards/r{i}': {i}.0" for i in range(200)) + ", 'loss': 1.0}")
    assert len(point.values) == 24


@pytest.mark.parametrize(("reader", "lines", "expected"), [s for s in SAMPLES if s[2] and "loss" in s[2] and isinstance(s[1], str)])
def test_prefilter_finds_loss_lines(reader, lines, expected):
    assert PREFILTER.search(lines.encode() + b"\n")


@given(st.lists(st.one_of(st.text(max_size=200), st.sampled_from([t for _, s, _ in SAMPLES for t in ([s] if isinstance(s, str) else s)]), st.from_regex(r"[\[{|]? ?(step|loss|epoch)[ =:]{1,2}[\w.+-]{0,12}", fullmatch=True)), max_size=30))
def test_never_raises(texts):
    reader = MetricReader()
    for text in texts:
        reader.feed(LogLine("l", 1, 0, text, text))
