"""Random requests of any API and version in pieces whose meaning is known, so that a mutation can strike a length as a length.

Written from the schema, not with the codec: the two check each other (test_grammar.py). A piece's `value` is the number that it
encodes, for lengths and counts.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from protocol.schema import Field, FieldType, Kind, schema_of
from protocol.uvarint import uvarint

ELEMENTS_MAX = 3
FLOOD_RATE = 0.01
FLOOD_ELEMENTS = 2_000
LONG_TEXT_RATE = 0.01
NULL_RATE = 0.15
KNOWN_RATE = 0.8
TAG_RATE = 0.1
_SPECIAL_INTEGERS = (0, 0, 0, 1, 1, 2, 3, -1, -2, 5, 100, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**15), -(2**31), -(2**63))
_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
_LEGACY_CODES = {Kind.STRING: ">h", Kind.BYTES: ">i", Kind.RECORDS: ">i", Kind.ARRAY: ">i"}


class Part(Enum):
    """What a piece is."""

    FIXED = auto()
    LENGTH = auto()  # of a string, bytes or records
    COUNT = auto()  # of an array
    TAGS = auto()  # how many tagged fields follow
    TEXT = auto()
    BYTES = auto()


class Piece(NamedTuple):
    part: Part
    data: bytes
    value: int = 0
    is_compact: bool = False

    def with_value(self, value: int) -> Piece:
        """The same length or count with another value, encoded alike."""
        if self.is_compact:
            return self._replace(data=uvarint((value + (self.part is not Part.TAGS)) % 2**35), value=value)
        bits = 8 * len(self.data)
        return self._replace(data=(value % 2**bits).to_bytes(bits // 8), value=value)


class Grammar:
    """Makes requests. `words` are names that exist on the broker; `known` is what fields of a name mostly hold, as the cluster's id."""

    def __init__(
        self,
        source: random.Random,
        words: Sequence[str],
        ids: Sequence[bytes],
        batches: Sequence[bytes],
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._known = known or {}
        self._source = source
        self._words = words
        self._ids = ids
        self._batches = batches
        self._is_flooding = False

    def request(self, cls: type[Any], version: int) -> list[Piece]:
        """The body of a well-formed request."""
        pieces: list[Piece] = []
        self._is_flooding = self._source.random() < FLOOD_RATE
        self._struct(cls, version, schema_of(cls).is_flexible(version), pieces)
        return pieces

    def _struct(self, cls: type[Any], version: int, is_flexible: bool, pieces: list[Piece]) -> None:
        fields = [field for field in schema_of(cls).fields if field.is_in(version)]
        for field in fields:
            if field.tag is None:
                self._field(field, version, is_flexible, pieces)
        if is_flexible:
            tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
            self._tags([field for field in tagged if self._source.random() < TAG_RATE], version, pieces)

    def _tags(self, fields: list[Field], version: int, pieces: list[Piece]) -> None:
        has_unknown = self._source.random() < TAG_RATE / 5
        count = len(fields) + has_unknown
        pieces.append(Piece(Part.TAGS, uvarint(count), count, is_compact=True))
        for field in fields:
            inner: list[Piece] = []
            self._field(field, version, True, inner)
            size = sum(len(piece.data) for piece in inner)
            pieces += [Piece(Part.FIXED, uvarint(field.tag or 0)), Piece(Part.LENGTH, uvarint(size), size - 1, is_compact=True), *inner]
        if has_unknown:
            pieces += [Piece(Part.FIXED, uvarint(99)), Piece(Part.FIXED, uvarint(4)), Piece(Part.BYTES, b"what")]

    def _field(self, field: Field, version: int, is_flexible: bool, pieces: list[Piece]) -> None:
        is_null = field.is_nullable_in(version) and self._source.random() < NULL_RATE
        self._value(field.type, field.name, version, is_flexible, is_null, field.is_nullable_in(version), pieces)

    def _value(
        self, kind: FieldType, name: str, version: int, is_flexible: bool, is_null: bool, is_nullable: bool, pieces: list[Piece]
    ) -> None:
        if kind.kind is Kind.FIXED:
            pieces.append(Piece(Part.FIXED, self._fixed(kind.code, name)))
        elif kind.kind is Kind.STRUCT:
            if is_nullable:
                pieces.append(Piece(Part.FIXED, b"\xff" if is_null else b"\x01"))
            if not is_null:
                assert kind.cls is not None
                self._struct(kind.cls, version, is_flexible, pieces)
        elif kind.kind is Kind.ARRAY:
            assert kind.element is not None
            count = -1 if is_null else self._count()
            pieces.append(_length(Part.COUNT, kind.kind, count, is_flexible))
            for _ in range(count):
                self._value(kind.element, name, version, is_flexible, False, False, pieces)
        else:
            data = None if is_null else self._sized(kind.kind, name)
            pieces.append(_length(Part.LENGTH, kind.kind, -1 if data is None else len(data), is_flexible))
            if data is not None:
                pieces.append(Piece(Part.TEXT if kind.kind is Kind.STRING else Part.BYTES, data))

    def _count(self) -> int:
        """Of an array's elements. One array of a flooding request is long."""
        if self._is_flooding and self._source.random() < 0.5:
            self._is_flooding = False
            return FLOOD_ELEMENTS
        return self._source.randint(0, ELEMENTS_MAX)

    def _fixed(self, code: str, name: str) -> bytes:
        source = self._source
        if code == "?":
            return bytes([source.getrandbits(1)])
        if code == "d":
            return struct.pack(">d", source.choice((0.0, 1.5, -1.0, float("inf"), float("nan"))))
        if code == "16s":
            return bytes(source.choice((*self._ids, bytes(16), source.randbytes(16))))
        bits = _BITS[code]
        if name in _SMALL_NUMBERS and source.random() < 0.9:
            value = source.choice(_SMALL_NUMBERS[name])
        else:
            value = source.choice(_SPECIAL_INTEGERS) if source.random() < 0.8 else source.getrandbits(bits)
        return (value % 2**bits).to_bytes(bits // 8)

    def _sized(self, kind: Kind, name: str) -> bytes:
        source = self._source
        if kind is Kind.RECORDS:
            return source.choice(self._batches)
        if kind is Kind.BYTES:
            return source.choice((b"", b"\x00\x01\x00\x00\x00\x00", source.randbytes(30)))
        if source.random() < LONG_TEXT_RATE:
            return b"long" * 8_000
        if name in self._known and source.random() < KNOWN_RATE:
            return self._known[name].encode()
        if name.endswith("_regex"):
            return source.choice(_PATTERNS).encode()
        return (source.choice(self._words) if source.random() < 0.85 else source.choice(_ODD_WORDS)).encode()


_SMALL_NUMBERS: dict[str, tuple[int, ...]] = {
    # What decides how much a valid request asks for: mostly little, so that the broker is not soon full of what was asked.
    "num_partitions": (1, 1, 2, 3, -1, 0),
    "count": (1, 2, 3, 4, 5),
    "max_wait_ms": (0, 0, 1, 10),
    "min_bytes": (0, 1),
    "timeout_ms": (0, 1, 100, 1000),
    "rebalance_timeout_ms": (1, 50, 200),
    "acks": (-1, 0, 1, 1, 1, 2),
    "replica_id": (-1, -1, -1, 0, 1, 2, -2),
    "replication_factor": (1, 1, -1, 3, 0),
    "resource_type": (2, 2, 0, 4, 8, 16, 32, 1),
    "session_timeout_ms": (6_000, 10_000, 0),
    # Whom and what the nodes of a cluster of one know.
    **dict.fromkeys(("broker_id", "voter_id", "candidate_id", "leader_id", "controller_id"), (1, 1, 2, 0, -1)),
    **dict.fromkeys(("leader_epoch", "replica_epoch", "candidate_epoch", "current_leader_epoch", "partition_epoch"), (0, 1, 1, 2, 3, -1)),
    "broker_epoch": tuple(range(-1, 15)),
    "member_epoch": (0, 0, 1, 2, -1, -2),
}
_PATTERNS = ("mutated-.*", "(a+)+$", "(?:a{1000}){1000}", "(" * 1_000, "[a-", "((a*)*)*" * 50, ".*" * 200, "\\pL{100}", "(?P<n>a)\\1", "")
_ODD_WORDS = ("", ".", "..", "a/b", "ü" * 20, "x" * 250, "__consumer_offsets", "-1", "\x00", "new\nline", "1", "%s%n{}", "__proto__")


def _length(part: Part, kind: Kind, value: int, is_flexible: bool) -> Piece:
    if is_flexible:
        return Piece(part, uvarint(value + 1), value, is_compact=True)
    return Piece(part, struct.pack(_LEGACY_CODES[kind], value), value)
