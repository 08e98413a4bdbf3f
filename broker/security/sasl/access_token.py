"""A token by which this node, or a command, logs in to others: what is read of it, unverified, and when the next one is fetched.

Source: ClientJwtValidator, ExpiringCredentialRefreshingLogin.refreshMs.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from broker.security.sasl.oauthbearer import TokenError

TOKEN_SIZE_MAX = 64 * 1024
RETRY_MS = 10_000
"""Between tries to replace a token that has ended (DELAY_SECONDS_BEFORE_NEXT_RETRY_WHEN_RELOGIN_FAILS)."""


class AccessToken(NamedTuple):
    """Times by the wall clock; `start_ms` is that of its issue, None if it does not say."""

    text: str
    start_ms: int | None
    end_ms: int

    def __repr__(self) -> str:
        return f"AccessToken(end_ms={self.end_ms})"  # its bearer is let in: it may be in no log and no traceback


class RefreshRules(NamedTuple):
    """The properties sasl.login.refresh.…"""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300


def parse(text: str, *, sub_claim_name: str = "sub") -> AccessToken:
    """Raises TokenError for what is no JSON Web Token that ends and has a subject."""
    sections = text.split(".")
    if len(text) > TOKEN_SIZE_MAX or len(sections) != 3 or not all(sections):
        raise TokenError("what was fetched is not a signed JSON Web Token")
    try:
        claims = json.loads(base64.b64decode(sections[1] + "=" * (-len(sections[1]) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as e:
        raise TokenError("the token's claims cannot be read") from e
    subject = claims.get(sub_claim_name) if isinstance(claims, dict) else None
    if not isinstance(subject, str) or not subject.strip():
        raise TokenError(f"the token has no text in the claim {sub_claim_name}")
    end_ms = _milliseconds(claims, "exp")
    if end_ms is None:
        raise TokenError("the token has no time in the claim exp")
    return AccessToken(text, _milliseconds(claims, "iat"), end_ms)


def refresh_time_ms(token: AccessToken, rules: RefreshRules, now_ms: int, random: float) -> int:
    """When the next token is to be fetched, after this one was; `random` is from 0 to 1."""
    if now_ms > token.end_ms:
        return now_ms + RETRY_MS
    part = rules.window_factor + rules.window_jitter * random
    start_ms = now_ms if token.start_ms is None else token.start_ms
    if now_ms + 1000 * (rules.min_period_seconds + rules.buffer_seconds) > token.end_ms:  # too short for both
        return now_ms + int((token.end_ms - now_ms) * part)
    proposed_ms = start_ms + int((token.end_ms - start_ms) * part)
    buffer_ms = token.end_ms - 1000 * rules.buffer_seconds
    if proposed_ms > buffer_ms:
        return buffer_ms
    return max(proposed_ms, now_ms + 1000 * rules.min_period_seconds)


def _milliseconds(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value) * 1000
