"""What a Log answers to an append."""

from __future__ import annotations

from typing import NamedTuple


class AppendResult(NamedTuple):
    """What an append did; of a duplicate, what the original append did."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    records_count: int
    size_bytes: int
    is_duplicate: bool
    high_watermark_may_move: bool
