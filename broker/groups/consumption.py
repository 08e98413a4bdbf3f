"""What groups have committed and how many members they have, for the metrics of their lag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.coordination.shard import Shard
    from broker.groups.committed_offset import CommittedOffset
    from broker.groups.shard import GroupCoordinatorShard


class GroupConsumption(NamedTuple):
    """One group, of either protocol. `topics` are valid until the next change of the group: read them at once."""

    group_id: str
    members_count: int
    topics: list[tuple[str, Mapping[int, CommittedOffset]]]


def consumption(shards: Iterable[Shard[GroupCoordinatorShard]]) -> Iterator[GroupConsumption]:
    """The committed groups of these shards."""
    for shard in shards:
        machine, timeline = shard.machine, shard.timeline
        for classic in timeline.committed_values(machine.group_manager.groups):
            yield GroupConsumption(classic.group_id, len(classic.members), machine.offset_manager.committed_offsets(classic.group_id))
        for consumer in timeline.committed_values(machine.consumer_groups.groups) if machine.has_consumer_groups else ():
            members_count = len(timeline.committed(consumer.members))
            yield GroupConsumption(consumer.group_id, members_count, machine.offset_manager.committed_offsets(consumer.group_id))
