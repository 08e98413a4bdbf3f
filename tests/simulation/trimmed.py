"""A topic whose records are deleted up to any offset, also within a batch (DeleteRecords), while replicas come, go and lose their logs.

Kafka Streams does so with its repartition topics. The topic is flushed before it is acknowledged, so whatever fault there was, the watch
wants every committed batch from a replica's log start on; and in the end all replicas are in sync and equal. The clients keep a history of
their own: what they have sent is not looked for in what is left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.admin import TIMEOUT_MS, Admin
from tests.simulation.clients import RETRIED, Client, Producer
from tests.simulation.connection import LostError
from tests.simulation.history import History, Key

PARTITIONS_COUNT = 2
PAUSE_S = 0.05
DELETE_RECORDS_VERSION, LIST_OFFSETS_VERSION = 2, 7
EARLIEST, LATEST = -2, -1
MOST_SHARE = 0.3  # of the deletions leave next to nothing, so that replicas that were away find their end deleted
LAST_TRIES_MAX = 200  # in ten seconds or more

_ANSWERS = RETRIED | {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}  # the latter of a leader that does not know its high watermark yet


class TrimmedTopic:
    """The topic of one run, its clients, and what they have found."""

    name = "trimmed"

    def __init__(self, draw: random.Random) -> None:
        self.keys: list[Key] = [(self.name, partition) for partition in range(PARTITIONS_COUNT)]
        self._segment_bytes = draw.choice((2_000, 100_000))
        self._history = History(durable_topics={self.name})

    async def create(self, admin: Admin) -> None:
        configs = {"flush.messages": "1", "internal.segment.bytes": str(self._segment_bytes), "file.delete.delay.ms": "100"}
        await admin.create(self.name, PARTITIONS_COUNT, configs)

    def make_clients(self, make: Callable[..., Any]) -> list[Client]:
        """`make` is the world's."""
        clients: list[Client] = [
            make(Producer, "trimmed-producer", keys=self.keys, acks=-1, depth=2, pause_s=PAUSE_S),
            make(Trimmer, "trimmer", keys=self.keys),
        ]
        for client in clients:
            client.history = self._history
        return clients

    @property
    def findings(self) -> dict[str, list[Any]]:
        return {f"trimmed {anomaly}": evidence for anomaly, evidence in self._history.findings.items() if evidence}


class Trimmer(Client):
    """Deletes records of `keys`; when it is stopped, once more of each, which every replica has to follow. Unless `acts_by_itself`, only a
    script deletes any."""

    def __init__(self, *arguments: Any, keys: list[Key]) -> None:
        super().__init__(*arguments)
        self.keys = keys
        self.acts_by_itself = True

    async def run(self) -> None:
        if not self.acts_by_itself:
            return
        while not self.is_stopping:
            await self._try_to_trim(self.draw.choice(self.keys))
            await asyncio.sleep(self.draw.uniform(0.05, 0.6))
        for key in self.keys:
            for _ in range(LAST_TRIES_MAX):
                if await self._try_to_trim(key):
                    break
            else:
                self.history.find("deletion-never-ends", (key, round(self.now_s, 3)))

    async def _try_to_trim(self, key: Key) -> bool:
        """Whether records were deleted in all replicas, or there are none."""
        try:
            is_done = await self._trim(key)
        except LostError:
            is_done = False
        if not is_done:
            await self.back_off()
        return is_done

    async def _trim(self, key: Key) -> bool:
        start_offset, end_offset = await self._find_offset(key, EARLIEST), await self._find_offset(key, LATEST)
        if start_offset is None or end_offset is None:
            return False
        if start_offset >= end_offset:
            return True
        offset = self.draw.randint(start_offset + 1, end_offset)
        if self.draw.random() < MOST_SHARE:
            offset = max(offset, end_offset - 2)
        return await self.trim_to(key, offset)

    async def trim_to(self, key: Key, offset: int) -> bool:
        """Whether the records before `offset` were deleted in all replicas that are up. LostError."""
        topic = DeleteRecordsTopic(name=key[0], partitions=[DeleteRecordsPartition(partition_index=key[1], offset=offset)])
        self.operations_count += 1
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        result = (await self.ask(request, DELETE_RECORDS_VERSION, await self.leader_of(key))).topics[0].partitions[0]
        self.note(f"deleted {key[0]}-{key[1]} before {offset}: {result.error_code} {result.low_watermark}")
        if result.error_code not in _ANSWERS:
            self.unexpected(f"DeleteRecords {key} {offset}", result.error_code)
        if result.error_code != ErrorCode.NONE:
            return False
        if result.low_watermark < offset:
            self.history.find("low-watermark", (key, offset, result.low_watermark))
        self.loop.trace.cover("records deleted")
        return True

    async def _find_offset(self, key: Key, timestamp: int) -> int | None:
        asked = ListOffsetsPartition(partition_index=key[1], timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=key[0], partitions=[asked])])
        answer = (await self.ask(request, LIST_OFFSETS_VERSION, await self.leader_of(key))).topics[0].partitions[0]
        return int(answer.offset) if answer.error_code == ErrorCode.NONE else None
