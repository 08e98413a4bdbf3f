"""The platform's limit for one small request at a time: uvloop, a recv, a pwrite and a send, without a broker.

The server writes each request to a file and answers with as many bytes as a Produce response has. It is measured twice: with a loop that
sleeps between requests, and with one that polls for the next request as the broker does. `python -m bench.clients.raw_echo --file PATH`
forks the server and prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import uvloop

from bench.clients.raw_produce import connect
from broker.loop.clock import SystemClock
from broker.network.busy_poll import BusyPoll
from config.server import ServerConfig

REQUEST = bytes(190)  # a Produce v7 request of one record of 50 bytes
RESPONSE = bytes(58)
SCRATCH_SIZE = 65536  # bytes


@dataclass(frozen=True, slots=True)
class RawEchoResult:
    """Latency of one exchange, and the CPU of the answering side for each; `awake`: by a loop that polls for the next request."""

    echo_p50_us: float
    echo_p99_us: float
    echo_cpu_us: float
    awake_p50_us: float
    awake_p99_us: float
    awake_cpu_us: float


class _Echo(asyncio.BufferedProtocol):
    def __init__(self, descriptor: int, busy_poll: BusyPoll) -> None:
        self._descriptor = descriptor
        self._busy_poll = busy_poll
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._position = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        os.pwrite(self._descriptor, self._scratch[:nbytes], self._position)
        self._position += nbytes
        self._socket.send(RESPONSE)
        self._busy_poll.read_answered()

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket.detach()


def serve(listening: socket.socket, path: Path, busy_poll_us: int) -> None:
    """Answers until it is killed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        busy_poll = BusyPoll(loop, SystemClock(loop), busy_poll_us)
        server = await loop.create_server(lambda: _Echo(descriptor, busy_poll), sock=listening)
        await server.serve_forever()

    uvloop.run(run())


def exchange(connection: socket.socket, count: int) -> list[float]:
    """Sends `count` requests, each after the answer to the one before; returns their latencies in seconds."""
    latencies = []
    for _ in range(count):
        started = perf_counter()
        connection.sendall(REQUEST)
        connection.recv(SCRATCH_SIZE)
        latencies.append(perf_counter() - started)
    return latencies


def measure(path: Path, requests: int, warmup: int) -> RawEchoResult:
    asleep, awake = (_measure(path, requests, warmup, busy_poll_us) for busy_poll_us in (0, ServerConfig.barnabas_busy_poll_us))
    return RawEchoResult(*asleep, *awake)


def _measure(path: Path, requests: int, warmup: int, busy_poll_us: int) -> tuple[float, float, float]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = os.fork()
        if child == 0:
            serve(listening, path, busy_poll_us)
        try:
            with connect(*listening.getsockname()) as connection:
                latencies = exchange(connection, warmup + requests)[warmup:]
        finally:
            os.kill(child, signal.SIGKILL)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            os.waitpid(child, 0)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            path.unlink(missing_ok=True)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    latencies.sort()
    p50, p99 = latencies[requests // 2], latencies[requests * 99 // 100]
    return p50 * 1e6, p99 * 1e6, cpu_seconds * 1e6 / (warmup + requests)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="one small request at a time, without a broker")
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--warmup", type=int, default=3_000)
    parser.add_argument("--file", type=Path, required=True, help="overwritten and removed")
    parser.add_argument("--port", type=int, help="not used: there is no broker")
    parser.add_argument("--broker-pid", type=int, help="not used")
    options = parser.parse_args(arguments)
    print(json.dumps(asdict(measure(options.file, options.requests, options.warmup))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
