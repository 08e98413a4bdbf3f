"""Random histories of MarkerChannels: leaders move, vanish and come back, connections end, topics are deleted, shards' lives end. Whatever
happens, each transaction of a life that goes on is told once that it is written, and not before each of its partitions has its marker."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from broker.transactions import marker_queues
from broker.transactions.local_markers import OnWritten
from broker.transactions.marker_channels import MarkerChannels
from protocol.errors import ErrorCode
from protocol.messages.stored.metadata_records import FenceBrokerRecord
from storage.markers import TransactionMarker
from tests.broker.replication.world import World
from tests.broker.transactions.channels_room import STATE_PARTITION, prepared
from tests.broker.transactions.fake_peers import FakePeers, SentRequest

TOPICS = ("a", "b", "c", "d")
PARTITIONS = 3
STEPS = 300
TRIVIAL_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)


class HeldLocalMarkers:
    """What LocalMarkers would do on this broker, answered when the history says so."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.held: list[tuple[str, int, list[TransactionMarker], OnWritten]] = []

    def write(self, topic: str, partition: int, markers: list[TransactionMarker], on_written: OnWritten) -> None:
        self.held.append((topic, partition, markers, on_written))

    def answer(self, error: ErrorCode) -> None:
        topic, partition, markers, on_written = self.held.pop(0)
        if self._history.leader(topic, partition) != 1:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for marker in markers:
            if error is ErrorCode.NONE:
                self._history.marked.add((marker.producer_id, marker.coordinator_epoch, topic, partition))
        on_written([error] * len(markers))


