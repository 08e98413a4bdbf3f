"""Where a follower cuts its log after the leader has said where the two logs diverge (KIP-101, KIP-279, KIP-595). Pure.

Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from protocol.messages.fetch import EpochEndOffset
from storage.log import Log


def find_truncation_offset(log: Log, diverging: EpochEndOffset) -> int:
    """The offset up to which `log` may be a prefix of the leader's, which has `diverging.epoch` up to `diverging.end_offset`.

    Case A: our log does not know where that epoch ends: cut where it ends at the leader. Case B: our log lacks that epoch: cut where
    the highest of its lower ones ends here, and let the next fetch say whether to cut more. Case C: our log has that epoch: cut where it
    ends here or at the leader, whichever is first. Never cut to the high watermark: a follower's may lie below what it acknowledged."""
    own = log.end_offset_for_epoch(diverging.epoch)
    if not own.is_defined:
        return min(diverging.end_offset, log.log_end_offset)  # Case A
    if own.epoch != diverging.epoch:
        return min(own.end_offset, log.log_end_offset)  # Case B
    return min(own.end_offset, diverging.end_offset, log.log_end_offset)  # Case C
