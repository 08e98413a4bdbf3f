"""Kafka's tools move replicas between the log directories of one broker, and watch it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.adapters import ConfluentKafka
from tests.clients.topics import create_topic, eventually
from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.messages import Message

TOPIC = "orders"
NODE_ID = 1
COUNT = 300
VALUE_BYTES = 10_000
RATE = 500_000  # bytes a second: the move takes some seconds
REASSIGN = "reassign.ReassignPartitionsCommand"


class Mover:
    """The tools against one broker of two directories."""

    def __init__(self, broker: BrokerProcess, java_host: JavaHost, plan: Path) -> None:
        self.broker = broker
        self.java_host = java_host
        self.plan = plan
        self.bootstrap = ("--bootstrap-server", broker.bootstrap)

    def places(self) -> dict[str, tuple[int, bool]]:
        """By the directory: the offset lag of the replica in it, and whether it is a copy."""
        told = self.java_host.tool("LogDirsCommand", *self.bootstrap, "--describe", "--topic-list", TOPIC).lines
        (broker,) = json.loads(told[-1])["brokers"]
        return {
            Path(directory["logDir"]).name: (each["offsetLag"], each["isFuture"])
            for directory in broker["logDirs"]
            for each in directory["partitions"]
        }

    def reassign(self, log_dir: Path, *arguments: str) -> str:
        move: dict[str, Any] = {"topic": TOPIC, "partition": 0, "replicas": [NODE_ID], "log_dirs": [str(log_dir)]}
        self.plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        return self.java_host.tool(REASSIGN, *self.bootstrap, "--reassignment-json-file", str(self.plan), *arguments).stdout

    def verify(self) -> str:
        return self.java_host.tool(REASSIGN, *self.bootstrap, "--reassignment-json-file", str(self.plan), "--verify").stdout


def test_the_tools_move_a_replica_and_see_it_on_its_way(tmp_path: Path, java_host: JavaHost) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    broker = BrokerProcess(tmp_path, {"log.dirs": ",".join(map(str, paths))})
    broker.start()
    try:
        create_topic(broker, TOPIC)
        kafka = ConfluentKafka()
        kafka.produce(broker, TOPIC, [Message(0, None, b"%d " % number + bytes(VALUE_BYTES)) for number in range(COUNT)])
        mover = Mover(broker, java_host, tmp_path / "plan.json")
        ((start, _),) = mover.places().items()
        target = next(path for path in paths if path.name != start)

        executed = mover.reassign(target, "--execute", "--replica-alter-log-dirs-throttle", str(RATE))
        on_its_way, still = mover.places(), mover.verify()
        executed_again = mover.reassign(
            target, "--execute", "--additional", "--replica-alter-log-dirs-throttle", str(100 * VALUE_BYTES * COUNT)
        )
        eventually(lambda: mover.places() == {target.name: (0, False)})
        verified = mover.verify()
        started = f"Successfully started moving log directory to {target} for replica {TOPIC}-0 with broker {NODE_ID}"
        assert started in executed and started in executed_again
        assert on_its_way[start] == (0, False) and on_its_way[target.name][0] > 0 and on_its_way[target.name][1]
        assert f"Reassignment of replica {TOPIC}-0-{NODE_ID} is still in progress." in still
        assert f"Reassignment of replica {TOPIC}-0-{NODE_ID} completed successfully." in verified
        assert [each.offset for each in kafka.consume(broker, TOPIC, COUNT)] == list(range(COUNT))
    finally:
        broker.stop()
