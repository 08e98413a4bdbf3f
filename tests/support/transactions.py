"""Transactional batches for logs without a transaction coordinator."""

from __future__ import annotations

from protocol.records import read_header
from storage.log import Log
from storage.verification import TransactionAppend


def verified(log: Log, records: bytes | bytearray | memoryview, *, supports_epoch_bump: bool = False) -> TransactionAppend | None:
    """What the append of the batch has to show after a coordinator was asked, which says yes. None for a batch that is not
    transactional."""
    header = read_header(records)
    if not header.is_transactional:
        return None
    guard = log.start_verification(
        header.producer_id, header.producer_epoch, header.base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=0
    )
    return TransactionAppend(guard, supports_epoch_bump)
