"""The assignment of silence checks: each unfenced broker watches the next few by id. Brokers and controller have to agree on it.

Source: docs/architecture.md, "When a process is silent".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.metadata.features import SILENCE_FEATURE

if TYPE_CHECKING:
    from broker.metadata.cluster_state import ClusterState
    from broker.metadata.image import BrokerImage

WATCHED_MAX = 3
"""How many others a broker asks. With as many watchers, a broken link and a watcher that is slow are outvoted; the traffic stays small."""
WATCHERS_MIN = 2
"""A single observer cannot tell a broker that is silent from a broken link."""


def is_silence_noticed(state: ClusterState) -> bool:
    """Whether all unfenced brokers and all controllers support silence reports. Apache Kafka's nodes do not."""
    brokers = (broker.registration for broker in state.brokers.values() if not broker.is_fenced)
    return all(
        registration is not None and any(feature.name == SILENCE_FEATURE for feature in registration.features)
        for registration in (*brokers, *state.kept.controllers.values())
    )


def watched_by(node_id: int, brokers: Mapping[int, BrokerImage]) -> list[int]:
    """Returns the brokers that the broker watches; none while it is fenced itself."""
    ring = _ring(brokers)
    if node_id not in ring:
        return []
    place = ring.index(node_id)
    return (ring[place + 1 :] + ring[:place])[:WATCHED_MAX]


def watchers_of(node_id: int, brokers: Mapping[int, BrokerImage]) -> list[int]:
    """Returns the brokers that watch the broker."""
    return [each for each in _ring(brokers) if each != node_id and node_id in watched_by(each, brokers)]


def _ring(brokers: Mapping[int, BrokerImage]) -> list[int]:
    return sorted(broker.node_id for broker in brokers.values() if not broker.is_fenced)
