"""Dialogues of transactional producers with Barnabas and with Apache Kafka, answer by answer, at each transaction.version.

What Kafka cannot serve below a transaction.version is not asked there (`Dialogue.version_min`): EndTxn 5 and a broker's addition at 0,
which Kafka fails and after which the id stays pending.

What differs on purpose is named in `DIFFERENT`, and told in docs/protocol.md with the reason; a difference that has gone fails too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.phantom_broker import make_stuck_topics
from tests.peers.transactional_dialogues import DIALOGUES, HELD, Dialogue
from tests.peers.transactional_producer import Step, TransactionalProducer
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "add.partitions.to.txn.retry.backoff.max.ms": "10000",  # an addition that waits is answered when it may go on
    "broker.session.timeout.ms": "60000",
}
DIFFERENT = (
    "AddPartitionsToTxn v3, early add",
    "AddPartitionsToTxn v4, early add",
    "AddPartitionsToTxn v5, early add",
    "TxnOffsetCommit v5, early commit offsets",
)
"""An addition waits here until the markers of the transaction before are written. Kafka answers CONCURRENT_TRANSACTIONS at once."""
CASES = [
    pytest.param(version, dialogue, id=f"transaction.version={version}, {dialogue.name}")
    for version in (0, 1, 2)
    for dialogue in (*DIALOGUES, *HELD)
    if version >= dialogue.version_min
]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Apache Kafka and Barnabas, finalized at the same transaction.version."""
    kafka_jars()
    root = tmp_path_factory.mktemp("dialogues")
    features = [f"transaction.version={request.param}"]
    clusters = [Cluster(root / kind, [kind], settings=SETTINGS, format_words=(), features=features) for kind in (KAFKA, BARNABAS)]
    try:
        for cluster in clusters:
            cluster.start()
            node = cluster.nodes[1]
            make_stuck_topics((node.host, cluster.controller_ports[1]), (node.host, node.port), [f"{_name(each)}-stuck" for each in HELD])
        yield clusters[0].nodes[1], clusters[1].nodes[1]
    finally:
        for cluster in clusters:
            cluster.close()


@pytest.mark.parametrize(("both", "dialogue"), CASES, indirect=["both"])
def test_dialogue_has_the_same_answers(both: tuple[ServerProcess, ServerProcess], dialogue: Dialogue) -> None:
    theirs, ours = (_hold(server, dialogue) for server in both)

    assert [step for step, _ in ours] == [step for step, _ in theirs]
    for (step, answer), (_, expected) in zip(ours, theirs, strict=True):
        if step in DIFFERENT:
            assert answer != expected, f"{step}: no difference any more: take it out of DIFFERENT and docs/protocol.md"
        else:
            assert answer == expected, step


def _hold(server: ServerProcess, dialogue: Dialogue) -> list[Step]:
    with WireClient(server.host, server.port) as client:
        producer = TransactionalProducer(server.host, server.port, client, _name(dialogue))
        dialogue.speak(producer)
    return producer.transcript


def _name(dialogue: Dialogue) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in dialogue.name)
