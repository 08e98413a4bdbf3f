"""When a node's own token of OAUTHBEARER is fetched, and what its logins take meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.security.sasl.access_token import RETRY_MS, AccessToken, RefreshRules
from broker.server.oauthbearer_login import FetchError, Provider
from broker.server.token_keeper import TokenKeeper
from protocol.sasl.exchange import SaslError
from tests.support.clock import ManualClock

HOUR_MS = 3_600_000


class Kept:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked_count = 0
        self.fault: FetchError | None = None

        async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
            await asyncio.sleep(0)
            return function(*arguments)

        self.keeper = TokenKeeper(Provider(self._fetch, RefreshRules(), 100, 1_000, {}), self.clock, run_blocking, lambda: 0.0)  # type: ignore[arg-type]

    def _fetch(self) -> AccessToken:
        self.asked_count += 1
        if self.fault is not None:
            raise self.fault
        now_ms = self.clock.now_ms()
        return AccessToken(f"token-{self.asked_count}", now_ms, now_ms + HOUR_MS)

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(5):  # turns of the loop, until the fetch is done
            await asyncio.sleep(0)

    @property
    def sent(self) -> str:
        """By a login that begins now."""
        message = self.keeper.start_login().evaluate(b"")
        assert message is not None
        return message.decode().split("\x01")[1].removeprefix("auth=Bearer ")


async def test_a_token_is_replaced_before_it_ends() -> None:
    kept = Kept()
    kept.keeper.start()
    assert kept.sent == "token-1"

    await kept.advance(int(HOUR_MS * 0.8) - 1)
    assert kept.sent == "token-1"
    await kept.advance(1)
    assert kept.sent == "token-2"
    await kept.advance(int(HOUR_MS * 0.8))
    assert (kept.sent, kept.asked_count) == ("token-3", 3)
    await kept.keeper.close()
    assert kept.clock.pending_timers == []


async def test_while_the_provider_is_away_the_earlier_token_counts_and_it_is_asked_again() -> None:
    kept = Kept()
    kept.keeper.start()
    kept.fault = FetchError("it cannot be reached")
    await kept.advance(int(HOUR_MS * 0.8))
    for _ in range(20):
        await kept.advance(100)
    after_backoff = kept.asked_count
    assert after_backoff > 2
    assert kept.sent == "token-1"

    await kept.advance(RETRY_MS)
    assert kept.asked_count > after_backoff
    kept.fault = None
    for _ in range(20):
        await kept.advance(1_000)

    assert kept.sent == f"token-{kept.asked_count}" != "token-1"
    await kept.keeper.close()


async def test_a_start_without_the_provider_goes_on_and_tells_why_logins_fail() -> None:
    kept = Kept()
    kept.fault = FetchError("it cannot be reached")
    kept.keeper.start()
    with pytest.raises(SaslError, match="there is no token: it cannot be reached"):
        _ = kept.sent
    kept.fault = None

    await kept.advance(100)

    assert kept.sent == "token-2"
    await kept.keeper.close()


def test_a_start_with_a_wrong_secret_fails() -> None:
    kept = Kept()
    kept.fault = FetchError("it answers with status 401", is_final=True)

    with pytest.raises(FetchError, match="401"):
        kept.keeper.start()
