"""Ports for servers: each given once, and none to two runs on a machine."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.support.ports import END, FIRST, HOST, free_port, free_ports, neighbours
from tests.support.process import checkout

GIVE = "import sys\nfrom tests.support.ports import free_ports\nprint(*free_ports({count}), flush=True)\nsys.stdin.read()\n"


def another_run(count: int, *, first: int = FIRST, end: int = END) -> subprocess.Popen[str]:
    """One that gives so many ports of this range, and goes on until its standard input ends."""
    program = f"from tests.support import ports\nports.FIRST, ports.END = {first}, {end}\n{GIVE.format(count=count)}"
    return subprocess.Popen([sys.executable, "-c", program], cwd=checkout(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def given_by(run: subprocess.Popen[str]) -> set[int]:
    assert run.stdout is not None
    return set(map(int, run.stdout.readline().split()))


def test_no_port_is_given_twice() -> None:
    given = [*free_ports(200), *(free_port() for _ in range(200))]

    assert len(set(given)) == len(given)
    assert all(FIRST <= port < END for port in given)


def test_ports_in_a_row_are_given_as_single_ones_are() -> None:
    """Their neighbours too: a run beside this one, or a later test, has none of them."""
    first = neighbours(3)

    assert not {first, first + 1, first + 2} & set(free_ports(2_000))
    with another_run(1, first=first, end=first + 3) as run:
        assert given_by(run) == set()


def test_a_port_that_someone_listens_on_is_not_given() -> None:
    with another_run(1) as run:  # which may give it, since nobody else does
        (port,) = given_by(run)
        run.communicate()

    with socket.socket() as taken:
        taken.bind((HOST, port))
        with another_run(1, first=port, end=port + 1) as run:
            assert given_by(run) == set()
    with another_run(1, first=port, end=port + 1) as run:
        assert given_by(run) == {port}
        run.communicate()


def test_a_port_is_one_runs_until_that_ends() -> None:
    port = free_port()
    with another_run(1, first=port, end=port + 1) as run:
        assert given_by(run) == set()

    with another_run(3) as run:
        first = min(given_by(run))
        with another_run(1, first=first, end=first + 1) as second:
            assert given_by(second) == set()
        run.communicate()
    with another_run(1, first=first, end=first + 1) as second:
        assert given_by(second) == {first}
        second.communicate()
