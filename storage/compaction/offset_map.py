"""OffsetMap: the latest offset of each key in the dirty part of a log, in bounded memory (SkimpyOffsetMap).

Kafka's is an open-addressing table of MD5 sums with 24 bytes an entry. This one takes 25. A bucket has 32 keys of 16 bytes, and for each a
tag, one byte of the key's hash. The tags of a bucket are adjacent, so one `find` in C searches all of them. A key of up to 15 bytes is
stored as itself, padded with zeros and with its size; a longer one as a digest of 15 bytes and a mark. The first keys are in a dict, which
is faster but takes six times the memory. When that is too large, they move to a small table, which grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b

KEY_BYTES = 16
OFFSET_BYTES = 8
BUCKET_KEYS = 32
BUCKET_BYTES = BUCKET_KEYS * (KEY_BYTES + OFFSET_BYTES + 1) + 1  # with a tag for each key, and the count of its keys
TAG_SHIFT = 48  # the bits of a key's hash that are its tag; others decide its bucket
LOAD_MAX = 0.9  # of the table's places: above it, many buckets overflow into the next one
GROWTH = 4  # of the table, up to the largest that the limit allows
KEYS_PER_STEP = 512  # moved to a larger table in one step
BUCKETS_PER_STEP = KEYS_PER_STEP // BUCKET_KEYS
FEW_SHARE = 1 / 8  # the dict's share of the limit
FEW_BYTES = 160  # of a key in it: the entry, the bytes object, the int
NOT_FOUND = -1

_FILLINGS = tuple(bytes(KEY_BYTES - 1 - size) + bytes([size]) for size in range(KEY_BYTES))
_DIGEST_MARK = b"\xff"


class OffsetMap:
    """See the module's docstring. `limit_bytes` bounds what the entries take. Owner: one compaction."""

    __slots__ = ("_buckets", "_counts", "_few", "_few_max", "_keys", "_largest", "_offsets", "_size", "_tags", "latest_offset")

    def __init__(self, limit_bytes: float) -> None:
        buckets_max = int(limit_bytes / LOAD_MAX) // BUCKET_BYTES
        self._largest = max(buckets_max * GROWTH // (GROWTH + 1), 1)  # the smaller table exists while its keys move
        self._few_max = int(limit_bytes * FEW_SHARE) // FEW_BYTES
        self._few: dict[bytes, int] | None = {}
        self._size = self._buckets = 0  # of the table
        self.latest_offset = NOT_FOUND
        """Of every record up to it, the keys are in the map."""

    def __len__(self) -> int:
        return self._size if self._few is None else len(self._few)

    @property
    def share(self) -> float:
        """The fill level; 1.0 at the limit."""
        return min(len(self) / _room(self._largest), 1.0)

    def has_room(self, count: int) -> bool:
        """Whether there is room for `count` more keys now."""
        if self._few is None:
            return self._size + count <= _room(self._buckets)
        return len(self._few) + count <= self._few_max

    def grow(self, count: int) -> Generator[int, None, bool]:
        """Make room for `count` more keys, in steps that yield 0. Returns False if the limit forbids it. An empty map always grows:
        otherwise a batch of more keys would never be compacted."""
        needed = int((len(self) + count) / LOAD_MAX) // BUCKET_KEYS + 1
        buckets = self._largest
        if needed > buckets:
            if len(self):
                return False
            buckets = needed
        while buckets // GROWTH >= needed:
            buckets //= GROWTH
        if self._few is None:
            yield from self._move_to(buckets)
        else:
            few, self._few = self._few, None
            self._allocate(buckets)
            for place, (key, offset) in enumerate(few.items()):
                self._put_entries((key + _FILLINGS[len(key)] if len(key) < KEY_BYTES else key,), (offset,))
                if place % KEYS_PER_STEP == 0:
                    yield 0
        return True

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> list[int]:
        """Put keys with the offsets of their records, which ascend. There must be room for them. Returns the previous offset of each
        key, or NOT_FOUND."""
        few = self._few
        if few is None:
            return self._put_entries([_entry(key) for key in keys], offsets)
        before = []
        for key, offset in zip(keys, offsets, strict=True):
            entry = key if len(key) < KEY_BYTES else _digest(key)
            before.append(few.get(entry, NOT_FOUND))
            few[entry] = offset
        return before

    def find(self, key: bytes) -> int:
        """Returns the latest offset of the key; NOT_FOUND if the dirty part has none."""
        few = self._few
        if few is not None:
            return few.get(key if len(key) < KEY_BYTES else _digest(key), NOT_FOUND)
        entry = _entry(key)
        keys, tags, code = self._keys, self._tags, hash(entry)
        bucket, tag = code % self._buckets, code >> TAG_SHIFT & 0xFF
        while True:
            start = bucket * BUCKET_KEYS
            end = start + self._counts[bucket]
            place = tags.find(tag, start, end)
            while place >= 0 and not keys.startswith(entry, place * KEY_BYTES):
                place = tags.find(tag, place + 1, end)
            if place >= 0:
                return self._offsets[place]
            if end - start < BUCKET_KEYS:
                return NOT_FOUND
            bucket = (bucket + 1) % self._buckets

    def _put_entries(self, entries: Iterable[bytes], offsets: Iterable[int]) -> list[int]:
        """`put_all` with a table. The search is inlined here, as in `find`: a call would double its time."""
        keys, tags, counts, latest, buckets = self._keys, self._tags, self._counts, self._offsets, self._buckets
        before = []
        for entry, offset in zip(entries, offsets, strict=True):
            code = hash(entry)
            bucket, tag = code % buckets, code >> TAG_SHIFT & 0xFF
            while True:
                start = bucket * BUCKET_KEYS
                end = start + counts[bucket]
                place = tags.find(tag, start, end)
                while place >= 0 and not keys.startswith(entry, place * KEY_BYTES):
                    place = tags.find(tag, place + 1, end)
                if place >= 0:
                    before.append(latest[place])
                    latest[place] = offset
                    break
                if end - start < BUCKET_KEYS:
                    keys[end * KEY_BYTES : (end + 1) * KEY_BYTES] = entry
                    tags[end] = tag
                    latest[end] = offset
                    counts[bucket] += 1
                    self._size += 1
                    before.append(NOT_FOUND)
                    break
                bucket = (bucket + 1) % buckets
        return before

    def _move_to(self, buckets: int) -> Generator[int, None, None]:
        """Move all keys of the table to a table of `buckets` buckets."""
        keys, offsets, counts = self._keys, self._offsets, self._counts
        self._allocate(buckets)
        for bucket, filled in enumerate(counts):
            places = range(bucket * BUCKET_KEYS, bucket * BUCKET_KEYS + filled)
            entries = [bytes(keys[place * KEY_BYTES : (place + 1) * KEY_BYTES]) for place in places]
            self._put_entries(entries, offsets[places.start : places.stop])
            if bucket % BUCKETS_PER_STEP == 0:
                yield 0

    def _allocate(self, buckets: int) -> None:
        self._size, self._buckets = 0, buckets
        self._keys = bytearray(buckets * BUCKET_KEYS * KEY_BYTES)
        self._tags = bytearray(buckets * BUCKET_KEYS)
        self._offsets = array("q", bytes(OFFSET_BYTES)) * (buckets * BUCKET_KEYS)
        self._counts = bytearray(buckets)


def _room(buckets: int) -> int:
    return int(buckets * BUCKET_KEYS * LOAD_MAX)


def _entry(key: bytes) -> bytes:
    size = len(key)
    return key + _FILLINGS[size] if size < KEY_BYTES else _digest(key)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_BYTES - 1).digest() + _DIGEST_MARK
