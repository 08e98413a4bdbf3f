"""kafka-configs.sh by its name, at servers of both kinds: entities of all types; output and exit codes are those of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.cli.kafka_tools.config_quotas import java_double
from tests.barnabas.cli.conftest import Command, Result
from tests.clients.topics import eventually
from tests.support.java_host import JavaHost

COMMAND = "kafka.admin.ConfigCommand"


class Both:
    """Describes by Kafka's tool and by ours, which have to print the same; the order of what is in one line is Java's own."""

    def __init__(self, command: Command, java_host: JavaHost) -> None:
        self._command, self._java_host = command, java_host
        self.address = ("--bootstrap-server", command.bootstrap)

    def alter(self, *words: str) -> tuple[int, str, str]:
        done = self._command("kafka-tool", "kafka-configs.sh", *self.address, "--alter", *words)
        return done.code, done.out, done.err

    def told(self, *words: str) -> tuple[int, str, str]:
        done = self._describe(*words)
        return done.code, done.out, done.err

    def refused(self, *words: str) -> str:
        """What Kafka's tool says on stderr of a change."""
        return self._java_host.tool(COMMAND, *self.address, "--alter", *words, expected_status=1).stderr

    def until(self, is_so: Callable[[str], bool], *words: str) -> None:
        """Until a change is seen: Apache Kafka's brokers learn of it after its answer. Then both tools print the same."""
        eventually(lambda: is_so(self._describe(*words).out))
        assert is_so(self.describe(*words))

    def _describe(self, *words: str) -> Result:
        return self._command("kafka-tool", "kafka-configs.sh", *self.address, "--describe", *words)

    def describe(self, *words: str) -> str:
        ours = self._describe(*words)
        theirs = self._java_host.tool(COMMAND, *self.address, "--describe", *words, expected_status=None)
        assert (ours.code, _in_order(ours.out)) == (theirs.status, _in_order(theirs.stdout)), (words, ours, theirs)
        return ours.out


def _in_order(text: str) -> list[list[str]]:
    return sorted(sorted(line.replace(",", " ").split()) for line in text.splitlines())


@pytest.fixture
def both(command: Command, java_host: JavaHost) -> Both:
    return Both(command, java_host)


def test_credentials_of_a_user_are_made_described_and_deleted(both: Both, topic_name: str) -> None:
    name = f"user-{topic_name}"
    whose = ("--entity-type", "users", "--entity-name", name)
    for_both = "SCRAM-SHA-256=[iterations=8192,password=a=b],SCRAM-SHA-512=[password=c]"

    assert both.alter(*whose, "--add-config", for_both) == (0, f"Completed updating config for user {name}.\n", "")

    both.until(lambda told: "SCRAM-SHA-512" in told, *whose)
    told = f"SCRAM credential configs for user-principal '{name}' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    # Apache Kafka's brokers keep a user's mechanisms in an order of their own, which differs from run to run.
    assert _in_order(both.describe("--user", name)) == _in_order(told)
    assert _in_order(told)[0] in _in_order(both.describe("--entity-type", "users"))
    assert both.alter(*whose, "--delete-config", "SCRAM-SHA-256")[0] == 0
    both.until(lambda told: "SCRAM-SHA-256" not in told, *whose)
    assert both.alter(*whose, "--delete-config", "SCRAM-SHA-512")[0] == 0
    both.until(lambda told: told == "", *whose)


