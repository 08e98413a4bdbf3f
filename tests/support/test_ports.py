"""Ports for servers: each given once, and none to two workers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tests.support.ports import END, FIRST, HOST, free_port, free_ports
from tests.support.process import checkout


def ports_of(worker: int, *, workers: int, count: int) -> set[int]:
    """What a worker of so many gives."""
    environment = {**os.environ, "PYTEST_XDIST_WORKER": f"gw{worker}", "PYTEST_XDIST_WORKER_COUNT": str(workers)}
    program = f"from tests.support.ports import free_ports\ntry: print(*free_ports({count}))\nexcept OSError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout(), env=environment, capture_output=True, text=True, check=True)
    return set(map(int, done.stdout.split())) if "fewer" not in done.stdout else set()


def test_no_port_is_given_twice() -> None:
    given = [*free_ports(200), *(free_port() for _ in range(200))]

    assert len(set(given)) == len(given)
    assert all(FIRST <= port < END for port in given)


def test_a_port_that_someone_has_is_not_given() -> None:
    """Of so many workers each has one port."""
    port = free_port()
    worker, workers = port - FIRST, END - FIRST

    with socket.socket() as taken:
        taken.bind((HOST, port))
        assert ports_of(worker, workers=workers, count=1) == set()
    assert ports_of(worker, workers=workers, count=1) == {port}
    assert ports_of(worker, workers=workers, count=2) == set()


def test_workers_have_ports_of_their_own() -> None:
    remainders = {worker: {port % 3 for port in ports_of(worker, workers=3, count=100)} for worker in (0, 1, 2, 5)}

    assert len(set().union(*remainders.values())) == 3
    assert all(len(each) == 1 for each in remainders.values())
    assert remainders[5] == remainders[2]  # it took over from a worker that had crashed
