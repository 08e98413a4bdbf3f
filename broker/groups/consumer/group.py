"""One KIP-848 group, in the state that its records describe (Kafka's ConsumerGroup and ModernGroup).

Only ConsumerGroupStore changes it, in replay. `members`, `targets` and `epochs` are in the shard's timeline, through which readers of
committed state read them. The other fields are derived from the members as written, and operations compute on them.

Invariants
- `name_counts[topic]` members subscribe to the topic by name, `regex_counts[topic]` resolved expressions match it. No count is 0.
- `owners[topic_id][partition]` is the member that owns the partition, or must still revoke it.
- `static_members` maps each instance id to the member that has it now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from broker.groups.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Owned, Partitions
from protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1
"""The epoch of a group and of its assignment before either has a record (Kafka 4.3)."""

GROUP_EPOCH, METADATA_HASH, ASSIGNMENT_EPOCH, ASSIGNMENT_TIMESTAMP = "epoch", "hash", "assignment epoch", "assignment timestamp"
"""The keys of `epochs`."""


METADATA_REFRESH_INTERVAL_MS = 60 * 60 * 1000
"""A group's topics are refreshed after this time, even without a known change (GroupMetadataManager)."""


class ConsumerGroupState(Enum):
    """The value is the name in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegularExpression(NamedTuple):
    """The topics that an expression matched, with the metadata version and the time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """See the module's docstring."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.epochs: dict[str, int] = {
            GROUP_EPOCH: FIRST_EPOCH,
            METADATA_HASH: 0,
            ASSIGNMENT_EPOCH: FIRST_EPOCH,
            ASSIGNMENT_TIMESTAMP: 0,
        }
        self.regular_expressions: dict[str, ResolvedRegularExpression] = {}
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.regex_subscribers: Counter[str] = Counter()
        self.static_members: dict[str, str] = {}
        self.assignor_counts: Counter[str] = Counter()
        self.owners: dict[bytes, dict[int, str]] = {}
        self.classic_member_count = 0
        self.classic_protocol_counts: Counter[str] = Counter()
        self.has_partition_metadata = False
        """Whether the log still has a partition metadata record, which Kafka before 4.1 wrote."""
        self._refresh_deadline_ms = 0
        self._refresh_epoch = 0

    # Questions.

    @property
    def epoch(self) -> int:
        return self.epochs[GROUP_EPOCH]

    @property
    def metadata_hash(self) -> int:
        return self.epochs[METADATA_HASH]

    @property
    def assignment_epoch(self) -> int:
        return self.epochs[ASSIGNMENT_EPOCH]

    @property
    def assignment_timestamp_ms(self) -> int:
        return self.epochs[ASSIGNMENT_TIMESTAMP]

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def subscribed_topics(self) -> set[str]:
        return self.name_counts.keys() | self.regex_counts.keys()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts or topic in self.regex_counts

    def find_owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that owns the partition, or must still revoke it."""
        owners = self.owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def is_waiting_for_partitions(self, member: ConsumerGroupMember) -> bool:
        """Whether other members must still revoke some partitions of its target."""
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.find_owner(topic_id, partition) is not None
            for topic_id, partitions in target.items()
            for partition in partitions
        )

    def find_static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """The member's target. A static member takes the target of the member that it replaces."""
        member_id = member.member_id if member.instance_id is None else self.static_members.get(member.instance_id, "")
        return self.targets.get(member_id, NO_PARTITIONS)

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member that offers these protocols may join."""
        if protocol_type != "consumer":
            return False
        if self.is_empty:
            return any(True for _ in names)
        return any(self.classic_protocol_counts[name] == self.classic_member_count for name in names)

    def check_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while the group has members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offsets_deletable(self) -> None:
        """Never raises: the coordinator knows the members' topics, and the caller checks them by `is_subscribed_to`."""

    # When its subscribed topics are refreshed. Soft state.

    def refresh_later(self, deadline_ms: int, epoch: int) -> None:
        self._refresh_deadline_ms, self._refresh_epoch = deadline_ms, epoch

    def refresh_soon(self) -> None:
        self._refresh_deadline_ms = self._refresh_epoch = 0

    def is_refresh_due(self, now_ms: int) -> bool:
        """Whether the topics must be refreshed: also if the epoch of the last refresh was never written."""
        return now_ms >= self._refresh_deadline_ms or self.epoch < self._refresh_epoch

    # Derived fields. The store calls these.

    def count_member(self, member: ConsumerGroupMember, change: int) -> None:
        """Add (1) or subtract (-1) a member in the counts."""
        _add_all(self.name_counts, member.subscribed_topic_names, change)
        if member.subscribed_topic_regex:
            _add_all(self.regex_subscribers, (member.subscribed_topic_regex,), change)
        if member.server_assignor is not None:
            _add_all(self.assignor_counts, (member.server_assignor,), change)
        if member.classic is not None:
            self.classic_member_count += change
            _add_all(self.classic_protocol_counts, (protocol.name for protocol in member.classic.supported_protocols), change)

    def count_expression(self, expression: ResolvedRegularExpression, change: int) -> None:
        _add_all(self.regex_counts, expression.topics, change)

    def take_partitions(self, member: ConsumerGroupMember) -> None:
        """Enter the member as the owner of its partitions."""
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))

    def release_partitions(self, member: ConsumerGroupMember) -> None:
        """Remove the member's ownership, except where another member is the owner already, as after a compaction of the log."""
        for owned in (member.assigned, member.pending_revocation):
            self._release(owned, member.member_id)

    def _release(self, owned: Owned, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            owners = self.owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self.owners[topic_id]


def _add_all(counts: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts[name] + change
        if count:
            counts[name] = count
        else:
            del counts[name]


def state_of(epochs: Mapping[str, int], members: Mapping[str, ConsumerGroupMember]) -> ConsumerGroupState:
    """The group's state, computed from these epochs and members."""
    if not members:
        return ConsumerGroupState.EMPTY
    assignment_epoch = epochs[ASSIGNMENT_EPOCH]
    if epochs[GROUP_EPOCH] > assignment_epoch:
        return ConsumerGroupState.ASSIGNING
    if all(member.is_reconciled_to(assignment_epoch) for member in members.values()):
        return ConsumerGroupState.STABLE
    return ConsumerGroupState.RECONCILING
