"""How wrong passwords and tokens are slowed."""

from __future__ import annotations

import contextlib

import pytest

from barnabas.console.tries import AT_ONCE_MAX, FORGET_S, LANES_MAX, STEP_S, WAIT_MAX_S, TooManyError, Tries

ALICE = "local/alice"


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def wait_s(tries: Tries, lane: str) -> float:
    with tries.begin(lane) as waits_s:
        return waits_s


def test_each_wrong_try_lengthens_the_wait_until_they_are_forgotten() -> None:
    clock = Clock()
    tries = Tries(clock)
    waits = []

    for _ in range(100):
        waits.append(wait_s(tries, "address a"))
        tries.was_wrong("address a")

    assert waits[:3] == pytest.approx([STEP_S, 2 * STEP_S, 3 * STEP_S]) and waits[-1] == WAIT_MAX_S
    assert wait_s(tries, "address b") == STEP_S
    clock.now_s += FORGET_S + 1
    assert wait_s(tries, "address a") == STEP_S


def test_tries_at_once_wait_the_longer_and_are_bounded() -> None:
    tries = Tries(Clock())

    with contextlib.ExitStack() as under_way:
        waits = [under_way.enter_context(tries.begin("address a")) for _ in range(AT_ONCE_MAX)]
        with pytest.raises(TooManyError, match="too many tries at once"), tries.begin("address a"):
            pass
        assert waits == pytest.approx([STEP_S * (1 + number) for number in range(AT_ONCE_MAX)])
        assert wait_s(tries, "address b") == STEP_S

    assert wait_s(tries, "address a") == STEP_S


def test_memory_is_bounded_by_the_number_of_lanes() -> None:
    tries = Tries(Clock())

    for number in range(LANES_MAX + 1):
        tries.was_wrong(f"address {number}")

    assert wait_s(tries, "address 0") == STEP_S and wait_s(tries, "address 1") == pytest.approx(2 * STEP_S)
    assert wait_s(tries, f"address {LANES_MAX}") == pytest.approx(2 * STEP_S)


def test_host_has_one_lane_whatever_address_it_chooses() -> None:
    tries = Tries(Clock())

    def lane(address: str) -> str:
        return tries.lane(address, ALICE, "")

    assert lane("127.0.0.1") == lane("127.8.9.10") == lane("::1")
    assert lane("2001:db8::1") == lane("2001:db8::ffff:2") != lane("2001:db8:0:1::1")
    assert lane("192.0.2.1") != lane("192.0.2.2") and lane("unknown") != lane("192.0.2.1")


def test_browser_that_has_signed_in_has_a_lane_of_its_own_for_that_user() -> None:
    tries = Tries(Clock())
    mark = tries.mark(ALICE)
    of_address = tries.lane("127.0.0.1", ALICE, "")

    assert tries.lane("127.0.0.1", ALICE, mark) != of_address
    nonce, _, code = mark.partition(".")
    for other in (
        f"{nonce}x.{code}",
        f"{nonce}.{code[:-1]}",
        f"{nonce}.",
        f".{code}",
        nonce,
        "\N{SNOWMAN}.\N{SNOWMAN}",
        Tries(Clock()).mark(ALICE),
    ):
        assert tries.lane("127.0.0.1", ALICE, other) == of_address
    assert tries.lane("127.0.0.1", "local/bob", mark) == tries.lane("127.0.0.1", "token", mark) == of_address
