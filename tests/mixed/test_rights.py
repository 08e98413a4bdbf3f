"""Rules hold on every node of a cluster, of either kind, for requests that it answers itself and for those that it forwards, whichever node
is the active controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import CLUSTER_NAME, WILDCARD, AclOperation, ResourceType
from config.server import STANDARD_AUTHORIZER
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.odd_request import batch, produce, topic
from tests.peers.rights_settings import ALL, CLIENT_HOST, EVERYBODY, NAMES, creation, rule
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.ports import HOST
from tests.support.requirements import needs
from tests.support.secured import ADMIN, cluster_settings
from tests.support.wire import WireClient

TOPIC = "orders"
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "super.users": f"User:{ADMIN};User:CN=localhost,O=Barnabas tests,C=DE",
}
"""The nodes are super users, by their passwords and certificates."""
ADMINISTRATORS = [rule(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD, ALL, host=HOST) for kind in NAMES]
"""Everything, over plain connections from this address. Rules for others end that what has none is everyone's."""
OTHERS = [acl._replace(principal="User:other") for acl in ADMINISTRATORS]
CLIENT = [rule(ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)]


def of_client(cluster: Cluster, node_id: int, message: Any, version: int) -> Any:
    node = cluster.nodes[node_id]
    with WireClient(node.host, node.port, source_host=CLIENT_HOST) as client:
        return client.request(message, version)


def told_rules(cluster: Cluster, node_id: int, host: str) -> int:
    request = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=EVERYBODY, host_filter=host, operation=1,
        permission_type=1,
    )  # fmt: skip
    return sum(len(each.acls) for each in cluster.ask_node(node_id, request, 3).resources)


def check_rights(cluster: Cluster) -> None:
    """The client may DESCRIBE one topic."""
    for node_id in cluster.running:
        described = of_client(cluster, node_id, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
        created = of_client(cluster, node_id, CreateTopicsRequest(topics=[topic("new")]), 7)
        elected = of_client(cluster, node_id, ElectLeadersRequest(topic_partitions=None), 2)
        produced = of_client(cluster, node_id, produce(TOPIC, batch()), 9)
        errors = (
            described.topics[0].error_code,
            created.topics[0].error_code,
            elected.error_code,
            produced.responses[0].partition_responses[0].error_code,
        )
        assert errors == (
            ErrorCode.NONE,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ), f"node {node_id}"


def apply(cluster: Cluster, acls: list[Acl], host: str, expected: int) -> None:
    if acls:
        answer = cluster.ask(CreateAclsRequest(creations=[creation(acl) for acl in acls]), 3)
        assert not any(result.error_code for result in answer.results)
    else:
        every = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=EVERYBODY, host_filter=host,
            operation=1, permission_type=1,
        )  # fmt: skip
        cluster.ask(DeleteAclsRequest(filters=[every]), 3)
    for node_id in cluster.running:
        cluster.wait_for(lambda node_id=node_id: told_rules(cluster, node_id, host) == expected, f"node {node_id} to know the rules")


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((BARNABAS, BARNABAS, BARNABAS), id="ours"),
        pytest.param((KAFKA, BARNABAS, BARNABAS), id="one of Kafka", marks=needs(missing_java())),
        pytest.param((BARNABAS, KAFKA, KAFKA), id="one of ours", marks=needs(missing_java())),
    ],
)
def test_rules_hold_on_all_nodes(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    settings = {**SETTINGS, **cluster_settings(tmp_path / "keys", "PLAIN")}
    with Cluster(tmp_path, kinds, secure="SASL_SSL", settings=settings) as cluster:
        cluster.create_topic(TOPIC)
        apply(cluster, [*ADMINISTRATORS, *OTHERS], HOST, len(ADMINISTRATORS))
        apply(cluster, CLIENT, CLIENT_HOST, len(CLIENT))
        check_rights(cluster)

        for killed in (1, 2):  # one of each kind, and the active controller among them or not
            cluster.kill(killed)
            check_rights(cluster)
            cluster.start(killed)
            cluster.wait_in_sync(TOPIC)
            check_rights(cluster)

        apply(cluster, [], CLIENT_HOST, 0)
        for node_id in cluster.running:
            described = of_client(cluster, node_id, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
            assert described.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
