"""The DAG of a pipeline: as an SVG picture and as a text tree, each task with its state.

Layered from top to bottom (Sugiyama's method: levels, lanes for edges that pass a level, one sweep of ordering) and
nested: the children of a group are laid out in a box of their own,
and that box is one node among its siblings. Dependencies of a pipeline are between siblings, so no edge leaves a box.
"""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field

from check_failed_run.report.model import GraphTask, Pipeline

NODE_WIDTH, NODE_HEIGHT = 182, 46
GAP_X, GAP_Y, PAD, HEAD = 18, 34, 14, 24
ROW, INNER_ROW = 5, 3  # boxes side by side before a level goes on in the next row; inside a group
MAX_LEVEL = 15  # boxes of one level; further ones are summed up in one box
LANE = 10  # width of the way for an edge past a row
NAME = 21  # characters of a name in a box
TREE_LINES = 120

STATES: dict[str, tuple[str, str]] = {
    "failed-first": ("✕", "failed first"),
    "failed": ("✕", "failed"),
    "cancelled": ("■", "cancelled"),
    "not-triggered": ("○", "not triggered"),
    "running": ("▶", "running"),
    "pending": ("…", "pending"),
    "skipped": ("»", "skipped"),
    "cached": ("↺", "cached"),
    "succeeded": ("✓", "succeeded"),
    "mixed": ("·", "mixed"),
}
"""Symbol and words of each state, the worst first."""
_ORDER = {name: n for n, name in enumerate(STATES)}


def state_of(task: GraphTask) -> str:
    """One of :data:`STATES`."""
    if task.failed_first:
        return "failed-first"
    if task.state == "SKIPPED" and task.cached:
        return "cached"
    name = task.state.lower().replace("_", "-")
    return name if name in STATES else "pending"


def counts(pipeline: Pipeline) -> list[tuple[str, int]]:
    """(state, number of tasks without groups), the worst state first."""
    found: dict[str, int] = {}
    for task in pipeline.graph:
        if not task.is_group:
            found[state_of(task)] = found.get(state_of(task), 0) + 1
    return sorted(found.items(), key=lambda item: _ORDER[item[0]])


# ---------------------------------------------------------------------------------------------- the text tree


def tree(pipeline: Pipeline, limit: int = TREE_LINES) -> list[str]:
    """The tasks as a tree, one a line; siblings in the order of their dependencies, with what each waits for."""
    family = _Family(pipeline.graph)
    lines: list[str] = []

    def walk(task_ids: list[str], indent: str) -> None:
        ordered = [task_id for level in family.levels(task_ids) for task_id in level]
        for n, task_id in enumerate(ordered):
            task = family.by_id[task_id]
            last = n == len(ordered) - 1
            symbol, words = STATES[state_of(task)]
            after = [family.by_id[other].name for other in task.depends_on if other in family.by_id]
            note = f" (after {', '.join(after[:4])}{', …' if len(after) > 4 else ''})" if after else ""
            same = family.uniform(task_id)
            what = f"{same[1]} tasks, all {STATES[same[0]][1]}" if same else f"group, {words}" if task.is_group else words
            lines.append(f"{indent}{'└─' if last else '├─'} {symbol} {task.name}: {what}{_duration(task.seconds)}{note}")
            walk([] if same else family.children.get(task_id, []), indent + ("   " if last else "│  "))

    walk(family.roots, "")
    if len(lines) > limit:
        return [*lines[:limit], f"… and {len(lines) - limit} more"]
    return lines


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else f", {duration(seconds)}"


