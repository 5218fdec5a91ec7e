"""A pipeline's tasks: what failed first, what only fell with it, what never ran. Pure; the order of the task list means nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from check_failed_run.record import PipelineRecord, TaskRecord

OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "NOT_TRIGGERED")


@dataclass(slots=True)
class Dag:
    """What the tasks of a pipeline say.

    ``leaves`` are the tasks that do work: no groups, not the run itself, not the exit task that asks. Failed tasks
    come in the order in which they failed.
    """

    leaves: list[TaskRecord]
    failed: list[TaskRecord]
    independent: list[TaskRecord]  # failed, with nothing failed upstream
    followed: list[TaskRecord]  # failed after something upstream had failed
    cancelled: list[TaskRecord]
    not_triggered: list[TaskRecord]
    running: list[TaskRecord]
    last_succeeded: TaskRecord | None
    counts: dict[str, int] = field(default_factory=dict)
    upstream: dict[str, frozenset[str]] = field(default_factory=dict)  # id of a failed task -> ids of everything that it waited for
    blast: dict[str, list[str]] = field(default_factory=dict)  # id of a failed task -> names of tasks that did not run because of it

    @property
    def first_failed(self) -> TaskRecord | None:
        return self.failed[0] if self.failed else None


def read_dag(pipeline: PipelineRecord) -> Dag:
    """The DAG's facts. The root task and groups carry no blame, whatever their state says."""
    tasks = {task.id: task for task in pipeline.tasks}
    leaves = [task for task in pipeline.tasks if _works(task)]
    upstream = _Upstream(pipeline.tasks)
    failed = sorted((t for t in leaves if t.state == "FAILED"), key=failure_order)
    bad = {task.id for task in failed}
    independent = [task for task in failed if not (upstream.of(task.id) & bad)]
    not_triggered = sorted((t for t in leaves if t.state == "NOT_TRIGGERED"), key=lambda t: (t.name, t.id))
    cancelled = sorted((t for t in leaves if t.state == "CANCELLED"), key=failure_order)
    done = [t for t in leaves if t.state in ("SUCCEEDED", "SKIPPED")]
    counts: dict[str, int] = {}
    for task in leaves:
        counts[task.state] = counts.get(task.state, 0) + 1
    lost = [*not_triggered, *cancelled]
    blast = {task.id: sorted({other.name for other in lost if task.id in upstream.of(other.id)}) for task in failed}
    return Dag(
        leaves=leaves,
        failed=failed,
        independent=independent or failed[:1],
        followed=[task for task in failed if task not in independent] if independent else failed[1:],
        cancelled=cancelled,
        not_triggered=not_triggered,
        running=[t for t in leaves if t.state == "RUNNING"],
        last_succeeded=max(done, key=lambda t: (t.end or 0.0, t.start or 0.0, t.id), default=None),
        counts=dict(sorted(counts.items())),
        upstream={task.id: upstream.of(task.id) for task in failed},
        blast={i: names for i, names in blast.items() if i in tasks},
    )


def _works(task: TaskRecord) -> bool:
    if task.is_group or task.details.get("root") or task.details.get("own"):
        return False
    return not task.is_exit_task or task.state in ("FAILED", "CANCELLED")


def failure_order(task: TaskRecord) -> tuple:
    """When it failed; tasks without times come last."""
    end = task.end if task.end is not None else math.inf
    return (end, task.start if task.start is not None else math.inf, task.name, task.id)


class _Upstream:
    """Ids of everything that a task waits for: its dependencies, those of its groups, and what lies inside them."""

    def __init__(self, tasks: list[TaskRecord]):
        self._tasks = {task.id: task for task in tasks}
        self._children: dict[str, list[str]] = {}
        for task in tasks:
            if task.parent:
                self._children.setdefault(task.parent, []).append(task.id)
        self._known: dict[str, frozenset[str]] = {}

    def of(self, task_id: str) -> frozenset[str]:
        if task_id in self._known:
            return self._known[task_id]
        seen: set[str] = set()
        todo = self._direct(task_id)
        while todo:
            other = todo.pop()
            if other in seen or other == task_id:
                continue
            seen.add(other)
            todo += self._direct(other)
            todo += self._children.get(other, [])
        self._known[task_id] = frozenset(seen)
        return self._known[task_id]

    def _direct(self, task_id: str) -> list[str]:
        found: list[str] = []
        task = self._tasks.get(task_id)
        hops = 0
        while task is not None and hops < 60:
            found += [other for other in task.depends_on if other in self._tasks]
            task = self._tasks.get(task.parent) if task.parent else None
            hops += 1
        return found
