"""Events in any order: none fails, nothing follows the end, and a client is logged in only by a token that the server took."""

from __future__ import annotations

import random

import pytest

from broker.security.sasl.actions import Authenticated, Close
from broker.security.sasl.conversation import Expected
from broker.security.sasl.events import (
    ApiVersionsRequested,
    AuthenticateRequested,
    Event,
    FrameTooLarge,
    HandshakeRequested,
    Now,
    OtherRequested,
    TokenReceived,
    Unreadable,
)
from protocol.errors import ErrorCode
from tests.broker.security.sasl.logins import ALICE, PLAIN_0, PLAIN_1, SCRAM_1, START, VERSIONS, WRONG, make_conversation

EVENTS: list[Event] = [
    VERSIONS,
    ApiVersionsRequested(ErrorCode.UNSUPPORTED_VERSION),
    PLAIN_0,
    PLAIN_1,
    SCRAM_1,
    AuthenticateRequested(0, ALICE),
    *(AuthenticateRequested(2, token) for token in (ALICE, WRONG, b"", b"n,,n=alice,r=x")),
    *(TokenReceived(token) for token in (ALICE, WRONG, b"", b"n,,n=alice,r=x")),
    OtherRequested("METADATA"),
    Unreadable("no request"),
    FrameTooLarge(-1),
]
ASKED_AFTER_LOGIN = (HandshakeRequested, AuthenticateRequested)
"""The connection serves other requests, and does not ask."""


@pytest.mark.parametrize("seed", range(5))
def test_only_those_who_know_a_password_are_logged_in(seed: int) -> None:
    chance = random.Random(seed)

    logins = sum(take_random_steps(chance) for _ in range(1000))

    assert logins > 5


def take_random_steps(chance: random.Random) -> int:
    """Returns how often a client logged in."""
    conversation = make_conversation(max_reauth_ms=chance.choice([0, 60_000]))
    now, logins, has_ended = START, 0, False
    for _ in range(12):
        event = chance.choice(EVENTS)
        was_complete = conversation.is_complete
        if was_complete and not isinstance(event, ASKED_AFTER_LOGIN):
            continue
        actions = conversation.handle(event, now)

        assert not (has_ended and actions)
        has_ended = has_ended or any(isinstance(action, Close) for action in actions)
        assert (conversation.expects is Expected.NOTHING) == has_ended
        if conversation.is_complete and not was_complete:
            logins += 1
            assert getattr(event, "token", None) == ALICE
            assert isinstance(actions[-1], Authenticated)
        now = Now(now.wall_ms + 20_000, now.monotonic_ms + 20_000)
    return logins