def duration(seconds: float) -> str:
    """``42 s``, ``7 min``, ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class _Family:
    """Children, roots and levels. A parent that is unknown, or a cycle, makes a task a root or puts it last."""

    def __init__(self, tasks: Iterable[GraphTask]):
        self.by_id = {task.id: task for task in tasks}
        self.children: dict[str, list[str]] = {}
        self.roots: list[str] = []
        for task in self.by_id.values():
            if task.parent in self.by_id and not self._loops(task):
                self.children.setdefault(task.parent, []).append(task.id)
            else:
                self.roots.append(task.id)

    def _loops(self, task: GraphTask) -> bool:
        seen = {task.id}
        parent = task.parent
        while parent in self.by_id:
            if parent in seen:
                return True
            seen.add(parent)
            parent = self.by_id[parent].parent
        return False

    def levels(self, siblings: list[str]) -> list[list[str]]:
        """Siblings by the longest chain of dependencies before them; exit tasks last."""
        own = set(siblings)
        before = {i: {other for other in self.by_id[i].depends_on if other in own and other != i} for i in siblings}
        levels: list[list[str]] = []
        todo = [i for i in siblings if not self.by_id[i].is_exit_task]
        placed: set[str] = set()
        while todo:
            ready = [i for i in todo if before[i] <= placed] or todo
            levels.append(ready)
            placed |= set(ready)
            todo = [i for i in todo if i not in placed]
        if exits := [i for i in siblings if self.by_id[i].is_exit_task]:
            levels.append(exits)
        return levels

    def uniform(self, task_id: str) -> tuple[str, int] | None:
        """(state, number of tasks) of a group whose many tasks all ended alike and well: there is nothing to see inside."""
        if task_id not in self.children:
            return None
        leaves = self.leaves(task_id)
        states = {state_of(leaf) for leaf in leaves}
        return (states.pop(), len(leaves)) if len(leaves) > 3 and len(states) == 1 and not states & {"failed", "failed-first"} else None

    def leaves(self, task_id: str) -> list[GraphTask]:
        found, todo = [], [task_id]
        while todo:
            current = todo.pop()
            below = self.children.get(current, [])
            todo += below
            if not below:
                found.append(self.by_id[current])
        return found


# ---------------------------------------------------------------------------------------------- the picture


@dataclass(slots=True)
class _Box:
    """A node with its place, in its parent's coordinates."""

    name: str
    state: str
    title: str
    width: float = NODE_WIDTH
    height: float = NODE_HEIGHT
    x: float = 0.0
    y: float = 0.0
    note: str = ""
    inner: list[_Box] = field(default_factory=list)
    edges: list[list[_Box]] = field(default_factory=list)  # from a box over lanes to a box
    lane: bool = False  # no box: room for an edge that passes this row
    cluster: bool = False  # a frame around twins


def picture(pipeline: Pipeline) -> str:
    """The DAG as an ``<svg>`` element for an HTML page, coloured by the page's classes ``s-<state>``; "" for no tasks."""
    family = _Family(pipeline.graph)
    if not family.by_id:
        return ""
    root = _Box("", "mixed", "")
    _fill(root, family.roots, family, ROW)
    said = ", ".join(f"{number} {STATES[state][1]}" for state, number in counts(pipeline))
    width, height = root.width + 4, root.height + 4
    svg = ET.Element(
        "svg",
        {
            "class": "dag",
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "viewBox": f"-2 -2 {width:.0f} {height:.0f}",
            "role": "img",
            "aria-label": f"Tasks of the pipeline: {said}. The same as text follows.",
        },
    )
    _draw(svg, root, 0.0, 0.0)
    return ET.tostring(svg, encoding="unicode")


def _box(task_id: str, family: _Family, room: int) -> _Box:
    task = family.by_id[task_id]
    state = state_of(task)
    title = f"{task.name}: {STATES[state][1]}{_duration(task.seconds)}"
    box = _Box(task.name, state, title, note=duration(task.seconds) if task.seconds is not None else "")
    if (same := family.uniform(task_id)) is not None:
        box.state, number = same
        box.note = f"{number} tasks"
        box.title = f"{task.name}: {number} tasks, all {STATES[box.state][1]}"
    elif below := family.children.get(task_id):
        _fill(box, below, family, room)
    return box


def _fill(box: _Box, siblings: list[str], family: _Family, room: int) -> None:
    """Lay out the siblings inside ``box`` and set its size: rows of ``room`` boxes from top to bottom, edges through free lanes."""
    boxes: dict[str, _Box] = {}
    rows: list[list[_Box]] = []
    for level in family.levels(siblings):
        made = {i: _box(i, family, room if len(level) == 1 else min(room, INNER_ROW)) for i in level}
        made = _twins(_summed(made), siblings, family, room)
        boxes |= made
        several = list({id(b): b for b in made.values()}.values())
        rows += [several[n : n + room] for n in range(0, len(several), room)]
    at = {id(inner): n for n, row in enumerate(rows) for inner in row}
    pairs = [(boxes[other], boxes[i]) for i in siblings for other in family.by_id[i].depends_on if other in boxes]
    above: dict[int, list[_Box]] = {}
    for source, target in {(id(a), id(b)): (a, b) for a, b in pairs}.values():
        if at[id(source)] >= at[id(target)]:  # a cycle in the input
            continue
        path = [source]
        for n in range(at[id(source)] + 1, at[id(target)]):
            lane = _Box("", "mixed", "", width=LANE, lane=True)
            rows[n].append(lane)
            above.setdefault(id(lane), []).append(path[-1])
            path.append(lane)
        above.setdefault(id(target), []).append(path[-1])
        box.edges.append([*path, target])
    _place(rows, above)
    _wrap(box, rows)


def _wrap(box: _Box, rows: list[list[_Box]]) -> None:
    """Make ``rows``, which have their places, the inside of ``box``."""
    box.inner = [inner for row in rows for inner in row]
    left = min((inner.x for inner in box.inner), default=0.0)
    right = max((inner.x + inner.width for inner in box.inner), default=0.0)
    pad = PAD if box.name or box.cluster else 0
    head = HEAD + 6 if box.name else pad
    for inner in box.inner:
        inner.x += pad - left
        inner.y += head
    box.width = right - left + 2 * pad
    box.height = max((inner.y + inner.height for inner in box.inner), default=0.0) + pad


