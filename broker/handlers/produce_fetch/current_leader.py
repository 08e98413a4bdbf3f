"""Adds a partition's present leader to the answer that refuses a request for it, so that the client finds the leader without a Metadata
request (KIP-951).

Produce and Fetch have the same fields for it, in different message classes.
"""

from __future__ import annotations

from typing import Any

from broker.metadata.metadata_cache import MetadataCache


def name_leader(
    metadata: MetadataCache, listener_name: str, topic: str, index: int, answer: Any, endpoints: list[Any], endpoint_class: type[Any]
) -> None:
    """Set `current_leader` in a partition's `answer`; its broker is added to the response's `endpoints`, once, if it has the listener."""
    image = metadata.find_partition(topic, index)
    if image is None:
        return
    answer.current_leader.leader_id = image.leader
    answer.current_leader.leader_epoch = image.leader_epoch
    broker = metadata.brokers.get(image.leader)
    if broker is None or listener_name not in broker.endpoints or any(node.node_id == image.leader for node in endpoints):
        return
    host, port = broker.endpoints[listener_name]
    endpoints.append(endpoint_class(node_id=image.leader, host=host, port=port, rack=broker.rack))
