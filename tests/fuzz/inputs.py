"""What a fuzzing run sends: for each API and version of a listener the ways to spoil one well-formed request, each at every place, and
random mutations in between.

The inputs of a round follow from the seed, the listener and the number of the round alone, but for what the broker chose: the ids of
its topics.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from protocol import codec
from protocol.apis import DECLARED, Api, ListenerKind, apis_of
from protocol.errors import DecodeError
from protocol.framing import HEADER_SIZE_MIN, REQUEST_HEADER, skip_tags
from protocol.uvarint import uvarint
from tests.attack.grammar import Part, Piece
from tests.attack.mutation_attacks import BAD_NUMBERS, INVALID_TEXTS, Mutator
from tests.attack.wide_attacks import OTHER_NAMES, SAME_NAME, array_paths, elements_of, wide_message
from tests.support.wire import frame

TRIES = 12
BASE_BYTES_MAX = 400
"""The well-formed request is the richest of so many, up to that size: a cut at each byte of a long one says little more."""
TAG_FLOODS = (1, 128, 20_000, 40_000)  # the last is above what one request may hold
WIDE_ENTRIES = (2_000, 13_000, 19_500)
MUTATED_PER_VERSION = 60
BAD_SIZES = (0, -1, -(2**31), 2**31 - 1, 104_857_601)

ORDERS = frozenset((52, 53, 54, 56, 57, 58, 62, 63, 64, 67, 70, 73, 80, 81, 82))
"""What a controller, or a broker for it, does for whoever asks: elections, registrations, features, voters. A well-formed one is obeyed,
after which the broker may rightly serve nobody for a moment. Such requests have a broker of their own (`Stage.ORDERS`)."""


class Stage(StrEnum):
    """Which requests a broker meets."""

    ALL = "all"
    """Every API of both listeners; of ORDERS only what cannot be read as one."""
    ORDERS = "orders"
    """ORDERS alone, well-formed ones too."""


class Strike(StrEnum):
    """What was done to a well-formed request."""

    NONE = "whole"
    CUT = "cut"  # a shorter frame
    UNFINISHED = "unfinished"  # a frame whose sender stops in its midst
    SIZE = "size"  # of the frame
    NUMBER = "number"  # a length or a count
    TEXT = "text"  # no UTF-8
    TAGS = "tags"
    WIDE = "wide"  # a long array
    MUTATED = "mutated"


class Input(NamedTuple):
    """`data` goes over the wire as it is."""

    strike: Strike
    api: Api
    version: int
    data: bytes

    @property
    def is_incomplete(self) -> bool:
        """A part of a request: to close the connection is the only right answer."""
        return self.strike in (Strike.CUT, Strike.UNFINISHED)

    @property
    def ends(self) -> bool:
        """Whether the sender shuts its side behind it."""
        return self.strike in (Strike.UNFINISHED, Strike.SIZE)

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}, {self.strike}, {len(self.data)} bytes"


class Density(NamedTuple):
    """How much of it: 1 is every place of every kind."""

    versions_max: int | None = None
    """Of each API in a round, chosen at random; None for all."""
    number_share: float = 1.0
    """Of the numbers, texts and tags that are spoiled."""
    wide_share: float = 1.0
    mutated: int = MUTATED_PER_VERSION


class Known(NamedTuple):
    """What is known of the broker, without which it would refuse most requests at their first field."""

    topic_ids: Sequence[bytes]
    cluster_id: str
    now_ms: int


def apis_for(listener: ListenerKind, stage: Stage) -> list[Api]:
    return [api for api in apis_of(listener).values() if stage is Stage.ALL or api.key in ORDERS]


class Inputs:
    """Makes the rounds of one listener."""

    def __init__(self, seed: object, listener: ListenerKind, stage: Stage, broker: Known) -> None:
        self._seed = seed
        self._listener = listener
        self._stage = stage
        self._broker = broker

    def round(self, number: int, density: Density, *, part: int = 0, parts: int = 1) -> Iterator[Input]:
        """The inputs of one of `parts` equal parts of a round, which differ in their APIs."""
        source = random.Random(f"{self._seed} {self._listener.value} {self._stage} {number}")
        apis = apis_for(self._listener, self._stage)
        source.shuffle(apis)
        for api in apis[part::parts]:
            versions = list(range(api.min_version, api.max_version + 1))
            own = random.Random(f"{self._seed} {self._listener.value} {self._stage} {number} {api.name}")
            if density.versions_max is not None:
                versions = own.sample(versions, min(density.versions_max, len(versions)))
            for version in versions:
                for found in _OneVersion(own, self._broker, api, version).inputs(density):
                    if self._stage is Stage.ORDERS or not is_order(found.data):
                        yield found


class _OneVersion:
    """The inputs made of one API at one version."""

    def __init__(self, source: random.Random, broker: Known, api: Api, version: int) -> None:
        self._source = source
        self._api = api
        self._version = version
        self._mutator = Mutator(source, broker.topic_ids, broker.now_ms, [api], {"cluster_id": broker.cluster_id})
        candidates = [self._mutator.request(api, version) for _ in range(TRIES)]
        fitting = [pieces for pieces in candidates if _size(pieces) <= BASE_BYTES_MAX] or [min(candidates, key=_size)]
        self._base = max(fitting, key=len)
        self._body = b"".join(piece.data for piece in self._base)

    def inputs(self, density: Density) -> Iterator[Input]:
        yield self._framed(Strike.NONE, self._body)
        yield from self._cuts()
        yield from self._sizes()
        spoiled = (*self._numbers(), *self._texts(), *self._tags())
        yield from (found for found in spoiled if self._source.random() < density.number_share)
        yield from self._wide(density.wide_share)
        for _ in range(density.mutated):
            yield Input(Strike.MUTATED, self._api, self._version, self._mutator.next_frame())

    def _framed(self, strike: Strike, body: bytes) -> Input:
        return Input(strike, self._api, self._version, struct.pack(">i", len(body)) + body)

    def _cuts(self) -> Iterator[Input]:
        for size in range(len(self._body)):
            yield self._framed(Strike.CUT, self._body[:size])
        whole = struct.pack(">i", len(self._body)) + self._body
        for size in sorted({1, 3, 4, 5, 12, len(whole) // 2, len(whole) - 1}):
            yield Input(Strike.UNFINISHED, self._api, self._version, whole[:size])

    def _sizes(self) -> Iterator[Input]:
        for size in (*BAD_SIZES, len(self._body) + 1):
            yield Input(Strike.SIZE, self._api, self._version, struct.pack(">i", size) + self._body)

    def _numbers(self) -> Iterator[Input]:
        for place, piece in enumerate(self._base):
            if piece.part in (Part.LENGTH, Part.COUNT, Part.TAGS):
                for value in (piece.value - 1, piece.value + 1, *BAD_NUMBERS):
                    yield self._with(Strike.NUMBER, place, piece.with_value(value))

    def _texts(self) -> Iterator[Input]:
        for place, piece in enumerate(self._base):
            if piece.part is Part.TEXT:
                for bad in INVALID_TEXTS:
                    if len(bad) <= len(piece.data):
                        yield self._with(Strike.TEXT, place, piece._replace(data=bad + piece.data[len(bad) :]))

    def _tags(self) -> Iterator[Input]:
        """The last place only of the longest floods: each place of an API is read by the same code."""
        places = [place for place, piece in enumerate(self._base) if piece.part is Part.TAGS]
        for count in TAG_FLOODS:
            for place in places if count < 1_000 else places[-1:]:
                yield self._with(Strike.TAGS, place, self._base[place]._replace(data=_unknown_tags(count)))

    def _with(self, strike: Strike, place: int, piece: Piece) -> Input:
        return self._framed(strike, b"".join(each.data for each in (*self._base[:place], piece, *self._base[place + 1 :])))

    def _wide(self, share: float) -> Iterator[Input]:
        for path in array_paths(self._api.request_class, self._version):
            for names in (SAME_NAME, OTHER_NAMES):
                if self._source.random() < share:
                    count = elements_of(self._source.choice(WIDE_ENTRIES), self._api.request_class, self._version, path)
                    message = wide_message(self._api.request_class, self._version, path, count, names)
                    body = frame(self._api.key, self._version, codec.encode(message, self._version))
                    yield self._framed(Strike.WIDE, body)


@functools.cache
def _unknown_tags(count: int) -> bytes:
    return uvarint(count) + b"".join(uvarint(1000 + number) + b"\x00" for number in range(count))


def is_order(data: bytes) -> bool:
    """Whether the frame is a well-formed request of ORDERS."""
    body = data[4:]
    try:
        key, version, _, client_id_size = REQUEST_HEADER.unpack_from(body)
        if key not in ORDERS or not DECLARED[key].serves(version):
            return False
        api = DECLARED[key]
        position = HEADER_SIZE_MIN + max(client_id_size, 0)
        if api.request_header_version(version) >= 2:
            position = skip_tags(memoryview(body), position)
        codec.decode(api.request_class, version, body, position)
    except (struct.error, DecodeError):
        return False
    return True


def _size(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.data) for piece in pieces)