def _twins(made: dict[str, _Box], siblings: list[str], family: _Family, room: int) -> dict[str, _Box]:
    """Boxes of a crowded level that wait for the same and are waited for by the same, in one frame with one edge each way."""
    if len(made) <= room:
        return made
    after: dict[str, set[str]] = {}
    for i in siblings:
        for other in family.by_id[i].depends_on:
            after.setdefault(other, set()).add(i)
    alike: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
    for i in made:
        alike.setdefault((frozenset(family.by_id[i].depends_on), frozenset(after.get(i, ()))), []).append(i)
    for ids in alike.values():
        several = list({id(made[i]): made[i] for i in ids}.values())
        if len(several) < 3:
            continue
        states = {b.state for b in several}
        frame = _Box("", states.pop() if len(states) == 1 else "mixed", f"{len(ids)} tasks side by side", cluster=True)
        per_row = room if len(alike) == 1 else min(room, INNER_ROW)
        rows = [several[n : n + per_row] for n in range(0, len(several), per_row)]
        _place(rows, {}, gap=GAP_X)
        _wrap(frame, rows)
        made = made | dict.fromkeys(ids, frame)
    return made


def _summed(boxes: dict[str, _Box]) -> dict[str, _Box]:
    """A level of at most MAX_LEVEL boxes: the worst stay, the rest is one box."""
    if len(boxes) <= MAX_LEVEL:
        return boxes
    ranked = sorted(boxes, key=lambda i: _ORDER[boxes[i].state])
    kept, rest = set(ranked[: MAX_LEVEL - 1]), ranked[MAX_LEVEL - 1 :]
    states = {boxes[i].state for i in rest}
    state = states.pop() if len(states) == 1 else "mixed"
    more = _Box(f"{len(rest)} more", state, ", ".join(boxes[i].name for i in rest[:40]))
    return {i: b for i, b in boxes.items() if i in kept} | dict.fromkeys(rest, more)


def _place(rows: list[list[_Box]], above: dict[int, list[_Box]], gap: float = GAP_Y) -> None:
    """Order each row by the middle of what its boxes wait for, and centre it below them."""
    y = 0.0
    for row in rows:
        order = {id(b): _middle(above.get(id(b), []), n - len(row) / 2) for n, b in enumerate(row)}
        row.sort(key=lambda b: order[id(b)])
        wanted = [_middle(above[id(b)], 0.0) for b in row if id(b) in above]
        x = (sum(wanted) / len(wanted) if wanted else 0.0) - (sum(b.width for b in row) + GAP_X * (len(row) - 1)) / 2
        tall = max(b.height for b in row if not b.lane)
        for b in row:
            b.x, b.y = x, y
            if b.lane:
                b.height = tall
            x += b.width + GAP_X
        y += tall + gap


def _middle(above: list[_Box], otherwise: float) -> float:
    return sum(b.x + b.width / 2 for b in above) / len(above) if above else otherwise


def _draw(parent: ET.Element, box: _Box, x: float, y: float) -> None:
    for stops in box.edges:
        idle = " idle" if stops[-1].state == "not-triggered" else ""
        d = ""
        for n, (source, target) in enumerate(itertools.pairwise(stops)):
            x1, y1 = x + source.x + source.width / 2, y + source.y + source.height
            x2, y2 = x + target.x + target.width / 2, y + target.y - (5 if target is stops[-1] else 0)
            bend = (y2 - y1) * 0.6
            d += f"M{x1:.1f} {y1:.1f}" if n == 0 else f"V{y1:.1f}"
            d += f"C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
        ET.SubElement(parent, "path", {"class": f"edge{idle}", "d": d})
        ET.SubElement(parent, "path", {"class": "tip", "d": f"M{x2 - 4:.1f} {y2 - 1:.1f}h8l-4 6z"})
    for inner in box.inner:
        if inner.lane:
            continue
        group = ET.SubElement(parent, "g", {"class": f"{'cluster' if inner.cluster else 'group' if inner.inner else 'node'} s-{inner.state}"})
        ET.SubElement(group, "title").text = inner.title
        left, top = x + inner.x, y + inner.y
        frame = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{inner.width:.1f}", "height": f"{inner.height:.1f}", "rx": "7"}
        ET.SubElement(group, "rect", frame)
        symbol, words = STATES[inner.state]
        if inner.inner:
            if inner.name:
                _text(group, left + 10, top + 17, f"{symbol} {_short(inner.name, 60)}", "name")
            _draw(group, inner, left, top)
            continue
        _text(group, left + 10, top + 19, _short(inner.name, NAME), "name")
        _text(group, left + 10, top + 36, f"{symbol} {words}" + (f" · {inner.note}" if inner.note else ""), "state")


def _text(parent: ET.Element, x: float, y: float, text: str, kind: str) -> None:
    ET.SubElement(parent, "text", {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}"}).text = text


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
