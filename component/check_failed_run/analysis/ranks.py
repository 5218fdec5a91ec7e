"""Who failed first over ranks: collectives compared, the rank that is missing from the time-outs, who only followed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from check_failed_run.analysis.diagnosis import Cause
from check_failed_run.analysis.timeline import Timeline


@dataclass(slots=True)
class RankFacts:
    """What ranks show.

    ``timeouts``: rank to its first collective time-out. ``mismatch``: ranks wait in different collectives.
    ``absent``: ranks of the world that report no time-out although others do.
    """

    ranks: set[int] = field(default_factory=set)
    timeouts: dict[int, Cause] = field(default_factory=dict)
    mismatch: bool = False
    same: bool = False
    absent: set[int] = field(default_factory=set)
    first_words: dict[int, Cause] = field(default_factory=dict)


def read_ranks(timeline: Timeline, cascades: list[Cause], causes: list[Cause], world_size: int | None) -> RankFacts:
    facts = RankFacts()
    for log in timeline.logs:
        if log.source.rank is not None:
            facts.ranks.add(log.source.rank)
        for excerpt in log.facts.excerpts:
            facts.ranks.update(line.rank for line in excerpt if line.rank is not None)
    collectives: dict[int, tuple] = {}
    for cause in cascades:
        if cause.values.get("seq") is None:
            continue
        rank = cause.rank
        if rank is None:
            continue
        facts.ranks.add(rank)
        known = facts.timeouts.get(rank)
        if known is None or (known.values.get("op") is None and cause.values.get("op") is not None):
            facts.timeouts[rank] = cause
            collectives[rank] = (cause.values.get("seq"), cause.values.get("op"), cause.values.get("numel"))
    if len(collectives) >= 2:
        kinds = defaultdict(set)
        for rank, (seq, op, numel) in collectives.items():
            kinds[(seq, op, numel)].add(rank)
        facts.mismatch = len({(seq, op) for seq, op, _ in kinds}) > 1
        facts.same = len(kinds) == 1
    if facts.timeouts:
        world = set(range(world_size)) if world_size and world_size <= 4096 else facts.ranks
        facts.absent = (world | facts.ranks) - set(facts.timeouts)
    for cause in [*causes, *cascades]:
        if cause.rank is not None and cause.at is not None:
            known = facts.first_words.get(cause.rank)
            if known is None or timeline.key(cause.at) < timeline.key(known.at):
                facts.first_words[cause.rank] = cause
    return facts
