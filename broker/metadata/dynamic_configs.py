"""The broker configs that a running broker lets change, and what is set now: on the broker itself, else on all brokers.

A name that is not in DYNAMIC_CONFIGS is refused by the controller rather than stored and ignored. What uses a config asks
`find_dynamic_value` when MetadataDelta.changed_broker_configs says that some changed; defaults of topic configs come another way
(broker/metadata/topic_defaults.py).

Source: kafka.server.DynamicBrokerConfig, DynamicConfig.Broker (KIP-226).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.metadata.cluster_state import ClusterState
from broker.metadata.topic_defaults import DYNAMIC_TOPIC_DEFAULTS
from config.properties import ConfigError, Property, Value
from config.server import DYNAMIC_ONLY_PROPERTIES, SERVER_PROPERTIES

logger = logging.getLogger("barnabas.metadata")

DYNAMIC_CONFIGS: Mapping[str, Property] = {
    **{name: SERVER_PROPERTIES[name] for name in DYNAMIC_TOPIC_DEFAULTS},
    **DYNAMIC_ONLY_PROPERTIES,
}


def find_dynamic_value(state: ClusterState, node_id: int, known: Property) -> Value:
    """The value that is set for broker `node_id`; None where none is. One that cannot be read, say because another version stored it, is
    passed over with a warning."""
    for resource_name in (str(node_id), ""):
        text = state.broker_overrides(resource_name).get(known.name)
        if text is not None:
            try:
                return known.parse(text)
            except ConfigError as error:
                logger.warning("broker %s: a stored config is ignored: %s", resource_name or "default", error)
    return None
