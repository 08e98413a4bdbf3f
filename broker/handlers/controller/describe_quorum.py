"""DescribeQuorum (key 55) on controller listeners. Serves v0–v2.

Behaviour: the leader tells who votes, who observes, and how far each is. The quorum's replica in this node answers (broker/quorum/), by
the monotonic clock; clients are told the times of the wall clock.

Version notes: v1 when each replica fetched and was caught up. v2 directory ids, and where voters are reached.

Source: KafkaRaftClient.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.context import RequestContext
from broker.deferred import Deferred
from broker.services import ControllerServices, Handler
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState


def build(services: ControllerServices) -> Handler:
    clock = services.clock

    def handle(context: RequestContext, request: DescribeQuorumRequest) -> Deferred:
        answer = Deferred()

        def tell(outcome: Any) -> None:
            if isinstance(outcome, DescribeQuorumResponse):
                _to_wall_clock(_replicas(outcome), clock.now_ms() - clock.monotonic_ms())
            answer.complete(outcome)

        services.ask_quorum(request, context.api_version, context.connection.listener.name).when_done(tell)
        return answer

    return handle


def _replicas(response: DescribeQuorumResponse) -> Iterable[ReplicaState]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield from partition.current_voters
            yield from partition.observers


def _to_wall_clock(replicas: Iterable[ReplicaState], difference_ms: int) -> None:
    """-1 stays: it says that the replica never did."""
    for replica in replicas:
        if replica.last_fetch_timestamp >= 0:
            replica.last_fetch_timestamp += difference_ms
        if replica.last_caught_up_timestamp >= 0:
            replica.last_caught_up_timestamp += difference_ms