class History:
    """One seed's. Producer ids name transactions, one each."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(directory)
        self.peers = FakePeers()
        self.local = HeldLocalMarkers(self)
        self.epoch = 0
        self.last_id = 0
        self.marked: set[tuple[int, int, str, int]] = set()
        self.open: dict[int, tuple[int, str, list[str]]] = {}
        """The transactions that are not written: producer id → coordinator epoch, transactional id, partitions."""
        self.deleted_meanwhile: set[tuple[int, str]] = set()
        """Producer ids with topics that were deleted before their transaction was written."""
        self.channels = MarkerChannels(
            self.world.metadata,
            self.local,  # type: ignore[arg-type]
            lambda: self.peers,  # type: ignore[arg-type,return-value]
            self.world.clock,
            partition_for=lambda transactional_id: STATE_PARTITION,
            listener_name="PLAINTEXT",
            request_timeout_ms=30_000,
        )
        self.world.metadata.subscribe(self.channels.on_metadata_delta)
        for node_id in (1, 2, 3):
            self.world.register_broker(node_id)
        for name in TOPICS:
            self._create(name)

    def _create(self, name: str) -> None:
        # No replica of this broker's, whatever the leader: HeldLocalMarkers stands for its logs.
        self.world.create_topic(name, replicas=(2, 3), leader=2, partitions=PARTITIONS)

    def leader(self, topic: str, index: int) -> int | None:
        image = self.world.metadata.find_partition(topic, index)
        return None if image is None else image.leader

    # What happens.

    def step(self) -> None:
        happens: list[tuple[Any, int]] = [
            (self.decide, 6), (self.move, 6), (self.answer, 8), (self.answer_locally, 8), (self.pass_time, 4),
            (self.delete, 1), (self.fence, 1), (self.end_life, 1),
        ]  # fmt: skip
        self.random.choices([each for each, _ in happens], [weight for _, weight in happens])[0]()
        if self.random.random() < 0.7:
            self.world.clock.advance(0)

    def decide(self) -> None:
        transactional_id = f"t{self.random.randrange(6)}"
        names = [f"{topic}-{index}" for topic in TOPICS if self.world.metadata.find_topic(topic) for index in range(PARTITIONS)]
        if not names or any(known == transactional_id for _, known, _ in self.open.values()):
            return
        self.last_id += 1
        producer_id, epoch = self.last_id, self.epoch
        partitions = self.random.sample(names, self.random.randint(1, len(names)))
        self.open[producer_id] = epoch, transactional_id, partitions
        self.channels.send(transactional_id, prepared(producer_id, *partitions), epoch, lambda: self.note_written(producer_id))

    def note_written(self, producer_id: int) -> None:
        epoch, _, partitions = self.open.pop(producer_id)  # fails if it was told twice, or belongs to a life that has ended
        for name in partitions:
            topic, _, index = name.rpartition("-")
            assert (producer_id, epoch, topic, int(index)) in self.marked or (producer_id, topic) in self.deleted_meanwhile, name

    def move(self) -> None:
        topic = self.random.choice(TOPICS)
        if self.world.metadata.find_topic(topic) is not None:
            self.world.change_partition(topic, self.random.randrange(PARTITIONS), leader=self.random.choice((-1, 1, 2, 3)))

    def delete(self) -> None:
        topic = self.random.choice(TOPICS)
        self.deleted_meanwhile |= {(producer_id, topic) for producer_id in self.open}
        if self.world.metadata.find_topic(topic) is None:
            self._create(topic)
        else:
            self.world.delete_topic(topic, takes_turn=False)

    def answer(self) -> None:
        if self.peers.requests:
            request = self.peers.requests.pop(self.random.randrange(len(self.peers.requests)))
            if self.random.random() < 0.2:
                request.lose()
            else:
                self.answer_as_leader(request, self.random.choice((ErrorCode.NONE, ErrorCode.NONE, *TRIVIAL_ERRORS)))

    def answer_as_leader(self, request: SentRequest, error: ErrorCode) -> None:
        node_id = int(request.host.removeprefix("host"))
        errors: dict[str, ErrorCode] = {}
        for marker in request.message.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    code = error if self.leader(topic.name, index) == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
                    errors[f"{marker.producer_id} {topic.name}-{index}"] = code
                    if code is ErrorCode.NONE:
                        self.marked.add((marker.producer_id, marker.coordinator_epoch, topic.name, index))
        request.answer(errors)

    def answer_locally(self) -> None:
        if self.local.held:
            self.local.answer(self.random.choice((ErrorCode.NONE, ErrorCode.NONE, *TRIVIAL_ERRORS)))

    def pass_time(self) -> None:
        self.world.clock.advance(self.random.choice((1, 20, 500)))

    def fence(self) -> None:
        """Broker 3 is gone for a moment, and registers anew."""
        self.world.metadata.apply_committed([FenceBrokerRecord(id=3, epoch=self.world.metadata.brokers[3].epoch)])
        self.world.register_broker(3, epoch=self.world.metadata.brokers[3].epoch + 1)

    def end_life(self) -> None:
        self.channels.forget(STATE_PARTITION, self.epoch)
        self.open.clear()
        self.epoch += 1

    def settle(self) -> None:
        """All partitions have leaders, and all is answered."""
        for topic in TOPICS:
            if self.world.metadata.find_topic(topic) is not None:
                for index in range(PARTITIONS):
                    self.world.change_partition(topic, index, leader=self.random.choice((1, 2, 3)))
        for _ in range(200):
            self.world.clock.advance(1_000)
            while self.peers.requests or self.local.held:
                if self.peers.requests:
                    self.answer_as_leader(self.peers.take(), ErrorCode.NONE)
                else:
                    self.local.answer(ErrorCode.NONE)
                self.world.clock.advance(0)
            if not self.open:
                return


@pytest.mark.parametrize("seed", range(20))
def test_every_transaction_is_written_once_and_not_before_its_partitions_are(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_queues, "MARKERS_MAX", 8 if seed % 2 else 10_000)
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()

    history.settle()

    assert history.open == {}
    channels = history.channels
    assert (channels.waiting_by_broker(), channels.unknown_destination_count, channels.unfinished_count) == ({}, 0, 0)
    assert (channels._by_partition, channels._backing_off) == ({}, {})
