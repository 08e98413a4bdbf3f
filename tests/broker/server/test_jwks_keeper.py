"""When the keys of an OAuth provider are fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.security.sasl.jwks import JwksError, KeySet, parse_key_set
from broker.server.jwks_keeper import UNKNOWN_KEY_INTERVAL_MS, JwksKeeper
from tests.support.clock import ManualClock
from tests.support.jwts import ES256, jwk, key_set

REFRESH_MS = 3_600_000
FIRST, SECOND = (parse_key_set(key_set(jwk(ES256, name))) for name in ("first", "second"))


class Provider:
    """Answers with `keys`, or not at all while that is None."""

    def __init__(self) -> None:
        self.keys: KeySet | None = FIRST
        self.asked_count = 0

    def fetch(self) -> KeySet:
        self.asked_count += 1
        if self.keys is None:
            raise JwksError("it cannot be reached")
        return self.keys


class Kept:
    def __init__(self, *, backoff_ms: int = 100, backoff_max_ms: int = 1000) -> None:
        self.provider, self.clock = Provider(), ManualClock()

        async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
            await asyncio.sleep(0)
            return function(*arguments)

        self.keeper = JwksKeeper(
            self.provider.fetch,
            self.clock,
            run_blocking,
            refresh_ms=REFRESH_MS,
            retry_backoff_ms=backoff_ms,
            retry_backoff_max_ms=backoff_max_ms,
        )

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(5):  # turns of the loop, until the fetch is done
            await asyncio.sleep(0)


async def test_keys_are_fetched_at_the_start_and_periodically() -> None:
    kept = Kept()
    kept.keeper.start()
    assert kept.keeper.keys is FIRST
    kept.provider.keys = SECOND

    await kept.advance(REFRESH_MS - 1)
    assert kept.keeper.keys is FIRST
    await kept.advance(1)
    assert kept.keeper.keys is SECOND
    await kept.advance(REFRESH_MS)
    assert kept.provider.asked_count == 3
    await kept.keeper.close()


def test_a_start_without_keys_fails() -> None:
    kept = Kept()
    kept.provider.keys = None

    with pytest.raises(JwksError):
        kept.keeper.start()


async def test_unknown_keys_ask_once_a_minute_however_many_there_are() -> None:
    kept = Kept()
    kept.keeper.start()
    kept.provider.keys = SECOND

    for _ in range(1000):
        kept.keeper.refresh_for_unknown_key()
    await kept.advance(0)
    assert kept.keeper.keys is SECOND and kept.provider.asked_count == 2

    await kept.advance(UNKNOWN_KEY_INTERVAL_MS - 1)
    kept.keeper.refresh_for_unknown_key()
    await kept.advance(0)
    assert kept.provider.asked_count == 2
    await kept.advance(1)
    kept.keeper.refresh_for_unknown_key()
    await kept.advance(0)
    assert kept.provider.asked_count == 3
    await kept.keeper.close()


async def test_a_failed_fetch_is_tried_again_with_growing_pauses_and_the_earlier_keys_count() -> None:
    kept = Kept()
    kept.keeper.start()
    kept.provider.keys = None

    await kept.advance(REFRESH_MS)
    asked = []
    for _ in range(20):
        asked.append(kept.provider.asked_count)
        await kept.advance(100)

    assert asked[:9] == [2, 3, 3, 4, 4, 4, 4, 5, 5]
    assert asked[-1] == asked[-5] == 6, "after a second it is given up until the next time"
    assert kept.keeper.keys is FIRST

    kept.provider.keys = SECOND
    await kept.advance(REFRESH_MS)
    assert kept.keeper.keys is SECOND
    await kept.keeper.close()


async def test_a_close_ends_a_fetch_that_is_tried_again() -> None:
    kept = Kept()
    kept.keeper.start()
    kept.provider.keys = None
    await kept.advance(REFRESH_MS)

    await kept.keeper.close()

    assert kept.clock.pending_timers == []


async def test_a_running_broker_has_no_keys_until_they_are_fetched() -> None:
    kept = Kept()
    kept.keeper.start_without_keys()
    assert len(kept.keeper.keys) == 0

    await kept.advance(0)

    assert kept.keeper.keys is FIRST
    await kept.keeper.close()
