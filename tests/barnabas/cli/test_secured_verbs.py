"""Every verb that asks a cluster, over SASL_SSL at Barnabas and at Apache Kafka: by an administrator, by a user without rights, and with a
wrong password. The other tests of this folder do it without security."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli import verbs
from tests.barnabas.cli.conftest import Command
from tests.support.kafka import kafka_jars
from tests.support.secured_cluster import SecuredCluster

TOPIC, GROUP = "orders", "readers"
NO_CLUSTER = ("context", "log", "completion")
NODES = {
    ("top",), ("transaction", "describe"), ("transaction", "abort"), ("group", "remove-member"), ("cluster", "reassign", "cancel"),
    ("cluster", "elect-leaders"), ("cluster", "cordon"), ("cluster", "uncordon"), ("cluster", "unregister"),
    ("cluster", "quorum", "add-voter"), ("cluster", "quorum", "remove-voter"), ("cluster", "features", "upgrade"),
    ("cluster", "features", "downgrade"),
}  # fmt: skip
"""These need several nodes and a moment: test_secured_nodes.py has them. The console has tests of its own."""
SEES_NOTHING = {
    ("topic", "list"), ("config", "list"), ("group", "list"), ("transaction", "list"), ("transaction", "find-hanging"),
    ("cluster", "info"), ("cluster", "health"), ("cluster", "features"),
}  # fmt: skip
"""Who has no rights is refused everything but these, which show what he may see, as Kafka's answers do."""
STEPS: tuple[tuple[str, ...], ...] = (
    ("topic", "create", TOPIC, "-p", "2"),
    ("topic", "clone", TOPIC, "copy"),
    ("topic", "list"),
    ("topic", "describe", TOPIC, "--groups"),
    ("topic", "alter", TOPIC, "--set", "retention.ms=100000000"),
    ("topic", "add-partitions", TOPIC, "--total", "3"),
    ("produce", TOPIC),
    ("consume", TOPIC, "-e"),
    ("consume", TOPIC, "-g", GROUP, "-n", "1", "-o", "start"),
    ("perf", "produce", TOPIC, "-n", "10"),
    ("perf", "consume", TOPIC, "-n", "5"),
    ("group", "list"),
    ("group", "describe", GROUP),
    ("group", "reset", GROUP, "--to", "start", "--topic", TOPIC, "--yes"),
    ("group", "delete-offsets", GROUP, "--topic", TOPIC, "--yes"),
    ("group", "delete", GROUP, "--yes"),
    ("topic", "trim", TOPIC, "-o", "1", "-p", "0", "--yes"),
    ("topic", "reassign", TOPIC, "--to-brokers", "1", "--yes"),
    ("config", "list", "topic"),
    ("config", "describe", "topic", TOPIC),
    ("config", "set", "topic", TOPIC, "retention.ms=200000000"),
    ("config", "delete", "topic", TOPIC, "retention.ms", "--yes"),
    ("acl", "list"),
    ("acl", "create", "--allow-principal", "alice", "--operation", "read", "--topic", TOPIC),
    ("user", "list"),
    ("user", "create", "alice", "--generate"),
    ("user", "set-password", "alice", "--generate"),
    ("user", "delete", "alice", "--yes"),
    ("quota", "set", "--user", "alice", "producer_byte_rate=1000"),
    ("quota", "list"),
    ("quota", "delete", "--user", "alice", "--yes"),
    ("transaction", "list"),
    ("transaction", "producers", TOPIC),
    ("transaction", "find-hanging"),
    ("cluster", "info"),
    ("cluster", "health"),
    ("cluster", "reassign", "status"),
    ("cluster", "log-dirs"),
    ("cluster", "quorum"),
    ("cluster", "features"),
    ("acl", "test", "alice", "read", f"topic:{TOPIC}"),
    ("acl", "delete", "--allow-principal", "alice", "--yes"),
    ("topic", "delete", TOPIC, "copy", "--yes"),
)
EACH_WAY = (("topic", "list"), ("topic", "create", "x"), ("produce", TOPIC), ("consume", TOPIC, "-e"), ("quota", "list"), ("user", "list"))
"""By librdkafka's administrator, producer and consumer, and by the wire."""


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    if request.param == "kafka":
        kafka_jars()
    with SecuredCluster(tmp_path_factory.mktemp(request.param), kind=request.param) as cluster:
        yield cluster


def add_context(command: Command, properties: Path) -> None:
    """The current one from now on."""
    command.done("context", "add", "mine", "--command-config", str(properties), "--use", "--replace")


def verb_of(words: tuple[str, ...]) -> tuple[str, ...]:
    return max((verb for verb in verbs.VERBS if words[: len(verb)] == verb), key=len)


def test_no_verb_is_forgotten() -> None:
    asks = {verb for verb in verbs.VERBS if verb[0] not in NO_CLUSTER}

    assert asks - NODES - {("console",)} == {verb_of(step) for step in STEPS}


def test_administrator_does_it_all(barnabas_command: Command, cluster: SecuredCluster) -> None:
    add_context(barnabas_command, cluster.directory / "client.properties")

    for step in STEPS:
        result = barnabas_command(*step, stdin="a\nb\n")
        assert result.code == 0, (step, result)


def test_who_has_no_rights_is_refused_in_a_line(barnabas_command: Command, cluster: SecuredCluster) -> None:
    cluster.add_user("nobody")
    add_context(barnabas_command, cluster.directory / "nobody.properties")

    for step in STEPS:
        result = barnabas_command(*step, stdin="a\nb\n")
        assert result.code == (0 if verb_of(step) in SEES_NOTHING else 1), (step, result)
        if result.code:
            assert re.fullmatch(rf"barnabas {' '.join(verb_of(step))}: .*(AUTHORIZATION_FAILED|there is no topic).*\n", result.err), (
                step,
                result,
            )


@pytest.mark.parametrize("words", EACH_WAY)
def test_wrong_password_is_said_in_a_line(
    barnabas_command: Command, cluster: SecuredCluster, tmp_path: Path, words: tuple[str, ...]
) -> None:
    made = (cluster.directory / "client.properties").read_text()
    changed = re.sub(r'password="[^"]*"', 'password="another"', made)
    assert changed != made
    (tmp_path / "client.properties").write_text(changed)
    add_context(barnabas_command, tmp_path / "client.properties")

    result = barnabas_command(*words, stdin="a\n")

    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1), result
    assert "does not let us in" in result.err and "another" not in result.err
