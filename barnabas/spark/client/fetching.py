"""Reads a range of offsets of a partition, batch by batch. The next request is under way while a caller works on what came.

Source: org.apache.kafka.clients.consumer.internals.CompletedFetch (aborted transactions).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from ...protocol.errors import DecodeError, ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.records import (
    MAGIC_V2,
    ControlRecordType,
    crc_is_valid,
    iterate_headers,
    read_control_type,
    read_payload,
)
from ..errors import BrokerError
from ..records.decode import Payload
from .cluster import BACKOFF_S, RETRIED, Cluster, describe
from .connection import Connection

FETCH_BYTES = 16 << 20
WAIT_MS = 500
EARLIEST, LATEST = -2, -1


class Isolation(IntEnum):
    """The codes of Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetError(BrokerError):
    """The partition does not have the offset: it was deleted, or was never there."""


class DamagedError(BrokerError):
    """A batch is not what its CRC or its header says."""


def list_offsets(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[int, int]:
    """The first offset at or after `timestamp` (ms, or EARLIEST or LATEST) of each partition; -1 if there is none. Raises BrokerError."""
    found: dict[int, int] = {}
    deadline_s = time.monotonic() + cluster.deadline_s
    why = ""
    while missing := [partition for partition in partitions if partition not in found]:
        if why and time.monotonic() > deadline_s:
            raise BrokerError(f"the offsets of {topic} were not told within {cluster.deadline_s:.0f} s: {why}")
        by_leader: dict[int, list[int]] = {}
        for partition in missing:
            by_leader.setdefault(cluster.leader(topic, partition), []).append(partition)
        for leader, led in by_leader.items():
            asked = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in led]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
            try:
                if leader < 0:
                    raise OSError(f"{topic} has partitions without a leader")
                for each in cluster.ask_node(leader, request).topics[0].partitions:
                    if not each.error_code:
                        found[each.partition_index] = each.offset
                    elif each.error_code in RETRIED:
                        why = describe(each.error_code)
                    else:
                        raise BrokerError(f"the offsets of {topic}-{each.partition_index}: {describe(each.error_code)}")
            except OSError as error:
                why = str(error)
        if len(found) < len(partitions):
            time.sleep(BACKOFF_S)
            _refresh(cluster, topic)
    return found


class RangeReader:
    """Reads the offsets from `start` to `end` (exclusive) of one partition."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, *, start: int, end: int, isolation: Isolation) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._end = end
        self._isolation = isolation
        self.position = start
        self._aborting: set[int] = set()  # producer ids whose records are skipped, up to their markers
        self._asked: tuple[Connection, int] | None = None  # the request under way

    def __iter__(self) -> Iterator[list[Payload]]:
        """Yields the data batches of each answer, uncompressed, those of aborted transactions left out under READ_COMMITTED. The first and
        the last batch may reach beyond the range. Raises OffsetError, DamagedError, BrokerError."""
        try:
            yield from self._read()
        finally:
            if self._asked is not None:
                self._asked[0].forget(self._asked[1])

    def _read(self) -> Iterator[list[Payload]]:
        failing_since_s: float | None = None
        while self.position < self._end:
            try:
                if self._asked is None:
                    self._asked = self._send()
                connection, number = self._asked
                answer = connection.receive(number).responses[0].partitions[0]
                self._asked = None
            except OSError as error:
                if self._asked is not None:
                    self._cluster.drop(self._asked[0])
                    self._asked = None
                failing_since_s = self._fail(failing_since_s, str(error))
                continue
            if answer.error_code in RETRIED:
                failing_since_s = self._fail(failing_since_s, describe(answer.error_code))
                continue
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetError(f"{self._topic}-{self._partition} has no offset {self.position}: it begins at {self._log_start()}")
            if answer.error_code:
                raise BrokerError(f"{self._topic}-{self._partition} cannot be read: {describe(answer.error_code)}")
            failing_since_s = None
            before = self.position
            batches = self._cut(answer)
            if self.position == before and answer.last_stable_offset >= self._end:
                self.position = self._end  # nothing is left of the range: compaction has removed its last records
            elif self.position < self._end:
                try:
                    self._asked = self._send()
                except OSError:
                    pass  # the next turn tries again
            if batches:
                yield [self._payload(view, header) for view, header in batches]

    def _send(self) -> tuple[Connection, int]:
        leader = self._cluster.leader(self._topic, self._partition)
        if leader < 0:
            raise OSError("the partition has no leader")
        connection = self._cluster.connection(leader)
        asked = FetchPartition(partition=self._partition, fetch_offset=self.position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self._topic, partitions=[asked])],
        )
        try:
            return connection, connection.send(request)
        except OSError:
            self._cluster.drop(connection)
            raise

    def _fail(self, since_s: float | None, why: str) -> float:
        now_s = time.monotonic()
        if since_s is not None and now_s - since_s > self._cluster.deadline_s:
            raise BrokerError(f"{self._topic}-{self._partition} could not be read for {self._cluster.deadline_s:.0f} s: {why}")
        time.sleep(BACKOFF_S)
        _refresh(self._cluster, self._topic)
        return now_s if since_s is None else since_s

    def _cut(self, answer: Any) -> list[tuple[memoryview, Any]]:
        """The data batches of an answer that are to be read; moves the position behind the last one."""
        if not answer.records:
            return []
        data = memoryview(answer.records)
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        found = []
        try:
            for at, header in iterate_headers(data):
                end = at + header.size_bytes
                if header.magic != MAGIC_V2:
                    raise DamagedError(f"{self._where(header.base_offset)} has records of format {header.magic}: only 2 can be read")
                if not crc_is_valid(data, at, header.size_bytes):
                    raise DamagedError(f"{self._where(header.base_offset)}: the CRC does not fit")
                while aborted and aborted[0][0] <= header.last_offset:
                    self._aborting.add(aborted.pop(0)[1])
                self.position = max(self.position, header.next_offset)
                if header.is_control:
                    if self._isolation and read_control_type(data, at, header) == ControlRecordType.ABORT:
                        self._aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in self._aborting):
                    found.append((data[at:end], header))
        except DecodeError as error:
            raise DamagedError(f"{self._where(self.position)}: {error}") from error
        return found

    def _payload(self, batch: memoryview, header: Any) -> Payload:
        try:
            return Payload(header, read_payload(batch, 0, header))
        except DecodeError as error:
            raise DamagedError(f"{self._where(header.base_offset)}: {error}") from error

    def _where(self, offset: int) -> str:
        return f"the batch at offset {offset} of {self._topic}-{self._partition}"

    def _log_start(self) -> int:
        return list_offsets(self._cluster, self._topic, [self._partition], EARLIEST)[self._partition]


def _refresh(cluster: Cluster, topic: str) -> None:
    try:
        cluster.refresh((topic,))
    except OSError:
        pass  # until the caller's deadline
