"""Ports for servers of the tests. Each is given once: a server keeps it over its restarts, and nobody else is told of it meanwhile.

They lie below Linux's ephemeral ports: the port of a server that was killed is not taken by a client's outgoing connection, nor by that
client connecting to itself, before the server is back. Runs of the tests on the same machine, such as the lanes of `make test`, give
no port of another's: a run locks the byte of each port that it gives in a file that all share, until it ends.
"""

from __future__ import annotations

import fcntl
import functools
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
FIRST, END = 10_000, 32_000


def free_port(host: str = HOST) -> int:
    """A port that nobody listened on a moment ago."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports that nobody listened on a moment ago, each another."""
    found = list(itertools.islice((port for port in _candidates() if _is_free(host, port)), count))
    if len(found) < count:
        raise OSError(f"fewer than {count} free ports")
    return found


def neighbours(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        (first,) = free_ports(1)
        others = range(first + 1, first + count)
        if others.stop <= END and all(_is_free(HOST, port) and _take(port) for port in others):
            return first


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


@functools.cache
def _candidates() -> Iterator[int]:
    """Ports that are this run's from now on, in an order of its own."""
    return (port for port in random.SystemRandom().sample(range(FIRST, END), END - FIRST) if _take(port))


_given: set[int] = set()


def _take(port: int) -> bool:
    """Whether it is this run's from now on, and was not before."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_locks_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:  # another run's
        return False
    _given.add(port)
    return True


@functools.cache
def _locks_file() -> int:
    """Open until the process ends, which is what lets its ports go."""
    path = Path(tempfile.gettempdir()) / f"barnabas-tests-{os.getuid()}.ports"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
