"""The steps of the fuzzer of admin operations against one broker."""

from __future__ import annotations

from typing import Any

from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.schema import Message
from tests.peers.differential import admin_steps as steps
from tests.peers.differential.admin_steps import AdminStep, Operation, Resource
from tests.peers.differential.fuzzer import Connection, await_that, by_name, plain
from tests.peers.differential.group_coordinator import await_coordinator
from tests.peers.differential.names import Names
from tests.support.process import ServerProcess

GROUPS = ("g", "h")
SUBSCRIPTIONS = ("m", "n")
BROKER_ID, EVERY_BROKER = "1", ""

LEFT_OUT = {"cluster_id", "port", "log_dir", "usable_bytes", "total_bytes", "documentation", "log_append_time_ms"}
"""What two brokers cannot have alike, or is not meant to be alike: docs of configs say what has an effect here."""
OWN_CONFIGS = {
    "advertised.listeners", "controller.listener.names", "controller.quorum.voters", "listeners", "log.dir", "log.dirs", "metadata.log.dir",
    "process.roles", "listener.security.protocol.map", "controller.quorum.bootstrap.servers", "inter.broker.listener.name",
}  # fmt: skip
"""What each broker was started with of its own."""
OURS_ALONE = "barnabas."
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT = 1, 2, 3
NAMING = ("resource_type", "resource_name", "name", "topic", "partition_index", "partition_id", "group_id", "feature")
EARLIEST, LATEST = -2, -1


class AdminSession:
    """See Session. What the broker itself was configured to in the session before is taken back at the begin."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._names = Names(namespace)
        self._connection = Connection(server)
        await_coordinator(self._connection, namespace)
        self._reset_broker()

    def close(self) -> None:
        topics = tuple(topic.name.removeprefix(f"{self._names.namespace}-") for topic in self._topics())
        self._ask(steps.DeleteTopics(topics))
        self._connection.close()

    def _reset_broker(self) -> None:
        for name in (BROKER_ID, EVERY_BROKER):
            is_own = DYNAMIC_BROKER if name else DYNAMIC_DEFAULT
            configs = self._ask(steps.DescribeConfigs(((Resource.BROKER, name),))).results[0].configs
            set_keys = [each.name for each in configs if any(synonym.source == is_own for synonym in each.synonyms)]
            if set_keys:
                changes = tuple((key, Operation.DELETE, None) for key in set_keys)
                self._ask(steps.IncrementalAlterConfigs(((Resource.BROKER, name, changes),)))
        await_that(lambda: not self._broker_configs(), f"{self._broker_configs()} stay")

    def run(self, step: AdminStep) -> Any:
        answer = self._ask(step)
        if isinstance(answer, CreateTopicsResponse) and step.version >= 7:
            self._names.learn(answer.topics)
        if isinstance(step, steps.ListConfigResources):
            answer.config_resources = [each for each in answer.config_resources if self._is_listed(each)]
        return self._plain(answer)

    def _is_listed(self, resource: Any) -> bool:
        return self._is_mine(resource.resource_name) or resource.resource_type in (Resource.BROKER, Resource.LOGGER)

    def _ask(self, step: AdminStep) -> Any:
        return self._connection.ask(step.message(self._names), step.version)

    # What others see.

    def describe(self) -> Any:
        """All but the configs that nobody has changed."""
        topics = self._topics()
        return self._plain(
            {
                "topics": topics,
                "offsets": self._offsets(topics),
                "configs": [
                    {"of": result.resource_name, "are": [each for each in result.configs if _is_changed(each)]}
                    for result in self._configs(topics)
                ],
                "broker": self._broker_configs(),
                "groups": [self._ask(steps.FetchOffsets(name)) for name in GROUPS],
            }
        )

    def log(self) -> Any:
        """Everything."""
        topics = self._topics()
        names = tuple(topic.name.removeprefix(f"{self._names.namespace}-") for topic in topics)
        brokers = steps.DescribeConfigs(((Resource.BROKER, BROKER_ID), (Resource.BROKER, EVERY_BROKER)))
        return self._plain(
            {
                "topics": topics,
                "offsets": self._offsets(topics),
                "configs": self._configs(topics),
                "brokers": self._ask(brokers),
                "listed": self.run(steps.ListConfigResources()),
                "partitions": self._ask(steps.DescribeTopicPartitions(names)) if names else None,
                "reassignments": self._ask(steps.ListReassignments(None)),
            }
        )

    def _topics(self) -> list[Any]:
        """What Metadata says of those of the namespace."""
        answer = self._connection.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        found = [topic for topic in answer.topics if self._is_mine(topic.name)]
        self._names.learn(found)
        return found

    def _is_mine(self, name: str) -> bool:
        return name.startswith(f"{self._names.namespace}-")

    def _offsets(self, topics: list[Any]) -> Any:
        return [self._connection.ask(_listing(topics, timestamp), 7) for timestamp in (EARLIEST, LATEST)] if topics else []

    def _configs(self, topics: list[Any]) -> list[Any]:
        resources: list[tuple[int, str]] = []
        resources += [(Resource.TOPIC, topic.name.removeprefix(f"{self._names.namespace}-")) for topic in topics]
        resources += [(Resource.GROUP, name) for name in GROUPS]
        resources += [(Resource.METRICS, name) for name in SUBSCRIPTIONS]
        results: list[Any] = self._ask(steps.DescribeConfigs(tuple(resources))).results
        return results

    def _broker_configs(self) -> list[Any]:
        """Those that have been changed, of this one and of all."""
        answer = self._ask(steps.DescribeConfigs(((Resource.BROKER, BROKER_ID), (Resource.BROKER, EVERY_BROKER))))
        return [
            each
            for result in answer.results
            for each in result.configs
            if any(synonym.source in (DYNAMIC_BROKER, DYNAMIC_DEFAULT) for synonym in each.synonyms)
        ]

    def _plain(self, answer: Any) -> Any:
        return by_name(plain(_without_own_configs(answer), names=self._names.by_id, left_out=LEFT_OUT))


def _is_changed(config: Any) -> bool:
    return any(synonym.source not in (4, 5) for synonym in config.synonyms)


def _listing(topics: list[Any], timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsPartition(partition_index=partition.partition_index, timestamp=timestamp) for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _without_own_configs(value: Any) -> Any:
    """Without the configs that each broker has of its own, wherever they are listed."""
    if isinstance(value, Message):
        for name in value.__slots__:
            setattr(value, name, _without_own_configs(getattr(value, name)))
    elif isinstance(value, list):
        return [_without_own_configs(each) for each in value if not _is_own_config(each)]
    elif isinstance(value, dict):
        return {key: _without_own_configs(each) for key, each in value.items()}
    return value


def _is_own_config(value: Any) -> bool:
    name = getattr(value, "name", None) if hasattr(value, "config_source") else None
    return isinstance(name, str) and (name in OWN_CONFIGS or name.startswith(OURS_ALONE))
