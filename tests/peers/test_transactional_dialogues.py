"""Dialogues of transactional producers with Barnabas and with Apache Kafka, answer by answer, at each transaction.version.

What Kafka cannot serve below a transaction.version is not asked there (`Dialogue.version_min`): EndTxn 5 and a broker's addition at 0,
which Kafka fails and after which the id stays pending.

What differs on purpose is named in `DIFFERENT`, and told in docs/protocol.md with the reason; a difference that has gone fails too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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


class Pair:
    """Apache Kafka and Barnabas, finalized at the same transaction.version."""

    def __init__(self, directory: Path, version: int) -> None:
        self.version = version
        features = [f"transaction.version={version}"]
        self._clusters = [
            Cluster(directory / f"{kind}-{version}", [kind], settings=SETTINGS, format_words=(), features=features)
            for kind in (KAFKA, BARNABAS)
        ]

    def start(self) -> None:
        for cluster in self._clusters:
            cluster.start()
            node = cluster.nodes[1]
            make_stuck_topics((node.host, cluster.controller_ports[1]), (node.host, node.port), [f"{_name(each)}-stuck" for each in HELD])

    @property
    def servers(self) -> tuple[ServerProcess, ServerProcess]:
        theirs, ours = self._clusters
        return theirs.nodes[1], ours.nodes[1]

    def close(self) -> None:
        for cluster in self._clusters:
            cluster.close()


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Pair]]:
    """The pair of a transaction.version. One runs at a time: the cases are in the order of their versions."""
    kafka_jars()
    root = tmp_path_factory.mktemp("dialogues")
    running: list[Pair] = []

    def get(version: int) -> Pair:
        if not running or running[-1].version != version:
            for pair in running:
                pair.close()
            running.append(Pair(root, version))
            running[-1].start()
        return running[-1]

    yield get
    for pair in running:
        pair.close()


@pytest.mark.parametrize(("version", "dialogue"), CASES)
def test_dialogue_has_the_same_answers(pair_of: Callable[[int], Pair], version: int, dialogue: Dialogue) -> None:
    theirs, ours = (_hold(server, dialogue) for server in pair_of(version).servers)

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
