"""Computes where a follower truncates its log after the leader has said where the two logs diverge (KIP-101, KIP-279, KIP-595). Pure.

Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from protocol.messages.fetch import EpochEndOffset
from storage.log import Log


def find_truncation_offset(log: Log, diverging: EpochEndOffset) -> int:
    """Returns the offset up to which `log` may be a prefix of the leader's. The leader's epoch `diverging.epoch` ends at
    `diverging.end_offset`.

    Case A: our log does not know where that epoch ends: the leader's end offset.

    Case B: our log lacks that epoch: our end offset of the highest lower epoch; the next fetch tells whether to truncate more.

    Case C: our log has that epoch: our end offset of it or the leader's, whichever is lower.

    Never the high watermark: a follower's may lie below what it has acknowledged."""
    own = log.end_offset_for_epoch(diverging.epoch)
    if not own.is_defined:
        return min(diverging.end_offset, log.log_end_offset)  # Case A
    if own.epoch != diverging.epoch:
        return min(own.end_offset, log.log_end_offset)  # Case B
    return min(own.end_offset, diverging.end_offset, log.log_end_offset)  # Case C
