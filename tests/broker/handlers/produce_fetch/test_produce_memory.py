"""Refused bombs and withdrawn requests leave nothing, for as long as anything keeps their answers, and with the collector off."""

from __future__ import annotations

import gc
import mmap
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import produce
from broker.loop.deferred import Deferred
from protocol.compression import Compression, compress
from protocol.errors import ErrorCode, without_frames
from protocol.framing import SmallFrameBuffer
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records import DECOMPRESSED_BYTES_MIN, SimpleRecord, assemble_batch, build_batch, read_header
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import World, completed, context
from tests.support.clock import WALL_START_MS
from tests.support.turns import finished
from tests.support.worker import ManualWorker

CODECS = [codec for codec in Compression if codec]
BOMBS_COUNT = 3


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Room:
    """A compacted topic, whose batches are unpacked when the test says so."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.create_topic("c", cleanup_policy="compact", max_message_bytes="4000000")
        self.worker = ManualWorker()
        self._loop = TurnLoop()
        self._handle = produce.build(self.world.services()._replace(worker=self.worker))
        self.frames: list[weakref.ref[Any]] = []

    def send(self, batch: bytes, *, size: int = 0, acks: int = 1) -> Deferred:
        """`size`: of the frame's buffer, if it is to be an mmap."""
        buffer = mmap.mmap(-1, size) if size else SmallFrameBuffer(len(batch))
        records = memoryview(buffer)[: len(batch)]
        records[:] = batch
        self.frames.append(weakref.ref(buffer))
        asked = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="c", partition_data=[PartitionProduceData(index=0, records=records)])],
        )
        return self._loop.turns.start(self._handle(context(0, 9), asked))

    def run_all(self) -> None:
        self.worker.run()
        self._loop.run()

    def fail(self) -> None:
        self.worker.fail(RuntimeError("a worker failed"))
        self._loop.run()


def bomb(codec: Compression) -> bytes:
    """A batch of one record whose records unpack to more than is allowed."""
    honest = build_batch([SimpleRecord(b"k", b"v", (), WALL_START_MS)])
    header = read_header(honest)._replace(attributes=codec)
    return bytes(assemble_batch(header, compress(codec, bytes(DECOMPRESSED_BYTES_MIN + 1))))


def honest_batch() -> bytes:
    return bytes(build_batch([SimpleRecord(b"k", bytes(9_000), (), WALL_START_MS)]))


def code(outcome: Deferred) -> int:
    answer = completed(outcome)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.long("unpacks sixteen bombs")
@pytest.mark.parametrize("codec", CODECS)
def test_a_refused_bomb_leaves_nothing(tmp_path: Path, codec: Compression) -> None:
    room = Room(tmp_path)
    batch = bomb(codec)
    _refuse(room, batch)  # imports the codec
    tracemalloc.start()

    answers = [_refuse(room, batch) for _ in range(BOMBS_COUNT)]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [code(answer) for answer in answers] == [ErrorCode.INVALID_RECORD] * BOMBS_COUNT
    assert kept < 1 << 20
    assert [frame() for frame in room.frames] == [None] * (BOMBS_COUNT + 1)


def _refuse(room: Room, batch: bytes) -> Deferred:
    answer = room.send(batch)
    room.run_all()
    assert answer.is_done
    return answer


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("size", [0, 1 << 20])
@pytest.mark.parametrize("fails", [False, True])
def test_records_are_gone_once_they_are_appended_refused_or_failed(tmp_path: Path, acks: int, size: int, fails: bool) -> None:
    room = Room(tmp_path)
    answer = room.send(honest_batch(), size=size, acks=acks)

    if fails:
        room.fail()
    else:
        room.run_all()

    assert answer.is_done
    assert type(answer.value) is (RuntimeError if fails else list if acks else type(None))
    if fails:
        without_frames(answer.value)  # as dispatch does
    assert [frame() for frame in room.frames] == [None]


def test_requests_of_a_closed_connection_leave_the_line(tmp_path: Path) -> None:
    room = Room(tmp_path)
    first, second, third = (room.send(honest_batch(), size=1 << 20) for _ in range(3))

    second.abandon()
    assert room.frames[1]() is None
    first.abandon()
    room.run_all()

    assert [frame() for frame in room.frames] == [None] * 3
    assert third.is_done
    assert room.world.partition("c").log.log_end_offset == 1


@pytest.mark.parametrize("partitions", [1, 100])
def test_a_request_that_waits_for_its_acks_lets_go_of_its_frame(tmp_path: Path, partitions: int) -> None:
    """Dispatch keeps such a request, for its names: its buffer must be free for the next one."""
    world = World(tmp_path)
    world.create_topic("r", replicas=(1, 2, 3), partitions=partitions)
    batch = honest_batch()
    buffer = mmap.mmap(-1, partitions * len(batch))
    frame, view = weakref.ref(buffer), memoryview(buffer)
    asked = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="r", partition_data=[])])
    for index in range(partitions):
        records = view[index * len(batch) : (index + 1) * len(batch)]
        records[:] = batch
        asked.topic_data[0].partition_data.append(PartitionProduceData(index=index, records=records))
    del buffer, view, records

    outcome = finished(produce.build(world.services())(context(0, 9), asked))

    assert not outcome.is_done
    assert world.partition("r", partitions - 1).log.log_end_offset == 1
    assert frame() is None
    assert [data.index for data in asked.topic_data[0].partition_data] == list(range(partitions))
