"""No request leaves a cycle behind, however it ends: what it held is free at once, and the collector has nothing to find.

A whole broker in this process, with the collector off; each kind of request several times, so that what is left once does not count.
And many odd ones of each API, after which no exception is left: one in a variable of a frame that its traceback holds is a cycle.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.server.server import Broker
from config.loading import load_server_config
from protocol.apis import ListenerKind
from protocol.codec import encode
from protocol.compression import Compression, compress
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import DECOMPRESSED_BYTES_MIN, SimpleRecord, assemble_batch, build_batch, read_header
from tests.fuzz.inputs import Density, Input, Inputs, Known, Stage
from tests.support.wire import WireClient, frame

TIMES = 8
TOPICS = {"plain": "delete", "compacted": "compact"}
FLUSHED = "flushed"  # waits for its durable end offset
ODD = Density(versions_max=2, number_share=0.05, wide_share=0.02, mutated=12)
ODD_ANSWER_S = 0.05  # a parked one is left
END_OF_LOG = 1 << 40  # of no partition: OFFSET_OUT_OF_RANGE

Scenario = Callable[[WireClient], None]


def batch(count: int = 1, size: int = 50) -> memoryview:
    now_ms = int(time.time() * 1000)
    return memoryview(build_batch([SimpleRecord(b"k", bytes(size), timestamp=now_ms) for _ in range(count)]))


def bomb() -> memoryview:
    header = read_header(batch())._replace(attributes=Compression.ZSTD)
    return memoryview(assemble_batch(header, compress(Compression.ZSTD, bytes(DECOMPRESSED_BYTES_MIN + 1))))


def produce(topic: str, records: memoryview, *, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def many_and_wrong() -> bytes:
    """A Fetch v12 of so many partitions that it is decoded in turns, with a false count at its end."""
    partitions = [FetchPartition(partition=index) for index in range(700)]
    return encode(FetchRequest(topics=[FetchTopic(topic="plain", partitions=partitions)]), 12)[:-1] + b"\xff\xff\x03"


def fetch(topic: str, offset: int, *, max_wait_ms: int, session_epoch: int = -1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1 << 20, max_bytes=1 << 20, session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )  # fmt: skip


def join() -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer", protocols=[protocol]
    )


def list_offsets() -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=[asked])])


def read_offsets(*groups: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups])


def create(name: str, **configs: str) -> CreateTopicsRequest:
    values = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=values)
    return CreateTopicsRequest(timeout_ms=5_000, topics=[topic])


ANSWERED: dict[str, Scenario] = {
    "a small produce": lambda client: client.request(produce("plain", batch()), 9),
    "a large produce": lambda client: client.request(produce("plain", batch(900, 1_000)), 9),
    "a produce that is too large": lambda client: client.request(produce("plain", batch(3_000, 1_000)), 9),
    "a produce that is checked in a thread": lambda client: client.request(produce("compacted", batch(100, 1_000)), 9),
    "a bomb": lambda client: client.request(produce("compacted", bomb()), 9),
    "a produce that waits for its flush": lambda client: client.request(produce(FLUSHED, batch(900, 1_000)), 9),
    "a fetch": lambda client: client.request(fetch("plain", 0, max_wait_ms=0), 12),
    "a fetch that waited": lambda client: client.request(fetch("plain", 0, max_wait_ms=20), 12),
    "a fetch that is refused": lambda client: client.request(fetch("plain", END_OF_LOG, max_wait_ms=20), 12),
    "metadata": lambda client: client.request(MetadataRequest(topics=None), 9),
    "offsets": lambda client: client.request(list_offsets(), 5),
    "offsets of groups that are elsewhere, or that cannot be": lambda client: client.request(read_offsets("", "g", "h"), 8),
    "a config without its range": lambda client: client.request(create("new", retention_ms="-2"), 5),
    "a topic that exists": lambda client: client.request(create("plain"), 5),
}
LEFT: dict[str, Scenario] = {
    "a parked fetch": lambda client: client.send(fetch("plain", 0, max_wait_ms=60_000), 12),
    "a parked fetch of a session": lambda client: client.send(fetch("plain", 0, max_wait_ms=60_000, session_epoch=0), 12),
    "a parked produce": lambda client: client.send(produce(FLUSHED, batch(900, 1_000)), 9),
    "checks in a thread": lambda client: [client.send(produce("compacted", batch(100, 1_000)), 9) for _ in range(3)] and None,
    "a join": lambda client: client.send(join(), 3),
    "a produce without acks that fails": lambda client: client.send(produce("missing", batch(), acks=0), 9),
    "half a frame": lambda client: client.send_raw(struct.pack(">i", 50_000_000) + bytes(500_000)),
    "a malformed body": lambda client: client.send_frame(frame(3, 9, b"\x7f" * 20)),
    "a malformed body of many elements": lambda client: client.send_frame(frame(1, 12, many_and_wrong())),
    "an unknown API": lambda client: client.send_frame(frame(999, 0, b"")),
}


class Served:
    """A broker with its topics; scenarios run in a thread, each on a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()

    async def run(self, scenario: Scenario) -> None:
        await self._loop.run_in_executor(None, self._run, scenario)
        for _ in range(5):  # the transport lets go of the connection after its end
            await asyncio.sleep(0)

    def _run(self, scenario: Scenario) -> None:
        client = WireClient("127.0.0.1", self._broker.listeners[0].port)
        with client:
            scenario(client)
            client._socket.shutdown(socket.SHUT_WR)
            while client._socket.recv(1 << 20):
                pass


