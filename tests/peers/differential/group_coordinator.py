"""What a fuzzer of groups needs of a broker beside the steps: topics and configs that the coordinator knows, and its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.groups.record_table import GROUP_RECORDS
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import iterate_headers, iterate_records
from tests.peers.differential.fuzzer import Connection, await_that

OFFSETS_TOPIC = "__consumer_offsets"
GROUP_RESOURCE = 32
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
INTERVAL_MS = (1_000, 1_001)
"""What the probe's heartbeat interval goes to and fro between."""


def await_coordinator(connection: Connection, group_id: str) -> None:
    """On Kafka the first search makes __consumer_offsets."""
    request = FindCoordinatorRequest(coordinator_keys=[group_id])
    await_that(lambda: connection.ask(request, 4).coordinators[0].error_code == 0, "there is no coordinator")


class GroupCoordinatorView:
    """Of the only shard of the broker, for groups and topics whose names begin with `namespace`."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._partition_counts: dict[str, int] = {}
        self._probe_count = 0
        self.topic_names: dict[bytes, str] = {}
        """By id, also of topics that were deleted."""
        await_coordinator(connection, namespace)
        self._log_offset = self._log_end_offset()
        self._records: dict[Any, Any] = {}

    # Topics.

    def create_topics(self, partition_counts: Mapping[str, int]) -> Any:
        """Also returns where they exist already."""
        topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in partition_counts.items()]
        answer = self._connection.ask(CreateTopicsRequest(topics=topics), 7)
        for topic in answer.topics:
            if topic.error_code == 0:
                self.topic_names[topic.topic_id] = topic.name
                self._partition_counts[topic.name] = partition_counts[topic.name]
            topic.configs = []  # the fuzzer of admin operations compares them
        self._await_topics()
        return answer

    def delete_topic(self, name: str) -> Any:
        answer = self._connection.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
        self._partition_counts.pop(name, None)
        self._await_topics(absent=name)
        return answer

    def grow_topic(self, name: str, count: int) -> Any:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        answer = self._connection.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3)
        if answer.results[0].error_code == 0:
            self._partition_counts[name] = count
        self._await_topics()
        return answer

    def _await_topics(self, absent: str | None = None) -> None:
        """Until the only member of a new group is assigned what there is."""
        await_that(
            lambda: self._probe_topics([*self._partition_counts, *([absent] if absent else [])]) == self._partition_counts,
            f"{self._partition_counts} are not assigned",
        )

    def _probe_topics(self, names: list[str]) -> dict[str | None, int]:
        self._probe_count += 1
        answer = self._join(f"{self._namespace}-probe-{self._probe_count}", names)
        assigned = answer.assignment.topic_partitions if answer.assignment else []
        return {self.topic_names.get(topic.topic_id): len(topic.partitions) for topic in assigned}

    def _join(self, group_id: str, topics: list[str]) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id="probe", rebalance_timeout_ms=60_000, subscribed_topic_names=topics, topic_partitions=[]
        )
        return self._connection.ask(request, 1)

    # Configs.

    def alter_group(self, group_id: str, key: str, value: str | None) -> Any:
        """Returns once the coordinator has taken over a later change of another group's."""
        answer = self._alter(group_id, AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value))
        self._probe_count += 1
        interval_ms = INTERVAL_MS[self._probe_count % 2]
        probe = f"{self._namespace}-probe-of-configs"
        self._alter(probe, AlterableConfig(name=HEARTBEAT_INTERVAL, config_operation=0, value=str(interval_ms)))
        await_that(lambda: self._join(probe, []).heartbeat_interval_ms == interval_ms, "the configs of groups are not taken over")
        return answer

    def _alter(self, group_id: str, config: AlterableConfig) -> Any:
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=[config])
        return self._connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    # Records.

    def records(self, group_id: str) -> dict[Any, Any]:
        """The last value of each key, of those that the group has had since the beginning: by the key's class, then its other fields."""
        end_offset = self._log_end_offset()
        while self._log_offset < end_offset:
            partition = FetchPartition(partition=0, fetch_offset=self._log_offset, partition_max_bytes=1 << 24)
            request = FetchRequest(topics=[FetchTopic(topic=OFFSETS_TOPIC, partitions=[partition])])
            fetched = self._connection.ask(request, 12).responses[0].partitions[0]
            data = fetched.records or b""
            assert data, f"{OFFSETS_TOPIC} has nothing at {self._log_offset} of {end_offset}: {fetched}"
            for position, header in iterate_headers(data):
                self._log_offset = header.next_offset
                for record in iterate_records(data, position):
                    decoded = GROUP_RECORDS.decode(record.key, record.value)
                    if getattr(decoded.key, "group_id", getattr(decoded.key, "group", "")) == group_id:
                        self._records[repr(decoded.key)] = decoded.value
        return {key: value for key, value in self._records.items() if value is not None}

    def _log_end_offset(self) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=OFFSETS_TOPIC, partitions=[partition])])
        answers: list[Any] = []

        def is_answered() -> bool:
            answers.append(self._connection.ask(request, 7).topics[0].partitions[0])
            return bool(answers[-1].error_code == 0)

        # Kafka's coordinator is there before its partition is led.
        await_that(is_answered, f"{OFFSETS_TOPIC} has no end")
        offset: int = answers[-1].offset
        return offset
