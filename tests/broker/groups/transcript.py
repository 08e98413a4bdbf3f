"""A group coordinator in a bottle: requests and time go in, replies and stored records come out as lines to compare.

    script = Transcript(initial_rebalance_delay_ms=3000)
    script.join("a")
    script.advance(3000)
    script.expect("a join generation=1 leader=a members=a protocol=range")

Everything is real (coordinator, shard, state machines, record batches, metadata cache) but the clock and the log, which is a list
of batches. `restart()` is a crash: a new coordinator on the same log, nothing else survives. Members have short names; where a
member id would stand in a line, its name does. One group, "g", unless said otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from broker.groups.classic.classic_group import ClassicGroup
from broker.groups.client_info import ClientInfo
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_config import GroupConfig
from broker.groups.record_table import GROUP_RECORDS
from broker.loop.deferred import Deferred
from broker.loop.turns import at_once_or_in_turns
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.network.answer_size import AnswerSize
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.stored.consumer_protocol import ConsumerProtocolSubscription
from protocol.messages.stored.group_records import GroupMetadataValue, OffsetCommitKey
from protocol.messages.stored.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records import iterate_records, read_control_type, read_header
from protocol.uuids import ZERO_UUID
from storage.markers import TransactionMarker
from tests.broker.coordination.memory_log import MemoryLog
from tests.support.clock import ManualClock
from tests.support.turns import started


class Transcript:
    """See the module's docstring. Keyword arguments are GroupConfig's."""

    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.config = GroupConfig(**({"initial_rebalance_delay_ms": 0} | config))
        state = ClusterState()
        self.metadata = MetadataCache(state, cluster_id="c", node_id=1, config=ServerConfig())
        self.member_ids: dict[str, str] = {}
        self.on_line: Callable[[str], None] = lambda line: None
        """Called with each line as it comes out, from the inside of whatever gives the answer."""
        self._lines: list[str] = []
        self._waiting: list[Deferred] = []
        self._shown_batches = 0
        self._restarts = 0
        self.create_topic("__consumer_offsets")
        self.create_topic("t", partitions=2)
        self.coordinator = self._start()
        self.metadata.subscribe(lambda delta: self.coordinator.on_metadata_delta(delta))
        self.advance(0)

    def _start(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.config, self.log, self.clock, random.Random(self._restarts), self.metadata)
        coordinator.start()
        coordinator.runtime.on_elected(0, self._restarts)
        return coordinator

    # Around the coordinator.

    def restart(self, *, is_loaded: bool = True) -> None:
        """Crash: timers, waiting requests and all memory are gone; the log is read again (when time next moves).

        What is in it and not committed is waited for as long as a commit may take."""
        for timer in self.clock.pending_timers:
            timer.cancel()
        self._restarts += 1
        self._waiting = []
        self.coordinator = self._start()
        if is_loaded:
            self.advance(0 if self.log.high_watermark == self.log.next_offset else self.config.commit_timeout_ms)

    def append_foreign(self, batch: bytearray) -> None:
        """Put a batch into the log that another writer made, Apache Kafka for one; it is not shown. Committed unless the log is holding."""
        self._show_records()
        self.log.append_batch(batch)
        if not self.log.is_holding:
            self.log.high_watermark = self.log.next_offset
        self._shown_batches += 1

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    def take_turn(self) -> None:
        """One turn of the loop, in which a piece of a job is the first thing to be done."""
        timer = self.clock.pending_timers[0]
        timer.cancel()
        timer.fire()

    def create_topic(self, name: str, partitions: int = 1, *, topic_id: bytes | None = None) -> None:
        topic_id = topic_id or name.encode().ljust(16, b"\0")[-16:]
        records: list[Any] = [TopicRecord(name=name, topic_id=topic_id)]
        for partition in range(partitions):
            records.append(
                PartitionRecord(
                    partition_id=partition, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
                )
            )
        self.metadata.end_offset += len(records)
        self.metadata.apply_committed(records)

    def delete_topic(self, name: str) -> None:
        topic = self.metadata.find_topic(name)
        assert topic is not None
        self.metadata.apply_committed([RemoveTopicRecord(topic_id=topic.topic_id)])

    # Requests.

    def join(self, name: str, *, version: int = 3, instance: str | None = None, protocols: str = "range", **fields: Any) -> None:
        """A JoinGroup of member `name`, under the id it was last given. Version 3 needs no second round for the id (KIP-394)."""
        client = ClientInfo(version, name, "127.0.0.1")
        subscribed = encode_with_version(ConsumerProtocolSubscription(topics=fields.pop("topics", ["t"])), 0)
        subscription = fields.pop("subscription", subscribed)
        protocol_type = fields.pop("protocol_type", "consumer")
        request = JoinGroupRequest(
            **{
                "group_id": "g",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "member_id": self.member_ids.get(name, ""),
                "group_instance_id": instance,
                "protocol_type": protocol_type,
                "protocols": [
                    JoinGroupRequestProtocol(name=protocol, metadata=subscription if protocol_type == "consumer" else protocol.encode())
                    for protocol in protocols.split(",")
                ],
            }
            | fields
        )
        self._call(lambda: self.coordinator.join(client, request), lambda response: self._show_join(name, response))

    def sync(self, name: str, *, generation: int = 1, instance: str | None = None, **assignments: str | bytes) -> None:
        """A SyncGroup; the leader gives `member=assignment` for each member."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=self.member_ids.get(name, name),
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.member_ids[member], assignment=assignment.encode() if isinstance(assignment, str) else assignment
                )
                for member, assignment in assignments.items()
            ],
        )
        self._call(lambda: self.coordinator.sync(request), lambda response: self._show_sync(name, response))

    def heartbeat(self, name: str, *, generation: int = 1, instance: str | None = None) -> None:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=self.member_ids.get(name, name), group_instance_id=instance
        )
        self._call(
            lambda: self.coordinator.heartbeat(request), lambda response: self._line(f"{name} heartbeat {error_name(response.error_code)}")
        )

    def leave(self, *names: str, instances: tuple[str, ...] = ()) -> None:
        members = [MemberIdentity(member_id=self.member_ids.get(name, name)) for name in names]
        members += [MemberIdentity(member_id="", group_instance_id=instance) for instance in instances]
        request = LeaveGroupRequest(group_id="g", members=members)
        self._call(
            lambda: self.coordinator.leave(request),
            lambda response: self._line(
                f"leave {error_name(response.error_code)} " + " ".join(error_name(member.error_code) for member in response.members)
            ),
        )

    def commit(self, offset: int, name: str = "", *, generation: int = -1, partition: int = 0, version: int = 8, **fields: Any) -> None:
        """An OffsetCommit for t-`partition`; without a member it is that of a simple consumer."""
        request = OffsetCommitRequest(
            group_id=fields.pop("group_id", "g"),
            generation_id_or_member_epoch=generation,
            member_id=self.member_ids.get(name, name),
            retention_time_ms=fields.pop("retention_time_ms", -1),
            group_instance_id=fields.pop("instance", None),
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=fields.pop("metadata", "")
                        )
                    ],
                )
            ],
        )
        self._call(
            lambda: self.coordinator.commit_offsets(request, version),
            lambda response: self._line(f"commit {offset} {error_name(response.topics[0].partitions[0].error_code)}"),
        )

    def commit_in_transaction(
        self, offset: int, producer_id: int = 9, name: str = "", *, generation: int = -1, partition: int = 0, **fields: Any
    ) -> None:
        """A TxnOffsetCommit for t-`partition`; without a member it is that of a producer of old."""
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=fields.pop("group_id", "g"),
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=self.member_ids.get(name, name),
            group_instance_id=fields.pop("instance", None),
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=fields.pop("metadata", "")
                        )
                    ],
                )
            ],
        )
        assert not fields, fields
        self._call(
            lambda: self.coordinator.commit_transactional_offsets(
                request, self.coordinator.start_verification(request, supports_epoch_bump=False)
            ),
            lambda response: self._line(f"commit {offset} of {producer_id} {error_name(response.topics[0].partitions[0].error_code)}"),
        )

    def end_transaction(self, producer_id: int = 9, *, is_commit: bool = True) -> None:
        """The marker comes, as WriteTxnMarkers brings it."""
        marker = TransactionMarker(producer_id, 1, 0, is_commit, 2)
        self._call(
            lambda: self.coordinator.complete_transaction(0, marker), lambda error: self._line(f"end of {producer_id} {error_name(error)}")
        )

    def fetch(self, *partitions: int, require_stable: bool = False, topic_id: bytes = ZERO_UUID) -> None:
        """An OffsetFetch of these partitions of t, of that id where it is given, or of all that the group has."""
        topics = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=list(partitions))] if partitions else None
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        reads = self.coordinator.offset_reads(AnswerSize(), require_stable=require_stable)
        self._call(lambda: started(at_once_or_in_turns(reads.read(group))), self._show_fetch)

    def _call(self, request: Callable[[], Any], show: Callable[[Any], None]) -> None:
        def answered(response: Any) -> None:
            if isinstance(response, KafkaError):
                self._line(f"error {response.code.name}")
            else:
                show(response)

        try:
            response = request()
        except KafkaError as e:
            response = e
        if isinstance(response, Deferred):
            self._waiting.append(response)
            response.when_done(answered)
        else:
            answered(response)

    # What came out.

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The groups as they are in memory, uncommitted ones too."""
        return {
            group_id: group
            for shard in self.coordinator.runtime.get_active_shards()
            for group_id, group in shard.machine.group_manager.groups.items()
        }

    @property
    def unanswered_count(self) -> int:
        """How many requests to the present coordinator still wait."""
        return sum(not reply.is_done for reply in self._waiting)

    @property
    def lines(self) -> list[str]:
        """What came out since the last `expect`, with members' names for the ids that they have now."""
        self._show_records()
        shown = self._lines
        for name, member_id in self.member_ids.items():
            shown = [line.replace(member_id, name) for line in shown]
        return shown

    def expect(self, *lines: str) -> None:
        """Exactly these lines came out since the last `expect`: answers and stored records, in order."""
        found = self.lines
        self._lines = []
        assert found == list(lines), "\n".join(["what came out:", *found, "what was expected:", *lines])

    def expect_last(self, *lines: str) -> None:
        """The last lines are these; what came before is not looked at."""
        self._show_records()
        self._lines = self._lines[-len(lines) :]
        self.expect(*lines)

    def skip(self) -> None:
        """What came out so far is another test's concern."""
        self._show_records()
        self._lines = []

    def _line(self, text: str) -> None:
        self._show_records()
        self._lines.append(text.rstrip())
        self.on_line(text)

    def _show_join(self, name: str, response: JoinGroupResponse) -> None:
        if response.member_id:
            self.member_ids[name] = response.member_id
        if response.error_code:
            self._line(f"{name} join {error_name(response.error_code)}")
            return
        members = ",".join(member.member_id for member in response.members)
        self._line(
            f"{name} join generation={response.generation_id} leader={response.leader}"
            + (f" members={members}" if members else "")
            + f" protocol={response.protocol_name}"
            + (" skip" if response.skip_assignment else "")
        )

    def _show_sync(self, name: str, response: SyncGroupResponse) -> None:
        outcome = error_name(response.error_code) if response.error_code else f"assignment={self._show_assigned(response.assignment)}"
        self._line(f"{name} sync {outcome}")

    def _show_fetch(self, response: Any) -> None:
        offsets = [
            f"{topic.name}-{found.partition_index}={error_name(found.error_code) if found.error_code else found.committed_offset}"
            + (f"({found.metadata})" if found.metadata else "")
            for topic in response.topics
            for found in topic.partitions
        ]
        self._line("fetch " + " ".join(offsets or ["nothing"]))

    def _show_records(self) -> None:
        batches, self._shown_batches = self.log.batches[self._shown_batches :], len(self.log.batches)
        for batch in batches:
            header = read_header(batch)
            if header.is_control:
                control_type = read_control_type(batch, 0, header)
                self._lines.append(f"log: {'nothing' if control_type is None else control_type.name} of {header.producer_id}")
                continue
            of_producer = f" of {header.producer_id}" if header.is_transactional else ""
            for stored in iterate_records(batch):
                self._lines.append("log: " + self._show_record(stored.key, stored.value) + of_producer)

    def _show_record(self, key: bytes | None, value: bytes | None) -> str:
        record = GROUP_RECORDS.decode(key, value)
        if isinstance(record.key, OffsetCommitKey):
            offset = "deleted" if record.value is None else record.value.offset
            return f"{record.key.topic}-{record.key.partition}={offset}"
        if not isinstance(record.value, GroupMetadataValue):
            return "group deleted"
        members = [f"{member.member_id}={self._show_assigned(member.assignment)}" for member in record.value.members]
        return " ".join([f"group generation={record.value.generation}", *members])

    def _show_assigned(self, assignment: bytes) -> str:
        """What a classic member is told to own."""
        return assignment.decode()


def error_name(code: int) -> str:
    return "OK" if code == 0 else ErrorCode(code).name


def stable_group(*names: str, **config: int) -> Transcript:
    """A group "g" in generation 1 whose members, the first the leader, have their assignment: each its own name in capitals."""
    script = Transcript(**({"initial_rebalance_delay_ms": 1000} | config))
    for name in names:
        script.join(name)
    script.advance(script.config.initial_rebalance_delay_ms * (len(names) + 1))
    script.sync(names[0], **{name: name.upper() for name in names})
    for name in names[1:]:
        script.sync(name)
    for name in names:
        script.heartbeat(name)
    script.skip()
    return script
