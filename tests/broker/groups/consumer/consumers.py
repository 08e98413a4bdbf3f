"""Members of KIP-848 groups on a Transcript: each heartbeat and what was stored come out as lines to compare.

    consumers = Consumers()
    consumers.join("a")
    consumers.expect("log: member a t", ..., "a epoch=2 owns t:0,1")

Time stamps of assignments are left out of the lines, and hashes. Group "g" throughout.
"""

from __future__ import annotations

from typing import Any

from broker.groups.client_info import ClientInfo
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import MemberState
from broker.groups.record_table import GROUP_RECORDS
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from protocol.messages.stored import consumer_group_records as values
from protocol.messages.stored import group_records as keys
from protocol.messages.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
)
from protocol.messages.stored.version_prefix import encode_with_version
from tests.broker.groups.transcript import Transcript, error_name

REBALANCE_TIMEOUT_MS = 60_000


class Consumers(Transcript):
    """See the module's docstring. Keyword arguments are GroupConfig's; assignments are not batched unless they say so."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**({"consumer_assignment_interval_ms": 0} | config))
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[bytes, list[int]]] = {}
        """What each member was last told to own, which it does at once."""

    # Requests.

    def join_consumer(self, name: str, topics: str = "t", **fields: Any) -> None:
        """Member `name` joins with everything that a join tells."""
        self.owned[name] = {}
        self.beat(
            name,
            **(
                {
                    "member_epoch": 0,
                    "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                    "subscribed_topic_names": topics.split(",") if topics else [],
                    "topic_partitions": [],
                }
                | fields
            ),
        )

    def beat(self, name: str, **fields: Any) -> None:
        """A heartbeat of what changed, by default nothing but time."""
        request = ConsumerGroupHeartbeatRequest(**({"group_id": "g", "member_id": name, "member_epoch": self.epochs.get(name, 0)} | fields))
        version = 1
        client = ClientInfo(version, f"client-{name}", "127.0.0.1")
        self._call(
            lambda: self.coordinator.consumer_group_heartbeat(client, request), lambda response: self._show_heartbeat(name, response)
        )

    def acknowledge(self, name: str) -> None:
        """A heartbeat that tells what the member owns."""
        self.beat(
            name,
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in self.owned[name].items()
            ],
        )

    def leave_consumer(self, name: str, epoch: int = -1, **fields: Any) -> None:
        self.beat(name, member_epoch=epoch, **fields)

    # Members that speak the classic protocol.

    def join_classic(self, name: str, topics: str = "t", owned: str | None = None, **fields: Any) -> None:
        """A JoinGroup that says what the member owns ("t:0,1 u:0"), as one does that keeps it through a rebalance."""
        subscription = ConsumerProtocolSubscription(topics=topics.split(","), owned_partitions=topic_partitions(owned or ""))
        self.join(name, subscription=encode_with_version(subscription, 0 if owned is None else 1), **fields)

    def classic_group(self, **shares: str) -> None:
        """A group "g" in generation 1 whose members, the first the leader, have these partitions; what comes out is skipped."""
        for name in shares:
            self.join_classic(name)
        self.advance(self.config.initial_rebalance_delay_ms * (len(shares) + 1))
        assignments = {
            name: encode_with_version(ConsumerProtocolAssignment(assigned_partitions=topic_partitions(share)), 0)
            for name, share in shares.items()
        }
        for name in shares:
            self.sync(name, **assignments if name == next(iter(shares)) else {})
        self.skip()

    def settle(self, *names: str) -> None:
        """Heartbeats of all until nothing changes; what comes out is skipped."""
        for _ in range(10):
            before = len(self.log.batches)
            for name in names:
                self.acknowledge(name)
            if len(self.log.batches) == before:
                break
        else:
            raise AssertionError("the group does not settle")
        self.skip()

    def shares(self) -> dict[str, str]:
        """What each member owns as the group has it."""
        return {name: self._partitions(member.assigned) for name, member in sorted(self.group.members.items())}

    @property
    def group(self) -> ConsumerGroup:
        found = self.coordinator.runtime.get_shard("g").machine.find_consumer_group("g")
        assert found is not None, "there is no consumer group g"
        return found

    # What came out.

    def _show_heartbeat(self, name: str, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code:
            self._line(f"{name} {error_name(response.error_code)}")
            return
        self.epochs[name] = response.member_epoch
        line = f"{name} epoch={response.member_epoch}"
        if response.assignment is not None:
            self.owned[name] = {topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions}
            line += " owns " + self._partitions(self.owned[name])
        self._line(line)

    def _partitions(self, partitions: Any) -> str:
        names = {topic_id: self._topic_name(topic_id) for topic_id in partitions}
        shown = sorted(f"{names[topic_id]}:{','.join(map(str, sorted(numbers)))}" for topic_id, numbers in partitions.items())
        return " ".join(shown) or "nothing"

    def _topic_name(self, topic_id: bytes) -> str:
        topic = self.metadata.find_topic_by_id(topic_id)
        return "?" if topic is None else topic.name

    def _show_assigned(self, assignment: bytes) -> str:
        if not assignment:
            return ""
        topics = decode_assignment(assignment).assigned_partitions
        return " ".join(sorted(f"{topic.topic}:{','.join(map(str, topic.partitions))}" for topic in topics)) or "nothing"

    def _show_record(self, key: bytes | None, value: bytes | None) -> str:
        record = GROUP_RECORDS.decode(key, value)
        stored = record.value
        match record.key:
            case keys.ConsumerGroupMetadataKey():
                return "group gone" if stored is None else f"group epoch={stored.epoch}"
            case keys.ConsumerGroupMemberMetadataKey(member_id=member):
                return f"member {member} gone" if stored is None else self._show_member(member, stored)
            case keys.ConsumerGroupTargetAssignmentMetadataKey():
                return "targets gone" if stored is None else f"targets epoch={stored.assignment_epoch}"
            case keys.ConsumerGroupTargetAssignmentMemberKey(member_id=member):
                if stored is None:
                    return f"target {member} gone"
                return f"target {member} " + self._partitions({topic.topic_id: topic.partitions for topic in stored.topic_partitions})
            case keys.ConsumerGroupCurrentMemberAssignmentKey(member_id=member):
                return f"assignment {member} gone" if stored is None else self._show_assignment(member, stored)
            case keys.ConsumerGroupPartitionMetadataKey():
                return "partition metadata gone" if stored is None else "partition metadata"
            case keys.ConsumerGroupRegularExpressionKey(regular_expression=regex):
                return f"regex {regex} gone" if stored is None else f"regex {regex} {','.join(stored.topics)}"
        return super()._show_record(key, value)

    @staticmethod
    def _show_member(member: str, stored: values.ConsumerGroupMemberMetadataValue) -> str:
        shown = [f"member {member}", ",".join(stored.subscribed_topic_names)]
        shown += [f"instance={stored.instance_id}"] if stored.instance_id is not None else []
        shown += [f"regex={stored.subscribed_topic_regex}"] if stored.subscribed_topic_regex else []
        shown += [f"assignor={stored.server_assignor}"] if stored.server_assignor is not None else []
        shown += ["classic"] if stored.classic_member_metadata is not None else []
        return " ".join(shown).rstrip()

    def _show_assignment(self, member: str, stored: values.ConsumerGroupCurrentMemberAssignmentValue) -> str:
        line = (
            f"assignment {member} {MemberState(stored.state).name} epoch={stored.member_epoch} after={stored.previous_member_epoch} owns "
            + self._partitions({topic.topic_id: topic.partitions for topic in stored.assigned_partitions})
        )
        if stored.partitions_pending_revocation:
            line += " revokes " + self._partitions({topic.topic_id: topic.partitions for topic in stored.partitions_pending_revocation})
        return line


def topic_partitions(text: str) -> list[TopicPartition]:
    """ "t:0,1 u:0" as the consumer protocol has it."""
    pairs = [topic.split(":") for topic in text.split()]
    return [TopicPartition(topic=name, partitions=[int(number) for number in numbers.split(",")]) for name, numbers in pairs]
