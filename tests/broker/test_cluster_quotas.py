"""Client quotas of a cluster of three processes: set by any broker, known to all, kept over a kill -9, and counted by the controller."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.support.cluster import Cluster
from tests.support.wire import CLIENT_ID


def change(user: str, **values: float) -> AlterClientQuotasRequest:
    ops = [OpData(key=key, value=value) for key, value in values.items()]
    return AlterClientQuotasRequest(entries=[EntryData(entity=[EntityData(entity_type="user", entity_name=user)], ops=ops)])


def described(cluster: Cluster, node_id: int, version: int = 1) -> dict[str | None, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=2, match=None)], strict=True)
    answer = cluster.ask_node(node_id, request, version)
    return {entry.entity[0].entity_name: {value.key: value.value for value in entry.values} for entry in answer.entries}


def test_quotas_are_set_by_any_broker_and_known_to_all_also_after_a_kill(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        for node_id, version in ((1, 0), (2, 1), (3, 1)):
            answer = cluster.ask_node(node_id, change(f"user-{node_id}", producer_byte_rate=1000.0 * node_id), version)
            assert [entry.error_code for entry in answer.entries] == [0]
        refused = cluster.ask_node(2, change("user-1", unknown=1.0), 1)
        assert [entry.error_code for entry in refused.entries] == [ErrorCode.INVALID_REQUEST]
        expected = {f"user-{node_id}": {"producer_byte_rate": 1000.0 * node_id} for node_id in (1, 2, 3)}

        for node_id in (1, 2, 3):
            cluster.wait_for(lambda node_id=node_id: described(cluster, node_id) == expected, f"node {node_id} to know the quotas")
        cluster.kill()
        cluster.start()

        for node_id in (1, 2, 3):
            cluster.wait_for(lambda node_id=node_id: described(cluster, node_id, 0) == expected, f"node {node_id} to know them again")


def test_mutations_count_on_the_controller_whichever_broker_is_asked(tmp_path: Path) -> None:
    """One partition in ten seconds: what is missing is not there again before the test's end."""

    def create(cluster: Cluster, node_id: int, name: str, count: int) -> tuple[int, int]:
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        answer = cluster.ask_node(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7)
        return answer.topics[0].error_code, answer.throttle_time_ms

    with Cluster(tmp_path) as cluster:
        entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
        ops = [OpData(key="controller_mutation_rate", value=0.1)]
        answer = cluster.ask_node(1, AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
        assert [entry.error_code for entry in answer.entries] == [0]

        assert create(cluster, 1, "large", 14) == (0, 0)
        refused = [create(cluster, node_id, f"topic-{node_id}", 1) for node_id in (1, 2, 3)]

    assert [code for code, _ in refused] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3
    assert all(throttle_time_ms > 60_000 for _, throttle_time_ms in refused)
