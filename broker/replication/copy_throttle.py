"""How fast replicas are copied between the log directories of this broker.

Source: kafka.server.ReplicationQuotaManager for replica.alter.log.dirs.io.max.bytes.per.second, which is a dynamic config in Kafka.
"""

from __future__ import annotations

from typing import Protocol

MILLISECONDS = 1_000


class CopyThrottle(Protocol):
    """All moves of a broker share one. Times are monotonic milliseconds."""

    def delay_ms(self, now_ms: int) -> int:
        """How long the next read has to wait."""

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So much was copied."""


class ByteRate:
    """Allows `bytes_per_second` on average; None for no limit. Whoever sets it may change it at any time."""

    __slots__ = ("_free_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: int | None = None) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_ms = 0.0  # when what was copied is paid for

    def delay_ms(self, now_ms: int) -> int:
        if self.bytes_per_second is None:
            return 0
        return max(0, int(self._free_ms - now_ms + 0.999))

    def record(self, size_bytes: int, now_ms: int) -> None:
        if self.bytes_per_second is not None:
            self._free_ms = max(self._free_ms, now_ms) + size_bytes * MILLISECONDS / max(self.bytes_per_second, 1)
