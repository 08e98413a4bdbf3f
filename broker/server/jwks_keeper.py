"""JwksKeeper: keeps the keys of an OAuth provider (sasl.oauthbearer.jwks.endpoint.url), fetched off the loop.

They are fetched at the start, then every sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a token names a key that is not there: for
that at most once a minute, whoever sends how many of them. Where a fetch fails the earlier keys count, and it is tried again with
a growing pause until sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms are over. A file is read as often, and not only when it changes.

Source: RefreshingHttpsJwks, Retry, CachedFile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock, Timer, pause

if TYPE_CHECKING:
    from broker.security.sasl.jwks import KeySet

log = logging.getLogger("barnabas.security")

UNKNOWN_KEY_INTERVAL_MS = 60_000
"""Between two fetches that tokens have caused (RefreshingHttpsJwks.MISSING_KEY_ID_CACHE_IN_FLIGHT_MS, there for each key id)."""


class JwksKeeper:
    """Of one listener. `fetch` blocks, and raises JwksError."""

    def __init__(
        self,
        fetch: Callable[[], KeySet],
        clock: Clock,
        run_blocking: RunBlocking,
        *,
        refresh_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._run_blocking = run_blocking
        self._refresh_ms = refresh_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._timer: Timer | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._next_for_unknown_ms = 0
        self.keys: KeySet

    def start(self) -> None:
        """Fetch the keys, which blocks. Raises JwksError."""
        self.keys = self._fetch()
        self._next_for_unknown_ms = self._clock.monotonic_ms()
        self._timer = self._clock.call_later(self._refresh_ms, self._refresh_periodically)

    def start_without_keys(self) -> None:
        """Begin to fetch the keys. Until they are there, there are none."""
        from broker.security.sasl.jwks import KeySet

        self.keys = KeySet()
        self._next_for_unknown_ms = self._clock.monotonic_ms()
        self._refresh_periodically()

    def refresh_for_unknown_key(self) -> None:
        """Begin to fetch the keys, unless that was done for the same reason in the last minute."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_for_unknown_ms:
            self._next_for_unknown_ms = now_ms + UNKNOWN_KEY_INTERVAL_MS
            self._refresh()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _refresh_periodically(self) -> None:
        self._timer = self._clock.call_later(self._refresh_ms, self._refresh_periodically)
        self._refresh()

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._fetch_until_it_works())

    async def _fetch_until_it_works(self) -> None:
        from broker.security.sasl.jwks import JwksError

        end_ms = self._clock.monotonic_ms() + self._retry_backoff_max_ms
        pause_ms = self._retry_backoff_ms
        while True:
            try:
                self.keys = await self._run_blocking(self._fetch)
                return
            except JwksError as e:
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    log.warning("the keys of OAUTHBEARER could not be fetched again, the earlier ones count: %s", e)
                    return
            await pause(self._clock, min(pause_ms, left_ms))
            pause_ms = max(1, pause_ms * 2)
