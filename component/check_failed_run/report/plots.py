"""Line charts of the run's metrics and lanes of its ranks, as SVG and HTML for the page; colours are the page's.

pygal lays the charts out (scales, ticks, paths). Its own styles, script and comments are taken off: the page brings
its styles, runs no script of theirs, and the same report gives the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from check_failed_run.report.dag_picture import duration
from check_failed_run.report.model import RankState, Report, Series

WIDTH, HEIGHT = 360, 170
FIRST = ("loss", "grad_norm", "lr", "throughput", "step_time", "loss_scale")
TITLES = {
    "loss": "Loss",
    "grad_norm": "Gradient norm",
    "lr": "Learning rate",
    "throughput": "Throughput",
    "step_time": "Step time",
    "loss_scale": "Loss scale",
    "eval_loss": "Evaluation loss",
}
MAX_CHARTS, LOG_RATIO = 10, 1000.0
NEAR = 40  # points on each side of the failing step in the close view
MAX_LANES = 24


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric: ``svg`` of the whole run, ``near`` around the failing step ("" where it would be the same).

    ``axis`` says what runs from left to right: steps, or the records as they were logged where none has a step.
    """

    title: str
    name: str
    svg: str
    near: str
    facts: str
    wrong: str
    axis: str


def charts(report: Report) -> list[Chart]:
    """The charts of a report, the most telling first; series with fewer than two points have none."""
    step = report.failure_point.step if report.failure_point else None
    return [_chart(name, report.metrics[name], step) for name in chosen(report)]


def chosen(report: Report) -> list[str]:
    """Names of the series that get a chart."""
    usable = [name for name, series in report.metrics.items() if len(series.points) > 1]
    first = [name for name in FIRST if name in usable]
    judged = sorted((name for name in usable if name.startswith("eval_")), key=lambda name: ("per_second" in name, name != "eval_loss"))
    rest = [name for name in usable if name not in first and name not in judged and report.metrics[name].went_wrong_at is not None]
    return [*first, *judged, *rest][:MAX_CHARTS]


def title_of(name: str) -> str:
    if name in TITLES:
        return TITLES[name]
    return f"Evaluation: {name[5:]}" if name.startswith("eval_") else name


def number(value: float | str | None) -> str:
    """A metric's value, short."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _chart(name: str, series: Series, step: int | None) -> Chart:
    points = [(float(x), _value(y)) for x, y in series.points]
    title = title_of(name)
    wrong = series.went_wrong_at
    mark = step if step is not None and _inside(step, points) else None
    bad = next((x for x, y in points if not math.isfinite(y)), None)
    facts = f"first {number(series.first)}, last {number(series.last)}, lowest {number(series.min)}, highest {number(series.max)}"
    told = []
    if bad is not None:
        told.append(f"not finite from step {bad:.0f}")
    if wrong is not None and wrong != bad:
        told.append(f"went wrong at step {wrong}")
    if mark is not None:
        told.append(f"failed at step {mark}")
    said = "; ".join(told)
    label = f"{title} over {series.count} points: {facts}." + (f" {said}." if said else "")
    center = mark if mark is not None else wrong
    near = ""
    if center is not None:
        close = _around(points, center)
        if 2 < len(close) < 0.7 * len(points):
            near = _svg(close, mark, wrong, label)
    counted = all(x == n for n, (x, _) in enumerate(points))
    return Chart(title, name, _svg(points, mark, wrong, label), near, facts, said, "record" if counted else "step")


def _value(y: float | str) -> float:
    return float(y)  # "NaN", "Infinity" and "-Infinity" are words that float knows


def _inside(step: float, points: list[tuple[float, float]]) -> bool:
    """Whether a step can be shown on the axis of these points (series without steps count from 0)."""
    low, high = points[0][0], max(x for x, _ in points)
    return low <= step <= high + max(2.0, 0.25 * (high - low))


def _around(points: list[tuple[float, float]], center: float) -> list[tuple[float, float]]:
    at = next((n for n, (x, _) in enumerate(points) if x >= center), len(points) - 1)
    return points[max(0, at - NEAR) : at + NEAR // 2 + 1]


def _limits(points: list[tuple[float, float]]) -> tuple[float, float, bool]:
    """Lowest and highest value of the axis, and whether it is logarithmic."""
    finite = [y for _, y in points if math.isfinite(y) and abs(y) < 1e300]
    if not finite:
        return 0.0, 1.0, False
    low, high = min(finite), max(finite)
    if low > 0 and high / low > LOG_RATIO:
        return low / 1.3, high * 1.3, True
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 0.5
    return low - pad if low < 0 or low - pad > 0 else 0.0, high + pad, False


def _svg(points: list[tuple[float, float]], mark: float | None, wrong: float | None, label: str) -> str:
    import pygal

    low, high, logarithmic = _limits(points)
    left, right = points[0][0], max(x for x, _ in points)
    right = max(right, *(x for x in (mark, wrong) if x is not None and x <= right * 1.3 + 2), left + 1)
    chart = pygal.XY(
        width=WIDTH,
        height=HEIGHT,
        explicit_size=False,
        show_legend=False,
        show_dots=False,
        js=(),
        css=(),
        disable_xml_declaration=True,
        allow_interruptions=True,
        logarithmic=logarithmic,
        range=(low, high),
        xrange=(left, right),
        margin=4,
        margin_right=12,
        min_scale=3,
        max_scale=5,
        show_x_guides=False,
        x_value_formatter=_short,
        value_formatter=_short,
        x_labels=_ticks(left, right),
    )
    chart.uuid = "plot"
    chart.add_xml_filter(lambda root: _bare(root, label))
    finite = [(x, y) if math.isfinite(y) and low <= y <= high else (x, None) for x, y in points]
    chart.add("value", finite, show_dots=len(points) <= 30, dots_size=2.2)
    lost = [(x, high) for x, y in points if not math.isfinite(y)]
    chart.add("lost", lost or [(None, None)], stroke=False, show_dots=True, dots_size=2.6)
    chart.add("wrong", _line(wrong if wrong != mark and wrong is not None and left <= wrong <= right else None, low, high))
    chart.add("failed", _line(mark if mark is not None and left <= mark <= right else None, low, high))
    return chart.render(is_unicode=True)


def _line(x: float | None, low: float, high: float) -> list[tuple[float | None, float | None]]:
    return [(None, None)] if x is None else [(x, low), (x, high)]


def _ticks(left: float, right: float) -> list[float]:
    """At most six round positions."""
    raw = (right - left) / 5
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
    if right - left >= 3:
        step = max(1.0, step)
    start = math.ceil(left / step)
    return [n * step for n in range(start, math.floor(right / step) + 1)]


def _short(value: float) -> str:
    """An axis label: 1.5k, 2M, 0.02, 3e-06."""
    size = abs(value)
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if limit <= size < 1e12:
            by = {"G": 1e9, "M": 1e6, "k": 1e3}[sign]
            return f"{value / by:.4g}{sign}"
    return f"{value:.4g}"


_DROP = {"style", "script", "title", "desc"}


def _bare(root: Any, label: str) -> Any:
    """pygal's tree without styles, script, comments and captions of its own, with a name for screen readers."""
    root.attrib.pop("id", None)
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("class", "chart")
    todo = [root]
    while todo:
        parent = todo.pop()
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.rsplit("}", 1)[-1] in _DROP or "-overlay" in child.get("class", ""):
                parent.remove(child)
            else:
                todo.append(child)
    return root


