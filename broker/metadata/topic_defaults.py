"""The effective configs of a topic: its own over the brokers' dynamic defaults. config/topic.py puts them over server.properties.

Values that cannot be parsed, for example in a metadata log of another version, are skipped with a warning: one bad override must not
prevent the broker's start.
"""

from __future__ import annotations

import logging

from broker.metadata.cluster_state import ClusterState
from config.properties import ConfigError
from config.server import SERVER_PROPERTIES
from config.topic import TOPIC_PROPERTIES, in_topic_terms

logger = logging.getLogger("barnabas.metadata")

DYNAMIC_TOPIC_DEFAULTS: dict[str, str] = {
    known.synonyms[0]: known.name
    for known in TOPIC_PROPERTIES.values()
    if known.synonyms and not SERVER_PROPERTIES[known.synonyms[0]].is_read_only
}
"""Broker properties that a running broker lets change, and the topic property that each is the default of. Kafka's DynamicLogConfig."""


def effective_overrides(state: ClusterState, node_id: int, topic: str) -> dict[str, str]:
    """Topic properties that differ from server.properties: for this broker's dynamic configs, those of all brokers, the topic's own."""
    overrides: dict[str, str] = {}
    for resource_name in ("", str(node_id)):
        for server_name, text in state.broker_overrides(resource_name).items():
            name = DYNAMIC_TOPIC_DEFAULTS.get(server_name)
            if name is not None:
                overrides[name] = in_topic_terms(server_name, text)
    overrides.update(state.topic_overrides(topic))
    return {name: text for name, text in overrides.items() if _is_readable(topic, name, text)}


def _is_readable(topic: str, name: str, text: str) -> bool:
    known = TOPIC_PROPERTIES.get(name)
    if known is None:
        return False
    try:
        known.parse(text)
    except ConfigError as error:
        logger.warning("topic %s: a stored config is ignored: %s", topic, error)
        return False
    return True
