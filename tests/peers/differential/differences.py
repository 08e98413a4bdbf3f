"""What differs from Apache Kafka on purpose, by fuzzer: each with its reason, and as narrow as can be.

A difference that explains an exchange lets the steps go on. Where the brokers' states are not the same after it, it `is_end`: what
follows in that seed is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.peers.differential.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Difference:
    """`explains` says whether an exchange whose sides differ is this one and no other."""

    reason: str
    explains: Callable[[Exchange], bool]
    is_end: bool = False


DIFFERENCES: Mapping[str, Sequence[Difference]] = {}
"""By the fuzzer's name."""
