"""A topic that is deleted and made anew under its name, again and again, while its replicas move and brokers come and go.

What holds of each of its lives, which its topic id tells apart: nothing that was read in it was written in another one, and what was
acknowledged in the last one is there in the end. Replicas that differ the cluster's watch finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.simulation.clients import EPOCH_S, RETRIED, Address, Client
from tests.simulation.cluster_admin import draw_replicas
from tests.simulation.connection import LostError
from tests.simulation.consumers import Corrupt, read_records
from tests.simulation.history import Key

REBORN = "reborn"
KEY: Key = (REBORN, 0)
CONFIGS = {"flush.messages": "1", "min.insync.replicas": "2"}  # what is acknowledged outlives any one broker
PRODUCE_VERSION = FETCH_VERSION = 13  # by topic id
CREATE_VERSION, DELETE_VERSION, METADATA_VERSION, REASSIGN_VERSION, ELECT_VERSION = 7, 6, 12, 0, 2
TIMEOUT_MS = 1_500
READ_BYTES = 1 << 20
CHECK_TRIES_MAX = 500

_OF_THE_ID = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_MOVE_ANSWERS = RETRIED | _OF_THE_ID | {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
_ELECTION_ANSWERS = RETRIED | _OF_THE_ID | {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


class RebornClient(Client):
    """The topic's only admin and producer, and its reader. Acts by itself unless a script calls its methods, each of which returns whether
    it succeeded, and raises LostError."""

    def __init__(self, *arguments: Any, node_ids: list[int], find_away: Callable[[], list[int]], acts_by_itself: bool = True) -> None:
        """`find_away` tells which of the brokers `node_ids` are down: replicas are rather moved to others."""
        super().__init__(*arguments)
        self._node_ids = node_ids
        self._find_away = find_away
        self._acts_by_itself = acts_by_itself
        self._topic_id: bytes | None = None
        self._past_ids: set[bytes] = set()
        self._is_dying = False  # it was to be deleted, and whether it is was not told
        self._acknowledged: dict[int, str] = {}  # of this life, by offset
        self._values_count = 0

    async def run(self) -> None:
        """Ends with a topic that is there."""
        while not self.is_stopping or self._topic_id is None or self._is_dying:
            try:
                if self._acts_by_itself or self.is_stopping:
                    await self._step()
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0.02, 0.2))

    async def _step(self) -> None:
        what = self.draw.random()
        if self._topic_id is None:
            await self.make(self._draw_replicas())
        elif self._is_dying or what < 0.08:
            await self.delete()
        elif what < 0.2:
            await self.reassign(self._draw_replicas())
        elif what < 0.3:
            await self.elect()
        elif what < 0.4:
            await self.read()
        else:
            await self.write()

    def _draw_replicas(self) -> list[int]:
        return draw_replicas(self.draw, self._node_ids, self._find_away())

    # -- what an admin does ------------------------------------------------------------------------------------------

    async def make(self, replicas: Sequence[int]) -> bool:
        """The topic's next life, on these brokers."""
        topic = CreatableTopic(
            name=REBORN,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
        )
        self.operations_count += 1
        response = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CREATE_VERSION)
        error = response.topics[0].error_code
        self.note(f"made on {replicas}: {error}")
        if error == ErrorCode.NONE:
            self._begin(response.topics[0].topic_id)
        elif error == ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt has made it
            found = (await self._ask_metadata()).topics[0]
            if found.error_code == ErrorCode.NONE and found.topic_id not in self._past_ids:
                self._begin(found.topic_id)
        elif error not in RETRIED | {ErrorCode.INVALID_REPLICA_ASSIGNMENT}:
            self.unexpected(f"CreateTopics {REBORN}", error)
        return self._topic_id is not None

    def _begin(self, topic_id: bytes) -> None:
        self._topic_id = bytes(topic_id)
        self._acknowledged.clear()
        if self._past_ids:
            self.loop.trace.cover("topic made anew")

    async def delete(self) -> bool:
        """End this life."""
        assert self._topic_id is not None
        self._is_dying = True
        self.operations_count += 1
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=self._topic_id)], timeout_ms=TIMEOUT_MS)
        error = (await self.ask(request, DELETE_VERSION)).responses[0].error_code
        self.note(f"deleted: {error}")
        if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            self._past_ids.add(self._topic_id)
            self._topic_id, self._is_dying = None, False
        elif error not in RETRIED:
            self.unexpected(f"DeleteTopics {REBORN}", error)
        return self._topic_id is None

    async def reassign(self, replicas: Sequence[int]) -> bool:
        """Whether the move has begun."""
        partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=REBORN, partitions=[partition])])
        self.operations_count += 1
        response = await self.ask(request, REASSIGN_VERSION)
        error: int = response.error_code or response.responses[0].partitions[0].error_code
        self.note(f"reassigned to {replicas}: {error}")
        if error and error not in _MOVE_ANSWERS:
            self.unexpected(f"AlterPartitionReassignments {REBORN} {replicas}", error)
        return error == ErrorCode.NONE

    async def elect(self) -> bool:
        """The preferred leader."""
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=REBORN, partitions=[0])], timeout_ms=TIMEOUT_MS)
        self.operations_count += 1
        response = await self.ask(request, ELECT_VERSION)
        error = response.error_code or response.replica_election_results[0].partition_result[0].error_code
        if error not in _ELECTION_ANSWERS:
            self.unexpected(f"ElectLeaders {REBORN}", error)
        return error in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

    async def find_partition(self) -> MetadataResponsePartition | None:
        """As some broker knows it; None where it does not know this life yet."""
        topic = (await self._ask_metadata()).topics[0]
        return topic.partitions[0] if topic.topic_id == self._topic_id and topic.partitions else None

    async def _ask_metadata(self) -> Any:
        response = await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=REBORN)]), METADATA_VERSION)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    # -- what clients do ---------------------------------------------------------------------------------------------

    async def write(self) -> bool:
        """One record; whether it is acknowledged. An attempt whose outcome was not told may be there."""
        leader = await self._find_leader()
        self._values_count += 1
        value = f"{self._life}.{self._values_count}"
        records = build_batch([SimpleRecord(None, f"{value}:".encode(), timestamp=int((EPOCH_S + self.now_s) * 1000))])
        data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        topic = TopicProduceData(topic_id=self._topic_id, partition_data=[data])
        self.operations_count += 1
        response = await self.ask(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]), PRODUCE_VERSION, leader)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self._acknowledged[answer.base_offset] = value
        elif answer.error_code not in RETRIED | _OF_THE_ID:
            self.unexpected(f"Produce {REBORN}", answer.error_code)
        self.note(f"wrote {value}@{answer.base_offset}: {answer.error_code}")
        return answer.error_code == ErrorCode.NONE

    async def read(self) -> bool:
        return await self._read_all() is not None

    async def check(self) -> None:
        """At the end of a run, when nothing is in the way: all that was acknowledged is there."""
        for _ in range(CHECK_TRIES_MAX):
            try:
                found = await self._read_all()
            except LostError:
                found = None
            if found is not None:
                lost = {offset: value for offset, value in self._acknowledged.items() if found.get(offset) != value}
                if lost:
                    self.history.find("reborn-lost", (self._life, sorted(lost.items())[:4], len(found)))
                return
            await self.back_off()
        self.history.find("stuck", f"{REBORN} cannot be read")

    async def _read_all(self) -> dict[int, str] | None:
        """What is committed, by offset; None if the leader refuses."""
        leader = await self._find_leader()
        found: dict[int, str] = {}
        offset = 0
        while True:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=READ_BYTES)
            request = FetchRequest(max_wait_ms=0, max_bytes=READ_BYTES, topics=[FetchTopic(topic_id=self._topic_id, partitions=[asked])])
            response = await self.ask(request, FETCH_VERSION, leader)
            partition = response.responses[0].partitions[0] if response.responses else None
            error = response.error_code if partition is None else partition.error_code
            if partition is None or error:
                if error not in RETRIED | _OF_THE_ID:
                    self.unexpected(f"Fetch {REBORN}", error)
                return None
            if not partition.records:
                return found
            try:
                found.update(read_records(bytes(partition.records), offset))
            except Corrupt as error_text:
                self.history.find("corrupt", (KEY, str(error_text)))
                return None
            offset = max(found) + 1
            foreign = [(at, value) for at, value in found.items() if not value.startswith(self._life)]
            if foreign:
                self.history.find("reborn-foreign", (self._life, foreign[:4], leader))
                return found

    async def _find_leader(self) -> Address:
        partition = await self.find_partition()
        leader = None if partition is None else self._brokers.get(partition.leader_id)
        if leader is None:
            raise LostError(f"{REBORN} has no leader")
        return leader

    @property
    def _life(self) -> str:
        assert self._topic_id is not None
        return self._topic_id.hex()[:8]
