"""DescribeCluster (key 60): cluster id, controller and brokers (KIP-700).

Version notes: 1 brokers or controllers (KIP-919); 2 fenced brokers too.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, api, message, since, struct


@api(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    """Asks for the cluster."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Bool = since(2, default=False)


@message(versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """Tells the cluster's id, controller and nodes."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
