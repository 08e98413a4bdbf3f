"""What must hold of a coordinator's state: what is loaded is what was written, and no partition has two owners.

After each write the watch keeps what the groups and offsets of the partition were then, by the end of its log; when a coordinator has
loaded a log that ends there, its groups and offsets must be the same, whatever had happened to the processes between. Watched from
inside, as tests/simulation/cluster_watch.py does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from broker.coordination.shard import Shard, ShardState
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember, Owned
from broker.groups.shard import GroupCoordinatorShard
from broker.loop import job
from broker.metadata.image import GROUP_METADATA_TOPIC
from protocol.errors import ErrorCode
from tests.simulation.history import History
from tests.simulation.trace import Trace

State = dict[str, Any]
End = tuple[int, int, int | None]
"""Of a log: partition, end offset, and the epoch of the last record."""


class GroupWatch:
    """Owner: the world."""

    def __init__(self, history: History, trace: Trace) -> None:
        self._history = history
        self._trace = trace
        self._states: dict[End, State] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        end_append, activate = Shard._end_append, Shard._activate

        @wraps(end_append)
        def end_and_tell(shard: Shard[Any], write: Any, *arguments: Any) -> None:
            is_appended = write.outcome in (None, ErrorCode.NONE)  # else nothing is replayed
            end_append(shard, write, *arguments)
            if is_appended and shard.is_active and isinstance(shard.machine, GroupCoordinatorShard):
                self._written(shard)

        @wraps(activate)
        def tell_and_activate(shard: Shard[Any]) -> None:
            if shard.state is ShardState.LOADING and isinstance(shard.machine, GroupCoordinatorShard):
                self._loaded(shard)
            activate(shard)

        with (
            patch.object(Shard, "_end_append", end_and_tell),
            patch.object(Shard, "_activate", tell_and_activate),
            # Virtual time stands still while a job computes: others have their turns after each piece.
            patch.object(job, "SLICE_US", 0),
        ):
            yield

    def _written(self, shard: Shard[GroupCoordinatorShard]) -> None:
        self._states[_end_of(shard)] = _state_of(shard.machine)
        if shard.machine.has_consumer_groups and not self._may_have_holes:  # a lost tombstone leaves what it ended
            for group in shard.machine.consumer_groups.groups.values():
                self._check_owners(group)

    @property
    def _may_have_holes(self) -> bool:
        """Whether the log may have lost records at the ends of its segments."""
        return bool(self._history.power_cuts_s) and not self._history.are_commits_durable

    def _loaded(self, shard: Shard[GroupCoordinatorShard]) -> None:
        end = _end_of(shard)
        written = self._states.get(end)
        if written is None or self._may_have_holes:
            return
        loaded = _state_of(shard.machine)
        if any(loaded.values()):
            self._trace.cover("groups loaded as they were written")
        for what in sorted(written.keys() | loaded.keys()):
            if loaded.get(what) != written.get(what):
                self._history.find("replay-differs", (end, what, _difference(written.get(what), loaded.get(what))))

    def _check_owners(self, group: ConsumerGroup) -> None:
        """Of what members have, or have yet to give up, each partition is one member's; and the group knows whose."""
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for owned in (member.assigned, member.pending_revocation):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        owner = owners.setdefault((topic_id, partition), member.member_id)
                        if owner != member.member_id:
                            self._history.find("double-owner", (group.group_id, topic_id.hex(), partition, owner, member.member_id))
        known = {(topic_id, partition): owner for topic_id, each in group.owners.items() for partition, owner in each.items()}
        if known != owners:
            self._history.find("wrong-owners", (group.group_id, sorted(set(known.items()) ^ set(owners.items()))[:4]))


def _end_of(shard: Shard[GroupCoordinatorShard]) -> End:
    replicas = shard._log._replica_manager  # type: ignore[attr-defined]
    log = replicas.get_partition(GROUP_METADATA_TOPIC, shard.partition).log
    return shard.partition, log.log_end_offset, log.leader_epochs.find_epoch_for_offset(log.log_end_offset - 1)


def _state_of(machine: GroupCoordinatorShard) -> State:
    """What the records alone make, and what follows from it."""
    groups = machine.consumer_groups.groups if machine.has_consumer_groups else {}
    offsets = {
        (group, topic, partition): (each.offset, each.leader_epoch, each.metadata, each.commit_timestamp_ms)
        for group, topics in machine.offset_manager._offsets.items()
        for topic, partitions in topics.items()
        for partition, each in partitions.items()
    }
    return {"offsets": offsets, **{f"group {group_id}": _described(group) for group_id, group in groups.items()}}


def _described(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "epochs": dict(group.epochs),
        "members": {member_id: _plain(member) for member_id, member in group.members.items()},
        "targets": {member_id: dict(target) for member_id, target in group.targets.items()},
        "names": dict(group.name_counts),
        "expressions": dict(group.regular_expressions),
        "expression topics": dict(group.regex_counts),
        "static members": dict(group.static_members),
        "assignors": dict(group.assignor_counts),
        "owners": {topic_id: dict(owners) for topic_id, owners in group.owners.items()},
        "classic members": group.classic_member_count,
        "classic protocols": dict(group.classic_protocol_counts),
    }


def _plain(member: ConsumerGroupMember) -> ConsumerGroupMember:
    return member._replace(assigned=_copied(member.assigned), pending_revocation=_copied(member.pending_revocation))


def _copied(owned: Owned) -> Owned:
    return {topic_id: dict(partitions) for topic_id, partitions in owned.items()}


def _difference(written: Any, loaded: Any) -> Any:
    if not isinstance(written, dict) or not isinstance(loaded, dict):
        return written, loaded
    names = written.keys() | loaded.keys()
    return {str(name): (written.get(name), loaded.get(name)) for name in names if written.get(name) != loaded.get(name)}
