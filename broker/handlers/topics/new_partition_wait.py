"""How the answers to CreateTopics and CreatePartitions wait for the new partitions, so that the client's next request finds them led.

Kafka answers as soon as the controller has the topic. Its brokers take it over a moment later, and answer NOT_LEADER_OR_FOLLOWER until
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from broker.handlers.services import Services

MADE_WAIT_MAX_MS = 20_000
"""Thousands of partitions on a slow disk take longer; a client's own timeout must not end the request, for it would be sent again."""


async def wait_until_made(services: Services, results: Sequence[Any]) -> None:
    """Return once every new partition that this broker hosts of the topics without an error is there, or MADE_WAIT_MAX_MS are over."""
    topics = [result.name for result in results if not result.error_code]
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
