"""OffsetMap: the latest offset of each key in the dirty part of a log, in bounded memory (SkimpyOffsetMap).

Kafka's is an open-addressing table of MD5 sums with 24 bytes an entry. This one takes 25, in buckets of 32 keys of 16 bytes and of a tag
each, one byte of the key's hash: the tags of a bucket lie side by side, so that one `find` in C looks through all of them. A key of up to
15 bytes stands there as itself, filled up with zeros and its size; a longer one as its digest of 15 bytes and a mark. The table begins
small, with what a dict held before: a dict takes six times the memory, and less of each look's time, so the first keys are in one.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b

KEY_BYTES = 16
OFFSET_BYTES = 8
BUCKET_KEYS = 32
BUCKET_BYTES = BUCKET_KEYS * (KEY_BYTES + OFFSET_BYTES + 1) + 1  # with a tag for each key, and the count of its keys
TAG_SHIFT = 48  # which bits of a key's hash are its tag: others than those that decide its bucket
LOAD_MAX = 0.9  # of the table's places: beyond, many buckets overflow into the next one
GROWTH = 4  # of the table, up to the largest that the limit allows
KEYS_PER_STEP = 512  # moved to a larger table before others may be served
BUCKETS_PER_STEP = KEYS_PER_STEP // BUCKET_KEYS
FEW_SHARE = 1 / 8  # of the limit, which the dict may take
FEW_BYTES = 160  # of a key in it: the entry, the bytes object, the int
NOT_FOUND = -1

_FILLINGS = tuple(bytes(KEY_BYTES - 1 - size) + bytes([size]) for size in range(KEY_BYTES))
_DIGEST_MARK = b"\xff"


class OffsetMap:
    """See the module's docstring. `limit_bytes` bounds what the entries take. Owner: one compaction."""

    __slots__ = ("_buckets", "_counts", "_few", "_few_max", "_keys", "_largest", "_offsets", "_size", "_tags", "latest_offset")

    def __init__(self, limit_bytes: float) -> None:
        buckets_max = int(limit_bytes / LOAD_MAX) // BUCKET_BYTES
        self._largest = max(buckets_max * GROWTH // (GROWTH + 1), 1)  # the table before is there while keys move to it
        self._few_max = int(limit_bytes * FEW_SHARE) // FEW_BYTES
        self._few: dict[bytes, int] | None = {}
        self._size = self._buckets = 0  # of the table
        self.latest_offset = NOT_FOUND
        """Of every record up to it, the keys are in the map."""

    def __len__(self) -> int:
        return self._size if self._few is None else len(self._few)

    @property
    def share(self) -> float:
        """How full it is, 1.0 at its limit."""
        return min(len(self) / _room(self._largest), 1.0)

    def has_room(self, count: int) -> bool:
        """Whether that many more keys may be put now."""
        if self._few is None:
            return self._size + count <= _room(self._buckets)
        return len(self._few) + count <= self._few_max

    def grow(self, count: int) -> Generator[int, None, bool]:
        """Make room for `count` more keys, yielding 0 where others may be served. False if the limit does not let it; an empty map always
        grows, or a batch of more keys than fit would never be compacted."""
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
        """Keys and the offsets of their records, which ascend. There must be room for them. Returns of each key its offset before, or
        NOT_FOUND."""
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
        """The latest offset of the key, NOT_FOUND when the dirty part has none."""
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
        """`put_all` with a table. The look is written out here, as in `find`: a call would take as long as what it does."""
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
        """Put all keys of the table into one of so many buckets."""
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
