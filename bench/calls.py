"""Which functions one request calls, in their order, from the read of its bytes to the wait for the next request.

`python -m bench calls produce` (or `fetch`) runs a broker in this process and sends requests over loopback. After some warm-up requests it
records one by `sys.setprofile`. Each output line is one call: the function, its first line, its number of lines. System calls have no line.
Other calls of the event loop and of C code are left out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import uvloop

from bench.clients.wire import WireClient
from broker.server.server import Broker
from config.loading import load_server_config
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch

TOPIC = "calls"
CREATE_TOPICS_VERSION, PRODUCE_VERSION, FETCH_VERSION = 5, 9, 12
WARMUP_REQUESTS = 200
RECORD_SIZE = 100  # bytes
TIMESTAMP_MS = 1_750_000_000_000
SYSTEM_CALLS: Final = frozenset(("pread", "pwrite", "send", "sendfile"))
COMPILED = "compiled"
FIRST_CALL = "Connection.get_buffer"
LAST_CALL = "BusyPoll.read_answered"
"""Functions that are not recorded: their work depends on earlier requests."""
CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = tuple(f"{CHECKOUT / name}{os.sep}" for name in ("broker", "config", "protocol", "storage"))


class Call(NamedTuple):
    """One call of a function. A system call has neither line nor `lines_count`. `depth` counts the recorded callers."""

    function: str
    place: str
    lines_count: int | None
    depth: int


class _Recorder:
    """What `sys.setprofile` calls. Records one read of a connection: from FIRST_CALL to LAST_CALL."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._open: list[CodeType] = []
        self._is_over = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self._is_over:
            return
        if event == "call":
            if _is_ours(code) and (self.calls or code.co_qualname == FIRST_CALL):
                self.calls.append(Call(_name(frame), _place(code), _lines_count(code), len(self._open)))
                self._open.append(code)
                self._is_over = code.co_qualname == LAST_CALL
        elif event == "return":
            if self._open and self._open[-1] is code:
                self._open.pop()
        elif event == "c_call" and self._open and argument.__name__ in SYSTEM_CALLS:
            self.calls.append(Call(argument.__name__, "", None, len(self._open)))


def run(api: str) -> str:
    """The calls of one request of `api` ("produce" or "fetch"), as text."""
    with tempfile.TemporaryDirectory(prefix="barnabas-calls-") as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return table(runner.run(_record(api, Path(folder))))


def table(calls: list[Call]) -> str:
    """One line a call, and a last one with the sums."""
    width = max(2 * call.depth + len(call.function) for call in calls)
    shown = [f"{'  ' * call.depth + call.function:{width}}  {call.place}{_lines(call)}".rstrip() for call in calls]
    functions = {(call.function, call.place): call.lines_count for call in calls if call.lines_count is not None}
    files = {place.partition(":")[0] for _, place in functions} - {COMPILED}
    count = sum(call.lines_count is not None for call in calls)
    lines = sum(filter(None, functions.values()))
    summary = f"{count} calls of {len(functions)} functions in {len(files)} files, {lines} lines; {len(calls) - count} system calls"
    return "\n".join([*shown, summary])


async def _record(api: str, directory: Path) -> list[Call]:
    overrides = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", "barnabas.auto.format=true"]
    broker = Broker(load_server_config(None, {}, overrides))
    await broker.start()
    try:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(_send_requests, api, broker.listeners[0].port, loop)
    finally:
        await broker.stop()


def _send_requests(api: str, port: int, loop: asyncio.AbstractEventLoop) -> list[Call]:
    """The client, in a thread of its own: the loop's thread is recorded."""
    recorder = _Recorder()
    with WireClient("127.0.0.1", port) as client:
        creation = CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)], timeout_ms=10_000)
        assert not client.request(creation, CREATE_TOPICS_VERSION).topics[0].error_code
        client.request(_produce(), PRODUCE_VERSION)
        make, version = (_produce, PRODUCE_VERSION) if api == "produce" else (_fetch, FETCH_VERSION)
        for _ in range(WARMUP_REQUESTS):
            client.request(make(), version)
        _call_on(loop, lambda: sys.setprofile(recorder))
        client.request(make(), version)
        _call_on(loop, lambda: sys.setprofile(None))
    return recorder.calls


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    async def call() -> None:
        function()

    asyncio.run_coroutine_threadsafe(call(), loop).result()


def _produce() -> ProduceRequest:
    batch = bytes(build_batch([SimpleRecord(None, b"x" * RECORD_SIZE, timestamp=TIMESTAMP_MS)]))
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])


def _fetch() -> FetchRequest:
    """From the log's start, without a session; the record is there."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
    )


def _is_ours(code: CodeType) -> bool:
    """Also the compiled codecs, templates and named tuples, whose source is in no file."""
    name = code.co_filename
    return name.startswith(FOLDERS) or _is_compiled(name)


def _is_compiled(file_name: str) -> bool:
    return file_name == "<string>" or file_name.startswith("generated ")


def _name(frame: FrameType) -> str:
    code = frame.f_code
    made = frame.f_locals.get("_cls") if code.co_filename == "<string>" else None
    return code.co_qualname if made is None else f"{made.__name__}.__new__"  # a named tuple's


def _place(code: CodeType) -> str:
    name = code.co_filename
    return COMPILED if _is_compiled(name) else f"{os.path.relpath(name, CHECKOUT)}:{code.co_firstlineno}"


def _lines_count(code: CodeType) -> int:
    lines = [line for _, _, line in code.co_lines() if line]
    return max(lines, default=1) - code.co_firstlineno + 1


def _lines(call: Call) -> str:
    return "" if call.lines_count is None else f" ({call.lines_count})"
