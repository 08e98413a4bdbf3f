"""DescribeCluster (key 60). Serves v0–v2.

Behaviour: the cluster's id, the controller, and the live brokers, each with its address on the listener by which the request came.
Authorized operations, if requested, are told to who may DESCRIBE the cluster, and are none for others.

Version notes: v1 asks for brokers or controllers; controllers are not described by a broker (MISMATCHED_ENDPOINT_TYPE). v2 fenced
brokers too, when asked for.

Source: AuthHelper.computeDescribeClusterResponse (KIP-700, KIP-919, KIP-1073).
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.metadata.listener_view import OPERATIONS_NOT_ASKED, ListenerView
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


def build(services: Services) -> Handler:
    cache = services.metadata

    def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        if request.endpoint_type == ENDPOINT_CONTROLLERS:
            why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, why)
        if request.endpoint_type != ENDPOINT_BROKERS:
            raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
        view = ListenerView(cache, context.connection.listener.name)
        described = list(view.alive.values())
        if request.include_fenced_brokers:
            described += view.fenced()
        brokers = []
        for broker in described:
            host, port = view.endpoint(broker)
            brokers.append(
                DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=broker.rack, is_fenced=broker.is_fenced)
            )
        return DescribeClusterResponse(
            cluster_id=cache.cluster_id,
            controller_id=cache.controller_id,
            brokers=brokers,
            cluster_authorized_operations=(
                context.access.cluster_operations() if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
            ),
        )

    return handle
