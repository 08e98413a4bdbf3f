"""TailCache: the last batch that a leader appended, in memory until its followers have read it.

Owned by the Log of a partition that has followers. A batch that is longer than TAIL_SIZE_MAX is read from its file.
"""

from __future__ import annotations

TAIL_SIZE_MAX = 4 * 1024
"""Bytes. The followers of ten thousand partitions may be away at once, until they have left the ISRs."""


class TailCache:
    """See the module's docstring."""

    __slots__ = ("_offset", "_records")

    def __init__(self) -> None:
        self._offset = 0
        self._records: bytes | None = None

    def note(self, base_offset: int, records: memoryview | bytes | bytearray) -> None:
        """Keep this batch, the last one written."""
        self._offset = base_offset
        self._records = bytes(records) if len(records) <= TAIL_SIZE_MAX else None

    def find(self, start_offset: int, max_bytes: int) -> bytes | None:
        """Returns the batch if a read of `max_bytes` from `start_offset` contains all of it."""
        records = self._records
        return records if records is not None and start_offset == self._offset and len(records) <= max_bytes else None

    def forget(self) -> None:
        """Drop the batch: the followers have it, or it has left the log."""
        self._records = None
