"""SCRAM credentials of a cluster of three processes: set by any broker, known to all, and kept over a kill -9."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.support.cluster import Cluster


def set_credential(cluster: Cluster, node_id: int, user: str, iterations: int) -> list[int]:
    upsertion = ScramCredentialUpsertion(name=user, mechanism=1, iterations=iterations, salt=b"salt", salted_password=b"salted")
    answer = cluster.ask_node(node_id, AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    return [result.error_code for result in answer.results]


def described(cluster: Cluster, node_id: int) -> dict[str, list[int]]:
    answer = cluster.ask_node(node_id, DescribeUserScramCredentialsRequest(users=None), 0)
    return {result.user: [info.iterations for info in result.credential_infos] for result in answer.results}


def test_credentials_are_set_by_any_broker_and_known_to_all_also_after_a_kill(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={"delegation.token.secret.key": "a-secret"}) as cluster:
        for node_id in (1, 2, 3):
            assert set_credential(cluster, node_id, f"user-{node_id}", 4096 + node_id) == [0]
        assert set_credential(cluster, 2, "weak", 1) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        removal = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="user-3", mechanism=1)])
        assert [result.error_code for result in cluster.ask_node(1, removal, 0).results] == [0]
        refused = {cluster.ask_node(node_id, CreateDelegationTokenRequest(max_lifetime_ms=-1), 3).error_code for node_id in (1, 2, 3)}
        assert refused == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}  # by plain connections, whichever node leads
        expected = {"user-1": [4097], "user-2": [4098]}

        for node_id in (1, 2, 3):
            cluster.wait_for(lambda node_id=node_id: described(cluster, node_id) == expected, f"node {node_id} to know the users")
        cluster.kill()
        cluster.start()

        for node_id in (1, 2, 3):
            cluster.wait_for(lambda node_id=node_id: described(cluster, node_id) == expected, f"node {node_id} to know them again")
