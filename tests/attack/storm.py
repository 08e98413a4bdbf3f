"""Connections with a TLS handshake at a steady rate, from a process of its own.

    python -m tests.attack.storm PORT PER_SECOND SECONDS

Each is closed when its handshake is done. Prints how many were done, and how many failed.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.secured import FILES

WORKERS = 12
TIMEOUT_S = 30.0
ADDRESS = "127.0.0.11"


class Counts(NamedTuple):
    done: int
    failed: int


def run_storm(port: int, per_second: float, seconds: float) -> Counts:
    """In a process of its own."""
    command = [sys.executable, "-m", "tests.attack.storm", str(port), str(per_second), str(seconds)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    done, failed = map(int, run.stdout.split())
    return Counts(done, failed)


class _Worker(threading.Thread):
    def __init__(self, port: int, start_s: float, interval_s: float, end_s: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._next_s = start_s
        self._interval_s = interval_s
        self._end_s = end_s
        self._context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
        self.done = self.failed = 0

    def run(self) -> None:
        while self._next_s < self._end_s:
            time.sleep(max(self._next_s - time.monotonic(), 0))
            if time.monotonic() > self._end_s:
                return
            self._next_s += self._interval_s
            try:
                plain = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S, source_address=(ADDRESS, 0))
                with self._context.wrap_socket(plain, server_hostname="localhost"):
                    self.done += 1
            except OSError:
                self.failed += 1


def main(port: int, per_second: float, seconds: float) -> None:
    start_s = time.monotonic()
    interval_s = WORKERS / per_second
    workers = [_Worker(port, start_s + place / per_second, interval_s, start_s + seconds) for place in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(sum(worker.done for worker in workers), sum(worker.failed for worker in workers))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
