"""DescribeCluster (key 60) on controller listeners. Serves v0–v2.

Behaviour: the registered controllers, each with its address on the listener by which the request came, and the id of the active one, -1
while that is not registered. Authorized operations, if requested, are told to who may DESCRIBE the cluster, and are none for others.

Version notes: v0 asks for brokers, which a controller does not describe: INVALID_REQUEST; from v1 on that is MISMATCHED_ENDPOINT_TYPE.

Source: ControllerApis.handleDescribeCluster, ControllerRegistrationsPublisher (KIP-919).
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.metadata.listener_view import OPERATIONS_NOT_ASKED
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


def build_describe_cluster(services: ControllerServices) -> Handler:
    cache = services.metadata

    def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        _check_endpoint_type(request.endpoint_type, context.api_version)
        listener_name = context.connection.listener.name
        controllers = [
            DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
            for node_id, controller in cache.state.kept.controllers.items()
            for endpoint in controller.end_points
            if endpoint.name == listener_name
        ]
        active_id = services.quorum.leader_id
        return DescribeClusterResponse(
            endpoint_type=ENDPOINT_CONTROLLERS,
            cluster_id=cache.cluster_id,
            controller_id=active_id if any(each.broker_id == active_id for each in controllers) else -1,
            brokers=controllers,
            cluster_authorized_operations=(
                context.access.cluster_operations() if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
            ),
        )

    return handle


def _check_endpoint_type(asked: int, version: int) -> None:
    if asked == ENDPOINT_BROKERS:
        why = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE if version else ErrorCode.INVALID_REQUEST, why)
    if asked != ENDPOINT_CONTROLLERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}")
