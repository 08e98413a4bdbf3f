"""What the client tests send and what they read back, whatever the client's own types are."""

from __future__ import annotations

import time
from dataclasses import dataclass

# A minute ago. Records much older than the topic's retention would be deleted while a test still reads them.
RECENT_MS = time.time_ns() // 1_000_000 - 60_000

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send. `timestamp_ms` None leaves the time to the client."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a consumer got it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def message(self) -> Message:
        return Message(self.partition, self.key, self.value, self.headers, self.timestamp_ms)
