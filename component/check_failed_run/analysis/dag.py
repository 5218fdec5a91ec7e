"""The tasks of a pipeline: what failed first, what merely fell with it, what failed by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from check_failed_run.record import PipelineRecord, TaskRecord

_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?|\b[0-9a-f]{8,}\b")


@dataclass(slots=True)
class Failure:
    """Tasks that failed alike: one task, or the iterations of a loop with the same message.

    ``downstream`` are tasks that were not triggered because of it.
    """

    tasks: list[TaskRecord]
    downstream: list[TaskRecord] = field(default_factory=list)

    @property
    def first(self) -> TaskRecord:
        return self.tasks[0]

    @property
    def count(self) -> int:
        return len(self.tasks)


def leaves(pipeline: PipelineRecord) -> list[TaskRecord]:
    """Tasks that run something: no groups, and not the exit task, which is ourselves."""
    return [t for t in pipeline.tasks if not t.is_group and not t.is_exit_task]


def failures(pipeline: PipelineRecord) -> list[Failure]:
    """Failed tasks in the order of failing, iterations that failed alike as one. A cancelled task is none."""
    grouped: dict[tuple, Failure] = {}
    failed = [t for t in leaves(pipeline) if t.state == "FAILED"]
    for task in sorted(failed, key=lambda t: (t.end if t.end is not None else float("inf"), t.start or 0.0, t.id)):
        key = (task.name, task.error_code, _NUMBERS.sub("#", task.error_message or "")[:400])
        grouped.setdefault(key, Failure([])).tasks.append(task)
    found = list(grouped.values())
    for failure in found:
        failure.downstream = _downstream(pipeline, failure.tasks)
    return found


def running(pipeline: PipelineRecord) -> list[TaskRecord]:
    """Tasks that run now, the one that has run longest first."""
    return sorted((t for t in leaves(pipeline) if t.state == "RUNNING"), key=lambda t: (t.start or float("inf"), t.id))


def not_triggered(pipeline: PipelineRecord) -> list[TaskRecord]:
    return [t for t in leaves(pipeline) if t.state == "NOT_TRIGGERED"]


def _downstream(pipeline: PipelineRecord, tasks: list[TaskRecord]) -> list[TaskRecord]:
    """Leaves that come after any of ``tasks``, by their own dependencies or those of a group around them."""
    by_id = {t.id: t for t in pipeline.tasks}
    after: dict[str, list[str]] = {}
    for task in pipeline.tasks:
        for before in task.depends_on:
            after.setdefault(before, []).append(task.id)
    children: dict[str, list[str]] = {}
    for task in pipeline.tasks:
        if task.parent:
            children.setdefault(task.parent, []).append(task.id)
    seen: set[str] = set()
    waiting = [t.id for t in tasks]
    for task in tasks:  # a group fails with its member, and what follows the group falls too
        parent = task.parent
        while parent and parent in by_id and parent not in waiting:
            waiting.append(parent)
            parent = by_id[parent].parent
    while waiting:
        for follower in after.get(waiting.pop(), []):
            stack = [follower]
            while stack:
                item = stack.pop()
                if item not in seen:
                    seen.add(item)
                    waiting.append(item)
                    stack += children.get(item, [])
    return [t for t in leaves(pipeline) if t.id in seen and t.state in ("NOT_TRIGGERED", "PENDING")]
