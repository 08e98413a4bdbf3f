"""Mutated requests of every API and version, over several connections at once. Each worker's requests follow from the seed alone."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from protocol.apis import APIS, Api
from protocol.compression import Compression
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.records import SimpleRecord, build_batch
from protocol.uvarint import uvarint
from tests.attack.attacker import Attacker, drop_answer
from tests.attack.grammar import Grammar, Part, Piece

REQUESTS = 100_000
WORKERS = 8
PATIENCE_S = 0.25
"""For an answer. A request may be parked by right (Fetch, JoinGroup), or wait for bytes that its mutated size promises."""
UNCHANGED_RATE = 0.3
MUTATIONS_MAX = 3
TAGS_FLOOD = 3_000
ORDERS = (64,)
"""UnregisterBroker: one of five hundred would name the broker itself, which then serves nobody for a moment, as it was told."""
SUSPECTS_KEPT = 200
WORDS = (
    *(f"mutated-{number}" for number in range(8)),
    *(f"group-{number}" for number in range(8)),
    *("consumer", "range", "member"),
    # Settings of topics, and values of theirs. None is also the name of a setting of the broker: the canary's topic stays as it is.
    *("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "message.timestamp.type", "flush.messages"),
    *("compact", "delete", "compact,delete", "LogAppendTime", "-1", "1", "100", "1048576"),
)
INVALID_TEXTS = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
BAD_NUMBERS = (0, -1, -2, 127, 128, 32767, 32768, 65535, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**34)


def send_mutated_requests(attacker: Attacker) -> None:
    """100,000 requests, shared by 8 workers with a connection each."""
    ids = make_topics(attacker)
    share = attacker.count(REQUESTS) // WORKERS
    recent: deque[bytes] = deque(maxlen=SUSPECTS_KEPT)
    workers = [Worker(attacker, random.Random(attacker.source.random()), share, ids, recent) for _ in range(WORKERS)]
    log_size = attacker.broker.vitals().log_bytes
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.05)
        if not attacker.suspects and attacker.broker.tracebacks_since(log_size):
            attacker.suspects = list(recent)
    for worker in workers:
        worker.join()
        attacker.failures += worker.failures


class Worker(threading.Thread):
    """One connection's requests, each sent after the answer to the one before."""

    def __init__(self, attacker: Attacker, source: random.Random, count: int, ids: list[bytes], recent: deque[bytes]) -> None:
        super().__init__(daemon=True)
        self._attacker = attacker
        self._count = count
        self._recent = recent
        self._mutator = Mutator(source, ids, time.time_ns() // 1_000_000)
        self.failures: list[str] = []

    def run(self) -> None:
        connection: socket.socket | None = None
        for _ in range(self._count):
            if self._attacker.is_over:
                break
            data = self._mutator.next_frame()
            self._recent.append(data)
            try:
                connection = connection or self._attacker.connect(timeout_s=PATIENCE_S)
                connection.sendall(data)
                outcome = drop_answer(connection)
            except ConnectionRefusedError:
                self.failures.append("the broker accepts no connection any more")
                break
            except OSError:
                outcome = False
            self._attacker.note(outcome)
            if not outcome and connection is not None:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()


class Mutator:
    """Frames, whole as they go over the wire; most of them not as they should be."""

    def __init__(
        self,
        source: random.Random,
        ids: Sequence[bytes],
        now_ms: int,
        apis: Iterable[Api] | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        """`apis` are those of an ordinary client by default; `known` is what the grammar takes."""
        self._source = source
        self._grammar = Grammar(source, WORDS, ids, _batches(source, now_ms), known)
        apis = [api for api in APIS.values() if api.key not in ORDERS] if apis is None else list(apis)
        self._apis = [(api, version) for api in apis for version in range(api.min_version, api.max_version + 1)]
        self._strikes: tuple[Callable[[list[Piece]], None], ...] = (
            self._change_number,
            self._change_number,
            self._change_number,
            self._cut_a_piece,
            self._swap_pieces,
            self._flood_tags,
            self._repeat_piece,
            self._spoil_text,
            self._change_bytes,
        )

    def request(self, api: Api, version: int) -> list[Piece]:
        """A well-formed request with its header, without its size."""
        return [*self._header(api, version), *self._grammar.request(api.request_class, version)]

    def next_frame(self) -> bytes:
        source = self._source
        api, version = source.choice(self._apis)
        pieces = self.request(api, version)
        is_changed = source.random() >= UNCHANGED_RATE
        if is_changed:
            for _ in range(source.randint(1, MUTATIONS_MAX)):
                source.choice(self._strikes)(pieces)
        body = b"".join(piece.data for piece in pieces)
        size = len(body)
        if is_changed and source.random() < 0.15:
            body = body[: source.randint(0, len(body))]  # cut, as a frame that is whole
            size = len(body)
        elif is_changed and source.random() < 0.03:
            size += source.choice((-1, 1, 2**31 - 1 - size, -size - 1))
        return struct.pack(">i", size) + body

    def _header(self, api: Api, version: int) -> list[Piece]:
        client_id = self._source.choice((b"attacker", b"", "ü".encode() * 10))
        pieces = [
            Piece(Part.FIXED, struct.pack(">h", api.key)),
            Piece(Part.FIXED, struct.pack(">h", version)),
            Piece(Part.FIXED, self._source.randbytes(4)),
            Piece(Part.LENGTH, struct.pack(">h", len(client_id)), len(client_id)),
            Piece(Part.TEXT, client_id),
        ]
        if api.request_header_version(version) >= 2:
            pieces.append(Piece(Part.TAGS, b"\x00", 0, is_compact=True))
        return pieces

    def _change_number(self, pieces: list[Piece]) -> None:
        """A length or a count by one, or to a value at the edge of something."""
        places = [place for place, piece in enumerate(pieces) if piece.part in (Part.LENGTH, Part.COUNT, Part.TAGS)]
        if places:
            place = self._source.choice(places)
            value = pieces[place].value
            pieces[place] = pieces[place].with_value(self._source.choice((value - 1, value + 1, *BAD_NUMBERS)))

    def _cut_a_piece(self, pieces: list[Piece]) -> None:
        if len(pieces) > 1:
            del pieces[self._source.randrange(len(pieces))]

    def _swap_pieces(self, pieces: list[Piece]) -> None:
        first, second = self._source.randrange(len(pieces)), self._source.randrange(len(pieces))
        pieces[first], pieces[second] = pieces[second], pieces[first]

    def _repeat_piece(self, pieces: list[Piece]) -> None:
        place = self._source.randrange(len(pieces))
        pieces[place:place] = [pieces[place]] * self._source.choice((1, 2, 500))

    def _flood_tags(self, pieces: list[Piece]) -> None:
        places = [place for place, piece in enumerate(pieces) if piece.part is Part.TAGS]
        if places:
            place = self._source.choice(places)
            count = self._source.choice((1, 17, 33, 128, TAGS_FLOOD))
            tags = b"".join(uvarint(1000 + number) + b"\x00" for number in range(count))
            pieces[place] = pieces[place]._replace(data=uvarint(count) + tags)

    def _spoil_text(self, pieces: list[Piece]) -> None:
        places = [place for place, piece in enumerate(pieces) if piece.part is Part.TEXT and len(piece.data) > 3]
        if places:
            place = self._source.choice(places)
            bad = self._source.choice(INVALID_TEXTS)[: len(pieces[place].data)]
            pieces[place] = pieces[place]._replace(data=bad + pieces[place].data[len(bad) :])

    def _change_bytes(self, pieces: list[Piece]) -> None:
        place = self._source.randrange(len(pieces))
        data = bytearray(pieces[place].data)
        for _ in range(self._source.randint(1, 4)):
            if data:
                data[self._source.randrange(len(data))] = self._source.getrandbits(8)
        pieces[place] = pieces[place]._replace(data=bytes(data))


def _batches(source: random.Random, now_ms: int) -> list[bytes]:
    """Record batches: good ones of every codec, changed ones, and none."""
    records = [SimpleRecord(b"key", b"value" * 10, timestamp=now_ms), SimpleRecord(None, None, timestamp=now_ms)]
    batches = [bytes(build_batch(records, compression=codec)) for codec in Compression]
    batches.append(bytes(build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)))
    for batch in list(batches):
        changed = bytearray(batch)
        for _ in range(3):
            changed[source.randrange(len(changed))] = source.getrandbits(8)
        batches += [bytes(changed), batch[: source.randrange(len(batch))]]
    return [*batches, batches[0] * 2, b"", bytes(61), b"\xff" * 100]


def make_topics(attacker: Attacker) -> list[bytes]:
    """Ids of topics that exist, made for this."""
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in WORDS if name.startswith("mutated-")]
    with attacker.client() as client:
        return [topic.topic_id for topic in client.request(CreateTopicsRequest(topics=topics), 7).topics]
