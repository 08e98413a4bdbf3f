"""How the answers to CreateTopics and CreatePartitions wait for the new partitions, so that the client's next request finds them led.

Kafka answers as soon as the controller has the topic. Its brokers take it over a moment later, and answer NOT_LEADER_OR_FOLLOWER until
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from broker.handlers.services import Services

MADE_WAIT_MAX_MS = 20_000
"""Thousands of partitions on a slow disk take longer; a client's own timeout must not end the request, for it would be sent again."""
NAMES_PER_TURN = 2_000
"""Results that are looked at before others are served, 0.1 µs each."""


async def created_names(results: Sequence[Any]) -> list[str]:
    """The topics of the results that have no error."""
    names: list[str] = []
    for start in range(0, len(results), NAMES_PER_TURN):
        if start:
            await asyncio.sleep(0)
        names += [result.name for result in results[start : start + NAMES_PER_TURN] if not result.error_code]
    return names


async def wait_until_made(services: Services, topics: Iterable[str]) -> None:
    """Return once every new partition of `topics` that this broker hosts is there, or MADE_WAIT_MAX_MS are over."""
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note() -> None:
        if not made.done():
            made.set_result(None)

    services.replica_manager.when_made(topics, note)
    if made.done():
        return
    timer = services.clock.call_later(MADE_WAIT_MAX_MS, note)
    try:
        await made
    finally:
        timer.cancel()
