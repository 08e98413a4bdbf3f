"""Where the time of one produce and of one fetch goes: each layer of the broker alone, in this process, without a network.

`python -m bench anatomy` calls every layer's public function with the arguments of the layer above, and prints microseconds, with and
without the layers below. `raw-limit` measures the socket's system calls.
"""

from __future__ import annotations

import gc
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from bench import cluster_anatomy, security_anatomy
from bench.clients.raw_produce import produce_request
from broker.dispatch import KafkaApis
from broker.handlers.produce_fetch import fetch, produce
from broker.loop.turns import Turns
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.replication.delayed_produce import PartitionAppendResult
from protocol import codec
from protocol.apis import APIS
from protocol.checksum import crc32c
from protocol.framing import BufferPool, FrameAssembler
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.records import SimpleRecord, build_batch
from storage.page_cache import is_resident
from storage.validation import assign_offsets, check_batch
from tests.broker.replication.world import World, context
from tests.support.clock import WALL_START_MS

ROUNDS = 7
CALLS = 5_000
PRODUCE_KEY, PRODUCE_VERSION = 0, 7
FETCH_KEY, FETCH_VERSION = 1, 12
HEADER = struct.Struct(">hhih")
FRAME_SIZE_MAX = 1 << 27
STORED_BATCHES = 2_000
FETCHED_BYTES = 1_000_000


class Step(NamedTuple):
    """One layer. `depth` says which of the steps before it contains it; times are microseconds."""

    name: str
    depth: int
    total_us: float


def run() -> str:
    """The tables as text."""
    with tempfile.TemporaryDirectory(prefix="barnabas-anatomy-") as folder:
        world = World(Path(folder))
        world.create_topic("t")
        gc.collect()
        gc.freeze()
        steps = [_table("one produce: v7, acks=1, a batch of one record of 50 bytes", _produce_steps(world, Path(folder)))]
        steps.append(_table("one fetch: v12, a slice of 1 MB in the page cache", _fetch_steps(world)))
    return "\n\n".join([*steps, security_anatomy.table(), cluster_anatomy.table()])


def _produce_steps(world: World, directory: Path) -> list[Step]:
    batch = bytes(build_batch([SimpleRecord(None, b"x" * 50, timestamp=WALL_START_MS)]))
    framed = bytes(produce_request("t", 1, acks=1, records=batch))
    frame = memoryview(bytearray(framed[4:]))
    records = frame[len(frame) - len(batch) :]
    facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
    apis, handler = (
        KafkaApis(world.services(), Turns(lambda callback: callback(), world.clock.monotonic_us)),
        produce.build(world.services()),
    )
    decode = codec.decoder(APIS[PRODUCE_KEY].request_class, PRODUCE_VERSION)
    body_position = HEADER.size + HEADER.unpack_from(frame)[3]
    request, _ = decode(frame, body_position)
    request_context = context(PRODUCE_KEY, PRODUCE_VERSION)
    produce_path, partition = world.replica_manager.produce_path, world.partition("t")
    log, config = partition.log, partition.log.config
    assembler = FrameAssembler(lambda view: True, max_frame_size=FRAME_SIZE_MAX, pool=BufferPool())

    def receive() -> None:
        assembler.get_buffer()[: len(framed)] = framed
        assembler.buffer_updated(len(framed))

    def as_sent() -> None:  # the append patched these
        records[0:8] = bytes(8)
        records[12:16] = b"\xff\xff\xff\xff"

    entries = [(PartitionAppendResult("t", 0), partition, records)]
    checked = check_batch(records, config, now_ms=WALL_START_MS)
    descriptor = os.open(directory / "pwrite.bin", os.O_RDWR | os.O_CREAT)
    position = 0

    def write() -> None:
        nonlocal position
        position += os.pwrite(descriptor, records, position)

    def append() -> None:
        log.append_as_leader(records, leader_epoch=0, now_ms=WALL_START_MS)

    return [
        Step("frame cut from the received bytes", 0, _time(receive)),
        Step("KafkaApis.handle: header, context, metrics", 0, _time(lambda: apis.handle(frame, facts), as_sent)),
        Step("decode the request", 1, _time(lambda: decode(frame, body_position))),
        Step("ProduceHandler.handle: collect, answer by template", 1, _time(lambda: handler(request_context, request), as_sent)),
        Step(
            "ProducePath.append_now: result, high watermark",
            2,
            _time(lambda: produce_path.append_now(entries, 1, WALL_START_MS, True), as_sent),
        ),
        Step("Log.append_as_leader: roll?, index?, state", 3, _time(append, as_sent)),
        Step("check_batch: header and rules", 4, _time(lambda: check_batch(records, config, now_ms=WALL_START_MS), as_sent)),
        Step("crc32c", 5, _time(lambda: crc32c(records[21:]))),
        Step(
            "assign_offsets: patch in place",
            4,
            _time(lambda: assign_offsets(records, checked, config, first_offset=0, leader_epoch=0, now_ms=0), as_sent),
        ),
        Step("pwrite", 4, _time(write)),
    ]


