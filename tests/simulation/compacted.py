"""A compacted topic in a world: keyed records, overwrites and tombstones, a cleaner that runs often, and what must be left at the end.

The topic's clients keep a history of their own, because compaction takes records out of the log on purpose. Of each key the last record
must stay, or nothing where that is a tombstone whose time is over. Each record has an identity in a header, by which a reader tells what
it was when it was sent. `make_clients` and `check` are called by the world.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from broker.metadata.image import GROUP_METADATA_TOPIC
from protocol.compression import Compression
from protocol.errors import DecodeError
from protocol.records import Record, SimpleRecord, build_batch, crc_is_valid, iterate_headers, iterate_records
from tests.simulation.admin import Admin
from tests.simulation.clients import EPOCH_S, Batch, Client, Lane, Producer
from tests.simulation.compacted_watch import KeyedRecord, last_values
from tests.simulation.consumers import Consumer, FinalReader
from tests.simulation.history import History, Key
from tests.simulation.node import Node
from tests.support.history_checker import Position

TOPIC = "compacted"
PARTITIONS_COUNT = 2
IDENTITY = "id"  # the header with a record's identity
NEVER_MS = 86_400_000  # delete.retention.ms by which no run lasts
OFFSETS_SEGMENT_SIZE_MIN = 4_000  # all records of a group that changes its protocol are one batch, and a segment takes it whole
HOT_KEYS, COLD_KEYS = 5, 60
TOMBSTONE_SHARE = 0.15
VALUE_SIZE_MAX = 80
MORE_COMPACTION_S = 1.5  # between two reads of all that is left
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


class Sent(NamedTuple):
    """A record that a producer made, whatever became of it. `place` is its partition."""

    place: Key
    key: bytes
    is_tombstone: bool


class CompactedTopic:
    """The topic of one run, its clients, and what they have found. `history` is the world's, which shares its power cuts."""

    def __init__(self, draw: random.Random, history: History, *, is_replicated: bool) -> None:
        self._draw = draw
        self.keys: list[Key] = [(TOPIC, partition) for partition in range(PARTITIONS_COUNT)]
        self.history = History(power_cuts_s=history.power_cuts_s)
        self.sent: dict[str, Sent] = {}
        self.retention_ms = draw.choice((0, 100, 500, NEVER_MS))
        self.is_replicated = is_replicated
        self._seen: dict[tuple[Key, int], str] = {}  # what stood at an offset
        self._consumers: list[KeyedConsumer] = []
        if draw.random() < 0.75:
            self.history.durable_topics.add(TOPIC)
            history.durable_topics.add(TOPIC)

    # -- what it is made of ------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        """The broker's: the cleaner runs often, and its map is soon full."""
        draw = self._draw
        return {
            "log.cleaner.backoff.ms": str(draw.choice((20, 100, 300))),
            "log.cleaner.io.buffer.size": str(draw.choice((1_000, 524_288))),
            "log.cleaner.io.buffer.load.factor": str(draw.choice((0.000_02, 0.9))),
            "log.cleaner.min.cleanable.ratio": str(draw.choice((0.01, 0.5))),
            "log.segment.delete.delay.ms": str(draw.choice((0, 200, 60_000))),
        }

    async def create(self, admin: Admin, offsets_partitions_count: int) -> None:
        """With `__consumer_offsets`, so that it is compacted too: the broker would make it of segments that never end in a run."""
        draw = self._draw
        offsets = {"cleanup.policy": "compact", "internal.segment.bytes": str(draw.choice((OFFSETS_SEGMENT_SIZE_MIN, 10_000)))}
        await admin.create(GROUP_METADATA_TOPIC, offsets_partitions_count, offsets)
        configs = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": str(draw.choice((1_000, 2_000, 8_000))),
            "min.cleanable.dirty.ratio": str(draw.choice((0.01, 0.3))),
            "min.compaction.lag.ms": str(draw.choice((0, 0, 200))),
            "delete.retention.ms": str(self.retention_ms),
        }
        if self.history.is_durable(self.keys[0]):
            configs["flush.messages"] = "1"
        await admin.create(TOPIC, PARTITIONS_COUNT, configs)

    def make_clients(self, make: Callable[..., Any]) -> list[Client]:
        """`make` is the world's."""
        draw = self._draw
        clients: list[Client] = [
            make(
                KeyedProducer, f"keyed-producer{index}", keys=self.keys, acks=-1, depth=draw.choice((1, 3)), pause_s=0.02,
                topic=self, compression=draw.choice((Compression.NONE, Compression.NONE, Compression.GZIP)),
            )
            for index in range(draw.randint(1, 2))
        ]  # fmt: skip
        self._consumers = [make(KeyedConsumer, "keyed-consumer", keys=self.keys, max_bytes=draw.choice((500, 10_000)), topic=self)]
        clients += self._consumers
        for client in clients:
            client.history = self.history
        return clients

    # -- what clients see --------------------------------------------------------------------------------------------

    @property
    def is_lossy(self) -> bool:
        """Whether a power cut may have taken what was acknowledged."""
        return bool(self.history.power_cuts_s) and not self.history.is_durable(self.keys[0])

    def read(self, reader: str, place: Key, data: bytes, position: int) -> tuple[list[Position], int]:
        """The records from `position` on, and the next position. What nobody sent is found."""
        found: list[Position] = []
        next_position = position
        try:
            for at, header in iterate_headers(data):
                if not crc_is_valid(data, at, header.size_bytes):
                    self.history.find("corrupt", (reader, place, header.base_offset))
                if header.next_offset <= next_position and header.next_offset > position:
                    self.history.find("int-nonmonotonic-poll", (reader, place, next_position, header.base_offset))
                records = iterate_records(data[at : at + header.size_bytes])
                found += [(each.offset, self._identify(reader, place, each)) for each in records if each.offset >= position]
                next_position = max(next_position, header.next_offset)
        except (DecodeError, UnicodeDecodeError) as error:
            self.history.find("corrupt", (reader, place, position, str(error)))
        offsets = [offset for offset, _ in found]
        if offsets != sorted(set(offsets)):
            self.history.find("int-nonmonotonic-poll", (reader, place, offsets))
        for offset, identity in found:
            seen = self._seen.setdefault((place, offset), identity)
            if seen != identity and not self.is_lossy:
                self.history.find("inconsistent-offsets", (reader, place, offset, seen, identity))
        return found, next_position

    def _identify(self, reader: str, place: Key, record: Record) -> str:
        identity = next(((value or b"").decode() for name, value in record.headers if name == IDENTITY), "")
        sent = self.sent.get(identity)
        if sent is None or sent != Sent(place, record.key or b"", record.value is None) or not _belongs(identity, record.value):
            self.history.find("unknown-value", (reader, place, record.offset, record.key, identity, sent))
        return identity

    # -- the check at the end ----------------------------------------------------------------------------------------

    async def check(self, make: Callable[..., Any], nodes: Iterable[Node]) -> None:
        """Read everything that is left, twice, with some more compaction in between, and compare it with what was sent.

        Another leader may have compacted less: what it still has, the one before had taken out."""
        reader = make(KeyedReader, "keyed-reader", max_bytes=1 << 20, topic=self)
        reader.history = self.history
        first = await reader.read_all(self.keys)
        epochs = dict(reader.begun_in)
        for place in self.keys:
            self._check_sent(place, first[place])
            for consumer in self._consumers:
                await self._check_consumer(consumer, reader, place, first[place])
        await asyncio.sleep(MORE_COMPACTION_S)
        second = await reader.read_all(self.keys)
        for place in self.keys:
            before, after = self._state(first[place]), self._state(second[place])
            if before != after:
                self.history.find("changed-by-compaction", (place, _differing(before, after)))
            if not set(second[place]) <= set(first[place]) and reader.leader_epoch_of(place) == epochs[place]:
                self.history.find("changed-by-compaction", (place, sorted(set(second[place]) - set(first[place]))[:3]))
        reader.close()
        for node in nodes:
            self._check_clean_part(node)

    def compare_replicas(self, place: Key, replicas: dict[str, list[KeyedRecord]]) -> None:
        """All of them are in sync. They compact by themselves: each has the same last value of every key, and the same record at an
        offset. But one that was away while a tombstone went may have what it took, as with Kafka."""
        if self.is_lossy:
            return
        mortal = {sent.key for sent in self.sent.values() if sent.is_tombstone and self.retention_ms != NEVER_MS}
        first_host, *others = sorted(replicas)
        at_offset = {record.offset: record for record in replicas[first_host]}
        first = {key: record for key, record in last_values(replicas[first_host]).items() if key not in mortal}
        for host in others:
            second = {key: record for key, record in last_values(replicas[host]).items() if key not in mortal}
            if first != second:
                self.history.find("replicas-differ", (place, first_host, host, sorted({*first.items()} ^ {*second.items()})[:4]))
            differing = [record for record in replicas[host] if at_offset.get(record.offset, record) != record]
            if differing:
                self.history.find("replicas-differ", (place, first_host, host, differing[:4]))

    @property
    def findings(self) -> dict[str, list[Any]]:
        return {f"compacted {anomaly}": evidence for anomaly, evidence in self.history.findings.items() if evidence}

    def _check_sent(self, place: Key, found: list[Position]) -> None:
        """Every acknowledged record is there, or a later one of its key, or its key is gone by a tombstone."""
        sent = [
            (step[2], step[3], operation["t"])
            for operation in self.history.operations
            for step in operation["m"]
            if operation["f"] == "send" and step[1] == place
        ]
        offsets: dict[str, int | None] = {identity: offset for offset, identity, _ in sent}
        places = {identity: offset for offset, identity in found}
        if len(places) != len(found):
            self.history.find("duplicate", (place, sorted(identity for _, identity in found)))
        if self.is_lossy:
            return
        left: dict[bytes, list[int]] = defaultdict(list)
        for offset, identity in found:
            left[self.sent[identity].key].append(offset)
            known = offsets.get(identity)
            if known is not None and known != offset:
                self.history.find("duplicate", (place, identity, known, offset))
        tombstones: dict[bytes, list[int | None]] = defaultdict(list)
        for offset, identity, _ in sent:
            if self.sent[identity].is_tombstone:
                tombstones[self.sent[identity].key].append(offset)
        for offset, identity, outcome in sent:
            key = self.sent[identity].key
            if outcome != "ok" or offset is None or any(other >= offset for other in left[key]):
                continue
            if self.retention_ms == NEVER_MS or not any(other is None or other >= offset for other in tombstones[key]):
                self.history.find("lost-key", (place, key, identity, offset, left[key]))
            elif left[key] and not self.is_replicated:
                self.history.find("resurrected-key", (place, key, identity, offset, left[key]))

    async def _check_consumer(self, consumer: KeyedConsumer, reader: KeyedReader, place: Key, found: list[Position]) -> None:
        """One that has read the log as it grew, and reads on to its end, knows the last value of every key."""
        consumer.take(place, await reader.read_from(place, consumer.positions[place]))
        if self.is_lossy or self.retention_ms != NEVER_MS:
            return  # a tombstone may have gone before it was read
        known, left = consumer.state[place], self._state(found)
        if known != left:
            self.history.find("consumer-missed-a-key", (place, _differing(known, left)))

    def _state(self, found: list[Position]) -> dict[bytes, str]:
        """The identity of the last record of each key that has a value."""
        state: dict[bytes, str] = {}
        for _, identity in found:
            apply(state, identity, self.sent)
        return state

    def _check_clean_part(self, node: Node) -> None:
        """Below what a node's checkpoints call clean, no key is there twice."""
        for log_dir in node.log_dirs:
            for place, clean_end in read_checkpoint(node, f"{log_dir}/{CLEANER_CHECKPOINT}").items():
                offsets: dict[bytes, int] = {}
                for record in node.records(log_dir, *place):
                    if record.offset >= clean_end or record.key is None:
                        continue
                    if record.key in offsets:
                        self.history.find("not-clean", (node.host, place, clean_end, record.key, offsets[record.key], record.offset))
                    offsets[record.key] = record.offset


