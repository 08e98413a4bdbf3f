"""Nodes with one role each, as processes: voters come and go over the wire (KIP-853), and brokers only observe the metadata log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from storage.meta_properties import read_meta_properties
from tests.support.quorum import CLUSTER_ID, DynamicQuorum, QuorumNode, dynamic_quorum, until
from tests.support.wire import WireClient

ENDPOINT_CONTROLLERS = 2


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamicQuorum]:
    """Three voters that are no brokers, and a broker that is no voter."""
    directory = tmp_path_factory.mktemp("quorum")
    with dynamic_quorum(directory, {1: "controller", 2: "controller", 3: "controller"}) as made:
        broker = made.add(4, "broker")
        broker.start()
        yield made


def directory_id_of(node: QuorumNode) -> bytes:
    identity = read_meta_properties(node.data_dir)
    assert identity is not None and identity.directory_id is not None
    return identity.directory_id


def addition(node: QuorumNode) -> AddRaftVoterRequest:
    listener = Listener(name="CONTROLLER", host=node.host, port=node.controller_port)
    return AddRaftVoterRequest(
        cluster_id=CLUSTER_ID, timeout_ms=5_000, voter_id=node.node_id, voter_directory_id=directory_id_of(node), listeners=[listener]
    )


def remove(quorum: DynamicQuorum, node_id: int) -> int:
    node = quorum.nodes[node_id]
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id_of(node))
    return quorum.ask(request, 0).error_code


def create(quorum: DynamicQuorum, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return quorum.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5).topics[0].error_code


def test_a_broker_that_is_no_voter_observes_and_asks_the_controllers(quorum: DynamicQuorum) -> None:
    described = quorum.describe()

    assert create(quorum, "by-an-observer") == 0
    assert ([voter.replica_id for voter in described.current_voters], [each.replica_id for each in described.observers]) == ([1, 2, 3], [4])
    assert all(voter.replica_directory_id == quorum.directory_ids[voter.replica_id] for voter in described.current_voters)


def test_controllers_tell_of_each_other_and_which_is_active(quorum: DynamicQuorum) -> None:
    leader_id = quorum.describe().leader_id
    asked = quorum.nodes[leader_id % 3 + 1]

    def told() -> tuple[int, list[tuple[int, int]]]:
        with WireClient(asked.host, asked.controller_port) as client:
            answer = client.request(DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS), 1)
        return answer.controller_id, sorted((each.broker_id, each.port) for each in answer.brokers)

    until(lambda: told() == (leader_id, [(node_id, quorum.nodes[node_id].controller_port) for node_id in (1, 2, 3)]), "all are registered")
    with WireClient(asked.host, asked.controller_port) as client:
        assert client.request(DescribeClusterRequest(), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_node_becomes_a_voter_and_the_leader_leaves_the_voters(quorum: DynamicQuorum) -> None:
    newcomer = quorum.add(5, "controller")
    newcomer.start()
    until(lambda: 5 in {each.replica_id for each in quorum.describe().observers}, "the newcomer fetches")

    assert quorum.ask(addition(newcomer), 1).error_code == 0
    assert quorum.ask(addition(newcomer), 1).error_code == ErrorCode.DUPLICATE_VOTER
    assert quorum.voters() == {1, 2, 3, 5}
    leader_id = quorum.describe().leader_id

    assert remove(quorum, leader_id) == 0

    until(lambda: quorum.describe().leader_id not in (-1, leader_id), "another leads")
    until(lambda: quorum.voters() == {1, 2, 3, 5} - {leader_id}, "it has left the voters")
    assert remove(quorum, leader_id) == ErrorCode.VOTER_NOT_FOUND
    assert create(quorum, "by-the-new-voters") == 0


def test_a_node_that_is_told_to_joins_by_itself(quorum: DynamicQuorum) -> None:
    newcomer = quorum.add(6, "controller", controller_quorum_auto_join_enable="true")

    newcomer.launch()

    until(lambda: 6 in quorum.voters(), "it is a voter")


def test_features_are_finalized_for_all(quorum: DynamicQuorum) -> None:
    def update(level: int, kind: int, name: str = "metadata.version") -> int:
        change = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        code: int = quorum.ask(UpdateFeaturesRequest(feature_updates=[change]), 2).error_code
        return code

    assert update(26, 1) == 0
    assert update(25, 2) == 0
    assert update(1, 1, "share.version") == ErrorCode.INVALID_UPDATE_VERSION
