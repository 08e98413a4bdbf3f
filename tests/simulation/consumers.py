"""Thin consumers: one that reads assigned partitions through a fetch session, and the reader of everything at a run's end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from protocol.errors import DecodeError, ErrorCode
from protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import BatchHeader, crc_is_valid, iterate_headers, iterate_records
from tests.simulation.clients import Address, Client, name_of
from tests.simulation.connection import LostError
from tests.simulation.history import Key
from tests.support.history_checker import Position

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 5
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MAX_WAIT_MS = 200
FINAL_TRIES_MAX = 2_000
GAP_TRIES_MAX = 50


class Corrupt(Exception):  # noqa: N818 - a finding
    """What a broker served is no record batch that anybody sent."""


def read_records(data: bytes, position: int) -> Iterator[tuple[int, str]]:
    """(offset, value) from offset `position` on; raises Corrupt."""
    for header, records in read_batches(data):
        if not header.is_control:
            yield from _values(records, position)


def read_committed_records(data: bytes, position: int, aborted: Iterable[AbortedTransaction]) -> tuple[list[tuple[int, str]], int]:
    """The (offset, value) of records outside `aborted` transactions from offset `position` on, and the offset behind the last batch;
    raises Corrupt. As Java's CompletedFetch: a transaction that is aborted counts from its first offset to its producer's next marker."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()
    found: list[tuple[int, str]] = []
    for header, records in read_batches(data):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += _values(records, position)
        position = max(position, header.next_offset)
    return found, position