@contextmanager
def collector_off() -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def open_broker(directory: Path) -> tuple[Broker, Served]:
    overrides = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", "barnabas.auto.format=true"]
    broker = Broker(load_server_config(None, {}, overrides))
    await broker.start()
    served = Served(broker)
    for name, policy in TOPICS.items():
        await served.run(lambda client, name=name, policy=policy: client.request(create(name, cleanup_policy=policy), 5))  # type: ignore[misc]
    return broker, served


async def garbage_of(directory: Path, scenario: Scenario) -> int:
    broker, served = await open_broker(directory)
    try:
        await served.run(lambda client: client.request(create(FLUSHED, flush_messages="1"), 5))
        for _ in range(2):
            await served.run(scenario)
        with collector_off():
            for _ in range(TIMES):
                await served.run(scenario)
            gc.unfreeze()  # what was frozen when large requests ended is looked at too
            return gc.collect()
    finally:
        await broker.stop()


def send_all(inputs: list[Input]) -> Scenario:
    """Each over a connection of its own: what ends one says nothing of the others."""

    def send(client: WireClient) -> None:
        address = client._socket.getpeername()
        for found in inputs:
            with socket.create_connection(address) as connection, suppress(OSError):
                connection.settimeout(ODD_ANSWER_S)
                connection.sendall(found.data)
                connection.recv(1 << 20)

    return send


async def exceptions_left(directory: Path) -> list[str]:
    """Those that only the collector finds, after odd requests of each API, with the lines that their tracebacks hold."""
    broker, served = await open_broker(directory)
    found: list[Any] = []
    try:
        await served.run(lambda client: found.append(client.request(MetadataRequest(topics=None), 12)))
        known = Known([topic.topic_id for topic in found[0].topics], found[0].cluster_id, time.time_ns() // 1_000_000)
        rounds = [
            [each for each in Inputs(7, ListenerKind.CLIENT, Stage.ALL, known).round(number, ODD) if not each.is_incomplete]
            for number in range(2)
        ]
        await served.run(send_all(rounds[0]))
        with collector_off():
            gc.set_debug(gc.DEBUG_SAVEALL)
            await served.run(send_all(rounds[1]))
            gc.unfreeze()
            gc.collect()
            return [_lines_of(each) for each in gc.garbage if isinstance(each, BaseException)]
    finally:
        await broker.stop()


def _lines_of(error: BaseException) -> str:
    held = traceback.extract_tb(error.__traceback__)
    return f"{error!r}: " + ", ".join(f"{frame.filename}:{frame.lineno}" for frame in held)


def test_odd_requests_leave_no_exception(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        left = runner.run(asyncio.wait_for(exceptions_left(tmp_path), 120))

    assert left == []


@pytest.mark.parametrize("name", [*ANSWERED, *LEFT])
def test_a_request_leaves_no_cycle(tmp_path: Path, name: str) -> None:
    scenario = ANSWERED.get(name) or LEFT[name]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        garbage_count = runner.run(asyncio.wait_for(garbage_of(tmp_path, scenario), 60))

    assert garbage_count < TIMES
