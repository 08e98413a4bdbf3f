"""What happened in one simulated run: a hash that two runs of one seed must share, and lines that a person can read.

Only the program's own words, numbers and sizes go in, never an id(), an address or a set's order.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque

LINES_KEPT = 4_000  # the newest ones; a failing seed is replayed with all of them


class Trace:
    """Owner: the simulated loop. `now_us` is the virtual time."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=None if keep_all else LINES_KEPT)
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, now_us: int, kind: str, text: str = "") -> None:
        """Record one event. `kind` is counted for the campaign's coverage."""
        line = f"{now_us / 1_000_000:12.6f} {kind} {text}"
        self.counts[kind] += 1
        self.lines.append(line)
        self._hash.update(line.encode())

    def cover(self, what: str) -> None:
        """A part of the product was reached that only some seeds reach: campaigns count it."""
        self.covered[what] += 1

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
