"""Applications' work in transactions: one writes to several partitions at once, one reads, processes and writes, as Java's
TransactionalMessageCopier."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.connection import LostError
from tests.simulation.history import Key
from tests.simulation.transaction_ledger import Attempt
from tests.simulation.transactional import GROUP, OFFSET_FETCH_VERSION, OLDEST, TRANSACTIONAL_ID, AbortError, TransactionalClient


class AtomicWriter(TransactionalClient):
    """Writes to several partitions in one transaction."""

    async def _do_transaction(self) -> None:
        attempt = await self._begin()
        try:
            for key in self.draw.sample(self._keys, self.draw.randint(1, len(self._keys))):
                batches = [[self._value(attempt) for _ in range(self.draw.randint(1, 2))] for _ in range(self.draw.randint(1, 2))]
                await self._send(attempt, key, batches)
            await asyncio.sleep(self.draw.choice((0.0, 0.0, 0.05)))
            await self._end(attempt, is_commit=self.draw.random() < 0.7)
        except AbortError as error:
            self.note(f"aborts: {error}")
            await self._abort(attempt)
        await asyncio.sleep(self.draw.uniform(0.0, 0.1))

    def _value(self, attempt: Attempt) -> str:
        self._values_count += 1
        return f"{self.name}.{self._values_count}/{attempt.number}"


class Copier(TransactionalClient):
    """Copies the records of one partition to others, and commits its position in the same transaction, with the leader epoch: its next
    instance then asks no leader of an earlier one, which may not have so many records (KIP-320)."""

    def __init__(self, *arguments: Any, source: Key, group: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._source = source
        self._group = group

    async def _begin_work(self) -> None:
        self.positions = {self._source: await self._fetch_position()}
        self.reset_sessions()

    async def _fetch_position(self) -> int:
        """Where the transactions before have left off: all of them have ended."""
        topic, partition = self._source
        request = OffsetFetchRequest(
            group_id=self._group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])], require_stable=True
        )
        while True:
            response = await self._ask_coordinator(GROUP, self._group, request, OFFSET_FETCH_VERSION)
            told = response.topics[0].partitions[0] if response.topics else None
            error = response.error_code or (0 if told is None else told.error_code)
            if error == 0 and told is not None:
                offset = max(told.committed_offset, 0)
                self.note_leader_epoch(self._source, told.committed_leader_epoch)
                self.ledger.saw_committed_offset(self.name, self._source, offset, self.now_s)
                self.note(f"begins at {topic}-{partition}@{offset}")
                return offset
            await self._again("OffsetFetch", error, GROUP, self._group)

    async def _do_transaction(self) -> None:
        began_at = self.positions[self._source]
        try:
            polled = await self.fetch()
        except LostError:
            await self._pause()
            return
        self.ledger.saw(self.name, polled, self.now_s)
        if not polled:
            await asyncio.sleep(self.draw.uniform(0.0, 0.03))
            return
        attempt = await self._begin()
        attempt.polled = polled
        try:
            await self._copy(attempt, polled[self._source])
            await self._commit_position(attempt)
            is_commit = self.draw.random() < 0.8
            await self._end(attempt, is_commit=is_commit)
        except AbortError as error:
            self.note(f"aborts: {error}")
            is_commit = False
            await self._abort(attempt)
        if not is_commit:
            self.reset_sessions()
            is_asking = self.draw.random() < 0.5
            self.positions = {self._source: await self._fetch_position() if is_asking else began_at}

    async def _copy(self, attempt: Attempt, records: list[tuple[int, str]]) -> None:
        copies: dict[Key, list[str]] = {}
        for _, value in records:
            key = self._keys[zlib.crc32(value.encode()) % len(self._keys)]
            copies.setdefault(key, []).append(f"{value}/{attempt.number}")
        for key, values in copies.items():
            middle = self.draw.randint(0, len(values))
            await self._send(attempt, key, [each for each in (values[:middle], values[middle:]) if each])

    async def _commit_position(self, attempt: Attempt) -> None:
        offset = self.positions[self._source]
        attempt.offsets = {self._source: offset}
        producer_id, epoch = self._producer
        if not self._versions.bumps_epochs:
            await self._add_group()
        topic, partition = self._source
        position = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=self.leader_epoch_of(self._source)
        )
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[position])]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id, group_id=self._group, producer_id=producer_id, producer_epoch=epoch, topics=topics
        )
        while True:
            response = await self._ask_coordinator(GROUP, self._group, request, self._versions.offset_commit)
            error = response.topics[0].partitions[0].error_code
            if error == 0:
                return
            if error == ErrorCode.INVALID_TXN_STATE and self._versions is OLDEST:
                raise AbortError("it knows no other code for TRANSACTION_ABORTABLE")
            await self._again("TxnOffsetCommit", error, GROUP, self._group)

    async def _add_group(self) -> None:
        producer_id, epoch = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=self._group
        )
        while True:
            response = await self._ask_coordinator(TRANSACTIONAL_ID, self.transactional_id, request, self._versions.add_offsets)
            if response.error_code == 0:
                return
            await self._again("AddOffsetsToTxn", response.error_code)
