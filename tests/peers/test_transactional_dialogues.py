"""Dialogues of transactional producers with Barnabas and with Apache Kafka, answer by answer, at each transaction.version.

What Kafka cannot serve below a transaction.version is not asked there (`Dialogue.version_min`): EndTxn 5 and a broker's addition at 0,
which Kafka fails and after which the id stays pending. Nothing is asked while markers are being written: Kafka answers
CONCURRENT_TRANSACTIONS then, and an addition waits here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.transactional_dialogues import DIALOGUES, Dialogue
from tests.peers.transactional_producer import Step, TransactionalProducer
from tests.support.broker import BrokerProcess
from tests.support.cluster import CLUSTER_ID
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
CASES = [
    pytest.param(version, dialogue, id=f"transaction.version={version}, {dialogue.name}")
    for version in (0, 1, 2)
    for dialogue in DIALOGUES
    if version >= dialogue.version_min
]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Apache Kafka and Barnabas, finalized at the same transaction.version."""
    kafka_jars()
    root = tmp_path_factory.mktemp("dialogues")
    feature = ("--feature", f"transaction.version={request.param}")
    kafka, ours = KafkaServer(root / "kafka", SETTINGS), BrokerProcess(root / "barnabas", {"node.id": "1", **SETTINGS})
    kafka.format_arguments = feature
    try:
        ours.format(CLUSTER_ID, *feature)
        for server in (kafka, ours):
            server.start()
        yield kafka, ours
    finally:
        for server in (kafka, ours):
            if server.is_running:
                server.stop()


@pytest.mark.parametrize(("both", "dialogue"), CASES, indirect=["both"])
def test_dialogue_has_the_same_answers(both: tuple[ServerProcess, ServerProcess], dialogue: Dialogue) -> None:
    theirs, ours = (_hold(server, dialogue) for server in both)

    assert [step for step, _ in ours] == [step for step, _ in theirs]
    for (step, answer), (_, expected) in zip(ours, theirs, strict=True):
        assert answer == expected, step


def _hold(server: ServerProcess, dialogue: Dialogue) -> list[Step]:
    name = "".join(letter if letter.isalnum() else "-" for letter in dialogue.name)
    with WireClient(server.host, server.port) as client:
        producer = TransactionalProducer(client, name)
        dialogue.speak(producer)
    return producer.transcript
