"""The ListOffsets request of a fetcher whose fetch offset is not in the leader's log. Pure.

Source: kafka.server.AbstractFetcherThread.fetchOffsetAndTruncate, RemoteLeaderEndPoint.fetchLatestOffset.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.replication.fetcher.fetch_state import FetchState, Phase
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST_TIMESTAMP = -1
EARLIEST_LOCAL_TIMESTAMP = -4  # the first offset on the leader's disk: nothing before it can be fetched
EARLIEST_LOCAL_VERSION_MIN = 8
EARLIEST_TIMESTAMP = -2


def list_offsets_of(states: Iterable[FetchState], node_id: int, version: int) -> ListOffsetsRequest:
    """Asks where the leader's logs end, for states in LOOKING_UP_END, or start, for those in LOOKING_UP_START."""
    earliest = EARLIEST_LOCAL_TIMESTAMP if version >= EARLIEST_LOCAL_VERSION_MIN else EARLIEST_TIMESTAMP
    topics: dict[str, ListOffsetsTopic] = {}
    for state in states:
        name = state.partition.topic
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=state.partition.partition,
                current_leader_epoch=state.leader_epoch,
                timestamp=LATEST_TIMESTAMP if state.phase is Phase.LOOKING_UP_END else earliest,
            )
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))