class KeyedProducer(Producer):
    """Sends records with keys: some written again and again, others seldom, some of them tombstones."""

    def __init__(self, *arguments: Any, topic: CompactedTopic, compression: Compression, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._topic = topic
        self._compression = compression

    def _fill(self, lane: Lane) -> None:
        for _ in range(self.draw.randint(1, self._depth)):
            identities, records = [], []
            for _ in range(self.draw.choice((1, 1, 2, 5))):
                self._values_count += 1
                identity = f"{self.name}.{self._values_count}"
                identities.append(identity)
                records.append(self._record_of(lane.key, identity))
            batch = build_batch(
                records, compression=self._compression,
                producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=lane.sequence,
            )  # fmt: skip
            lane.window.append(Batch(identities, bytes(batch), lane.sequence, self.now_s))
            lane.sequence += len(identities)

    def _record_of(self, place: Key, identity: str) -> SimpleRecord:
        is_hot = self.draw.random() < 0.6
        number = self.draw.randrange(HOT_KEYS if is_hot else COLD_KEYS)
        has_tombstones = self.draw.random() < 0.5
        key = f"{'hot' if is_hot else 'cold'}{'-mortal' if has_tombstones else ''}{number}".encode()
        is_tombstone = has_tombstones and self.draw.random() < 2 * TOMBSTONE_SHARE
        value = None if is_tombstone else f"{identity}:".encode() + self.draw.randbytes(self.draw.randrange(VALUE_SIZE_MAX))
        self._topic.sent[identity] = Sent(place, key, is_tombstone)
        return SimpleRecord(key, value, ((IDENTITY, identity.encode()),), timestamp=int((EPOCH_S + self.now_s) * 1000))


class KeyedConsumer(Consumer):
    """Reads the log as it grows, and keeps the last value of each key, as a table is kept."""

    def __init__(self, *arguments: Any, topic: CompactedTopic, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._topic = topic
        self.state: dict[Key, dict[bytes, str]] = {place: {} for place in self.positions}

    def take(self, place: Key, found: list[Position]) -> None:
        for _, identity in found:
            apply(self.state[place], identity, self._topic.sent)

    def record(self, polled: dict[Key, list[Position]], invoked_s: float, **more: Any) -> None:
        super().record(polled, invoked_s, **more)
        for place, found in polled.items():
            self.take(place, found)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.state = {place: {} for place in self.positions}

    def _read(self, key: Key, data: bytes, high_watermark: int, polled: dict[Key, list[Position]]) -> None:
        read(self, self._topic, key, data, high_watermark, polled)


class KeyedReader(FinalReader):
    """Reads all that is left."""

    def __init__(self, *arguments: Any, topic: CompactedTopic, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._topic = topic

    def _read(self, key: Key, data: bytes, high_watermark: int, polled: dict[Key, list[Position]]) -> None:
        read(self, self._topic, key, data, high_watermark, polled)


def read(
    client: KeyedConsumer | KeyedReader, topic: CompactedTopic, place: Key, data: bytes, high_watermark: int,
    polled: dict[Key, list[Position]],
) -> None:  # fmt: skip
    """Take what a fetch brought. A batch that compaction has emptied moves the position too."""
    found, next_position = topic.read(client.name, place, data, client.positions[place])
    if found:
        if found[-1][0] >= high_watermark:
            client.history.find("beyond-high-watermark", (place, found[-1][0], high_watermark))
        polled[place] = found
    client.positions[place] = next_position


def apply(state: dict[bytes, str], identity: str, sent: dict[str, Sent]) -> None:
    """The record `identity` was read after those that made the state."""
    record = sent.get(identity)
    if record is None:
        return  # a finding already
    if record.is_tombstone:
        state.pop(record.key, None)
    else:
        state[record.key] = identity


def read_checkpoint(node: Node, path: str) -> dict[Key, int]:
    """What a node's checkpoint file holds now; nothing when there is none."""
    lines = node.content(path).decode().splitlines()[2:]
    fields = [line.rsplit(" ", 2) for line in lines]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}


def _belongs(identity: str, value: bytes | None) -> bool:
    return value is None or value.partition(b":")[0] == identity.encode()


def _differing(first: dict[bytes, str], second: dict[bytes, str]) -> list[tuple[bytes, str | None, str | None]]:
    return [(key, first.get(key), second.get(key)) for key in sorted({*first, *second}) if first.get(key) != second.get(key)][:4]
