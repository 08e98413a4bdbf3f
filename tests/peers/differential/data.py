"""Records: Produce with what is right and what is wrong about batches, Fetch with and without sessions, offsets by time and by epoch,
DeleteRecords and idempotent producers. Offsets and producers are compared after each step, every record after each seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.peers.differential import data_steps as steps
from tests.peers.differential.broker_settings import BROKER_SETTINGS
from tests.peers.differential.data_session import TOPICS, DataSession
from tests.peers.differential.data_steps import Batch, Damage, FetchFrom, SessionEpoch
from tests.peers.differential.fuzzer import Step
from tests.support.process import ServerProcess

STEP_COUNTS = (10, 40)
TOPIC_COUNTS = (2, 4)
CODECS = ("gzip", "snappy", "lz4", "zstd")
PRODUCERS = (4242, 4343)
FAR_MS = 10_800_000
"""Further than what topics take."""
PRODUCE_VERSIONS = (3, 4, 5, 6, 7, 8, 9, 9, 9, 10, 11, 12, 13)
FETCH_VERSIONS = (4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 12, 13, 14, 15, 16, 17, 18)


class DataFuzzer:
    """See the module's docstring."""

    name = "data"
    settings: Mapping[str, str] = BROKER_SETTINGS

    def steps(self, seed: int) -> list[Step]:
        chosen = random.Random(f"{self.name} {seed}")
        topics = tuple(chosen.sample(tuple(TOPICS), chosen.randint(*TOPIC_COUNTS)))
        draw = _Draw(chosen, topics)
        return [*map(steps.MakeTopic, topics), *(draw.step() for _ in range(chosen.randint(*STEP_COUNTS)))]

    def begin(self, server: ServerProcess, namespace: str) -> DataSession:
        return DataSession(server, namespace)