def test_quotas_of_users_clients_and_addresses(both: Both, topic_name: str) -> None:
    name = f"user-{topic_name}"
    for words, completed in (
        (("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-name", "app"), f"config for user {name}"),
        (("--entity-type", "users", "--entity-name", name), f"config for user {name}"),
        (("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-default"), f"config for user {name}"),
        (("--client-defaults",), "default config for clients in the cluster"),
    ):
        rates = "producer_byte_rate=12345678,consumer_byte_rate=1024"
        assert both.alter(*words, "--add-config", rates) == (0, f"Completed updating {completed}.\n", "")
        both.until(lambda told: "1.2345678E7" in told, *words)
    assert both.alter("--ip", "10.0.0.7", "--add-config", "connection_creation_rate=5")[0] == 0
    both.until(lambda told: "ip '10.0.0.7' are connection_creation_rate=5.0" in told, "--entity-type", "ips")
    assert "the default client-id" in both.describe("--entity-type", "clients")
    assert both.describe("--entity-type", "users", "--entity-name", name, "--entity-type", "clients").count("\n") == 2

    deleted = ("--entity-type", "clients", "--entity-default", "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert both.alter(*deleted)[0] == 0
    both.until(lambda told: told == "", "--client-defaults")
    assert both.alter(*deleted) == (1, "", "Invalid config(s): producer_byte_rate,consumer_byte_rate\n")
    both.alter("--ip", "10.0.0.7", "--delete-config", "connection_creation_rate")


def test_client_metrics_groups_and_brokers(both: Both, topic_name: str, tmp_path: Path) -> None:
    settings = tmp_path / "more.properties"
    settings.write_text("interval.ms=70000\nmetrics=org.apache.kafka.producer,org.apache.kafka.consumer\n")

    assert both.alter("--client-metrics", topic_name, "--add-config-file", str(settings))[0] == 0
    assert both.alter("--group", topic_name, "--add-config", "consumer.session.timeout.ms=50000")[0] == 0
    assert both.alter("--broker-defaults", "--add-config", "log.cleaner.backoff.ms=16000")[:2] == (
        0,
        "Completed updating default config for brokers in the cluster.\n",
    )

    both.until(lambda told: "interval.ms=70000" in told, "--client-metrics", topic_name)
    both.until(lambda told: "consumer.session.timeout.ms=50000" in told, "--group", topic_name)
    both.until(lambda told: "log.cleaner.backoff.ms=16000" in told, "--broker-defaults")
    both.describe("--entity-type", "brokers")
    both.describe("--entity-type", "client-metrics")
    for missing in ("--topic", "--group", "--client-metrics"):
        assert "doesn't exist and doesn't have dynamic config." in both.describe(missing, "none-such")
    assert "doesn't exist" in both.describe("--broker", "77")
    both.alter("--client-metrics", topic_name, "--delete-config", "interval.ms", "--delete-config", "metrics")
    both.alter("--broker-defaults", "--delete-config", "log.cleaner.backoff.ms")


def test_levels_of_a_brokers_loggers(both: Both) -> None:
    """Both tools show and refuse the same. A level that is deleted is the parent's again."""
    whose, logger = ("--entity-type", "broker-loggers", "--entity-name", "1"), "kafka.server.KafkaApis"
    assert both.alter(*whose, "--add-config", "no.such=INFO", "--delete-config", "nor.this")[2] == both.refused(
        *whose, "--add-config", "no.such=INFO", "--delete-config", "nor.this"
    )
    for change, why in (
        (
            ("--add-config", "root=LOUD"),
            "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are ",
        ),
        (("--delete-config", "root"), "Removing the log level of the root logger is not allowed"),
    ):
        code, out, err = both.alter(*whose, *change)
        assert (code, out, err.count("\n")) == (1, "", 1) and why in err and why in both.refused(*whose, *change)

    # What was asked above has loaded what it takes: from here on no logger is added.
    before = both.describe(*whose)
    level = before.split("  root=")[1].split()[0]
    assert both.alter(*whose, "--add-config", "root=ERROR") == (0, "Completed updating config for broker-logger 1.\n", "")
    assert "  root=ERROR sensitive=false synonyms={}\n" in both.describe("--broker-logger", "1")
    if logger in before:  # the Apache Kafka of these tests has no logger but the root
        assert both.alter(*whose, "--add-config", f"{logger}=DEBUG")[0] == 0
        assert f"  {logger}=DEBUG" in both.describe("--broker-logger", "1")
        assert both.alter("--broker-logger", "1", "--delete-config", logger)[0] == 0
    assert both.alter(*whose, "--add-config", f"root={level}")[0] == 0
    assert both.describe(*whose, "--all").splitlines()[1:] == before.splitlines()[1:]

    assert both.alter("--broker-logger", "77", "--add-config", "root=INFO")[0] == 1
    assert "doesn't exist and doesn't have dynamic config." in both.describe("--broker-logger", "77")
    assert both.told(*whose[:2])[2] == "An entity name must be specified with --describe of broker-loggers\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--entity-type", "users", "--add-config", "producer_byte_rate=1"), "An entity name must be specified for every entity type"),
        (("--user", "a", "--entity-type", "users", "--add-config", "a=1"), "should not be used in conjunction"),
        (("--user", "a", "--topic", "b", "--add-config", "a=1"), "Only 'users' and 'clients' entity types may be specified together"),
        (("--entity-type", "cats", "--entity-name", "tom", "--add-config", "a=1"), "Invalid entity type cats"),
        (("--broker", "one", "--add-config", "a=1"), "must be a valid integer broker id"),
        (("--topic", "a", "--add-config", "a=b,c"), "all configs to be added must be in the format"),
        (("--topic", "a", "--add-config", "a/b=c"), "Invalid character found for config key: a/b"),
        (("--topic", "a"), "go with --alter"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=5,password=x]"), "Iterations 5 is less than the minimum 4096"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=secret"), "Invalid credential property SCRAM-SHA-256"),
        (("--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"), "not allowed with User SCRAM Credentials"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[password=x],producer_byte_rate=1"), "Cannot alter both quota and SCRAM"),
        (("--client", "a", "--add-config", "SCRAM-SHA-256=[password=x]"), "Only quota configs"),
        (("--ip", "10.0.0.1", "--add-config", "producer_byte_rate=1"), "Only connection quota configs"),
        (("--user", "a", "--add-config", "producer_byte_rate=fast"), "Cannot parse quota configuration value for producer_byte_rate: fast"),
    ],
)
def test_what_has_no_meaning_ends_with_1_in_a_line(both: Both, words: tuple[str, ...], why: str) -> None:
    code, out, err = both.alter(*words)

    assert (code, out, err.count("\n")) == (1, "", 1) and why in err and "secret" not in err


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1024.0, "1024.0"), (1e7, "1.0E7"), (-12345678.9, "-1.23456789E7"), (0.001, "0.001"), (5e-4, "5.0E-4")],
)
def test_number_is_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


def test_no_broker_ends_with_1(both: Both) -> None:
    both.address = ("--bootstrap-server", "localhost:1")

    code, out, err = both.alter("--topic", "a", "--add-config", "retention.ms=5")

    assert (code, out, err.count("\n")) == (1, "", 1) and err.startswith("no broker answers")
