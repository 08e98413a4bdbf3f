"""ProducerStateManager: a partition's state of each idempotent or transactional producer.

Owned by one Log, which calls it in log order: `find_duplicate` and `check_append` before a batch is written, `record_append` after.
For each producer id it keeps the last five batches, so that a retry is answered with its original offset, and the first offset of
an open transaction, which holds back the last stable offset. (ProducerStateManager, ProducerStateEntry, ProducerAppendInfo)

Kafka collects an append's effects in a ProducerAppendInfo and applies them after the write. Here the checks change nothing and the
effects are computed after the write: an append of a client is one batch, so nothing has to be carried between the two.

The state survives in snapshots (storage/producer_snapshot.py); one holds everything before the offset in its name. Invariants:
`map_end_offset` is the offset up to which batches are included; open transactions are in the order of their first offsets.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ControlRecordType,
    EndTransactionMarker,
)
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError, StorageError
from storage.files import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, delete_if_exists, find_offset, offset_file_name, rename
from storage.producer_checks import check_first_sequence, check_marker, check_sequence, check_verification, old_epoch
from storage.producer_snapshot import SnapshotEntry, read_snapshot, write_snapshot
from storage.producer_state_entry import (
    BATCHES_TO_RETAIN,
    BatchMetadata,
    CompletedTransaction,
    ProducerStateEntry,
    entry_of,
    snapshot_of,
)
from storage.validation import AppendOrigin
from storage.verification import TransactionAppend, VerificationGuard, VerificationState

PRODUCER_ID_EXPIRATION_MS = 86_400_000

_log = logging.getLogger("barnabas.storage")


class ProducerStateManager:
    """The producers of one partition and their snapshots on disk."""

    def __init__(self, directory: Path, *, producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS, disk: Disk = SYSTEM_DISK) -> None:
        """Lists the snapshots in the partition's directory; `truncate_and_reload` reads one."""
        self.directory = directory
        self._disk = disk
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        """First offset → producer id, in the order of the offsets. Finding the first takes a walk over removed entries in a dict."""
        self._unreplicated: deque[CompletedTransaction] = deque()
        """Of the completed transactions that the high watermark has not passed, those with the smallest first offset among themselves and
        all that were completed later. So first and last offsets rise, and the first one is the smallest of all."""
        self._verifications: dict[int, VerificationState] = {}  # producer id → its question; not in snapshots
        self._snapshot_offsets = _list_snapshots(directory, disk)
        self.map_end_offset = 0  # every batch below it is included; the log moves it on
        self._last_snapshot_offset = 0

    # Appending

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the earlier append of exactly this batch, if it is one of its producer's last five."""
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first_sequence = header.base_sequence
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Returns the guard that the append of this batch has to show after the transaction coordinator was asked; None when the
        producer's transaction is open here, so that nothing has to be asked. KafkaError INVALID_PRODUCER_EPOCH: an older epoch.
        (UnifiedLog.maybeStartTransactionVerification)"""
        entry = self._producers.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                raise old_epoch(entry, producer_epoch)
            if entry.has_open_transaction(producer_epoch):
                return None
        state = self._verifications.get(producer_id)
        if state is None:
            state = VerificationState(producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms)
            self._verifications[producer_id] = state
        state.note_batch(producer_epoch, base_sequence)
        return state.guard

    def check_append(
        self,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: EndTransactionMarker | None = None,
        *,
        transaction: TransactionAppend | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Raises KafkaError when a batch with a producer id may not be appended next; changes nothing.

        Call it for clients and coordinators only: followers and recovery do not check again what a leader has accepted.
        INVALID_PRODUCER_EPOCH: an older epoch; for a marker of transaction version 2 not a higher one either, unless it repeats one.
        OUT_OF_ORDER_SEQUENCE_NUMBER: not the next sequence, or not 0 in a new epoch or of an unknown producer of version 2.
        TRANSACTION_COORDINATOR_FENCED: a marker of an older coordinator. INVALID_TXN_STATE: outside the open transaction, or in one that
        is not open here, without the guard that stands. An unknown producer, whose state has expired or whose records were deleted, may
        begin with any sequence below version 2, and end a transaction.
        """
        entry = self._producers.get(header.producer_id)
        attributes = header.attributes
        if attributes & CONTROL_FLAG:
            if entry is not None:
                check_marker(entry, header.producer_epoch, marker, transaction_version)
            return
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise old_epoch(entry, header.producer_epoch)
        if attributes & TRANSACTIONAL_FLAG:
            state = self._verifications.get(header.producer_id)
            check_verification(entry, header, transaction, state)
            if origin is AppendOrigin.CLIENT:
                check_first_sequence(entry, header, transaction, state)
        if entry is None:
            return
        if origin is AppendOrigin.CLIENT:
            check_sequence(entry, header)
        if entry.current_transaction_first_offset is not None and not attributes & TRANSACTIONAL_FLAG:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Producer {header.producer_id} has an open transaction; the batch is outside it")

    def record_append(
        self, header: BatchHeader, *, base_offset: int, timestamp: int, marker: EndTransactionMarker | None = None
    ) -> CompletedTransaction | None:
        """Records an appended batch with a producer id, with its assigned base offset and largest timestamp.

        `marker` is the content of a control batch. When it ends a transaction that has records here, that is returned: the caller
        writes an abort into the transaction index, then calls `complete_transaction`.
        """
        producer_id = header.producer_id
        attributes = header.attributes
        if attributes & TRANSACTIONAL_FLAG and self._verifications:
            self._end_verification(header)
        entry = self._producers.get(producer_id)
        if attributes & CONTROL_FLAG:
            return None if marker is None else self._record_marker(header, marker, base_offset, timestamp)
        if entry is None:
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        batches = entry.batches
        if entry.producer_epoch != header.producer_epoch:
            batches.clear()
            entry.producer_epoch = header.producer_epoch
        elif len(batches) == BATCHES_TO_RETAIN:
            del batches[0]
        last_offset = base_offset + header.last_offset_delta
        batches.append(BatchMetadata(header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp))
        entry.last_timestamp = timestamp
        if attributes & TRANSACTIONAL_FLAG and entry.current_transaction_first_offset is None:
            entry.current_transaction_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
        return None

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Returns the last stable offset once this transaction is gone: the next open one's start, or after the marker."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Ends an open transaction; it holds back the last stable offset until the high watermark has passed its marker."""
        self._ongoing.pop(completed.first_offset)
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1].first_offset > completed.first_offset:
            unreplicated.pop()
        unreplicated.append(completed)

    # Queries of the log

    @property
    def producers(self) -> dict[int, ProducerStateEntry]:
        """The live entries by producer id, for DescribeProducers and tests; not to be changed."""
        return self._producers

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def has_transactions(self) -> bool:
        """Whether one is open, or completed above the high watermark; without any, all records below the high watermark are stable."""
        return bool(self._ongoing or self._unreplicated)

    @property
    def open_transactions(self) -> Iterator[ProducerStateEntry]:
        """The producers that have one, in the order of their first offsets. Valid until the next append."""
        return (self._producers[producer_id] for producer_id in self._ongoing.values())

    def has_late_transaction(self, before_ms: int) -> bool:
        """Whether the producer of the oldest open transaction has written nothing here since then, by its batches' timestamps
        (ProducerStateManager.hasLateTransaction)."""
        oldest = next(self.open_transactions, None)
        return oldest is not None and 0 < oldest.last_timestamp < before_ms

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open or whose marker the high watermark has not passed."""
        undecided = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0].first_offset
        return unreplicated if undecided is None else min(unreplicated, undecided)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forgets the completed transactions whose markers are below the high watermark."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Drops producers without an open transaction that were silent for the expiration time, and returns their number; verifications
        that began so long ago are dropped too."""
        for producer_id, state in list(self._verifications.items()):
            if now_ms - state.timestamp_ms >= self.producer_id_expiration_ms:
                del self._verifications[producer_id]
        expired = [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    # Loading and truncating

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Loads the latest valid snapshot in (log_start_offset, log_end_offset], unless the state is current.

        Snapshots out of that range are deleted. Afterwards the caller replays the batches from `map_end_offset` on.
        """
        for offset in [o for o in self._snapshot_offsets if not log_start_offset < o <= log_end_offset]:
            self._delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._forget_all()
        self._load_latest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forgets everything, snapshots included."""
        self._forget_all()
        for snapshot_offset in list(self._snapshot_offsets):
            self._delete_snapshot(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def refill(self, headers: Iterable[BatchHeader]) -> None:
        """Fills the five-batch windows from headers that lie before the loaded snapshot's offset, in log order.

        A snapshot has only each producer's last batch. Without the windows, a retry of an earlier batch after a restart would be refused,
        or be appended twice if the client then resets its sequence. Producers that are not in the snapshot stay unknown.
        """
        found: dict[int, list[BatchMetadata]] = {}
        for header in headers:
            entry = self._producers.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                continue
            if entry.batches and header.last_offset < entry.batches[0].first_offset:
                batch = BatchMetadata(
                    header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
                )
                found.setdefault(header.producer_id, []).append(batch)
        for producer_id, earlier in found.items():
            entry = self._producers[producer_id]
            entry.batches = (earlier + entry.batches)[-BATCHES_TO_RETAIN:]

    # Snapshots

    @property
    def latest_snapshot_offset(self) -> int | None:
        return max(self._snapshot_offsets, default=None)

    def take_snapshot(self, *, fsync: bool = False) -> Path | None:
        """Writes a snapshot at `map_end_offset` and returns its path; None when the last one is as new."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = self._snapshot_path(self.map_end_offset)
        write_snapshot(path, (snapshot_of(entry) for entry in self._producers.values()), fsync=fsync, disk=self._disk)
        self._snapshot_offsets.add(self.map_end_offset)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def mark_snapshot_for_deletion(self, offset: int) -> Path | None:
        """Renames the snapshot of a deleted segment to `.deleted` and returns that path; None when there is none."""
        if offset not in self._snapshot_offsets:
            return None
        self._snapshot_offsets.discard(offset)
        path = self._snapshot_path(offset)
        if not self._disk.exists(path):
            return None
        marked = path.with_name(path.name + DELETED_SUFFIX)
        rename(path, marked, self._disk)
        return marked

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Deletes the snapshots that belong to no segment, except the last one if it is above every segment's start. A kill while segments
        were replaced or deleted leaves such snapshots.

        That last one is from a clean stop: it is at the log's end, and the state is loaded from it.
        """
        base_offsets = set(segment_base_offsets)
        stray = sorted(offset for offset in self._snapshot_offsets if offset not in base_offsets)
        if stray and stray[-1] > max(base_offsets, default=-1):
            stray.pop()
        for offset in stray:
            self._delete_snapshot(offset)

    # Helpers

    def _end_verification(self, header: BatchHeader) -> None:
        state = self._verifications.get(header.producer_id)
        if state is not None and state.is_ended_by(header.producer_epoch, is_marker=header.is_control):
            del self._verifications[header.producer_id]

    def _record_marker(self, header: BatchHeader, marker: EndTransactionMarker, offset: int, timestamp: int) -> CompletedTransaction | None:
        entry = self._producers.setdefault(header.producer_id, ProducerStateEntry(header.producer_id))
        first_offset = entry.current_transaction_first_offset
        if entry.producer_epoch != header.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = header.producer_epoch
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_transaction_first_offset = None
        if first_offset is None:
            return None  # the transaction has no records here, so nothing waits for it
        return CompletedTransaction(header.producer_id, first_offset, offset, marker.control_type is ControlRecordType.ABORT)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        if entry.current_transaction_first_offset is not None:
            return False
        return now_ms - entry.last_timestamp >= self.producer_id_expiration_ms

    def _forget_all(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_latest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while (offset := self.latest_snapshot_offset) is not None:
            try:
                loaded = read_snapshot(self._snapshot_path(offset), self._disk)
            except CorruptFileError as error:
                _log.warning("ignored a producer snapshot: %s", error)
                self._delete_snapshot(offset)
                continue
            self._take_over(loaded, now_ms)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _take_over(self, loaded: list[SnapshotEntry], now_ms: int) -> None:
        entries = [entry_of(snapshot_entry) for snapshot_entry in loaded]
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        open_transactions = [
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in entries
            if entry.current_transaction_first_offset is not None
        ]
        self._ongoing = OrderedDict(sorted(open_transactions))

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / offset_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def _delete_snapshot(self, offset: int) -> None:
        self._snapshot_offsets.discard(offset)
        delete_if_exists(self._snapshot_path(offset), self._disk)


def _list_snapshots(directory: Path, disk: Disk) -> set[int]:
    try:
        entries = disk.scan(directory)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise StorageError(f"cannot list {directory}: {error.strerror or error}", path=directory) from error
    offsets = (find_offset(entry.name, PRODUCER_SNAPSHOT_SUFFIX) for entry in entries)
    return {offset for offset in offsets if offset is not None}
