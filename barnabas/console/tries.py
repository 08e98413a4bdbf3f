"""Slows the guessing of passwords and tokens. The more wrong tries have come from an address, the longer each further one waits before it
is looked at, up to WAIT_MAX_S. No name and no session is ever locked.

A browser that has signed in before has a lane of its own for that user (OWASP's "device cookie"), so that guesses from its address, which
behind a proxy everybody has, do not slow it. The loop's thread alone calls this.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator

from barnabas.cli.errors import RefusedError

STEP_S = 0.1
"""By which each wrong try, and each that is under way, lengthens the wait."""
WAIT_MAX_S = 5.0
FORGET_S = 600.0
"""After the last wrong try of a lane."""
LANES_MAX = 1_000
AT_ONCE_MAX = 8
"""Tries of one lane that wait or are looked at."""
IPV6_HOST_BITS = 64
"""One host may have all addresses of its network."""


class TooManyError(RefusedError):
    """Of one lane at once."""


class Tries:
    """Owns what is known of lanes: at most LANES_MAX of them, those with the newest wrong tries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, tuple[int, float]] = {}
        self._under_way: Counter[str] = Counter()
        self._key = secrets.token_bytes(32)

    @contextlib.contextmanager
    def begin(self, lane: str) -> Iterator[float]:
        """Gives how many seconds to wait before this try is looked at. Raises TooManyError."""
        if self._under_way[lane] >= AT_ONCE_MAX:
            raise TooManyError("too many tries at once from this address; try again in a few seconds")
        wait_s = min(STEP_S * (1 + self._wrong_of(lane) + self._under_way[lane]), WAIT_MAX_S)
        self._under_way[lane] += 1
        try:
            yield wait_s
        finally:
            self._under_way[lane] -= 1
            if not self._under_way[lane]:
                del self._under_way[lane]

    def was_wrong(self, lane: str) -> None:
        count = self._wrong_of(lane)
        self._wrong.pop(lane, None)
        while len(self._wrong) >= LANES_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[lane] = count + 1, self._clock()

    def lane(self, address: str, who: str, mark: str) -> str:
        """Of a try to sign in as `who` from there, by a browser with this mark, or "" without one."""
        nonce, _, code = mark.partition(".")
        if nonce and hmac.compare_digest(code.encode(), self._code(nonce, who).encode()):
            return f"browser {nonce}"
        return f"address {_block(address)}"

    def mark(self, who: str) -> str:
        """For the browser of whom has just signed in. It opens nothing but a lane, for the same user, until the console ends."""
        nonce = secrets.token_urlsafe(16)
        return f"{nonce}.{self._code(nonce, who)}"

    def _code(self, nonce: str, who: str) -> str:
        return hmac.new(self._key, f"{nonce}\n{who}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _wrong_of(self, lane: str) -> int:
        count, newest_s = self._wrong.get(lane, (0, 0.0))
        return count if self._clock() - newest_s <= FORGET_S else 0


def _block(address: str) -> str:
    """All of loopback is one host; any program there may choose among its addresses."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address
    if known.is_loopback:
        return "loopback"
    return str(ipaddress.ip_network((known, IPV6_HOST_BITS), strict=False)) if known.version == 6 else address
