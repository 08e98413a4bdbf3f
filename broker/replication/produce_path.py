"""ProducePath: appends the batches of a produce to the partitions of this broker, and parks the produce until its acks are there.

There is no await between the leader check and the append, so the two are atomic. The Produce handler calls `append_now` and `park`; all
others call `append`. Source: kafka.server.ReplicaManager.appendRecords, appendRecordsToLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.replication.delayed_produce import UNKNOWN_OFFSET, DelayedProduce, OnAppended, PartitionAppendResult
from broker.replication.isr.isr_state import ALL_IN_SYNC
from broker.replication.refused_sequences import CAUSES, RefusedSequences
from broker.replication.transactional_appends import append_markers, start_verification
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError
from storage.validation import AppendOrigin, NotOneBatchError, PreparedBatch, RecordValidationError

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.observability.metrics import Metrics
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.log_directories import LogDirectories
    from broker.replication.partition import Partition
    from broker.replication.waiting_requests import WaitingRequests
    from storage.markers import TransactionMarker
    from storage.verification import TransactionAppend, VerificationGuard

AppendEntry = tuple["PartitionAppendResult", "Partition | None", memoryview | PreparedBatch]
"""The slot of the result, the partition (None: to be looked up), and the writable bytes of one batch, or the batch as a worker checked it
ahead."""

# Errors that are normal in a cluster, or a client's mistake. Any other error counts as a failed request in the metrics.
EXPECTED_APPEND_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ProducePath:
    """See the module's docstring.

    `on_append_bug()` is called when an append fails unexpectedly: the broker should stop."""

    def __init__(
        self,
        hosted: HostedPartitions,
        waiting: WaitingRequests,
        log_directories: LogDirectories,
        clock: Clock,
        metrics: Metrics,
        on_append_bug: Callable[[], None] | None,
    ) -> None:
        self._hosted = hosted
        self.find_partition = hosted.find  # for the Produce handler
        self._waiting = waiting
        self._log_directories = log_directories
        self._clock = clock
        self._metrics = metrics
        self._on_append_bug = on_append_bug
        self._refused_sequences = RefusedSequences()

    def append(
        self,
        batches: Sequence[tuple[str, int, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
        on_done: OnAppended,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_zstd_allowed: bool = True,
        transaction: TransactionAppend | None = None,
    ) -> DelayedProduce | None:
        """Append batches, each with the topic and the index of its partition; `on_done` gets the results in their order. `transaction` is
        what transactional batches have to show.

        If no partition has to wait, `on_done` is called before this returns, and None is returned. Otherwise the waiting operation is
        returned and `on_done` is called at its end; `ReplicaManager.produce_purgatory.cancel` ends it without a call. A partition may
        occur only once. The records are not used after this returns."""
        entries: list[AppendEntry] = [(PartitionAppendResult(topic, index), None, records) for topic, index, records in batches]
        results = [result for result, _, _ in entries]
        transactions = None if transaction is None else dict.fromkeys(results, transaction)
        pending = self.append_now(entries, acks, self._clock.now_ms(), is_zstd_allowed, origin, transactions)
        if pending is not None:
            return self.park(results, pending, acks, timeout_ms, on_done)
        on_done(results)
        return None

    def append_now(
        self,
        entries: Sequence[AppendEntry],
        acks: int,
        now_ms: int,
        is_zstd_allowed: bool,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transactions: Mapping[PartitionAppendResult, TransactionAppend] | None = None,
    ) -> dict[Partition, PartitionAppendResult] | None:
        """Append the batches and fill in the results, without waiting. Returns the results that have to wait for their acks, to be given
        to `park`. `transactions` has what transactional batches have to show, by their results."""
        pending: dict[Partition, PartitionAppendResult] | None = None
        changed: list[tuple[Partition, bool]] = []
        for result, partition, records in entries:
            try:
                if partition is None:
                    partition = self._hosted.get(result.topic, result.partition)  # creates it, or raises why not
                transaction = None if transactions is None else transactions.get(result)
                appended = partition.append_as_leader(
                    records, acks=acks, now_ms=now_ms, origin=origin, is_zstd_allowed=is_zstd_allowed, transaction=transaction
                )
            except KafkaError as error:
                self._refuse_append(result, error, records, now_ms)
                continue
            except StorageError as error:
                assert partition is not None
                self._log_directories.fail(partition.log.directory.parent, error)
                result.fail(ErrorCode.KAFKA_STORAGE_ERROR)
                continue
            except Exception:
                # A bug in the middle of an append: memory and disk may differ. Recovery makes them agree again.
                if self._on_append_bug is not None:
                    self._on_append_bug()
                raise
            metrics = partition.metrics
            metrics.messages_in += appended.records_count
            metrics.bytes_in += appended.size_bytes
            metrics.total_produce_requests += 1
            result.base_offset = appended.base_offset
            result.last_offset = last_offset = appended.last_offset
            result.log_append_time_ms = appended.log_append_time_ms
            result.log_start_offset = appended.log_start_offset
            has_moved = partition.maybe_advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)
            if partition.followers or partition.has_flush_limit or self._waiting.is_watched(partition):
                changed.append((partition, has_moved))
            if acks == ALL_IN_SYNC:
                is_waiting = partition.log.high_watermark <= last_offset
            else:
                is_waiting = acks != 0 and partition.waits_for_flush and partition.log.durable_end_offset <= last_offset
            if is_waiting:
                if pending is None:
                    pending = {}
                pending[partition] = result
        if changed:
            self._after_append(changed)
        return pending

    def start_verification(
        self, topic: str, index: int, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Returns what the append of a transactional batch has to show after its coordinator was asked; None if nothing has to be asked.
        KafkaError as by transactional_appends.start_verification, or why this broker has no such partition."""
        return start_verification(
            self._hosted.get(topic, index),
            producer_id,
            producer_epoch,
            base_sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._clock.now_ms(),
        )

    def append_markers(
        self, topic: str, index: int, markers: Sequence[TransactionMarker], *, timeout_ms: int, on_done: Callable[[list[ErrorCode]], None]
    ) -> DelayedProduce | None:
        """Append the ends of transactions to one partition. `on_done` gets an error code for each in their order: why it was refused, or
        what became of it, NONE when it is replicated. When it is called, and what is returned, is as in `append`.

        Each call waits by itself: a partition whose followers are slow holds back no other's markers."""
        result = PartitionAppendResult(topic, index)
        partition: Partition | None = None
        try:
            partition = self._hosted.get(topic, index)
            verdicts = append_markers(partition, markers, now_ms=self._clock.now_ms())
        except KafkaError as error:
            on_done([error.code] * len(markers))
            return None
        except StorageError as error:
            assert partition is not None
            self._log_directories.fail(partition.log.directory.parent, error)
            on_done([ErrorCode.KAFKA_STORAGE_ERROR] * len(markers))
            return None
        except Exception:
            if self._on_append_bug is not None:
                self._on_append_bug()
            raise
        result.last_offset = max((verdict.offset for verdict in verdicts), default=UNKNOWN_OFFSET)
        if result.last_offset == UNKNOWN_OFFSET:
            on_done([verdict.error_code for verdict in verdicts])
            return None
        partition.metrics.messages_in += sum(verdict.error_code is ErrorCode.NONE for verdict in verdicts)
        self._after_append([(partition, partition.maybe_advance_high_watermark(self._clock.monotonic_ms()))])
        return self.park(
            [result],
            {partition: result},
            ALL_IN_SYNC,
            timeout_ms,
            lambda results: on_done([verdict.error_code or results[0].error_code for verdict in verdicts]),
        )

    def park(
        self,
        results: list[PartitionAppendResult],
        pending: dict[Partition, PartitionAppendResult],
        acks: int,
        timeout_ms: int,
        on_done: OnAppended,
    ) -> DelayedProduce | None:
        """Wait for the acks of the results that `append_now` returned. `on_done` and the returned operation are those of `append`."""
        operation = DelayedProduce(results, pending, acks, on_done)
        is_done = self._waiting.produces.try_complete_else_watch(operation, tuple(pending), timeout_ms)
        return None if is_done else operation

    def _refuse_append(self, result: PartitionAppendResult, error: KafkaError, records: memoryview | PreparedBatch, now_ms: int) -> None:
        self.note_refusal(result, error, records, now_ms)
        is_log_asked = result.error_code not in EXPECTED_APPEND_ERRORS and not isinstance(error, NotOneBatchError)
        if is_log_asked and (partition := self._hosted.find(result.topic, result.partition)) is not None:
            result.log_start_offset = partition.log.log_start_offset  # sent with errors about the records, as in Kafka

    def note_refusal(self, result: PartitionAppendResult, error: KafkaError, records: memoryview | PreparedBatch, now_ms: int) -> None:
        """Fail the result of a batch that is not appended, and count it. A caller that refuses batches before the append says so here: the
        producer's next batch may be on its way, and is then out of order for the same reason. As in Kafka, it is told no log start
        offset."""
        if error.code in CAUSES:
            self._refused_sequences.record(result.topic, result.partition, records, error.code, now_ms)
        elif (
            error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (led := self._hosted.find(result.topic, result.partition)) is not None
        ):
            cause = self._refused_sequences.find_cause(result.topic, result.partition, records, led.log, now_ms)
            error = error if cause is None else KafkaError(cause)
        result.fail(error.code, error.message)
        if isinstance(error, RecordValidationError):
            result.record_errors = error.record_errors
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else clients could fill the metrics with unknown names
            metrics = self._metrics.topic(result.topic)
            metrics.total_produce_requests += 1
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                metrics.bytes_rejected += len(records)  # the size as it arrived, also where only recompression made it too large
            if error.code not in EXPECTED_APPEND_ERRORS:
                metrics.failed_produce_requests += 1

    def _after_append(self, changed: list[tuple[Partition, bool]]) -> None:
        """Start the flushes that are needed, and wake the requests that wait for the appended records. Called after all appends of the
        request, so that a fetch that waits for several partitions gets them together."""
        for partition, is_high_watermark_moved in changed:
            if partition.has_flush_limit and partition.is_flush_due:
                self._log_directories.request_flush((partition,))
            if is_high_watermark_moved:
                self._waiting.wake(partition)
            elif partition.followers:
                self._waiting.fetches.notify(partition)  # followers read up to the log end
