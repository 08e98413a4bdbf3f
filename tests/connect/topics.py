"""Topics that Connect made, seen through librdkafka."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support.process import ServerProcess

TIMEOUT_S = 60.0


def topic_configs(broker: ServerProcess, topic: str) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(TIMEOUT_S).items()}


def partition_count(broker: ServerProcess, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
