"""Odd but legal requests, one table for each API: what the comparison with Apache Kafka sends to both servers.

The topics that they name are made by `PREPARATION`. Requests are sent in the order of the tables, for some change what later ones find.
"""

from __future__ import annotations

from typing import Any

from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.peers.odd_admin_requests import CLUSTER, CONFIGS, LOG_DIRS, OTHER_CONFIGS, REASSIGNMENTS, TOPICS
from tests.peers.odd_data_requests import EPOCHS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, PRODUCER_IDS
from tests.peers.odd_group_requests import DELETIONS, GROUPS
from tests.peers.odd_quota_requests import QUOTAS
from tests.peers.odd_request import OddRequest, Row, batch, committing, produce, topic
from tests.peers.odd_security_requests import ACLS, PRODUCERS, SCRAM

PREPARATION: list[tuple[Any, int]] = [
    (
        CreateTopicsRequest(
            topics=[
                topic("one"),
                topic("three", 3),
                topic("compacted", cleanup_policy="compact"),
                topic("lz4", compression_type="lz4"),
                topic("stamped", message_timestamp_type="LogAppendTime"),
                topic("small", max_message_bytes="200"),
                topic("recent", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"),
                topic("hidden", internal_segment_bytes="100000"),
                topic("strict", cleanup_policy="compact", message_timestamp_before_max_ms="1000"),
                topic("stamped-compacted", cleanup_policy="compact", message_timestamp_type="LogAppendTime"),
                topic("zstd", compression_type="zstd"),
            ]
        ),
        7,
    ),
    (FindCoordinatorRequest(coordinator_keys=["committed"]), 4),
    *((produce("one", batch(b"%d" % number)), 9) for number in range(5)),
    (committing("committed", "one", (0, 3), metadata="here"), 9),
]


_TABLES: dict[str, list[Row]] = {
    "log directories": LOG_DIRS,
    "ListOffsets": LIST_OFFSETS,
    "Produce": PRODUCE,
    "Fetch": FETCH,
    "Metadata": METADATA,
    "groups": GROUPS,
    "delete": DELETIONS,
    "InitProducerId": PRODUCER_IDS,
    "ACLs": ACLS,
    "SCRAM": SCRAM,
    "DescribeProducers": PRODUCERS,
    "OffsetForLeaderEpoch": EPOCHS,
    "configs": CONFIGS,
    "other configs": OTHER_CONFIGS,
    "cluster": CLUSTER,
    "reassignments": REASSIGNMENTS,
    "topics": TOPICS,
    "quotas": QUOTAS,
}
REQUESTS = [OddRequest(f"{api}: {name}", message, version) for api, rows in _TABLES.items() for name, message, version in rows]
