"""The platform's limit without a broker: bytes over loopback into a file by recv and pwrite, and from a file by sendfile.

A broker that stores and serves bytes cannot be faster than this. `python -m bench.clients.raw_limit --megabytes 2000 --file PATH` forks
the broker's side, so that its CPU time is counted alone, and prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

PIECE_SIZE = 1_000_000  # bytes: a full batch of librdkafka
SOCKET_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class RawLimitResult:
    """`in`: to the file; `out`: from the file in the page cache."""

    in_mb_per_s: float
    in_cpu_s_per_gb: float
    out_mb_per_s: float
    out_cpu_s_per_gb: float


def store(connection: socket.socket, path: Path, size: int) -> None:
    """Receives `size` bytes and writes each piece where it belongs, then says so."""
    piece = memoryview(bytearray(PIECE_SIZE))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    position = filled = 0
    while position < size:
        received = connection.recv_into(piece[filled:])
        filled += received
        if filled == PIECE_SIZE or not received:
            os.pwrite(descriptor, piece[:filled], position)
            position, filled = position + filled, 0
            if not received:
                break
    os.close(descriptor)
    connection.sendall(b"!")


def serve(connection: socket.socket, path: Path, size: int) -> None:
    """Sends `size` bytes of the file."""
    with path.open("rb") as file:
        position = 0
        while position < size:
            position += os.sendfile(connection.fileno(), file.fileno(), position, PIECE_SIZE)


def measure(
    work: Callable[[socket.socket, Path, int], None], drive: Callable[[socket.socket, int], None], path: Path, size: int
) -> tuple[float, float]:
    """Runs `work` in a child and `drive` here, over loopback TCP. Returns seconds and the child's CPU seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            connection, _ = listener.accept()
            work(connection, path, size)
            connection.close()
            os._exit(0)
        with socket.create_connection(listener.getsockname(), timeout=SOCKET_TIMEOUT_S) as connection:
            started = perf_counter()
            drive(connection, size)
            seconds = perf_counter() - started
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.waitpid(child, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def send_all(connection: socket.socket, size: int) -> None:
    piece = bytes(PIECE_SIZE)
    for _ in range(size // PIECE_SIZE):
        connection.sendall(piece)
    connection.recv(1)


def receive_all(connection: socket.socket, size: int) -> None:
    piece = bytearray(PIECE_SIZE)
    received = 0
    while received < size:
        received += connection.recv_into(piece) or size


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="bytes over loopback to and from a file, without a broker")
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("--file", type=Path, required=True, help="overwritten and removed")
    parser.add_argument("--port", type=int, help="not used: there is no broker")
    parser.add_argument("--broker-pid", type=int, help="not used")
    options = parser.parse_args(arguments)
    size = options.megabytes * 1_000_000
    try:
        in_seconds, in_cpu = measure(store, send_all, options.file, size)
        out_seconds, out_cpu = measure(serve, receive_all, options.file, size)
    finally:
        options.file.unlink(missing_ok=True)
    gigabytes = size / 1e9
    result = RawLimitResult(size / 1e6 / in_seconds, in_cpu / gigabytes, size / 1e6 / out_seconds, out_cpu / gigabytes)
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
