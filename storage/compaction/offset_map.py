"""OffsetMap: the latest offset of each key in the dirty part of a log, in bounded memory (SkimpyOffsetMap).

Kafka's is an open-addressing table of MD5 sums with 24 bytes an entry. This one takes 31. Its buckets are byte strings of entries, a key in
16 bytes and an offset in 8; a key is found in its bucket by one `find` in C. A key of up to 15 bytes is stored as itself, padded with zeros
and with its size; a longer one as a digest of 15 bytes and a mark. Keys with the same digest can be made on purpose, as with Kafka's; a
client that may write them may delete the one or the other as well. The first keys are in a dict, which is faster but takes five times the
memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct

from xxhash import xxh3_128_digest

KEY_BYTES = 16
ENTRY_BYTES = 24
BUCKET_KEYS = 16  # on average, when the map is full
BUCKET_BYTES = BUCKET_KEYS * ENTRY_BYTES * 17 // 16 + 80  # what is allocated ahead is a sixteenth, what Python adds the rest
FEW_SHARE = 1 / 2  # the dict's share of the limit
FEW_BYTES = 160  # of a key in it: the entry, the bytes object, the int
KEYS_PER_STEP = 512  # moved, or listed, in one step
NOT_FOUND = -1

_FILLINGS = tuple(bytes(KEY_BYTES - 1 - size) + bytes([size]) for size in range(KEY_BYTES))
_DIGEST_MARK = b"\xff"
_OFFSET = Struct("=q")
_ENTRIES = Struct(f"={KEY_BYTES}xq")


class OffsetMap:
    """See the module's docstring. `limit_bytes` bounds what the entries take. Owner: one compaction."""

    __slots__ = ("_buckets", "_few", "_few_max", "_room", "_size", "latest_offset")

    def __init__(self, limit_bytes: float) -> None:
        self._room = int(limit_bytes) // BUCKET_BYTES * BUCKET_KEYS  # for keys in the table
        self._few_max = int(limit_bytes * FEW_SHARE) // FEW_BYTES
        self._few: dict[bytes, int] | None = {}
        self._buckets: list[bytearray] = []
        self._size = 0  # keys in the table
        self.latest_offset = NOT_FOUND
        """Of every record up to it, the keys are in the map."""

    def __len__(self) -> int:
        return self._size if self._few is None else len(self._few)

    @property
    def share(self) -> float:
        """The fill level; 1.0 at the limit."""
        return min(len(self) / max(self._room, 1), 1.0)

    def has_room(self, count: int) -> bool:
        """Whether there is room for `count` more keys now."""
        return self._size + count <= self._room if self._few is None else len(self._few) + count <= self._few_max

    def grow(self, count: int) -> Generator[int, None, bool]:
        """Make room for `count` more keys, in steps that yield 0. Returns False if the limit forbids it. An empty map always grows:
        otherwise a batch of more keys would never be compacted."""
        if len(self) == 0:
            self._room = max(self._room, count)
        if len(self) + count > self._room:
            return False
        assert self._few is not None, "a table that is not full has room"
        few, self._few = self._few, None
        self._buckets = [bytearray() for _ in range(self._room // BUCKET_KEYS + 1)]
        items = iter(few.items())
        while moved := list(islice(items, KEYS_PER_STEP)):
            self._put_entries(
                [key if len(key) == KEY_BYTES else key + _FILLINGS[len(key)] for key, _ in moved], [offset for _, offset in moved]
            )
            yield 0
        return True

    def put_all(self, keys: Sequence[bytes], offsets: Iterable[int]) -> None:
        """Put keys with the offsets of their records, which ascend. There must be room for them."""
        if self._few is None:
            self._put_entries([key + _FILLINGS[len(key)] if len(key) < KEY_BYTES else _digest(key) for key in keys], offsets)
        else:
            self._few.update(zip([key if len(key) < KEY_BYTES else _digest(key) for key in keys], offsets, strict=True))

    def find(self, key: bytes) -> int:
        """Returns the latest offset of the key; NOT_FOUND if the dirty part has none."""
        entry = key if len(key) < KEY_BYTES else _digest(key)
        if self._few is not None:
            return self._few.get(entry, NOT_FOUND)
        if len(entry) < KEY_BYTES:
            entry += _FILLINGS[len(entry)]
        bucket = self._buckets[hash(entry) % len(self._buckets)]
        place = _find_entry(bucket, entry)
        offset: int = NOT_FOUND if place < 0 else _OFFSET.unpack_from(bucket, place + KEY_BYTES)[0]
        return offset

    def absent(self, keys: Sequence[bytes]) -> bytes:
        """Returns 1 for each key that the dirty part does not have, else 0."""
        few = self._few
        if few is None:
            find = self.find
            return bytes([find(key) < 0 for key in keys])
        entries = [key if len(key) < KEY_BYTES else _digest(key) for key in keys]
        return bytes([entry not in few for entry in entries])

    def latest_offsets(self) -> Iterator[list[int]]:
        """Yields the offsets of all keys, some at a time."""
        if self._few is not None:
            offsets = iter(self._few.values())
            while some := list(islice(offsets, KEYS_PER_STEP)):
                yield some
        for bucket in self._buckets:
            yield [offset for (offset,) in _ENTRIES.iter_unpack(bucket)]

    def _put_entries(self, entries: Iterable[bytes], offsets: Iterable[int]) -> None:
        """`put_all` with a table."""
        buckets, count, pack_into = self._buckets, len(self._buckets), _OFFSET.pack_into
        for entry, offset in zip(entries, offsets, strict=True):
            bucket = buckets[hash(entry) % count]
            place = bucket.find(entry)
            if place % ENTRY_BYTES:  # not there, or not where an entry begins
                place = _find_entry(bucket, entry)
                if place < 0:
                    bucket += entry
                    bucket += _OFFSET.pack(offset)
                    self._size += 1
                    continue
            pack_into(bucket, place + KEY_BYTES, offset)


def _find_entry(bucket: bytearray, entry: bytes) -> int:
    """Where the entry begins in its bucket, -1 if it is not there. The bytes of others may look like it."""
    place = bucket.find(entry)
    while place % ENTRY_BYTES and place >= 0:
        place = bucket.find(entry, place + 1)
    return place


def _digest(key: bytes) -> bytes:
    return xxh3_128_digest(key)[: KEY_BYTES - 1] + _DIGEST_MARK
