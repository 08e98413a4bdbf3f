"""The broker configs that can change at run time, and their present values: the broker's own, else the default of all brokers.

Users of a config call `find_dynamic_value` when MetadataDelta.changed_broker_configs reports a change, or read DynamicSettings at each use.
Defaults of topic configs are in broker/metadata/topic_defaults.py.

Source: kafka.server.DynamicBrokerConfig, DynamicConfig.Broker (KIP-226).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.metadata.cluster_state import ClusterState
from broker.metadata.topic_defaults import DYNAMIC_TOPIC_DEFAULTS
from config.cordoned import CORDONED_LOG_DIRS
from config.properties import ConfigError, Property, Value
from config.server import DYNAMIC_ONLY_PROPERTIES, SERVER_PROPERTIES, ServerConfig

logger = logging.getLogger("barnabas.metadata")

LIVE_SETTINGS = (
    CORDONED_LOG_DIRS,
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
)
"""Those that are taken over from DynamicSettings."""

DYNAMIC_CONFIGS: Mapping[str, Property] = {
    **{name: SERVER_PROPERTIES[name] for name in DYNAMIC_TOPIC_DEFAULTS},
    **{name: SERVER_PROPERTIES[name] for name in LIVE_SETTINGS},
    **DYNAMIC_ONLY_PROPERTIES,
}


class DynamicSettings:
    """The present settings of one broker."""

    __slots__ = ("_config", "_node_id", "_state")

    def __init__(self, state: ClusterState, config: ServerConfig, node_id: int) -> None:
        self._state = state
        self._config = config
        self._node_id = node_id

    def number(self, name: str) -> float:
        """The value of a numeric property: the dynamic one, else that of server.properties."""
        value = self._find(name)
        assert isinstance(value, int | float), f"{name} is no number"
        return value

    def flag(self, name: str) -> bool:
        """The value of a boolean property, as `number`."""
        value = self._find(name)
        assert isinstance(value, bool), f"{name} is no flag"
        return value

    def elements(self, name: str) -> tuple[str, ...]:
        """The value of a list property, as `number`."""
        value = self._find(name)
        assert isinstance(value, tuple), f"{name} is no list"
        return value

    def _find(self, name: str) -> Value:
        value = find_dynamic_value(self._state, self._node_id, SERVER_PROPERTIES[name])
        return self._config.value_of(name) if value is None else value


def find_dynamic_value(state: ClusterState, node_id: int, known: Property) -> Value:
    """Returns the dynamic value for broker `node_id`; None if none is set. A value that cannot be parsed, for example one stored by
    another version, is skipped with a warning."""
    own = find_stored_value(state, str(node_id), known)
    return find_stored_value(state, "", known) if own is None else own


def find_stored_value(state: ClusterState, broker: str, known: Property) -> Value:
    """As `find_dynamic_value`, but only what is set on broker `broker`, a decimal id, or on all brokers for ""."""
    text = state.broker_overrides(broker).get(known.name)
    if text is None:
        return None
    try:
        return known.parse(text)
    except ConfigError as error:
        logger.warning("broker %s: a stored config is ignored: %s", broker or "default", error)
        return None