def _fetch_steps(world: World) -> list[Step]:
    batch = bytes(build_batch([SimpleRecord(None, b"x" * 1_000, timestamp=WALL_START_MS)]))
    for _ in range(STORED_BATCHES):
        world.produce("t", memoryview(bytearray(batch)))
    log = world.partition("t").log
    offset = log.log_end_offset - STORED_BATCHES
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCHED_BYTES)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, session_epoch=-1, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    client_id = b"bench"
    head = HEADER.pack(FETCH_KEY, FETCH_VERSION, 1, len(client_id)) + client_id + b"\x00"
    frame = memoryview(bytearray(head + codec.encode(request, FETCH_VERSION)))
    facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
    apis, handler = KafkaApis(world.services(), Turns(lambda callback: callback(), world.clock.monotonic_us)), fetch.build(world.services())
    decode = codec.decoder(APIS[FETCH_KEY].request_class, FETCH_VERSION)
    request_context = context(FETCH_KEY, FETCH_VERSION)

    def release(outcome: Any) -> None:
        for chunk in outcome.to_chunks(1) if hasattr(outcome, "to_chunks") else outcome:
            if hasattr(chunk, "release"):
                chunk.release()

    def read() -> None:
        log.read(offset, max_bytes=FETCHED_BYTES, end_offset=log.high_watermark, minimum_one_batch=True).release()  # type: ignore[union-attr]

    found: Any = log.read(offset, max_bytes=FETCHED_BYTES, end_offset=log.high_watermark)
    return [
        Step("KafkaApis.handle: header, context, metrics", 0, _time(lambda: release(apis.handle(frame, facts)))),
        Step("decode the request", 1, _time(lambda: decode(frame, len(head)))),
        Step("FetchHandler.handle: targets, answer by template", 1, _time(lambda: release(handler(request_context, request)))),
        Step("Log.read: offset to position, end of the last whole batch", 2, _time(read)),
        Step("are its pages in memory?", 0, _time(lambda: is_resident(found.fd, found.position, len(found)))),
    ]


def _time(call: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
    """Microseconds of one call, the best of several rounds, without the time of `before`."""
    return max(0.0, _best(call, before) - (0.0 if before is None else _best(before, None)))


def _best(call: Callable[[], Any], before: Callable[[], Any] | None) -> float:
    times = []
    for _ in range(ROUNDS):
        started_ns = perf_counter_ns()
        if before is None:
            for _ in range(CALLS):
                call()
        else:
            for _ in range(CALLS):
                before()
                call()
        times.append(perf_counter_ns() - started_ns)
    return min(times) / CALLS / 1e3


def _table(title: str, steps: list[Step]) -> str:
    lines = [title, "", "| step | µs, all | µs, its own |", "| --- | --- | --- |"]
    for place, step in enumerate(steps):
        inner = 0.0
        for later in steps[place + 1 :]:
            if later.depth <= step.depth:
                break
            inner += later.total_us if later.depth == step.depth + 1 else 0.0
        lines.append(f"| {'· ' * step.depth}{step.name} | {step.total_us:.1f} | {max(0.0, step.total_us - inner):.1f} |")
    return "\n".join(lines)
