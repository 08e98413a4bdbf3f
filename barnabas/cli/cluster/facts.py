"""A cluster by its metadata, as one of its brokers tells them."""

from __future__ import annotations

from typing import Any

from barnabas.cli.connection import Connection


def cluster_facts(connection: Connection) -> dict[str, Any]:
    """Raises CommandError."""
    cluster = connection.result(connection.admin.describe_cluster(request_timeout=connection.timeout_s))
    partitions = [(name, each) for name, topic in sorted(connection.metadata().topics.items()) for each in topic.partitions.values()]
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [
            {
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "leaders": sum(each.leader == node.id for _, each in partitions),
                "replicas": sum(node.id in each.replicas for _, each in partitions),
            }
            for node in sorted(cluster.nodes, key=lambda node: int(node.id))
        ],
        "topics": len({name for name, _ in partitions}),
        "partitions": len(partitions),
        "without_leader": [f"{name}-{each.id}" for name, each in partitions if each.leader < 0],
        "under_replicated": [f"{name}-{each.id}" for name, each in partitions if len(each.isrs) < len(each.replicas)],
    }
