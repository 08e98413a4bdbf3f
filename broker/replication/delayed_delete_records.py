"""DelayedDeleteRecords: a deletion that the leader has made and that waits until the other replicas begin at its offset too.

Each partition is finished once its low watermark has reached the offset, or once another broker leads it. The answer is sent when all
partitions are finished.

Source: org.apache.kafka.server.purgatory.DelayedDeleteRecords, kafka.server.ReplicaManager.deleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from broker.replication.fetch.fetch_data import NO_EPOCH
from broker.replication.purgatory import DelayedOperation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import INVALID_LOW_WATERMARK, DeleteRecordsPartitionResult

if TYPE_CHECKING:
    from broker.replication.partition import Partition


class PendingDeletion:
    """One partition of the request: its replicas have to begin at `required_offset` or later. This object becomes its answer."""

    __slots__ = ("required_offset", "result")

    def __init__(self, required_offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.required_offset = required_offset
        self.result = result


class DelayedDeleteRecords(DelayedOperation):
    """Parked on every partition that is still pending."""

    __slots__ = ("_on_done", "pending")

    def __init__(self, pending: dict[Partition, PendingDeletion], on_done: Callable[[], None]) -> None:
        super().__init__()
        self._on_done = on_done
        self.pending = pending

    def try_complete(self, key: Hashable | None) -> bool:
        """Finish the partition that changed, or all."""
        for partition in tuple(self.pending) if key is None else (key,):
            if partition in self.pending:
                self._try_finish(partition)
        return not self.pending

    def on_expire(self) -> None:
        """Partitions that are still pending are answered with REQUEST_TIMED_OUT and the low watermark that they had at the start."""
        for deletion in self.pending.values():
            deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.pending.clear()

    def on_complete(self) -> None:
        self._on_done()

    def _try_finish(self, partition: Partition) -> None:
        deletion = self.pending[partition]
        try:
            partition.get_readable_log(NO_EPOCH, only_leader=True)
        except KafkaError as error:
            deletion.result.error_code = error.code
            deletion.result.low_watermark = INVALID_LOW_WATERMARK
        else:
            low_watermark = partition.in_sync.low_watermark
            if low_watermark < deletion.required_offset:
                return
            deletion.result.low_watermark = low_watermark
        del self.pending[partition]
