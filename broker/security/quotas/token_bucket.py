"""TokenBucket: the quota of bursts. Tokens come back at the limit's rate; at most a burst of windows x window x limit is kept.

The quota is exhausted while there are less than 0 tokens. One large burst is paid off by waiting, and does not stay in an average.

Source: org.apache.kafka.common.metrics.stats.TokenBucket, ControllerMutationQuotaManager.throttleTimeMs (KIP-599).
"""

from __future__ import annotations

import math

from broker.security.quotas.rate import THROTTLE_TIME_MAX_MS, rounded_ms


class TokenBucket:
    """It begins full. The limit, tokens a second, is given with each call: it may have changed."""

    __slots__ = ("_burst_s", "_refilled_ms", "_tokens")

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self._burst_s = windows_count * (window_ms / 1000.0)
        self._tokens = math.inf
        self._refilled_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Returns the tokens as of `now_ms`; negative while the quota is exhausted."""
        # Rounded as in Kafka: whether a token is missing may depend on the last bit.
        self._tokens = min(self._burst_s * limit, self._tokens + limit * ((now_ms - self._refilled_ms) / 1000.0))
        self._refilled_ms = now_ms
        return self._tokens

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take `value` tokens, or put them back if it is negative."""
        self._tokens = min(self._burst_s * limit, self.tokens(limit, now_ms) - value)

    def throttle_time_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long to wait until no token is missing, in ms; 0 if none is."""
        tokens = self.tokens(limit, now_ms)
        if not tokens < 0:
            return 0
        return rounded_ms(-tokens / limit * 1000) if limit > 0 else THROTTLE_TIME_MAX_MS
