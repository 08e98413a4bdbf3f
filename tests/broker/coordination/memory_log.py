"""A coordinator's log of one partition, in memory, that commits when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.coordination.coordinator_log import CoordinatorLog, TransactionalWrite, build_coordinator_batch
from protocol.errors import ErrorCode
from protocol.records import SimpleRecord, build_control_batch, encode_end_transaction_value, iterate_headers, patch_for_append
from storage.markers import TransactionMarker
from storage.verification import VerificationGuard
from tests.support.doubles import stands_for

PARTITION_COUNT = 1


@stands_for(CoordinatorLog, own=("append_batch", "commit"))
class MemoryLog:
    """A CoordinatorLog of bytearrays. `is_holding` keeps appends uncommitted until `commit`; `fail_with` refuses them."""

    partition_count = PARTITION_COUNT

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.next_offset = 0
        self.high_watermark = 0
        self.is_holding = False
        self.fail_with: ErrorCode | None = None
        self.held: list[Callable[[ErrorCode], None]] = []

    def append(
        self,
        partition: int,
        records: list[SimpleRecord],
        on_committed: Callable[[ErrorCode], None],
        producer: TransactionalWrite | None = None,
    ) -> None:
        self._append(build_coordinator_batch(records, producer), on_committed)

    def append_marker(self, partition: int, marker: TransactionMarker, on_committed: Callable[[ErrorCode], None]) -> None:
        control = marker.control
        value = encode_end_transaction_value(control.coordinator_epoch)
        batch = build_control_batch(
            control.control_type, value, timestamp=0, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch
        )
        self._append(batch, on_committed)

    def start_verification(
        self, partition: int, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Nothing is verified here."""
        return VerificationGuard()

    def _append(self, batch: bytearray, on_committed: Callable[[ErrorCode], None]) -> None:
        if self.fail_with is not None:
            on_committed(self.fail_with)
            return
        self.append_batch(batch)
        if self.is_holding:
            self.held.append(on_committed)
        else:
            self.high_watermark = self.next_offset
            on_committed(ErrorCode.NONE)

    def append_batch(self, batch: bytearray) -> None:
        patch_for_append(batch, 0, base_offset=self.next_offset, partition_leader_epoch=0)
        (header,) = [header for _, header in iterate_headers(batch)]
        self.next_offset = header.next_offset
        self.batches.append(batch)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        if error is ErrorCode.NONE:
            self.high_watermark = self.next_offset
        held, self.held = self.held, []
        for on_committed in held:
            on_committed(error)

    def read(self, partition: int) -> Iterator[bytearray]:
        yield from list(self.batches)

    def committed_end_offset(self, partition: int) -> int:
        return self.high_watermark

    def when_committed(self, partition: int, end_offset: int, on_committed: Callable[[ErrorCode], None]) -> None:
        if end_offset <= self.high_watermark:
            on_committed(ErrorCode.NONE)
        else:
            self.held.append(on_committed)
