"""OffsetMap: the latest offset of each key in the dirty part of a log, in bounded memory (SkimpyOffsetMap).

Kafka's is an open-addressing table of MD5 sums, 24 bytes an entry. In Python a dict is eight times as fast and takes five times the
memory: about 144 bytes for a key of up to 15 bytes. So the map is full earlier, and a log with more dirty keys than fit is cleaned in
more rounds, each of which is right by itself. Long keys stand as their digest, which is longer than any key that stands as itself.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 32
ENTRY_BYTES = 96  # an int (32) and the share of the dict's table, which is larger than its entries by a half on average (64)
KEY_OVERHEAD_BYTES = 33  # of a bytes object
NOT_FOUND = -1


class OffsetMap:
    """See the module's docstring. `limit_bytes` bounds what it is to take; `is_full` is to be asked before each batch."""

    def __init__(self, limit_bytes: float) -> None:
        self._limit_bytes = limit_bytes
        self._offsets: dict[bytes, int] = {}
        self._key_bytes = 0
        self.latest_offset = -1
        """Of every record up to it, the keys are in the map."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return self._key_bytes + len(self._offsets) * ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def put(self, key: bytes, offset: int) -> None:
        """Offsets ascend."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        offsets = self._offsets
        if key not in offsets:
            self._key_bytes += KEY_OVERHEAD_BYTES + len(key)
        offsets[key] = offset

    def find(self, key: bytes) -> int:
        """The latest offset of the key, NOT_FOUND when the dirty part has none."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._offsets.get(key, NOT_FOUND)
