"""What proves that a process is gone: two refusals of its address, 50 ms apart, and nothing else."""

from __future__ import annotations

import socket

import pytest

from broker.cluster.failure_detector import PROBE_INTERVAL_MS, PROBE_TIMEOUT_MS, PROBES_MAX, PROOF_LIFE_MS, FailureDetector
from tests.broker.cluster.fake_network import REFUSED, SILENT, Accepted, FakeNetwork, let_time_pass
from tests.support.clock import ManualClock

ADDRESS = ("gone", 9092)
LONG_MS = PROBES_MAX * (PROBE_INTERVAL_MS + PROBE_TIMEOUT_MS)


class World:
    def __init__(self, *answers: OSError | Accepted | None) -> None:
        self.clock = ManualClock()
        self.network = FakeNetwork(self.clock, *answers)
        self.detector = FailureDetector(self.network, self.clock)
        self.proofs: list[str] = []

    def prove(self, name: str = "gone") -> None:
        self.detector.prove(ADDRESS, lambda: self.proofs.append(name))

    async def pass_time(self, ms: int) -> None:
        await let_time_pass(self.clock, ms)


async def test_two_refusals_50_ms_apart_prove_it() -> None:
    world = World(REFUSED)
    world.prove()

    await world.pass_time(PROBE_INTERVAL_MS - 10)
    assert world.proofs == []
    await world.pass_time(20)

    assert world.proofs == ["gone"]
    assert world.network.asked == [(*ADDRESS, 0), (*ADDRESS, PROBE_INTERVAL_MS)]


@pytest.mark.parametrize(
    "answer",
    [
        SILENT,
        TimeoutError(110, "Connection timed out"),
        OSError(113, "No route to host"),
        OSError(101, "Network is unreachable"),
        ConnectionResetError(104, "Connection reset by peer"),
        socket.gaierror(-2, "Name or service not known"),
    ],
    ids=["no answer", "timeout", "no route", "unreachable", "reset", "no such name"],
)
async def test_nothing_else_proves_anything(answer: OSError | None) -> None:
    world = World(REFUSED, answer, REFUSED, answer, answer)
    world.prove()

    await world.pass_time(LONG_MS)

    assert world.proofs == []
    assert len(world.network.asked) == PROBES_MAX


async def test_a_process_that_accepts_lives_and_its_connections_are_closed() -> None:
    accepted = Accepted()
    world = World(accepted)
    world.prove()

    await world.pass_time(LONG_MS)

    assert world.proofs == [] and len(world.network.asked) == PROBES_MAX
    assert accepted.is_aborted


async def test_a_process_that_accepts_between_two_refusals_lives() -> None:
    world = World(Accepted(), REFUSED, Accepted(), REFUSED, Accepted())
    world.prove()

    await world.pass_time(LONG_MS)

    assert world.proofs == []


@pytest.mark.parametrize("answer", [Accepted(), ConnectionResetError(104, "Connection reset by peer")], ids=["accepted", "reset"])
async def test_a_process_that_is_about_to_end_is_probed_until_it_has(answer: OSError | Accepted) -> None:
    """Its sockets are closed one after the other: it happened that the connection was reset while it was being made."""
    world = World(answer, REFUSED)
    world.prove()

    await world.pass_time(2 * PROBE_INTERVAL_MS + 10)

    assert world.proofs == ["gone"]


async def test_one_series_of_probes_serves_all_that_ask() -> None:
    world = World(REFUSED)
    world.prove("first")
    world.prove("second")

    await world.pass_time(PROBE_INTERVAL_MS + 10)
    assert world.proofs == ["first", "second"] and len(world.network.asked) == 2


async def test_soon_after_a_proof_one_refusal_is_enough_and_no_longer() -> None:
    world = World(REFUSED)
    world.prove("first")
    await world.pass_time(PROBE_INTERVAL_MS + 10)

    world.prove("soon")
    assert world.proofs == ["first"], "never from inside the call"
    await world.pass_time(10)
    assert world.proofs == ["first", "soon"] and len(world.network.asked) == 3
    await world.pass_time(PROOF_LIFE_MS)
    world.prove("late")
    await world.pass_time(PROBE_INTERVAL_MS + 10)

    assert world.proofs == ["first", "soon", "late"] and len(world.network.asked) == 5


async def test_a_proof_says_nothing_of_a_process_that_was_started_anew() -> None:
    world = World(REFUSED, REFUSED, Accepted())
    world.prove("first")
    await world.pass_time(PROBE_INTERVAL_MS + 10)

    world.prove("soon")
    await world.pass_time(LONG_MS)

    assert world.proofs == ["first"]


async def test_a_closed_detector_proves_nothing_more() -> None:
    world = World(REFUSED)
    world.prove()
    await world.pass_time(10)

    await world.detector.close()
    await world.pass_time(LONG_MS)

    assert world.proofs == [] and len(world.network.asked) == 1
