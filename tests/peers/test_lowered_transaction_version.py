"""transaction.version is lowered while a producer that has heard of 2 has a transaction: the same dialogue with Barnabas and Apache Kafka.

At 1 both go on by the rules of 2. At 0 Apache Kafka 4.3.1 cannot write the records of such a producer any more (TransactionLog.valueToBytes
fails with UNSUPPORTED_VERSION): its transaction stays open, and all that follows is answered CONCURRENT_TRANSACTIONS. Barnabas goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.peers.transactional_producer import SETTLE_S, Step, TransactionalProducer
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
}
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Apache Kafka and Barnabas."""
    kafka_jars()
    root: Path = tmp_path_factory.mktemp("lowered")
    clusters = [Cluster(root / kind, [kind], settings=SETTINGS, format_words=(), features=[f"{FEATURE}=2"]) for kind in (KAFKA, BARNABAS)]
    try:
        for cluster in clusters:
            cluster.start()
        yield clusters[0].nodes[1], clusters[1].nodes[1]
    finally:
        for cluster in clusters:
            cluster.close()


def test_at_1_both_go_on_by_the_rules_of_2(servers: tuple[ServerProcess, ServerProcess]) -> None:
    theirs, ours = (_hold(server, 1) for server in servers)

    assert ours == theirs
    assert _errors(ours) == {}


def test_at_0_barnabas_goes_on_as_at_1_where_kafka_stops(servers: tuple[ServerProcess, ServerProcess]) -> None:
    theirs, ours = servers

    assert _hold(ours, 0) == _hold(ours, 1)
    assert set(_errors(_hold(theirs, 0)).values()) == {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CONCURRENT_TRANSACTIONS}


def _hold(server: ServerProcess, level: int) -> list[Step]:
    """An aborted transaction, which a late batch must not follow, and one more of the same producer."""
    with WireClient(server.host, server.port) as client:
        _finalize(client, 2, UPGRADE)
        producer = TransactionalProducer(server.host, server.port, client, f"lowered-to-{level}-{time.monotonic_ns()}")
        producer.init(5)
        producer.produce(12)
        _finalize(client, level, SAFE_DOWNGRADE)
        said = len(producer.transcript)
        producer.produce(12, sequence=1)
        producer.end(5, commit=False)
        producer.end(5, commit=False, epoch=-1)  # a retry
        producer.produce(12, sequence=2, epoch=-1)  # late
        producer.produce(12)
        producer.end(5)
        producer.init(5)
        producer.read()
        transcript = producer.transcript[said:]
    return [(step, _without_names(answer)) for step, answer in transcript]


def _finalize(client: WireClient, level: int, upgrade_type: int) -> None:
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=upgrade_type)
    client.request(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
    end_s = time.monotonic() + SETTLE_S
    while _finalized(client) != level:
        assert time.monotonic() < end_s, f"{FEATURE} {level} is not finalized"
        time.sleep(0.02)


def _finalized(client: WireClient) -> int:
    """A level of 0 is not listed."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    features = {each.name: each.max_version_level for each in client.request(request, 4).finalized_features}
    return int(features.get(FEATURE, 0))


def _errors(transcript: list[Step]) -> dict[str, ErrorCode]:
    """Of the steps that should go well, those that did not: the late batch is refused anyway."""
    found: dict[str, ErrorCode] = {}
    for step, answer in transcript:
        if isinstance(answer, dict) and answer.get("error_code") and not step.startswith("Produce"):
            found[step] = ErrorCode(answer["error_code"])
    return found


def _without_names(answer: Any) -> Any:
    """Ids and topics are those of one dialogue."""
    if isinstance(answer, dict):
        return {key: _without_names(value) for key, value in answer.items() if key not in ("name", "topic", "transactional_id")}
    return [_without_names(each) for each in answer] if isinstance(answer, list) else answer
