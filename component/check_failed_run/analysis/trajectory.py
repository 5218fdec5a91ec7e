"""What the metrics say: NaN onset, divergence, spikes, stalls, evaluation that does not fit the training.

Works on points in log order. A trend is a :class:`Cause` whose signature is ``trend/<name>``; thresholds are
module constants with their reason. Only sustained behaviour counts: one bad value that heals is no trend.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, field, replace

from check_failed_run.scanning.facts import MetricPoint

EARLY_STEPS = 100  # "NaN in the first 100 steps" points at precision, data or rate; later at instability
SUSTAINED = 0.6  # share of non-finite values after the onset that makes a NaN lasting
RISE = 0.5  # divergence: the loss gives back this share of what it had gained
FACTOR = 1.3  # ... and stands this far above its best
SLOWDOWN = 5.0  # a step takes this many times its early median: throughput has collapsed

REINFORCEMENT = ("reward", "ep_rew", "ep_len", "explained_variance", "approx_kl", "clip_frac", "entropy_loss", "value_loss", "policy_gradient_loss", "actor_loss", "critic_loss", "episode_return")
ADVERSARIAL = re.compile(r"(?:^|_)(?:d|g|dis|disc|discriminator|gen|generator|adv|adversarial|critic)_?loss|loss_?(?:d|g|disc|gen|dis|adv)(?:$|_)")
LOSSES = ("loss", "train_loss", "train_total_loss")
HIGHER = ("accuracy", "acc", "acc@1", "acc1", "top1", "auc", "f1", "map", "map50", "dice", "iou", "miou", "precision", "recall", "r2", "ndcg")
LOWER = ("wer", "cer")


@dataclass(slots=True)
class Trend:
    """A behaviour of the metrics.

    ``point`` is where it first shows, ``around`` are points to quote, ``strength`` 1 to 3.
    """

    name: str
    cls: str
    point: MetricPoint
    around: list[MetricPoint]
    summary: str
    strength: int = 2
    status: str | None = None
    series: str = "loss"
    step: int | None = None
    values: dict = field(default_factory=dict)


@dataclass(slots=True)
class Series:
    name: str
    points: list[MetricPoint]
    values: list[float]

    def finite(self) -> list[tuple[MetricPoint, float]]:
        return [(p, v) for p, v in zip(self.points, self.values, strict=True) if math.isfinite(v)]


def series_of(points: list[MetricPoint]) -> dict[str, Series]:
    """Series by name. Where several ranks or readers print the same metric, the one with most points counts."""
    groups: dict[str, dict[tuple, list[tuple[MetricPoint, float]]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        for name, value in point.values:
            groups[name][(point.reader, point.rank)].append((point, value))
    result = {}
    for name, by_key in groups.items():
        best = max(by_key.values(), key=len)
        result[name] = Series(name, [p for p, _ in best], [v for _, v in best])
    return result


AHEAD = 200  # lines within which a bar that runs ahead of the printed lines still tells the step


class Steps:
    """Steps for points that carry none: the nearest counter before them in the log."""

    def __init__(self, points: list[MetricPoint]):
        main = _main_totals(points)
        self._known = [
            (p.line, p.offset, global_step(p), p.reader)
            for p in points
            if p.step is not None and not (p.reader == "bars" and (p.kind == "eval" or (p.kind == "progress" and main and p.total_steps not in main)))
        ]

    def at(self, line: int, offset: int | None = None) -> int | None:
        last: dict[str, tuple[int, int]] = {}  # reader: (line, step)
        reader = None
        for known_line, known_offset, step, name in self._known:
            if known_line > line or (offset is not None and known_line == line and known_offset > offset):
                break
            last[name] = (known_line, step)
            reader = name
        if reader is None:
            return None
        newest, step = last[reader]
        # a bar runs ahead of the lines that are printed every so many steps; a counter that starts again does not
        ahead = [s for at, s in last.values() if newest - at <= AHEAD and 0 <= s - step <= max(step // 5, 500)]
        return max(ahead)

    def of(self, point: MetricPoint) -> int | None:
        return global_step(point) if point.step is not None else self.at(point.line, point.offset)


def _main_totals(points: list[MetricPoint]) -> set[int | None]:
    """Totals of the bars that count training: those with a loss, else the first that moves. Evaluation has bars of its own."""
    bars = [p for p in points if p.reader == "bars" and p.step is not None]
    with_loss = {p.total_steps for p in bars if p.kind == "train"}
    if with_loss:
        return with_loss
    steps: dict[int | None, set[int]] = {}
    for point in bars:
        steps.setdefault(point.total_steps, set()).add(point.step)
        if len(steps[point.total_steps]) >= 4:
            return {point.total_steps}
    return set()


def number_steps(points: list[MetricPoint], logging_steps: int | None) -> list[MetricPoint]:
    """Give steps to lines that a trainer prints every ``logging_steps`` steps without saying which (transformers' Trainer dicts).

    The interval is the setting, or follows from a linear schedule and the bar's total. Only for a log that holds
    the run's first line: there the n-th line is step n * interval.
    """
    lines = [p for p in points if p.reader == "mappings" and p.kind == "train" and p.get("loss") is not None]
    if len(lines) < 3 or any(p.step is not None for p in lines) or lines[0].epoch is None or lines[-1].epoch is None:
        return points
    if any(p.reader != "mappings" and p.kind == "train" and p.step for p in points) or len({p.rank for p in lines}) > 1:
        return points
    pace = (lines[-1].epoch - lines[0].epoch) / (len(lines) - 1)
    if pace <= 0 or lines[0].epoch > 1.6 * pace + 0.01:
        return points  # the log begins in the middle of the run
    total = max((p.total_steps for p in points if p.total_steps), default=None)
    every = logging_steps or _interval_of_schedule([p.get("lr") for p in lines], total)
    if not every or every < 1:
        return points
    steps = {p.offset: (i + 1) * int(every) for i, p in enumerate(lines)}
    if total is not None and max(steps.values()) > total + every:
        return points
    return [replace(p, step=steps[p.offset], total_steps=p.total_steps or total) if p.offset in steps and p in lines else p for p in points]


def _interval_of_schedule(rates: list[float | None], total: int | None) -> int | None:
    """Steps between two lines from how fast a linear schedule falls over ``total`` steps."""
    known = [r for r in rates if r is not None and math.isfinite(r)]
    if total is None or len(known) < 3 or max(known) <= 0:
        return None
    falls = [a - b for a, b in itertools.pairwise(known) if a > b]
    if len(falls) < 0.8 * (len(known) - 1):
        return None
    every = round(statistics.median(falls) / max(known) * total)
    return every if every >= 1 else None


def global_step(point: MetricPoint) -> int | None:
    """Steps since the start of training: bars of whole epochs count from zero in each one (Lightning from epoch 0, Keras from 1)."""
    if point.step is None or point.reader != "bars" or point.epoch is None or not point.total_steps or point.total_epochs is not None:
        return point.step
    if point.epoch != int(point.epoch) or point.step > point.total_steps:
        return point.step
    return int(point.epoch) * point.total_steps + point.step


def find_trends(
    points: list[MetricPoint], *, resumed: bool = False, num_labels: int | None = None, task: str | None = None, learning_rate: float | None = None
) -> list[Trend]:
    """All trends of one attempt of one log, earliest first."""
    if not points:
        return []
    series = series_of(points)
    steps = Steps(points)
    trends: list[Trend] = []
    trends += _nan(series, steps, resumed)
    nan_line = min((t.point.line for t in trends), default=None)
    if not any(t.name.startswith("trend/nan") and t.name != "trend/nan-eval-only" for t in trends):
        trends += _divergence(series, steps, resumed) or _never_learned(series, steps, num_labels, learning_rate)
    else:
        trends += [t for t in _divergence(series, steps, resumed) if nan_line is not None and t.point.line < nan_line]
    trends += _slowdown(series, steps)
    if task != "regression":  # its scores have no level of guessing, and may well be near 1 at once
        trends += _evaluation(series, steps, num_labels if task != "language-modeling" else None)
    return sorted(trends, key=lambda t: t.point.line)


# NaN ----------------------------------------------------------------------------------------------


def _train_losses(series: dict[str, Series]) -> list[Series]:
    """Loss-like training series, the total first."""
    named = [series[n] for n in LOSSES if n in series]
    others = [s for n, s in series.items() if n not in LOSSES and n != "loss_scale" and not n.startswith("eval_") and ("loss" in n or (n.startswith("train_") and any(
        w in n for w in ("rmse", "mae", "mse", "logloss", "l2", "l1", "error", "nll", "loss", "deviance"))))]
    return named + sorted(others, key=lambda s: -len(s.points))


def _nan(series: dict[str, Series], steps: Steps, resumed: bool) -> list[Trend]:
    found: list[Trend] = []
    grad = series.get("grad_norm")
    for loss in _train_losses(series)[:6]:
        onset = _lasting(loss.values)
        if onset is None:
            continue
        if loss.name not in LOSSES and any(n in series and all(map(math.isfinite, series[n].values)) and len(series[n].values) > 3 for n in LOSSES):
            continue  # a part is NaN while the total stays finite: an unused term
        point = loss.points[onset]
        found.append(_nan_trend(loss, onset, point, steps, resumed))
        break
    if grad is not None and not found:
        onset = _lasting(grad.values, share=0.8, least=2)
        if onset is not None and not math.isfinite(grad.values[-1]):
            point = grad.points[onset]
            after = [p.get("loss") for p in grad.points[onset:]]
            hidden = sum(v == 0.0 or v is None for v in after) >= 0.6 * len(after)
            if hidden or len(after) >= 5:
                name = "trend/nan-hidden-zero" if any(v == 0.0 for v in after) else "trend/nan-gradient"
                found.append(_nan_trend(grad, onset, point, steps, resumed, name=name))
    scale = series.get("loss_scale")
    if scale is not None and len(scale.values) >= 6:
        values = [v for v in scale.values if math.isfinite(v)]
        low = next((i for i, v in enumerate(scale.values) if v < 1e-3), None)
        if values and values[-1] <= min(1e-3, values[0] / 1e4) and low is not None:
            first = next((i for i in range(len(scale.values) - 1) if scale.values[i + 1] < scale.values[i]), low)
            if not found:
                point = scale.points[first]
                found.append(Trend("trend/loss-scale-collapse", "nan-inf", point, [point, scale.points[low], scale.points[-1]],
                                   f"the loss scale falls from {scale.values[0]:g} to {values[-1]:g}: every step overflows", 3, "diverged", "loss_scale", steps.of(point)))
    evaluation = series.get("eval_loss")
    if evaluation is not None and not found and evaluation.values and not math.isfinite(evaluation.values[-1]):
        onset = _lasting(evaluation.values)
        if onset is not None:
            point = evaluation.points[onset]
            found.append(Trend("trend/nan-eval-only", "nan-inf", point, [point], "the evaluation loss is NaN while the training loss is finite",
                               1, "degraded", "eval_loss", steps.of(point)))
    return found


def _nan_trend(series: Series, onset: int, point: MetricPoint, steps: Steps, resumed: bool, name: str | None = None) -> Trend:
    step = steps.of(point)
    before = [p for p in series.points[max(0, onset - 3):onset]]
    if name is None:
        early = (step is not None and step <= EARLY_STEPS) or onset == 0 or (step is None and onset < 3)
        name = "trend/nan-early" if early else "trend/nan-after-resume" if resumed and onset < 20 else "trend/nan-after-stable"
    value = series.values[onset]
    word = "NaN" if math.isnan(value) else "infinite"
    where = f" at step {step}" if step is not None else f" in epoch {point.epoch:g}" if point.epoch is not None else ""
    rest = sum(not math.isfinite(v) for v in series.values[onset:])
    last = f"; the last finite value was {series.values[onset - 1]:.4g}" if onset and math.isfinite(series.values[onset - 1]) else ""
    label = {"grad_norm": "the gradient norm"}.get(series.name, "the loss" if "loss" in series.name else series.name)
    summary = f"{label} becomes {word}{where} and stays so for {rest} of {len(series.values) - onset} logged values{last}"
    if name == "trend/nan-hidden-zero":
        summary += "; the loss is printed as 0.0 because the trainer's logging filters NaN"
    return Trend(name, "nan-inf", point, [*before[-1:], point, *series.points[onset + 1:onset + 2]], summary, 3 if rest >= 2 else 2, "diverged", series.name, step,
                 {"metric": series.name, "last_finite": series.values[onset - 1] if onset else None})


def _lasting(values: list[float], share: float = SUSTAINED, least: int = 1) -> int | None:
    """Index of the first non-finite value after which most are non-finite to the end."""
    bad = [not math.isfinite(v) for v in values]
    total = sum(bad)
    if total < least:
        return None
    first = bad.index(True)
    seen = 0
    best = None
    for index in range(len(values) - 1, first - 1, -1):
        seen += bad[index]
        if bad[index] and seen >= share * (len(values) - index):
            best = index
    if best is None:
        return None
    # it must not have healed at the end
    tail = bad[-3:] if len(bad) - best >= 6 else bad[-1:]
    if not any(tail):
        return None
    return best


# divergence ---------------------------------------------------------------------------------------


def _smooth(values: list[float], width: int) -> list[float]:
    return [statistics.median(values[max(0, i - width + 1): i + 1]) for i in range(len(values))]


def _divergence(series: dict[str, Series], steps: Steps, resumed: bool) -> list[Trend]:
    kl = series.get("train_kl") or series.get("kl") or series.get("train_objective/kl")
    if kl is not None and len(kl.values) >= 8:
        finite = kl.finite()
        head = statistics.median([abs(v) for _, v in finite[: max(3, len(finite) // 5)]]) if finite else 0
        tail = statistics.median([abs(v) for _, v in finite[-max(3, len(finite) // 10):]]) if finite else 0
        if tail > 1 and tail > 100 * max(head, 1e-3):
            onset = next((p for p, v in finite if abs(v) > 10 * max(head, 1e-3) and abs(v) > 0.2), finite[-1][0])
            peak = max(finite, key=lambda pv: abs(pv[1]))[0]
            return [Trend("trend/divergence-kl", "optimization-divergence", onset, [onset, peak, finite[-1][0]],
                          f"the KL divergence to the reference model grows from {head:.3g} to {tail:.3g}: the policy has left it", 3, "diverged", kl.name, steps.of(onset))]
    candidates = _train_losses(series)[:3]
    total = [s for s in candidates if s.name in LOSSES and len(s.finite()) >= 5]
    candidates = total or candidates  # a term may grow while the total falls
    if not candidates and "eval_loss" in series:
        candidates = [series["eval_loss"]]
    if not candidates:
        others = [s for n, s in series.items() if any(w in n for w in ("l2", "rmse", "mse", "mae", "logloss")) and len(s.values) >= 5]
        candidates = others[:1]
    for loss in candidates:
        trend = _loss_divergence(loss, steps, resumed, series)
        if trend:
            return [trend]
    return []


def _loss_divergence(loss: Series, steps: Steps, resumed: bool, series: dict[str, Series]) -> Trend | None:
    finite = loss.finite()
    if len(finite) < 5:
        return None
    values = [v for _, v in finite]
    if any(word in name for name in series for word in REINFORCEMENT) or any(ADVERSARIAL.search(name) for name in series):
        return None  # a policy's objective moves with the policy, a generator's with its discriminator; neither has a level to hold
    count = len(values)
    width = 5 if count >= 25 else 3 if count >= 9 else 1
    smooth = _smooth(values, width)
    first = statistics.median(values[: max(1, min(5, count // 5))])
    last = statistics.median(values[-max(1, min(10, count // 6)):])
    # sign: an objective that is maximised runs away below zero
    if last < -5 and last < -3 * abs(first) and values[-1] <= statistics.median(values) and smooth[-1] <= min(smooth[: max(1, count // 2)]) + 1e-9:
        onset = next(p for p, v in finite if v < 0)
        return Trend("trend/divergence-negative", "optimization-divergence", onset, [onset, finite[count // 2][0], finite[-1][0]],
                     f"the loss runs to ever larger negative values ({first:.4g} at first, {last:.4g} at the end): a term with the wrong sign is maximised", 2, "diverged", loss.name, steps.of(onset))
    best_at = min(range(count), key=lambda i: smooth[i])
    best = smooth[best_at]
    gained = first - best
    scale = max(abs(best), 1e-6)
    rising = last - best
    blown = last > 3 * max(abs(first), 1e-9) and last - first > 0.5
    lost = rising > RISE * max(gained, 0) and last > FACTOR * scale and rising > 0.3 and rising > 0.25 * abs(first)
    # a loss that doubles and stays there for a third of the run has diverged even from a high start
    lost = lost or (last > 1.8 * scale and rising > 0.25 * max(gained, 0) and rising > 0.3 and count >= 12 and best_at < 0.67 * count)
    if best <= 0 and not blown:
        return None
    if not (blown or lost):
        return None
    after = smooth[best_at + 1:]
    half = min(best + 0.4 * rising, best * (last / best) ** 0.4) if best > 0 < last else best + 0.4 * rising  # growth may be exponential
    above = sum(v > half for v in after[-max(3, len(after) // 3):]) / max(1, len(after[-max(3, len(after) // 3):]))
    if above < 0.7:
        return None
    spread = _noise(values[: best_at + 1]) if best_at >= 6 else 0
    if rising < 4 * spread and not blown:
        return None
    low, high = (best + 0.1 * (half - best), best + 0.5 * (half - best)) if half > best else (best, best)
    onset_index = next((i for i in range(best_at, count) if values[i] > high and all(v > low for v in smooth[min(i + width, count - 1):])), best_at)
    onset, peak = finite[onset_index][0], finite[max(range(count), key=lambda i: values[i])][0]
    step = steps.of(onset)
    name = "trend/divergence-after-resume" if resumed and onset_index < max(20, count // 4) else "trend/divergence-warmup" if onset_index <= 2 else "trend/divergence"
    strength = 3 if (blown or last > 2 * best) and count >= 8 else 2
    where = f" from step {step} on" if step is not None else ""
    label = "the loss" if "loss" in loss.name else loss.name.removeprefix("train_")
    return Trend(name, "optimization-divergence", onset, [finite[best_at][0], onset, peak, finite[-1][0]],
                 f"{label} climbs{where} while still finite: best {best:.4g}, at the end {last:.4g}, and it does not come back", strength, "diverged", loss.name, step,
                 {"best": best, "last": last})


def _never_learned(series: dict[str, Series], steps: Steps, num_labels: int | None, learning_rate: float | None) -> list[Trend]:
    """The loss explodes at once (above ten times chance) and settles where nothing has been learned."""
    loss = next(iter(_train_losses(series)), None)
    if loss is None or len(loss.finite()) < 8 or loss.points[0].reader == "boosting":
        return []
    pairs = loss.finite()
    values = [v for _, v in pairs]
    tail = values[-max(4, len(values) // 4):]
    last = statistics.median(tail)
    peak_at = max(range(len(values)), key=lambda i: values[i])
    chance = math.log(num_labels) if num_labels and num_labels > 1 else None
    if peak_at > len(values) // 4 or last <= 0 or values[peak_at] < max(10, 20 * last) or learning_rate is None or learning_rate < 0.05:
        return []
    if chance is not None and not 0.9 * chance < last < 2 * chance:
        return []
    half = len(tail) // 2
    if chance is None and statistics.median(tail[half:]) < 0.95 * statistics.median(tail[:half]):
        return []
    point = pairs[peak_at][0]
    return [Trend("trend/divergence-warmup", "optimization-divergence", point, [point, pairs[-1][0]],
                  f"the loss jumps to {values[peak_at]:.4g} at once and settles at {last:.3g}, where nothing is learned: the rate of {learning_rate:g} cannot train", 3, "diverged", loss.name, steps.of(point))]


def _noise(values: list[float]) -> float:
    """Median absolute step-to-step change."""
    return statistics.median([abs(b - a) for a, b in itertools.pairwise(values)]) if len(values) > 2 else 0.0


# slowdown -----------------------------------------------------------------------------------------


def _slowdown(series: dict[str, Series], steps: Steps) -> list[Trend]:
    for name in ("step_time", "throughput"):
        s = series.get(name)
        if s is None or len(s.values) < 10:
            continue
        pairs = [(p, v) for p, v in s.finite() if v > 0 and p.kind != "eval"]
        if len(pairs) < 10:
            continue
        cost = [v if name == "step_time" else 1 / v for _, v in pairs]
        part = max(3, len(cost) // 6)
        early = statistics.median(cost[1 : 1 + part])
        late = statistics.median(cost[-part:])
        lows = min(cost[-part:])
        if late > SLOWDOWN * early and lows > 0.6 * SLOWDOWN * early and early > 0 and cost[-1] > 0.6 * SLOWDOWN * early:
            index = next(i for i, c in enumerate(cost) if c > 2 * early and all(x > 1.5 * early for x in cost[i:]))
            onset = pairs[index][0]
            return [Trend("trend/throughput-collapse", "stalled", onset, [pairs[1][0], onset, pairs[-1][0]],
                          f"each step takes longer and longer: {late / early:.0f} times as long at the end as at the start", 3 if late > 10 * early else 2, "degraded", name, steps.of(pairs[-1][0]))]
    stamped = [(p, p.time) for p in series["loss"].points if p.time is not None and p.step is not None] if "loss" in series else []
    if len(stamped) >= 10:
        cost, at = [], []
        for (a, ta), (b, tb) in itertools.pairwise(stamped):
            if b.step > a.step and tb >= ta:
                cost.append((tb - ta) / (b.step - a.step))
                at.append(b)
        if len(cost) >= 9:
            part = max(3, len(cost) // 6)
            early, late = statistics.median(cost[:part]), statistics.median(cost[-part:])
            if late > SLOWDOWN * max(early, 1e-3) and min(cost[-part:]) > 0.6 * SLOWDOWN * max(early, 1e-3) and late > 0.5:
                index = next((i for i, c in enumerate(cost) if c > 2 * early and all(x > 1.5 * early for x in cost[i:])), len(cost) - 1)
                return [Trend("trend/throughput-collapse", "stalled", at[index], [at[0], at[index], at[-1]],
                              f"each step takes longer and longer by the time stamps: {late:.3g} s at the end, {early:.3g} s at the start", 2, "degraded", "step_time", steps.of(at[-1]))]
    return []


# evaluation ---------------------------------------------------------------------------------------


def _short(name: str) -> str:
    return name.removeprefix("eval_").removeprefix("train_").lower()


def _is(words: tuple[str, ...], name: str) -> bool:
    short = _short(name)
    return any(short == w or short.endswith(("_" + w, "/" + w, "-" + w)) or short.startswith(w + "_") for w in words)


def is_score(name: str) -> bool:
    """Whether a metric's name is that of a score that is better the higher it is."""
    return _is(HIGHER, name) or _short(name).endswith("score") or _short(name) in ("ents_f", "tag_acc", "cats_score")


def _evaluation(series: dict[str, Series], steps: Steps, num_labels: int | None) -> list[Trend]:
    found: list[Trend] = []
    train = next((s for s in _train_losses(series) if len(s.finite()) >= 3), None)
    improved = 0.0
    if train is not None:
        values = [v for _, v in train.finite()]
        first, last = statistics.median(values[: max(1, len(values) // 10)]), statistics.median(values[-max(1, len(values) // 5):])
        improved = (first - last) / abs(first) if first else 0.0
    train_high = max((statistics.median(s.values[-3:]) for n, s in series.items() if n.startswith("train_") and _is(HIGHER, n) and s.finite() and math.isfinite(s.values[-1])), default=None)
    for name, s in series.items():
        if not name.startswith("eval_"):
            continue
        pairs = s.finite()
        if not pairs:
            continue
        values = [v for _, v in pairs]
        if _is(HIGHER, name):
            top = 100.0 if max(values) > 1.5 else 1.0
            share = [v / top for v in values]
            learning = improved > 0.3 or (train_high is not None and train_high / (100.0 if train_high > 1.5 else 1.0) > 0.8)
            early = pairs[: 2]
            ranking = "auc" in _short(name)
            untrained = train is not None and len(train.finite()) >= 3 and train.finite()[0][1] > 2 * statistics.median(v for _, v in train.finite()[-3:])
            if ranking and share[0] >= 0.99 and untrained and len(share) >= 5 and (pairs[0][0].step or 0) <= 1:
                point = pairs[0][0]
                found.append(Trend("trend/eval-perfect", "evaluation-mismatch", point, [p for p, _ in pairs[:2]],
                                   f"{name} is {share[0]:.4f} before anything has been learned: too good too soon, which points at leakage", 1, "degraded", name, steps.of(point)))
                continue
            if any(v / top >= 0.9995 for _, v in early) and len(share) >= 1 and _is(("accuracy", "acc", "auc", "f1", "acc@1", "top1"), name):
                point = next(p for p, v in early if v / top >= 0.9995)
                if sum(v >= 0.99 for v in share) >= 0.8 * len(share) or len(share) <= 2:
                    found.append(Trend("trend/eval-perfect", "evaluation-mismatch", point, [p for p, _ in pairs[:3]],
                                       f"{name} is {share[0] * top:.4g} at the first evaluation: too good too soon, which points at leakage", 1, "degraded", name, steps.of(point)))
                continue
            if ranking and len(share) == 1 and train_high is not None and train_high >= 0.95 and share[0] < 0.47:
                found.append(Trend("trend/eval-below-chance", "evaluation-mismatch", pairs[0][0], [s.points[0] for n, s in series.items() if n == name.replace("eval_", "train_")] + [pairs[0][0]],
                                   f"{name} is {share[0]:.4g}, worse than guessing, while training reaches {train_high:.4g}: evaluation does not see the features that training saw",
                                   2, "degraded", name, steps.of(pairs[0][0])))
                continue
            if len(share) < 2 or not learning:
                continue
            chance = 1.0 / num_labels if num_labels and num_labels > 1 else None
            late = statistics.median(share[-max(1, len(share) // 3):])
            if "auc" in _short(name):
                chance = 0.5
            if chance is not None and late < 0.6 * chance and not ("auc" in _short(name) and late > 0.45):
                kind = "trend/eval-below-chance"
                text = f"{name} is {late * top:.3g}, far below chance ({chance * top:.3g}), while training improves: labels or outputs are mapped differently in evaluation"
                strength = 3
            elif late < 0.08 and max(share) < 0.35 and share[-1] <= share[0] + 0.02:
                kind, strength = "trend/eval-below-chance", 2
                text = f"{name} stays at {late * top:.3g} while training improves: far below what the training reaches"
            elif late < 0.25 and max(share) < 0.35 and ((train_high or 0) / (100.0 if (train_high or 0) > 1.5 else 1.0) > 0.8 or improved > 0.8) and len(share) >= 3:
                kind, strength = "trend/eval-collapse", 2
                text = f"{name} stays at {late * top:.3g} while training reaches a good fit: evaluation and training do not see the same problem"
            elif len(share) >= 4 and max(share) > 0.5 and late < 0.5 * max(share) and share[-1] < 0.6 * max(share):
                kind, strength = "trend/eval-collapse", 2
                text = f"{name} falls from {max(share) * top:.3g} to {late * top:.3g} while the training loss keeps improving"
            else:
                continue
            point = pairs[0][0] if kind == "trend/eval-below-chance" else next(p for p, v in pairs if v / top <= late * 1.2 + 1e-9)
            found.append(Trend(kind, "evaluation-mismatch", point, [pairs[0][0], pairs[-1][0]], text, strength, "degraded", name, steps.of(point)))
        elif _is(LOWER, name) and len(values) >= 3:
            unit = 100.0 if max(values) > 3 else 1.0
            if values[-1] > unit and values[-1] > 1.2 * values[0] and improved > 0.2:
                found.append(Trend("trend/eval-collapse", "evaluation-mismatch", pairs[0][0], [pairs[0][0], pairs[-1][0]],
                                   f"{name} climbs to {values[-1]:.4g} (above {unit:g}) while the losses fall: predictions and references are not compared alike", 2, "degraded", name, steps.of(pairs[0][0])))
    return found
