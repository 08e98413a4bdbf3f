"""The records of one topic with very many partitions, encoded and converted to images in steps before they are appended.

They are one batch of the metadata log: after a crash all of it is there or nothing, and no reader sees half of the topic. Appending is one
write of the ready payload, and the replay puts the ready images into their topic in one step.

Only the TopicControl creates these. The metadata log writes the payload; the ClusterStates share the images, which are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, overload

from broker.metadata.features import METADATA_VERSION_LEVEL
from broker.metadata.image import PartitionImage
from broker.metadata.record_format import append_encoded, batch_of_encoded, build_metadata_batch
from protocol.messages.stored.metadata_records import PartitionRecord


class EncodedTopicRecords(Sequence[Any]):
    """`heading`, then a PartitionRecord for each of `images`, which are the topic's partitions from `first_partition` on.

    The PartitionRecords themselves are not kept: to free ten thousand of them at once takes longer than a request may."""

    __slots__ = ("first_partition", "heading", "images", "payload", "topic_id")

    def __init__(self, topic_id: bytes, first_partition: int, heading: Sequence[Any] = ()) -> None:
        self.topic_id = topic_id
        self.first_partition = first_partition
        self.heading = heading
        self.images: list[PartitionImage] = []
        self.payload = bytearray()
        """The records as they are in a batch: nothing in it depends on the batch's offset, epoch or time."""
        for offset_delta, record in enumerate(heading):
            append_encoded(self.payload, record, offset_delta)

    def add(self, record: PartitionRecord) -> None:
        """Add the next partition."""
        assert record.topic_id == self.topic_id and record.partition_id == self.first_partition + len(self.images)
        append_encoded(self.payload, record, len(self))
        self.images.append(partition_image(record))

    def __len__(self) -> int:
        return len(self.heading) + len(self.images)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        number = range(len(self))[place] - len(self.heading)
        return self.heading[number] if number < 0 else self._record(number)

    def __iter__(self) -> Iterator[Any]:
        return chain(self.heading, map(self._record, range(len(self.images))))

    def _record(self, number: int) -> PartitionRecord:
        return partition_record(self.topic_id, self.first_partition + number, self.images[number])


class BatchEncoder:
    """Builds the batches of proposals. Satisfies EncodeBatch. `level` returns the finalized metadata.version."""

    def __init__(self, level: Callable[[], int] = lambda: METADATA_VERSION_LEVEL) -> None:
        self._level = level

    def __call__(self, records: Sequence[Any], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
        if isinstance(records, EncodedTopicRecords):
            return batch_of_encoded(records.payload, len(records), base_offset=base_offset, epoch=epoch, now_ms=now_ms)
        return build_metadata_batch(records, base_offset=base_offset, epoch=epoch, now_ms=now_ms, level=self._level())


def partition_image(record: PartitionRecord) -> PartitionImage:
    """Returns the image of the partition that a PartitionRecord creates."""
    return PartitionImage(
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader_recovery_state=record.leader_recovery_state,
        directories=tuple(record.directories),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    """Returns the record that creates `partition`."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
