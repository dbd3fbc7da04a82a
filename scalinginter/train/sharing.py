"""What the processes of a run tell each other about the episodes that each of them played."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scalinginter.rollout.collect import Collection, Collector, CollectPlan
from scalinginter.rollout.record import episode_record, without_tokens
from scalinginter.train.ranks import Ranks
from scalinginter.train.signals import StopSignal
from scalinginter.types import Trajectory


def collect(ranks: Ranks, stop: StopSignal, collector: Collector, plan: CollectPlan) -> Collection:
    """Play a plan on all ranks: each plays its share, and knows how the others' went.

    The episodes are those that one process would have played: seeds follow the place in the plan.
    Raises `Interrupted` on every rank if a signal came to one.
    """
    if ranks.size == 1:
        return stop.run(collector.collect(plan))
    content = [(a.task.id, a.horizon, a.family) for a in plan.assignments]
    ranks.refuse_difference((plan.key, plan.group_size, content), f"what to play in {plan.key}")
    mine = replace(plan, share=(ranks.rank, ranks.size))
    return shared(ranks, ranks.agree(lambda: stop.run(collector.collect(mine))))


def shared(ranks: Ranks, own: Collection) -> Collection:
    """Return the groups of all ranks, in turn one of each; those of the others without tokens."""
    if ranks.size == 1:
        return own
    told = [
        replace(group, trajectories=tuple(map(without_tokens, group.trajectories)))
        for group in own.groups
    ]
    shares = ranks.gather((told, own.num_retries))
    groups = [groups for groups, _ in shares]
    groups[ranks.rank] = own.groups
    count = sum(map(len, groups))
    merged = [groups[i % ranks.size][i // ranks.size] for i in range(count)]
    return Collection(merged, sum(retries for _, retries in shares))


def episode_records(ranks: Ranks, trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return the records of all episodes, in their order, on rank 0; none elsewhere."""
    own = [(i, episode_record(t)) for i, t in enumerate(trajectories) if not t.elsewhere]
    records = [record for share in ranks.to_main(own) for record in share]
    return [record for _, record in sorted(records, key=lambda pair: pair[0])]
