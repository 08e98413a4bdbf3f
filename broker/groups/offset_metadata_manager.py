"""Committed offsets of one shard: OffsetCommit, OffsetFetch, expiry (Kafka's OffsetMetadataManager).

Owns the offsets. Operations compute records; only `replay` changes offsets, on the leader and while loading. OffsetFetch reads committed
state, all other operations read the state as written.
Offsets that were committed in a transaction are pending (`PendingOffsets`) until its end marker is replayed, at its place in the log.

Source: OffsetMetadataManager, ClassicGroup.offsetExpirationCondition, KIP-211, KIP-447.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from broker.coordination.records import NO_PRODUCER_ID, CoordinatorRecord
from broker.coordination.timeline import Timeline
from broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from broker.groups.classic.group_metadata_manager import GroupMetadataManager
from broker.groups.committed_offset import NO_RETENTION_MS, CommittedOffset
from broker.groups.group_config import GroupConfig
from broker.groups.pending_offsets import GroupPartition, PendingOffsets
from broker.groups.records import group_tombstone, offset_tombstone
from broker.loop.clock import Clock
from broker.network.answer_size import AnswerSize
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.messages.stored.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from broker.groups.consumer.group import ConsumerGroup
    from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

NO_OFFSET = -1
LATEST_EXPIRY_MS = (1 << 63) - 1  # the field's largest value; in Kafka a longer retention overflows and the offset expires at once
FETCHED_BYTES = 30  # of a partition in a response, without its metadata
COMMIT_VERSION_KNOWS_GROUP_ID_NOT_FOUND = 9


OffsetsByTopic = dict[str, dict[int, CommittedOffset]]
"""One group's offsets: topic → partition → offset. No empty inner dict is kept."""


