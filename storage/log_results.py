"""The result of an append to a Log."""

from __future__ import annotations

from typing import NamedTuple


class AppendResult(NamedTuple):
    """The result of an append; for a duplicate, that of the original append."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    records_count: int
    size_bytes: int
    is_duplicate: bool
    high_watermark_may_move: bool
