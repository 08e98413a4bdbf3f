"""DelayedProduce: a produce whose records are in the log and which waits for its acks.

With acks=all it waits for the high watermark; with flush.messages=1 and acks=1 for the leader's disk. Each partition is finished by the
first event that decides it. The answer is sent when all partitions are finished.

Source: kafka.server.DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from broker.replication.isr.isr_state import ALL_IN_SYNC
from broker.replication.partition_role import LEADER
from broker.replication.purgatory import DelayedOperation
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from storage.validation import RecordError

UNKNOWN_OFFSET = -1


class PartitionAppendResult:
    """The result of one partition of a produce. On an error the offsets and times are -1, as in Kafka's answer; errors about the records
    carry the log start offset as well."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "partition",
        "record_errors",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.error_code = ErrorCode.NONE
        self.error_message: str | None = None
        self.record_errors: list[RecordError] | None = None  # which records were refused, and why
        self.base_offset = UNKNOWN_OFFSET
        self.last_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET

    def fail(self, error_code: ErrorCode, message: str | None = None) -> None:
        self.error_code = error_code
        self.error_message = message
        self.base_offset = self.log_append_time_ms = self.log_start_offset = UNKNOWN_OFFSET


OnAppended = Callable[[list[PartitionAppendResult]], None]


class DelayedProduce(DelayedOperation):
    """Parked on every partition that is still pending."""

    __slots__ = ("_acks", "_on_done", "_results", "pending")

    def __init__(
        self, results: list[PartitionAppendResult], pending: dict[Partition, PartitionAppendResult], acks: int, on_done: OnAppended
    ) -> None:
        super().__init__()
        self._results = results
        self._acks = acks
        self._on_done = on_done
        self.pending = pending

    def try_complete(self, key: Hashable | None) -> bool:
        """Finish the partition that changed, or all: Case A not the leader any more, Case B offset reached (with an ISR large
        enough, or not), Case C its log directory went offline."""
        if key is None:
            for partition in tuple(self.pending):
                self._try_finish(partition)
        elif key in self.pending:
            self._try_finish(key)
        return not self.pending

    def on_expire(self) -> None:
        for result in self.pending.values():
            result.fail(ErrorCode.REQUEST_TIMED_OUT)
        self.pending.clear()

    def on_complete(self) -> None:
        self._on_done(self._results)

    def _try_finish(self, partition: Partition) -> None:
        result = self.pending[partition]
        required_offset = result.last_offset + 1
        find_error = find_ack_error if self._acks == ALL_IN_SYNC else find_flush_error
        error_code = find_error(partition, required_offset)
        if error_code is None:
            return
        del self.pending[partition]
        if error_code is not ErrorCode.NONE:
            result.fail(error_code)


def find_ack_error(partition: Partition, required_offset: int) -> ErrorCode | None:
    """Returns the error code that answers a produce with acks=all whose records end at `required_offset` (exclusive); None while it has to
    wait.

    The ISR is counted with changes in flight, as the high watermark is (Kafka's checkEnoughReplicasReachOffset)."""
    if partition.role is not LEADER:
        return partition.absence_error()
    if partition.log.high_watermark < required_offset:
        return None
    if len(partition.in_sync.state.maximal_isr) < partition.in_sync.min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def find_flush_error(partition: Partition, required_offset: int) -> ErrorCode | None:
    """As `find_ack_error`, for acks=1 on a topic with flush.messages=1: it waits for the leader's own disk alone."""
    if partition.role is not LEADER:
        return partition.absence_error()
    if partition.waits_for_flush and partition.log.durable_end_offset < required_offset:
        return None
    return ErrorCode.NONE