class OffsetMetadataManager:
    """The offsets of all groups of one shard. `group_manager` knows the members of classic groups. `find_consumer_group` returns a KIP-848
    group as written, `find_committed_consumer_group` one that is committed."""

    def __init__(
        self,
        group_manager: GroupMetadataManager,
        timeline: Timeline,
        clock: Clock,
        config: GroupConfig,
        topic_id_of: Callable[[str], bytes],
        find_consumer_group: Callable[[str], ConsumerGroup | None],
        find_committed_consumer_group: Callable[[str], ConsumerGroup | None],
    ) -> None:
        self._find_consumer_group = find_consumer_group
        self._find_committed_consumer_group = find_committed_consumer_group
        self._topic_id_of = topic_id_of
        self._group_manager = group_manager
        self._timeline = timeline
        self._clock = clock
        self._config = config
        self._offsets: dict[str, OffsetsByTopic] = {}
        self._pending = PendingOffsets(timeline)
        self._sequence = 0
        self._topics: dict[bytes, tuple[str, bytes]] = {}
        """Name and id object of the topics in which offsets were committed, by topic id. The offsets share the id object."""

    # OffsetCommit.

    def commit(self, request: OffsetCommitRequest, api_version: int) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
        """The records of the offsets that may be committed, and the response once they are committed. KafkaError refuses the whole
        request."""
        self._validate_commit(request, api_version)
        now_ms = self._clock.now_ms()
        retention_ms = request.retention_time_ms
        expire_timestamp_ms = NO_RETENTION_MS if retention_ms == NO_RETENTION_MS else min(now_ms + retention_ms, LATEST_EXPIRY_MS)
        metadata_max_size = self._config.offset_metadata_max_size
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            results: list[OffsetCommitResponsePartition] = []
            response.topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=results))
            topic_id = self._topic_id_of(topic.name)
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE if len(metadata) > metadata_max_size else ErrorCode.NONE
                results.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error))
                if error is not ErrorCode.NONE:
                    continue
                records.append(
                    CoordinatorRecord(
                        OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index),
                        OffsetCommitValue(
                            offset=partition.committed_offset,
                            leader_epoch=partition.committed_leader_epoch,
                            metadata=metadata,
                            commit_timestamp=now_ms,
                            expire_timestamp=expire_timestamp_ms,
                            topic_id=topic_id,
                        ),
                    )
                )
        return records, response

    def _validate_commit(self, request: OffsetCommitRequest, api_version: int) -> None:
        group = self._group_manager.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None and (consumer_group := self._find_consumer_group(request.group_id)) is not None:
            from broker.groups.consumer.offsets import check_commit

            check_commit(consumer_group, request, api_version, self._topic_id_of)
            return
        if group is None:
            if generation < 0:
                return  # a consumer without membership, or a tool: replaying the offset makes a simple group
            if api_version >= COMMIT_VERSION_KNOWS_GROUP_ID_NOT_FOUND:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        group.validate_offset_commit(request.member_id, request.group_instance_id, generation)
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._group_manager.keep_session(group, request.member_id)

    # TxnOffsetCommit.

    def commit_transactionally(self, request: TxnOffsetCommitRequest) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
        """As `commit`, for records that belong to the producer's transaction. They have the topic's id, which Kafka leaves out: if a topic
        is deleted and created again before the transaction ends, what was committed for the new one stays."""
        from protocol.messages.txn_offset_commit import (
            TxnOffsetCommitResponse,
            TxnOffsetCommitResponsePartition,
            TxnOffsetCommitResponseTopic,
        )

        self._validate_transactional_commit(request)
        now_ms = self._clock.now_ms()
        metadata_max_size = self._config.offset_metadata_max_size
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            results: list[TxnOffsetCommitResponsePartition] = []
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
            topic_id = self._topic_id_of(topic.name)
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE if len(metadata) > metadata_max_size else ErrorCode.NONE
                results.append(TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error))
                if error is not ErrorCode.NONE:
                    continue
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=now_ms,
                    expire_timestamp=NO_RETENTION_MS,
                    topic_id=topic_id,
                )
                records.append(CoordinatorRecord(key, value))
        return records, response

    def _validate_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """Raise the error of a member that may not commit. Old producers name no member (KIP-447), so that nothing is checked then."""
        group = self._group_manager.groups.get(request.group_id)
        if group is not None:
            group.validate_offset_commit(request.member_id, request.group_instance_id, request.generation_id, is_transactional=True)
        elif (consumer_group := self._find_consumer_group(request.group_id)) is not None:
            from broker.groups.consumer.offsets import check_transactional_commit

            check_transactional_commit(consumer_group, request, self._topic_id_of)
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    # OffsetFetch.

    def fetch(
        self, request: OffsetFetchRequestGroup, size: AnswerSize, *, require_stable: bool
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        """The group's offsets for the named partitions, or all of its offsets. A missing offset is -1, not an error. If the request has the
        topic's id, offsets of an earlier topic of that name are ignored.

        Yields now and then if there are many. A commit meanwhile shows in the partitions after that yield. KafkaError if the offsets do not
        fit into the response, or if the member of a KIP-848 group is not in the epoch of its request."""
        group_id = request.group_id
        consumer_group = self._find_committed_consumer_group(group_id)
        if consumer_group is not None:
            from broker.groups.consumer.offsets import check_fetch

            check_fetch(self._timeline.committed(consumer_group.members), request)
        response = OffsetFetchResponseGroup(group_id=group_id)
        for named in list(self._committed_topics(group_id)) if request.topics is None else request.topics:
            name, topic_id = (named, ZERO_UUID) if isinstance(named, str) else (named.name, getattr(named, "topic_id", ZERO_UUID))
            answers: list[OffsetFetchResponsePartitions] = []
            response.topics.append(OffsetFetchResponseTopics(name=name, partitions=answers))
            asked = list(self._committed(group_id, name)) if isinstance(named, str) else named.partition_indexes
            yield
            for index in asked:
                if require_stable and self._pending.has_committed(GroupPartition(group_id, name, index)):
                    found = _unstable(index)
                else:
                    found = _fetched(index, self._committed(group_id, name).get(index), topic_id)
                size.take(FETCHED_BYTES + len(found.metadata or ""))
                answers.append(found)
                yield
        return response

    def _committed_topics(self, group_id: str) -> Mapping[str, dict[int, CommittedOffset]]:
        """The group's committed offsets by topic. Empty for a group that does not exist."""
        committed = self._timeline.committed
        if group_id not in committed(self._group_manager.groups) and self._find_committed_consumer_group(group_id) is None:
            return {}
        return committed(committed(self._offsets).get(group_id, {}))

    def _committed(self, group_id: str, topic: str) -> Mapping[int, CommittedOffset]:
        return self._timeline.committed(self._committed_topics(group_id).get(topic, {}))

    def committed_offsets(self, group_id: str) -> list[tuple[str, Mapping[int, CommittedOffset]]]:
        """The group's committed offsets, by topic and partition. Valid until the next change, so read them at once."""
        return [(topic, self._timeline.committed(offsets)) for topic, offsets in self._committed_topics(group_id).items()]

    # Expiry and deletion.

    def expire(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for the group's expired offsets, and for the group itself if it is empty and has no offsets left."""
        records: list[CoordinatorRecord] = []
        group = self._group_manager.groups.get(group_id) or self._find_consumer_group(group_id)
        if group is None:
            return records
        now_ms = self._clock.now_ms()
        retention_ms = self._config.offsets_retention_ms
        offsets = self._offsets.get(group_id, {})
        base_is_known, group_base_ms = _expiration_base(group) if isinstance(group, ClassicGroup) else (True, None)
        if offsets and not base_is_known:
            return records
        is_any_kept = self._pending.has_group(group_id)
        for topic, partitions in offsets.items():
            is_subscribed = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                base_ms = committed.commit_timestamp_ms if group_base_ms is None else group_base_ms
                if (
                    is_subscribed
                    or not committed.is_expired(now_ms, base_ms, retention_ms)
                    or self._pending.of_partition(GroupPartition(group_id, topic, partition))
                ):
                    is_any_kept = True
                else:
                    records.append(offset_tombstone(group_id, topic, partition))
        if not is_any_kept:
            records += _tombstones_if_empty(group)
        return records

    def delete_topics(self, topics: Mapping[str, Collection[bytes]]) -> list[CoordinatorRecord]:
        """Tombstones for the offsets that were committed for these ids of a topic name. A new topic of that name starts without them and
        keeps its own, which may exist already.

        A tombstone takes the pending offsets of its partition too. So none is written for a partition in which an open transaction has
        committed an offset of the new topic."""
        for topic_id in chain.from_iterable(topics.values()):
            self._topics.pop(topic_id, None)
        places = dict.fromkeys(
            GroupPartition(group_id, topic, partition)
            for group_id, offsets in self._offsets.items()
            for topic in offsets.keys() & topics.keys()
            for partition, committed in offsets[topic].items()
            if committed.topic_id in topics[topic]
        )
        for place, producers in self._pending.of_topics(topics):
            are_deleted = [pending.topic_id in topics[place.topic] for pending in producers.values()]
            if all(are_deleted):
                places.setdefault(place)
            else:
                places.pop(place, None)
        return [offset_tombstone(*place) for place in places]

    def find_deleted_topics(self) -> dict[str, list[bytes]]:
        """For `delete_topics`: names and ids of topics that have committed offsets and are not in the present metadata."""
        deleted: dict[str, list[bytes]] = {}
        for topic_id, (name, _) in self._topics.items():
            if topic_id not in (ZERO_UUID, self._topic_id_of(name)):
                deleted.setdefault(name, []).append(topic_id)
        return deleted

    def tombstones_of(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Tombstones of all offsets of the group, also of pending ones. The caller reads the iterator before the offsets change."""
        for topic, partitions in self._offsets.get(group_id, {}).items():
            for partition in partitions:
                yield offset_tombstone(group_id, topic, partition)
        for place in self._pending.of_group(group_id):
            if not self._has_offset(*place):
                yield offset_tombstone(*place)

    def tombstone_if_there(self, group_id: str, topic: str, partition: int) -> list[CoordinatorRecord]:
        """The tombstone of this offset. Empty if there is no such offset, not even a pending one."""
        if self._has_offset(group_id, topic, partition) or self._pending.of_partition(GroupPartition(group_id, topic, partition)):
            return [offset_tombstone(group_id, topic, partition)]
        return []

    def _has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        return partition in self._offsets.get(group_id, {}).get(topic, {})

    # Durable state.

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record. One that was written in a transaction is pending until the transaction ends."""
        if value is None:
            self._remove(key)
            self._pending.remove(GroupPartition(key.group, key.topic, key.partition))
            return
        if key.group not in self._group_manager.groups and self._find_consumer_group(key.group) is None:
            self._group_manager.create_simple_group(key.group)
        self._sequence += 1
        known = self._topics.get(value.topic_id)
        if known is None:
            known = self._topics[value.topic_id] = key.topic, value.topic_id
        committed = CommittedOffset(value, known[1], self._sequence)
        if producer_id == NO_PRODUCER_ID:
            self._put(key.group, key.topic, key.partition, committed)
        else:
            self._pending.put(producer_id, GroupPartition(key.group, key.topic, key.partition), committed)

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the transaction's pending offsets, or drop them. A later commit of the same partition outside the transaction wins."""
        taken = self._pending.take(producer_id)
        for (group_id, topic, partition), committed in taken if is_commit else ():
            current = self._offsets.get(group_id, {}).get(topic, {}).get(partition)
            if current is None or committed.sequence > current.sequence:
                self._put(group_id, topic, partition, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self._offsets.get(group_id) or self._inner(self._offsets, group_id)
        partitions = topics.get(topic) or self._inner(topics, topic)
        self._timeline.put(partitions, partition, committed)

    def _inner(self, mapping: dict[Any, dict[Any, Any]], key: Any) -> dict[Any, Any]:
        """The dict under the key. Adds an empty one if there is none."""
        inner = mapping.get(key)
        if inner is None:
            inner = {}
            self._timeline.put(mapping, key, inner)
        return inner

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._offsets
        topics = offsets.get(key.group)
        partitions = None if topics is None else topics.get(key.topic)
        if topics is None or partitions is None:
            return
        self._timeline.remove(partitions, key.partition)
        if not partitions:
            self._timeline.remove(topics, key.topic)
        if not topics:
            self._timeline.remove(offsets, key.group)


def _tombstones_if_empty(group: ClassicGroup | ConsumerGroup) -> list[CoordinatorRecord]:
    if not group.is_empty:
        return []
    if isinstance(group, ClassicGroup):
        return [] if group.pending_join_members else [group_tombstone(group.group_id)]
    from broker.groups.consumer.records import group_tombstones

    return group_tombstones(group)


def _expiration_base(group: ClassicGroup) -> tuple[bool, int | None]:
    """Whether the group's offsets may expire now, and the time from which the retention counts: None for each offset's own commit.

    A group with members keeps the offsets of topics that it reads (KIP-211), so it must be stable and its subscriptions known. The
    retention of a group that had members counts from when it became empty, that of a group that never had any from each commit.
    """
    if group.protocol_type is None:
        return True, None
    if group.is_empty:
        return True, None if group.state_timestamp_ms < 0 else group.state_timestamp_ms
    is_known = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is GroupState.STABLE and group.subscribed_topics is not None
    return is_known, None


def _fetched(partition: int, committed: CommittedOffset | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    if committed is None or (topic_id != committed.topic_id and ZERO_UUID not in (topic_id, committed.topic_id)):
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
