"""Deletions: groups and offsets that a request asks to be deleted. One object serves one request.

Kafka writes the tombstones of a request as one batch, and fails where that is too large. Here a batch holds RECORDS_PER_BATCH, so that
no group is too large. A group with more offsets is deleted in several steps; if a member joins it meanwhile, it stays without the offsets
that are gone by then. The group's own tombstone comes last.

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
"""Tombstones that are written, and replayed, before others are served: 5 ms."""


class Deletions:
    """`get_shard` finds a group's shard or raises the KafkaError that says why not."""

    def __init__(self, get_shard: Callable[[str], Shard[GroupCoordinatorShard]], limited_log: LimitedLog) -> None:
        self._get_shard = get_shard
        self._limited_log = limited_log

    def delete_group(self, group_id: str) -> Generator[None, None, Deferred]:
        """Write the tombstones of a group without members and of all its offsets: a Deferred of what came of it, an ErrorCode. Yields
        between batches. KafkaError if the group's shard is not here, or not any more."""
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
            shard.write(CoordinatorResult(records, _ignore))  # if it is lost, so is the next one, which the answer waits for
            yield
        facts = Fields(group=group_id, offsets=offsets_count)
        self._limited_log.info("group deleted", "group deleted on request %s", facts)
        return _written(shard, [*records, *shard.machine.tombstones_of(group_id)])

    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> tuple[list[ErrorCode], Deferred]:
        """Write the tombstones of a group's offsets for `partitions`, RECORDS_PER_BATCH at most: what is answered for each if the write
        succeeds, and the Deferred of the write's ErrorCode. KafkaError for what is wrong with the group."""
        assert len(partitions) <= RECORDS_PER_BATCH, "the caller divides"
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
    """A Deferred of `answer` once the records are committed, or what was written before if there are none: it was computed on that."""
    written = Deferred()
    shard.write(CoordinatorResult(records, lambda error: written.complete(answer if error is ErrorCode.NONE else error)))
    return written


def _ignore(error: ErrorCode) -> None:
    """Nobody waits for this write alone."""
