"""ProducerIdManager: hands out producer ids from blocks that the controller allocates, one block at a time.

Ids left in a block when the broker stops are lost, as in Kafka: they only have to be unique.

Source: RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.loop.deferred import Deferred
from broker.metadata.image import ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError

AllocateBlock = Callable[[], Awaitable[ProducerIdBlock]]

UNREACHABLE = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})


class ProducerIdManager:
    """Owns the current block, the task that fetches the next one, and those that wait for it."""

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    def take(self) -> int | Deferred:
        """Returns the next id; when the block is used up, a Deferred of it, or of the KafkaError that `next` raises."""
        producer_id = self.find_next()
        if producer_id is not None:
            return producer_id
        answer = Deferred()
        task = asyncio.get_running_loop().create_task(self._answer(answer))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return answer

    async def _answer(self, answer: Deferred) -> None:
        try:
            producer_id = await self.next()
        except Exception as e:
            answer.complete(e)
        else:
            answer.complete(producer_id)

    def find_next(self) -> int | None:
        """Returns the next id; None when the block is used up and `next` has to wait for another."""
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def next(self) -> int:
        """Returns the next id. All waiting callers share one allocation. Raises KafkaError when the controller refuses;
        COORDINATOR_LOAD_IN_PROGRESS, which clients retry, when it cannot be reached."""
        while True:
            producer_id = self.find_next()
            if producer_id is not None:
                return producer_id
            if self._allocation is None:
                self._allocation = asyncio.get_running_loop().create_task(self._fetch_block())
            # The cancellation of one request must not cancel the allocation for which others wait.
            try:
                await asyncio.shield(self._allocation)
            except KafkaError as e:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if e.code in UNREACHABLE else e.code, e.message) from e

    async def close(self) -> None:
        tasks = [*self._waiting, *(() if self._allocation is None else (self._allocation,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch_block(self) -> None:
        try:
            block = await self._allocate()
            self._next, self._end = block.first, block.first + block.ids_count
        finally:
            self._allocation = None
