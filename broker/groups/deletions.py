"""Deletions: deletes groups and offsets for one request.

Kafka writes the tombstones of a request as one batch, and fails if that batch is too large. Here a batch holds RECORDS_PER_BATCH, so that
any group can be deleted. A group with more offsets is deleted in several steps. If a member joins meanwhile, the group stays, without the
offsets that are deleted by then. The group's own tombstone comes last.

Source: GroupCoordinatorShard.deleteGroups, OffsetMetadataManager.deleteOffsets and deleteAllOffsets, KIP-229, KIP-496.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from itertools import islice
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.shard import Shard
from broker.groups.classic.classic_group import ClassicGroup
from broker.groups.shard import GroupCoordinatorShard
from broker.loop.deferred import Deferred
from broker.observability.limited_log import LimitedLog
from broker.observability.log_fields import Fields
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups.consumer.group import ConsumerGroup

log = logging.getLogger("barnabas.groups")

RECORDS_PER_BATCH = 1_000
"""Tombstones that are written and replayed before the loop serves other requests: 5 ms."""


class Deletions:
    """`get_shard` returns a group's shard, or raises the KafkaError that says why it is not here."""

    def __init__(self, get_shard: Callable[[str], Shard[GroupCoordinatorShard]], limited_log: LimitedLog) -> None:
        self._get_shard = get_shard
        self._limited_log = limited_log

    def delete_group(self, group_id: str) -> Generator[None, None, Deferred]:
        """Write the tombstones of a group without members and of all its offsets. Returns a Deferred of the resulting ErrorCode. Yields
        between batches. KafkaError if the group's shard is not here, or no longer is."""
        offsets_count = 0
        while True:
            shard = self._get_shard(group_id)
            try:
                _get_group(shard, group_id).check_deletable()
            except KafkaError as error:
                return _written(shard, [], error.code)
            records = list(islice(shard.machine.offset_manager.tombstones_of(group_id), RECORDS_PER_BATCH))
            offsets_count += len(records)
            if len(records) < RECORDS_PER_BATCH:
                break
            shard.write(CoordinatorResult(records, _ignore))  # if this write is lost, so is the last one, which the response waits for
            yield
        facts = Fields(group=group_id, offsets=offsets_count)
        self._limited_log.info("group deleted", "group deleted on request %s", facts)
        return _written(shard, [*records, *shard.machine.tombstones_of(group_id)])

    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> tuple[list[ErrorCode], Deferred]:
        """Write the tombstones of a group's offsets for `partitions`, at most RECORDS_PER_BATCH. Returns each partition's ErrorCode if the
        write succeeds, and a Deferred of the write's ErrorCode. KafkaError if the group does not allow it."""
        assert len(partitions) <= RECORDS_PER_BATCH, "the caller divides longer lists"
        shard = self._get_shard(group_id)
        group = _get_group(shard, group_id)
        group.check_offsets_deletable()
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic, index in partitions:
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            records += shard.machine.offset_manager.tombstone_if_there(group_id, topic, index)
        return errors, _written(shard, records)


def _get_group(shard: Shard[GroupCoordinatorShard], group_id: str) -> ClassicGroup | ConsumerGroup:
    group = shard.machine.find_group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    return group


def _written(shard: Shard[GroupCoordinatorShard], records: list[CoordinatorRecord], answer: ErrorCode = ErrorCode.NONE) -> Deferred:
    """A Deferred of `answer`. It completes when the records are committed, or, without records, when all earlier writes are: the answer was
    computed on them."""
    written = Deferred()
    shard.write(CoordinatorResult(records, lambda error: written.complete(answer if error is ErrorCode.NONE else error)))
    return written


def _ignore(error: ErrorCode) -> None:
    """The outcome of the last write covers this one."""