# ---------------------------------------------------------------------------------------------- ranks


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank: where it stopped on the common axis, 0 to 100, or None where nothing tells."""

    rank: int
    role: str
    at: float | None
    when: str
    what: str


@dataclass(frozen=True, slots=True)
class Lanes:
    lanes: list[Lane]
    axis: str
    more: int


_ROLES = ("failed-first", "silent", "followed", "unaffected")


def rank_lanes(ranks: list[RankState]) -> Lanes | None:
    """Who stopped when, on a common axis of time, or of lines where all ranks write one log; None for one rank."""
    if len(ranks) < 2:
        return None
    places, axis, words = _places(ranks)
    ordered = sorted(ranks, key=lambda r: (_ROLES.index(r.role), r.rank))
    shown = sorted(ordered[:MAX_LANES], key=lambda r: r.rank)
    lanes = [Lane(r.rank, r.role, places.get(r.rank), words.get(r.rank, ""), r.what or "") for r in shown]
    return Lanes(lanes, axis, len(ranks) - len(shown))


def _places(ranks: list[RankState]) -> tuple[dict[int, float], str, dict[int, str]]:
    times = {r.rank: seconds for r in ranks if (seconds := _seconds(r.timestamp)) is not None}
    stopped = [r for r in ranks if r.line is not None]
    if len(times) > 1 and len(times) >= len(stopped):
        first, last = min(times.values()), max(times.values())
        words = {rank: f"+{_span(t - first)}" for rank, t in times.items()}
        return _scaled(times), f"Time from left to right; {_span(last - first)} from the first stop to the last", words
    lines = {r.rank: float(r.line) for r in stopped if r.line is not None}
    if len(lines) > 1 and len({r.input for r in stopped}) == 1:
        words = {rank: f"line {line:.0f}" for rank, line in lines.items()}
        return _scaled(lines), f"Lines of {stopped[0].input} from left to right (no common clock)", words
    return {r.rank: 60.0 for r in stopped}, "The ranks share no clock: places on the lanes say nothing about order", {r.rank: f"line {r.line}" for r in stopped}


def _span(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 or not seconds else f"{1000 * seconds:.0f} ms"


def _scaled(values: dict[int, float]) -> dict[int, float]:
    low, high = min(values.values()), max(values.values())
    return {rank: 40.0 + 55.0 * ((value - low) / (high - low) if high > low else 0.0) for rank, value in values.items()}


def _seconds(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