def read_batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch with its header; raises Corrupt."""
    try:
        for at, header in iterate_headers(data):
            if not crc_is_valid(data, at, header.batch_length + 12):
                raise Corrupt(f"CRC of the batch at offset {header.base_offset}")
            yield header, data[at : at + header.batch_length + 12]
    except DecodeError as error:
        raise Corrupt(str(error)) from error


def _values(batch: bytes, position: int) -> Iterator[tuple[int, str]]:
    try:
        for record in iterate_records(batch):
            if record.offset >= position:
                yield record.offset, (record.value or b"").partition(b":")[0].decode()
    except (DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(str(error)) from error


class Session:
    """The client's side of a fetch session (KIP-227): what the broker was told of each partition."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.told: dict[Key, tuple[int, int]] = {}  # position and leader epoch

    def request(
        self, positions: dict[Key, int], epochs: dict[Key, int], *, max_bytes: int, rack: str, isolation_level: int = READ_UNCOMMITTED
    ) -> FetchRequest:
        """A fetch of `positions`, of which only those are named that moved or have a leader of another epoch."""
        topics: dict[str, list[FetchPartition]] = {}
        wanted = {key: (position, epochs.get(key, -1)) for key, position in positions.items()}
        for key, (position, epoch) in wanted.items():
            if self.told.get(key) != (position, epoch):
                partition = FetchPartition(
                    partition=key[1], current_leader_epoch=epoch, fetch_offset=position, partition_max_bytes=max_bytes
                )
                topics.setdefault(key[0], []).append(partition)
        self.told = wanted
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            rack_id=rack,
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )

    def answered(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = self.epoch + 1 if session_id else 0

    def reset(self) -> None:
        """Begin anew: the next request names every partition."""
        self.session_id = self.epoch = 0
        self.told.clear()


class Fetcher(Client):
    """Fetches from its positions. What a consumer does between fetches is its subclass's.

    One with a rack reads from the follower there that a leader names (KIP-392), until that one has not what it asks for."""

    def __init__(self, *arguments: Any, max_bytes: int, rack: str = "", isolation_level: int = READ_UNCOMMITTED, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.isolation_level = isolation_level
        self._rack = rack
        self._nearer: dict[Key, Address] = {}
        self.positions: dict[Key, int] = {}
        self._max_bytes = max_bytes
        self._sessions: dict[Address, Session] = {}
        self._turns_count = 0

    async def fetch(self) -> dict[Key, list[Position]]:
        """What one fetch brought, the positions moved behind it. Leaders are asked in turn. Raises LostError."""
        invoked_s = self.now_s
        address, positions = await self._next_share()
        session = self._sessions.setdefault(address, Session())
        try:
            request = session.request(
                positions, self._leader_epochs, max_bytes=self._max_bytes, rack=self._rack, isolation_level=self.isolation_level
            )
            response = await self.ask(request, FETCH_VERSION, address)
        except LostError:
            session.reset()
            self._nearer = {key: nearer for key, nearer in self._nearer.items() if nearer != address}
            raise
        if response.error_code:
            if response.error_code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self.unexpected("Fetch", response.error_code)
            session.reset()
            return {}
        session.answered(response.session_id)
        polled: dict[Key, list[Position]] = {}
        for topic in response.responses:
            for partition in topic.partitions:
                key = (topic.topic, partition.partition_index)
                if key not in positions:
                    session.reset()  # it led the partition once, and still has it in the session
                elif key in self.positions:
                    self._take(key, partition, session, polled, invoked_s)
        return polled

    async def _next_share(self) -> tuple[Address, dict[Key, int]]:
        """The positions of the partitions of the leader whose turn it is."""
        if not self.is_of_cluster:
            return self._home, self.positions
        shares: dict[Address, dict[Key, int]] = {}
        for key, position in self.positions.items():
            try:
                shares.setdefault(self._nearer.get(key) or await self.leader_of(key), {})[key] = position
            except LostError:
                continue
        if not shares:
            raise LostError("no leader is known")
        self._turns_count += 1
        address = list(shares)[self._turns_count % len(shares)]
        session = self._sessions.get(address)
        if session is not None and session.told.keys() != shares[address].keys():
            session.reset()
        return address, shares[address]

    def reset_sessions(self) -> None:
        self._sessions.clear()

    def out_of_range(self, key: Key, log_start_offset: int) -> None:
        """The broker has not what the position asks for."""
        if self.history.is_durable(key) or not self.history.power_cuts_s:
            self.unexpected(f"Fetch {key} at {self.positions[key]}", ErrorCode.OFFSET_OUT_OF_RANGE)
        self.positions[key] = 0

    def _take(self, key: Key, partition: Any, session: Session, polled: dict[Key, list[Position]], invoked_s: float) -> None:
        error = partition.error_code
        if error and self._nearer.pop(key, None) is not None:
            session.told.pop(key, None)
            self._leaders.pop(key, None)
        elif error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.out_of_range(key, partition.log_start_offset)
        elif error:
            if error not in self.retried:
                self.unexpected(f"Fetch {key}", error)
            session.told.pop(key, None)
            self._leaders.pop(key, None)
        elif partition.preferred_read_replica >= 0:
            nearer = self._brokers.get(partition.preferred_read_replica)
            if nearer is not None:
                self._nearer[key] = nearer
                self.loop.trace.cover("told of a nearer replica")
        else:
            if key in self._nearer and partition.records:
                self.loop.trace.cover("fetch from a follower")
            if not self.is_of_cluster:  # another leader may know less of it
                self.history.saw_high_watermark(self.name, key, partition.high_watermark, invoked_s)
            if self.isolation_level == READ_COMMITTED:
                self._read_committed(key, partition, polled)
            else:
                self._read(key, bytes(partition.records or b""), partition.high_watermark, polled)

    def _read(self, key: Key, data: bytes, high_watermark: int, polled: dict[Key, list[Position]]) -> None:
        try:
            positions = list(read_records(data, self.positions[key]))
        except Corrupt as corrupt:
            self.history.find("corrupt", (key, self.positions[key], str(corrupt)))
            return
        if positions:
            if positions[-1][0] >= high_watermark:
                self.history.find("beyond-high-watermark", (key, positions[-1][0], high_watermark))
            polled[key] = positions
            self.positions[key] = positions[-1][0] + 1

    def _read_committed(self, key: Key, partition: PartitionData, polled: dict[Key, list[Position]]) -> None:
        position = self.positions[key]
        try:
            positions, next_offset = read_committed_records(bytes(partition.records or b""), position, partition.aborted_transactions or ())
        except Corrupt as corrupt:
            self.history.find("corrupt", (key, position, str(corrupt)))
            return
        if next_offset > max(partition.last_stable_offset, position):
            self.history.find("beyond-last-stable-offset", (key, next_offset - 1, partition.last_stable_offset))
        if positions:
            polled[key] = positions
        self.positions[key] = next_offset

    def record(self, polled: dict[Key, list[Position]], invoked_s: float, **more: Any) -> None:
        if polled:
            self.operations_count += 1
            self.history.add(self.name, "poll", "ok", [("poll", polled)], invoked_s, self.now_s, **more)
            self.note("read " + ", ".join(f"{t}-{p}@{got[0][0]}..{got[-1][0]}" for (t, p), got in polled.items()))


class Consumer(Fetcher):
    """Reads its partitions from their beginning, all of it in order; after a power cut it begins anew."""

    def __init__(self, *arguments: Any, keys: Iterable[Key], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.positions = dict.fromkeys(keys, 0)
        self._cuts_seen = 0
        self._has_lost_records = False

    async def run(self) -> None:
        while not self.is_stopping:
            if self._cuts_seen != len(self.history.power_cuts_s) or self._has_lost_records:
                self._begin_anew()
            invoked_s = self.now_s
            try:
                self.record(await self.fetch(), invoked_s)
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0, 0.02))

    def out_of_range(self, key: Key, log_start_offset: int) -> None:
        super().out_of_range(key, log_start_offset)
        self._has_lost_records = True  # what the same answer brought of other partitions counts before it begins anew

    def _begin_anew(self) -> None:
        self._has_lost_records = False
        self._cuts_seen = len(self.history.power_cuts_s)
        self.positions = dict.fromkeys(self.positions, 0)
        keys = list(self.positions)
        self.history.add(self.name, "assign", "ok", [], self.now_s, self.now_s, keys=keys, seek=True)


class FinalReader(Fetcher):
    """Reads whole partitions once everything is at rest."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.begun_in: dict[Key, int] = {}
        """The leader epoch in which the last read of a partition began."""

    async def read_all(self, keys: Iterable[Key]) -> dict[Key, list[Position]]:
        """Every record of `keys`. AssertionError when the broker does not let it get there."""
        found: dict[Key, list[Position]] = {}
        for key in keys:
            found[key] = await self.read_from(key, 0)
        return found

    async def read_from(self, key: Key, position: int) -> list[Position]:
        """Every record of one partition from `position` on."""
        end_offset = await self.end_offset(key)
        self.begun_in[key] = self.leader_epoch_of(key)
        self.positions = {key: position}
        self.reset_sessions()
        found: list[Position] = []
        may_end_early = not self.history.is_durable(key) and self.history.power_cuts_s  # at a hole (storage/recovery.py)
        for tries_count in range(FINAL_TRIES_MAX):
            if self.positions[key] >= end_offset or (may_end_early and tries_count > GAP_TRIES_MAX + len(found)):
                self.note(f"found {len(found)} records in {key[0]}-{key[1]}")
                return found
            try:
                found += (await self.fetch()).get(key, [])
            except LostError:
                await self.back_off()
            if "corrupt" in self.history.findings or "unexpected-error" in self.history.findings:
                return found
        self.history.find("unreadable", (key, self.positions[key], end_offset))
        return found

    async def end_offset(self, key: Key) -> int:
        """Of a partition: its high watermark, or its last stable offset for one that reads what is committed."""
        asked = ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)
        topics = [ListOffsetsTopic(name=key[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=self.isolation_level, topics=topics)
        error = 0
        for _ in range(FINAL_TRIES_MAX):
            try:
                response = await self.ask(request, LIST_OFFSETS_VERSION, await self.leader_of(key))
            except LostError:
                await self.back_off()
                continue
            answer = response.topics[0].partitions[0]
            error = answer.error_code
            if error == 0:
                return answer.offset  # type: ignore[no-any-return]
            await self.back_off()
        self.history.find("unreadable", (key, name_of(error)))
        return 0
