"""KIP-1066 through Kafka's tools, the same with Apache Kafka and with Barnabas: what is cordoned gets nothing new, and is told and lifted
while the broker runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.clients.topics import eventually
from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

CLUSTER_ID = KafkaServer.cluster_id
WITH_CORDONING, WITHOUT_CORDONING = "4.3-IV0", "4.2-IV1"
ALL_CORDONED = "All brokers are currently fenced, or have all their log directories cordoned."


class Tools:
    """Kafka's tools against one broker, node 1."""

    def __init__(self, broker: ServerProcess, java_host: JavaHost) -> None:
        self.broker = broker
        self._java_host = java_host

    def run(self, main: str, *arguments: str) -> str:
        """What the tool printed, to both."""
        result = self._java_host.tool(main, "--bootstrap-server", self.broker.bootstrap, *arguments, expected_status=None)
        return result.stdout + result.stderr

    def alter(self, *change: str) -> str:
        return self.run("kafka.admin.ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "1", *change)

    def cordon(self, *log_dirs: Path | str) -> str:
        return self.alter("--add-config", f"cordoned.log.dirs=[{','.join(map(str, log_dirs))}]")

    def uncordon(self) -> str:
        return self.alter("--delete-config", "cordoned.log.dirs")

    def create(self, name: str, *options: str) -> str:
        return self.run("TopicCommand", "--create", "--topic", name, *(options or ("--partitions", "2", "--replication-factor", "1")))

    def create_when_possible(self, name: str) -> None:
        """A broker tells the controller of its directories a moment after its config is altered."""
        eventually(lambda: f"Created topic {name}." in self.create(name))

    def refused_creation(self, name: str) -> str:
        told: list[str] = []

        def is_refused() -> bool:
            told.append(self.create(f"{name}-{len(told)}"))
            return "Created topic" not in told[-1]

        eventually(is_refused)
        return told[-1]

    def cordoned(self) -> list[str]:
        """As DescribeLogDirs says it; Kafka's tool does not print it."""
        with WireClient(self.broker.host, self.broker.port) as client:
            results = client.request(DescribeLogDirsRequest(topics=None), 5).results
        return sorted(Path(each.log_dir).name for each in results if each.is_cordoned)

    def places(self, topic: str) -> list[str]:
        """The directory of each of its replicas. The tool has them in no order."""
        told = self.run("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()
        (answer,) = (json.loads(line) for line in told if line.startswith("{"))
        return sorted(Path(each["logDir"]).name for each in answer["brokers"][0]["logDirs"] for _ in each["partitions"])


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / "first", tmp_path / "second"]


class Starter:
    def __init__(self, kind: str, directory: Path, paths: list[Path]) -> None:
        self._kind = kind
        self._directory = directory
        self._paths = paths
        self.broker: ServerProcess | None = None

    def start(self, level: str, **settings: str) -> ServerProcess:
        settings = {"log.dirs": ",".join(map(str, self._paths))} | {name.replace("_", "."): value for name, value in settings.items()}
        if self._kind == "kafka":
            kafka_jars()
            self.broker = kafka = KafkaServer(self._directory / "kafka", settings)
            kafka.format_arguments = ("--release-version", level)
        else:
            self.broker = barnabas = BrokerProcess(self._directory, settings)
            barnabas.format(CLUSTER_ID, "--release-version", level)
        self.broker.start()
        return self.broker


@pytest.fixture(params=["kafka", "barnabas"])
def starter(request: pytest.FixtureRequest, tmp_path: Path, paths: list[Path]) -> Iterator[Starter]:
    starter = Starter(request.param, tmp_path, paths)
    yield starter
    if starter.broker is not None:
        starter.broker.end()


def test_what_is_cordoned_gets_nothing_new_until_it_is_lifted(
    starter: Starter, paths: list[Path], tmp_path: Path, java_host: JavaHost
) -> None:
    tools = Tools(starter.start(WITH_CORDONING), java_host)
    first = paths[0]
    tools.create_when_possible("before")
    eventually(lambda: tools.places("before") == ["first", "second"])

    tools.cordon(first)
    eventually(lambda: tools.cordoned() == ["first"])
    tools.create_when_possible("beside")
    eventually(lambda: tools.places("beside") == ["second", "second"])
    move = {"topic": "beside", "partition": 0, "replicas": [1], "log_dirs": [str(first)]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    moved = tools.run("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")
    tools.cordon("*")
    refused = tools.refused_creation("refused")
    grown = tools.run("TopicCommand", "--alter", "--topic", "before", "--partitions", "3")
    assigned = tools.create("assigned", "--replica-assignment", "1")
    all_cordoned = tools.cordoned()
    described = tools.run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "1")
    tools.uncordon()
    tools.create_when_possible("after")

    assert "InvalidReplicaAssignmentException" in moved
    assert f"Unable to replicate the partition 1 time(s): {ALL_CORDONED}" in refused
    assert f": {ALL_CORDONED}" in grown and "Unable to replicate" not in grown
    assert "Created topic assigned." in assigned, "who names the broker gets it"
    synonyms = "{DYNAMIC_BROKER_CONFIG:cordoned.log.dirs=*, DEFAULT_CONFIG:cordoned.log.dirs=}"
    assert f"cordoned.log.dirs=* sensitive=false synonyms={synonyms}" in described
    assert all_cordoned == ["first", "second"] and tools.cordoned() == []
    assert tools.places("before") == ["first", "second"]


def test_values_that_are_refused(starter: Starter, paths: list[Path], java_host: JavaHost) -> None:
    tools = Tools(starter.start(WITH_CORDONING), java_host)
    missing = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "

    assert f"InvalidRequestException: requirement failed: {missing}/x, /y\n" in tools.cordon(paths[0], "/x", "/y")
    alone = "InvalidRequestException: requirement failed: When cordoned.log.dirs is set to *, it must not contain other values\n"
    assert alone in tools.cordon("*", paths[0])
    for_all = tools.run(
        "kafka.admin.ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "cordoned.log.dirs=*"
    )
    assert "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]" in for_all
    assert tools.cordoned() == []


def test_below_its_metadata_version_it_holds_on_the_broker_alone(starter: Starter, paths: list[Path], java_host: JavaHost) -> None:
    tools = Tools(starter.start(WITHOUT_CORDONING, cordoned_log_dirs=str(paths[0])), java_host)

    tools.create_when_possible("t")
    eventually(lambda: tools.places("t") == ["second", "second"])
    altered = tools.uncordon()
    before = tools.cordoned()
    tools.run("FeatureCommand", "upgrade", "--metadata", WITH_CORDONING)

    why = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    assert f"InvalidConfigurationException: {why}\n" in altered
    assert before == []
    eventually(lambda: tools.cordoned() == ["first"])
    tools.cordon("*")
    assert ALL_CORDONED in tools.refused_creation("refused")
