"""Ports for servers of the tests. Each is given once: a server keeps it over its restarts, and nobody else is told of it meanwhile.

They lie below Linux's ephemeral ports: the port of a server that was killed is not taken by a client's outgoing connection, nor by that
client connecting to itself, before the server is back. Under pytest-xdist each worker gives ports of its own.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

HOST = "127.0.0.1"
FIRST, END = 10_000, 32_000


def free_port(host: str = HOST) -> int:
    """A port that nobody listened on a moment ago."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports that nobody listened on a moment ago, each another."""
    candidates = itertools.islice(_candidates, len(_own))
    found = list(itertools.islice((port for port in candidates if _is_free(host, port)), count))
    if len(found) < count:
        raise OSError(f"fewer than {count} free ports")
    return found


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _own_ports() -> list[int]:
    """The worker's ports in an order of this process's own."""
    worker, workers = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = range(FIRST + worker % workers, END, workers)
    return random.SystemRandom().sample(ports, len(ports))


_own = _own_ports()
_candidates = itertools.cycle(_own)
