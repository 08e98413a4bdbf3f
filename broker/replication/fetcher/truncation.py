"""Where a follower cuts its log, from what the leader says of where the logs part (KIP-101, KIP-279, KIP-595). Pure.

Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from protocol.messages.fetch import EpochEndOffset
from storage.log import Log


def find_truncation_offset(log: Log, diverging: EpochEndOffset) -> int:
    """The offset up to which `log` may be a prefix of the leader's, which has `diverging.epoch` up to `diverging.end_offset`.

    Case A: our log knows no epoch up to that one: where the leader's ends. Case B: it knows only lower ones: where the highest of
    these ends here; the next fetch tells whether to cut more. Case C: it has that epoch: where it ends here or at the leader.
    Never the high watermark: a follower's may lie below what it acknowledged."""
    own = log.end_offset_for_epoch(diverging.epoch)
    if not own.is_defined:
        return min(diverging.end_offset, log.log_end_offset)  # Case A
    if own.epoch != diverging.epoch:
        return min(own.end_offset, log.log_end_offset)  # Case B
    return min(own.end_offset, diverging.end_offset, log.log_end_offset)  # Case C
