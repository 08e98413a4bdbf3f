"""What both brokers are started with: one pair of brokers serves all fuzzers."""

from __future__ import annotations

from collections.abc import Mapping

BROKER_SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    # All groups have one coordinator shard: what it knows for one group, it knows for all.
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "range,uniform",
    # A group whose last KIP-848 member leaves would become a classic one and rebalance, which takes time.
    "group.consumer.migration.policy": "upgrade",
    "log.initial.task.delay.ms": "86400000",
}