class _Draw:
    """Draws one step after the other."""

    def __init__(self, chosen: random.Random, topics: tuple[str, ...]) -> None:
        self._chosen = chosen
        self._topics = topics
        self._ends: dict[tuple[str, int], int] = {}
        """About where the partitions end."""
        self._sequences: dict[tuple[int, str, int], tuple[int, int]] = {}
        """The epoch and the next sequence of producers."""

    def step(self) -> Step:
        kinds = {
            self._produce: 48, self._fetch: 22, self._list_offsets: 10, self._epoch_ends: 4, self._delete_records: 6, self._new_producer: 2,
            self._describe_producers: 3,
        }  # fmt: skip
        return self._chosen.choices(list(kinds), list(kinds.values()))[0]()

    def _is(self, share: float) -> bool:
        return self._chosen.random() < share

    def _partition(self) -> tuple[str, int]:
        name = self._chosen.choice(self._topics) if self._is(0.97) else "none"
        if self._is(0.04):
            return name, self._chosen.choice((9, -1))
        return name, self._chosen.randrange(TOPICS[name][0]) if name in TOPICS else 0

    def _partitions(self, most: int = 3) -> list[tuple[str, int]]:
        """Different ones."""
        count = self._chosen.choices(range(1, most + 1), (12, *([3] * (most - 1))))[0]
        return list(dict.fromkeys(self._partition() for _ in range(count)))

    # Produce.

    def _produce(self) -> Step:
        chosen = self._chosen
        version = chosen.choice(PRODUCE_VERSIONS)
        parts = tuple((name, index, self._batches(name, index)) for name, index in self._topics_once(self._partitions(2)))
        acks = chosen.choices((-1, 1, 0, 2, -2), (20, 10, 6, 0.5, 0.5))[0]
        return steps.Produce(parts, acks, version, "t" if self._is(0.01) else None)

    def _topics_once(self, partitions: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """A topic stands in a request once."""
        return list({name: (name, index) for name, index in partitions}.values())

    def _batches(self, name: str, index: int) -> tuple[Batch, ...]:
        count = self._chosen.choices((1, 2, 0, 3), (50, 4, 1, 1))[0]
        return tuple(self._batch(name, index) for _ in range(count))

    def _batch(self, name: str, index: int) -> Batch:
        chosen = self._chosen
        keys = tuple(None if self._is(0.05) else chosen.choice("abcd") for _ in range(chosen.choices((1, 2, 5, 20), (10, 5, 4, 1))[0]))
        fields: dict[str, Any] = {"keys": keys, "size": chosen.choices((0, 5, 50, 400, 2500), (2, 20, 8, 4, 2))[0]}
        fields["at"] = chosen.choices((0, chosen.randrange(1000), -FAR_MS, FAR_MS, -steps.BASE_MS - 1), (10, 30, 2, 2, 1))[0]
        if fields["at"] == -steps.BASE_MS - 1:
            fields["step"] = 0
        elif self._is(0.2):
            fields["step"] = chosen.choice((0, -3, 100))
        if self._is(0.35):
            fields["compression"] = chosen.choice(CODECS)
        if self._is(0.35):
            fields["producer"] = self._producer(name, index, len(keys))
        if self._is(0.03):
            fields[chosen.choice(("is_transactional", "is_control", "is_log_append_time"))] = True
        if self._is(0.07):
            fields["damage"] = chosen.choice(tuple(Damage))
        self._ends[name, index] = self._ends.get((name, index), 0) + len(keys)
        return Batch(**fields)

    def _producer(self, name: str, index: int, count: int) -> tuple[int, int, int]:
        chosen = self._chosen
        producer_id = chosen.choice(PRODUCERS)
        epoch, sequence = self._sequences.get((producer_id, name, index), (0, 0))
        kind = chosen.random()
        if kind < 0.65:
            self._sequences[producer_id, name, index] = epoch, sequence + count
            return producer_id, epoch, sequence
        if kind < 0.80:
            return producer_id, epoch, max(0, sequence - chosen.choice((count, count, 1, 2, 7)))
        if kind < 0.88:
            return producer_id, epoch, sequence + chosen.choice((1, 5))
        if kind < 0.93:
            self._sequences[producer_id, name, index] = epoch + 1, count
            return producer_id, epoch + 1, 0
        if kind < 0.96:
            return producer_id, max(0, epoch - 1), sequence
        return chosen.choice(((producer_id, epoch, -1), (producer_id, -1, 0), (producer_id, epoch, 2**31 - 1), (producer_id, epoch + 1, 3)))

    # Fetch and offsets.

    def _offset(self, name: str, index: int) -> int:
        end = self._ends.get((name, index), 0)
        return self._chosen.choices((0, self._chosen.randint(0, end), end, end + 1, -1, 1000), (10, 20, 5, 3, 1, 2))[0]

    def _fetch(self) -> Step:
        chosen = self._chosen
        version = chosen.choice(FETCH_VERSIONS)
        partitions = tuple(self._fetch_from(name, index) for name, index in self._topics_once(self._partitions()))
        fields: dict[str, Any] = {}
        if self._is(0.2):
            fields["max_bytes"] = chosen.choice((0, 1, 100, 400, 5000))
        if self._is(0.2):
            fields["min_bytes"] = chosen.choice((1, 100000))
        if self._is(0.3):
            fields["isolation_level"] = chosen.choice((1, 1, 1, 5))
        if version >= 7 and self._is(0.4):
            kinds = (SessionEpoch.NEW, SessionEpoch.NEXT, SessionEpoch.AGAIN, SessionEpoch.END, SessionEpoch.UNKNOWN)
            fields["session"] = chosen.choices(kinds, (6, 14, 1, 1, 1))[0]
            if fields["session"] is SessionEpoch.NEXT:
                partitions = partitions if self._is(0.5) else ()
                fields["forgotten"] = tuple(self._partitions(1)) if self._is(0.2) else ()
        return steps.Fetch(partitions, version, **fields)

    def _fetch_from(self, name: str, index: int) -> FetchFrom:
        chosen = self._chosen
        max_bytes = chosen.choices((1 << 20, 0, 1, 100, 500, 3000), (20, 1, 1, 2, 2, 2))[0]
        epochs = (chosen.choices((-1, 0, 1, -2), (20, 4, 1, 1))[0], chosen.choices((-1, 0, 7, -2), (30, 3, 1, 1))[0])
        return FetchFrom(name, index, self._offset(name, index), max_bytes, *epochs)

    def _list_offsets(self) -> Step:
        chosen = self._chosen
        times = (-1, -2, -3, -4, -5, -6, -7, 0, 1, 500, 1200, FAR_MS)
        asked = tuple((name, index, chosen.choice(times)) for name, index in self._topics_once(self._partitions()))
        epoch = chosen.choices((-1, 0, 1), (8, 2, 1))[0]
        return steps.ListOffsets(asked, chosen.choice((0, 0, 1)), epoch, chosen.randint(1, 11))

    def _epoch_ends(self) -> Step:
        chosen = self._chosen
        asked = tuple(
            (name, index, chosen.choice((-1, 0, 1)), chosen.choice((0, 0, 1, -1, 9)))
            for name, index in self._topics_once(self._partitions())
        )
        return steps.EpochEnds(asked, chosen.choice((2, 3, 4)))

    def _delete_records(self) -> Step:
        asked = tuple(
            (name, index, self._chosen.choices((self._offset(name, index), -1, -2), (8, 2, 1))[0])
            for name, index in self._topics_once(self._partitions(2))
        )
        return steps.DeleteRecords(asked, self._chosen.choice((0, 1, 2)))

    def _new_producer(self) -> Step:
        producer = self._chosen.choice(((-1, -1), (-1, -1), (4242, 0), (-1, 0), (5, -1), (-2, -2)))
        version = self._chosen.choice((5, 4, 3, 2, 0))
        return steps.NewProducer(producer if version >= 3 else (-1, -1), version)

    def _describe_producers(self) -> Step:
        return steps.DescribeProducers(tuple(self._topics_once(self._partitions())))
