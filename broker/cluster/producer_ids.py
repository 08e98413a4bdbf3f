"""ProducerIdManager: hands out producer ids from blocks that the controller allocates, one block at a time.

Ids left in a block when the broker stops are lost, as in Kafka: they only have to be unique.

Source: RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.metadata.image import ProducerIdBlock

AllocateBlock = Callable[[], Awaitable[ProducerIdBlock]]


class ProducerIdManager:
    """Owns the current block, and the task that fetches the next one."""

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Task[None] | None = None

    def find_next(self) -> int | None:
        """Returns the next id; None when the block is used up and `next` has to wait for another."""
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def next(self) -> int:
        """Returns the next id. All waiting callers share one allocation. Raises KafkaError when the controller refuses."""
        while True:
            producer_id = self.find_next()
            if producer_id is not None:
                return producer_id
            if self._allocation is None:
                self._allocation = asyncio.get_running_loop().create_task(self._fetch_block())
            # The cancellation of one request must not cancel the allocation for which others wait.
            await asyncio.shield(self._allocation)

    async def close(self) -> None:
        allocation = self._allocation
        if allocation is not None:
            allocation.cancel()
            await asyncio.gather(allocation, return_exceptions=True)

    async def _fetch_block(self) -> None:
        try:
            block = await self._allocate()
            self._next, self._end = block.first, block.first + block.ids_count
        finally:
            self._allocation = None
