"""The topics of a program, and what it made of its own, asked of the server."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.clients.topics import create_topic
from tests.streams.records import PARTITIONS, TIMEOUT_S
from tests.support.process import ServerProcess

DYNAMIC_TOPIC_CONFIG = 1
CHANGELOG = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
"""The configs of a changelog that is no window's."""


def create_topics(server: ServerProcess, application_id: str, *parts: str) -> None:
    """The topics that a program reads, and the one for its results."""
    for part in (*parts, "output"):
        create_topic(server, f"{application_id}-{part}", partitions=PARTITIONS)


def internal_topics(bootstrap: str, application_id: str) -> set[str]:
    """What the names of the topics that the program has made for itself say beside its id."""
    names = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    own = [name.removeprefix(f"{application_id}-") for name in names if name.startswith(f"{application_id}-")]
    return {name for name in own if name.endswith(("-changelog", "-repartition", "-topic"))}


def topic_configs(bootstrap: str, topic: str) -> dict[str, str]:
    """The configs that were given to the topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(TIMEOUT_S).items() if entry.source == DYNAMIC_TOPIC_CONFIG}
