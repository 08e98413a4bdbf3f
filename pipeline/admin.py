"""Asks the brokers about topics. It uses the Java client of Spark's source and sink, so that one set of properties serves all three."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError, UsageError

TIMEOUT_MS = 20_000


class AdminError(PipelineError):
    """The brokers do not answer, or do not have what the job needs; the message is one line."""


class TopicAdmin:
    """A connection to the brokers, to be used in a `with` block. Each question ends within TIMEOUT_MS."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, properties: Mapping[str, str]) -> None:
        assert spark._jvm is not None, "the session's driver is this process"
        self._jvm: Any = spark._jvm
        self._bootstrap_servers = bootstrap_servers
        timeouts = {"request.timeout.ms": str(TIMEOUT_MS), "default.api.timeout.ms": str(TIMEOUT_MS)}
        java_properties = self._jvm.java.util.Properties()
        for name, value in {**properties, **timeouts, "bootstrap.servers": bootstrap_servers}.items():
            java_properties.setProperty(name, value)
        self._admin = self._ask(lambda: self._jvm.org.apache.kafka.clients.admin.Admin.create(java_properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._admin.close()

    def require_topic(self, topic: str) -> None:
        """Raises AdminError for a topic that does not exist. It asks for the list of topics: describing a missing one is retried until the
        timeout."""
        if not self._ask(lambda: self._admin.listTopics().names().get()).contains(topic):
            raise AdminError(f"topic {topic} does not exist at {self._bootstrap_servers}")

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises AdminError when it does not exist."""
        self.require_topic(topic)
        names = self._jvm.java.util.Collections.singletonList(topic)
        return int(self._ask(lambda: self._admin.describeTopics(names).allTopicNames().get().get(topic).partitions().size()))

    def cluster_id(self) -> str | None:
        """The cluster's id. None if the brokers do not have one."""
        cluster_id = self._ask(lambda: self._admin.describeCluster().clusterId().get())
        return None if cluster_id is None else str(cluster_id)

    def brokers(self) -> list[tuple[str, int]]:
        """Host and port of every live broker, as the cluster advertises them to clients of this listener."""
        nodes = self._ask(lambda: self._admin.describeCluster().nodes().get().toArray())
        return [(str(node.host()), int(node.port())) for node in nodes]

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The ids of the topics that exist. A topic that is deleted and created again gets another id. Empty for brokers without ids."""
        # The request names the topics: a cluster may have thousands, and each step of a loop through them is a call to the JVM.
        listings = self._ask(lambda: self._admin.listTopics().namesToListings().get())
        return {topic: str(listings.get(topic).topicId().toString()) for topic in topics if listings.containsKey(topic)}

    def earliest_offsets(self, topic: str) -> Mapping[int, int]:
        """The first offset of each partition of the topic."""
        java, admin = self._jvm.java.util, self._jvm.org.apache.kafka.clients.admin
        partitions = [self._jvm.org.apache.kafka.common.TopicPartition(topic, number) for number in range(self.partition_count(topic))]
        asked = java.HashMap()
        for partition in partitions:
            asked.put(partition, admin.OffsetSpec.earliest())
        offsets = self._ask(lambda: self._admin.listOffsets(asked).all().get())
        return {int(partition.partition()): int(offsets.get(partition).offset()) for partition in partitions}

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Keep the offsets of a group that has no members. Raises AdminError."""
        common, consumer = self._jvm.org.apache.kafka.common, self._jvm.org.apache.kafka.clients.consumer
        asked = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            asked.put(common.TopicPartition(topic, partition), consumer.OffsetAndMetadata(offset))
        self._ask(lambda: self._admin.alterConsumerGroupOffsets(group, asked).all().get())

    def matching(self, pattern: str, topics: Sequence[str]) -> Set[str]:
        """The topics whose whole names match, by the rules of Spark's source. Raises UsageError for a pattern that Java refuses."""
        try:
            compiled = self._jvm.java.util.regex.Pattern.compile(pattern)
        except PySparkException as e:
            raise UsageError(f"--topic-pattern {pattern}: {str(e).splitlines()[0]}") from e
        return {topic for topic in topics if compiled.matcher(topic).matches()}

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Py4JJavaError as e:
            cause = e.java_exception.getCause() or e.java_exception
            raise AdminError(f"{self._bootstrap_servers}: {cause.getMessage()}") from e
        except PySparkException as e:  # pyspark converts the few Java exceptions that it knows
            raise AdminError(f"{self._bootstrap_servers}: {str(e).splitlines()[0]}") from e
