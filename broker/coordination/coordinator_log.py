"""CoordinatorLog: the interface of the log that keeps a coordinator's state, and its implementation over the ReplicaManager.

State machines know only the interface, so that tests and simulations can give them a list of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.loop.cold_reads import read_in_turns
from broker.loop.deferred import Deferred
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.isr.isr_state import ALL_IN_SYNC
from protocol.compression import Compression
from protocol.errors import ErrorCode, KafkaError
from protocol.records import NO_SEQUENCE, SimpleRecord, build_batch, iterate_headers
from storage.file_slice import take_bytes
from storage.validation import AppendOrigin
from storage.verification import TransactionAppend, VerificationGuard

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.metadata.metadata_cache import MetadataCache
    from broker.replication.replica_manager import ReplicaManager
    from storage.log import Log
    from storage.markers import TransactionMarker

LOAD_CHUNK_BYTES = 256 * 1024
"""Bytes of the log that are read at a time while loading. A larger batch is read whole."""

COMMIT_WAIT_MS = 2**31 - 1
"""An append waits for its commit as long as this broker leads: an appended record may be committed at any time, and the coordinator must
learn when. The coordinator itself limits how long its client waits (offsets.commit.timeout.ms)."""

Buffer = bytes | bytearray | memoryview

OnCommitted = Callable[[ErrorCode], None]

LogChunks = Generator[Buffer | Deferred, Any, None]
"""Chunks of a log. Between them comes a Deferred wherever a read waits for the disk. The caller sends back the Deferred's value."""


class TransactionalWrite(NamedTuple):
    """The producer whose open transaction records belong to. `guard` is what `start_verification` gave before the transaction coordinator
    was asked, None if the transaction was open already; `is_verification_required` is transaction.partition.verification.enable."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None
    is_verification_required: bool = True

    @property
    def transaction(self) -> TransactionAppend:
        return TransactionAppend(self.guard, supports_epoch_bump=False, is_required=self.is_verification_required)


def build_coordinator_batch(
    records: list[SimpleRecord], producer: TransactionalWrite | None, *, compression: Compression = Compression.NONE
) -> bytearray:
    """The records as one batch. Those of a transaction have no sequence of their own: each batch begins with 0, as in Kafka, and nothing
    checks it."""
    if producer is None:
        return build_batch(records, compression=compression)
    return build_batch(
        records,
        compression=compression,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )


class CoordinatorLog(Protocol):
    """The partitions of one internal topic."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have when it is created."""

    def append(
        self, partition: int, records: list[SimpleRecord], on_committed: OnCommitted, producer: TransactionalWrite | None = None
    ) -> None:
        """Append the records as one batch, of the producer's open transaction if one is given. `on_committed` is called once.

        It is called before this returns with NONE if the records are committed already, and with an error if they were not appended.
        Otherwise it is called later: with NONE when the records are committed, or with an error when this broker can no longer know.
        """

    def append_marker(self, partition: int, marker: TransactionMarker, on_committed: OnCommitted) -> None:
        """Append the end of a producer's transaction. `on_committed` is called as by `append`."""

    def start_verification(
        self, partition: int, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Returns what a TransactionalWrite has to show after the transaction coordinator was asked; None if the transaction is open in
        this partition already, so that nothing has to be asked. KafkaError: INVALID_PRODUCER_EPOCH, or as for `read`."""

    def read(self, partition: int) -> LogChunks:
        """The partition's whole batches from its start to its end, a chunk at a time.

        KafkaError if this broker does not lead the partition, or no longer does.
        """

    def committed_end_offset(self, partition: int) -> int:
        """The offset, exclusive, up to which the log is committed. KafkaError as for `read`."""

    def when_committed(self, partition: int, end_offset: int, on_committed: OnCommitted) -> None:
        """Call `on_committed` as `append` does, for records below `end_offset` that are in the log already."""


class ReplicatedCoordinatorLog:
    """CoordinatorLog over this broker's replicas of `topic`."""

    def __init__(
        self,
        topic: str,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        *,
        default_partition_count: int,
        compression: Compression = Compression.NONE,
        run_blocking: RunBlocking | None = None,
    ) -> None:
        """With `run_blocking`, a thread reads what is not in the page cache."""
        self._topic = topic
        self._replica_manager = replica_manager
        self._metadata = metadata
        self._default_partition_count = default_partition_count
        self._compression = compression
        self._run_blocking = run_blocking

    @property
    def partition_count(self) -> int:
        image = self._metadata.find_topic(self._topic)
        return self._default_partition_count if image is None else len(image.partitions)

    def append(
        self, partition: int, records: list[SimpleRecord], on_committed: OnCommitted, producer: TransactionalWrite | None = None
    ) -> None:
        batch = build_coordinator_batch(records, producer, compression=self._compression)
        self._replica_manager.produce_path.append(
            [(self._topic, partition, memoryview(batch))],
            acks=ALL_IN_SYNC,
            timeout_ms=COMMIT_WAIT_MS,
            origin=AppendOrigin.COORDINATOR,
            on_done=lambda results: on_committed(_outcome(results)),
            transaction=None if producer is None else producer.transaction,
        )

    def append_marker(self, partition: int, marker: TransactionMarker, on_committed: OnCommitted) -> None:
        self._replica_manager.produce_path.append_markers(
            self._topic, partition, [marker], timeout_ms=COMMIT_WAIT_MS, on_done=lambda codes: on_committed(_committed(codes[0]))
        )

    def start_verification(
        self, partition: int, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        return self._replica_manager.produce_path.start_verification(
            self._topic, partition, producer_id, producer_epoch, NO_SEQUENCE, supports_epoch_bump=supports_epoch_bump
        )

    def read(self, partition: int) -> LogChunks:
        replica = self._replica_manager.get_for_loading(self._topic, partition)
        leader_epoch = replica.leader_epoch
        offset = replica.log.log_start_offset
        while True:
            if not replica.is_leader or replica.leader_epoch != leader_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            end_offset = replica.log.log_end_offset
            if offset >= end_offset:
                return
            chunk = yield from read_in_turns(partial(_read_chunk, replica.log, offset, end_offset), self._run_blocking)
            next_offset = _end_of(chunk)
            if next_offset is None:
                return
            yield chunk
            offset = next_offset

    def committed_end_offset(self, partition: int) -> int:
        return self._replica_manager.get_partition(self._topic, partition).log.high_watermark

    def when_committed(self, partition: int, end_offset: int, on_committed: OnCommitted) -> None:
        replica = self._replica_manager.get_partition(self._topic, partition)
        waiting = PartitionAppendResult(self._topic, partition)
        waiting.last_offset = end_offset - 1
        self._replica_manager.produce_path.park(
            [waiting], {replica: waiting}, ALL_IN_SYNC, COMMIT_WAIT_MS, lambda results: on_committed(_outcome(results))
        )


def _read_chunk(log: Log, offset: int, end_offset: int) -> bytes:
    return take_bytes(log.read(offset, max_bytes=LOAD_CHUNK_BYTES, end_offset=end_offset, minimum_one_batch=True))


def _outcome(results: list[PartitionAppendResult]) -> ErrorCode:
    return _committed(ErrorCode(results[0].error_code))


def _committed(error: ErrorCode) -> ErrorCode:
    # At this error the high watermark has passed the records: they are committed, on fewer replicas than min.insync.replicas.
    return ErrorCode.NONE if error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND else error


def _end_of(chunk: Buffer) -> int | None:
    """The offset after the chunk's last batch, None if it has no batch."""
    next_offset = None
    for _, header in iterate_headers(chunk):
        next_offset = header.next_offset
    return next_offset
