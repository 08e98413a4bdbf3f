"""`barnabas secure init` and `secure add-user`: what they make is private, complete, and lets in whom it should."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from config.loading import read_properties
from tests.support.ports import free_ports, neighbours
from tests.support.process import ServerProcess, checkout

LAUNCHER = checkout() / "barnabas" / "__main__.py"
TIMEOUT_S = 60.0


class Secured(ServerProcess):
    """A node that `secure init` has made, at `directory`; its log is beside it."""

    name = "secured"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.log_path = directory.parent / f"{directory.name}.log"

    def command(self) -> list[str]:
        return [sys.executable, str(LAUNCHER), "serve", "--log-level", "debug", "--config", str(self.directory / "server.properties")]

    def serves(self) -> bool:
        return run("cluster", "status", "--no-lag", "--command-config", str(self.directory / "client.properties")).returncode == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(LAUNCHER), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def run_init(directory: Path, *arguments: str) -> str:
    done = run("secure", "init", str(directory), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("secure") / "made"
    run_init(directory, "--port", str(neighbours(2)))
    node = Secured(directory)
    node.start()
    yield directory
    node.stop()
    log = node.log_path.read_text()
    assert [secret for secret in _secrets(directory) if secret in log] == []


def test_ten_lines_say_what_was_made(tmp_path: Path) -> None:
    said = run_init(tmp_path / "made").splitlines()

    assert len(said) == 10
    assert f"start:     barnabas serve --config {tmp_path / 'made' / 'server.properties'}" in said
    assert [secret for secret in _secrets(tmp_path / "made") if secret in "".join(said)] == []


def test_all_but_the_certificate_and_the_example_is_private(tmp_path: Path) -> None:
    run_init(tmp_path / "made")

    paths = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {path.name for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077} == {"ca.pem", "example.py"}


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "of somebody").write_text("")

    done = run("secure", "init", str(tmp_path))

    assert done.returncode == 1
    assert "has something in it" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["of somebody"]


@pytest.mark.parametrize("words", [["--host", "a b"], ["--nodes", "0"], ["--port", "65535"]])
def test_what_cannot_be_is_one_line_and_makes_nothing(tmp_path: Path, words: list[str]) -> None:
    done = run("secure", "init", str(tmp_path / "made"), *words)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_the_administrator_may_do_everything(directory: Path) -> None:
    example = subprocess.run([sys.executable, directory / "example.py"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    health = run("health", "--config", str(directory / "server.properties"))

    assert (example.stdout, example.stderr) == ("b'hello'\n", "")
    assert health.returncode == 0, health.stderr


def test_a_user_may_do_what_was_given_and_nothing_else(directory: Path) -> None:
    done = run(
        "secure", "add-user", "alice", "--write", "orders-*", "--read", "orders-*", "--group", "alices", "--directory", str(directory)
    )
    assert done.returncode == 0, done.stderr
    admin = Producer(librdkafka(directory, "client"))
    for topic in ("orders-1", "others"):
        admin.produce(topic, b"of admin")
    assert admin.flush(30) == 0

    assert _send(directory, "alice", "orders-1") is None
    assert _send(directory, "alice", "others") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert _read(directory, "alice", "orders-1", "alices") == b"of admin"
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        _read(directory, "alice", "orders-1", "of others")


def test_a_users_file_is_private_and_a_second_user_of_the_name_is_refused(directory: Path) -> None:
    first = run("secure", "add-user", "bob", "--directory", str(directory))
    second = run("secure", "add-user", "bob", "--directory", str(directory))
    (directory / "bob.properties").rename(directory / "moved.properties")
    third = run("secure", "add-user", "bob", "--directory", str(directory))

    assert stat.S_IMODE((directory / "moved.properties").stat().st_mode) == 0o600
    assert [done.returncode for done in (first, second, third)] == [0, 1, 1]
    assert "is there already" in second.stderr
    assert "there is a user bob already" in third.stderr
    assert not (directory / "bob.properties").exists()


def test_no_secret_is_told_by_describe_configs(directory: Path) -> None:
    admin = AdminClient(librdkafka(directory, "client"))
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    configs = future.result(30)

    assert configs["listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"].is_sensitive
    told = "".join(str(each.value) for config in configs.values() for each in (config, *config.synonyms.values()))
    assert [secret for secret in _secrets(directory) if secret in told] == []


@pytest.mark.parametrize("name", ["client", "../up", "a,b", ""])
def test_a_name_that_cannot_be_a_file_of_its_own_is_refused(directory: Path, name: str) -> None:
    done = run("secure", "add-user", name, "--directory", str(directory))

    assert done.returncode == 1
    assert "cannot be a user's name" in done.stderr


def test_a_wrong_password_and_an_untrusted_broker_are_one_line(directory: Path, tmp_path: Path) -> None:
    text = (directory / "client.properties").read_text()
    (tmp_path / "wrong").write_text(text.replace('password="', 'password="x'))
    run_init(tmp_path / "stranger")
    foreign = read_properties(tmp_path / "stranger" / "client.properties")["ssl.truststore.certificates"]
    ours = read_properties(directory / "client.properties")["ssl.truststore.certificates"]
    (tmp_path / "untrusting").write_text(text.replace(ours.replace("\n", "\\n"), foreign.replace("\n", "\\n")))

    wrong = run("cluster", "status", "--command-config", str(tmp_path / "wrong"))
    untrusting = run("cluster", "status", "--command-config", str(tmp_path / "untrusting"))

    assert (wrong.returncode, untrusting.returncode) == (1, 1)
    assert "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512" in wrong.stderr
    assert "certificate verify failed" in untrusting.stderr.lower()
    assert len(wrong.stderr.splitlines()) == len(untrusting.stderr.splitlines()) == 1


def test_a_start_tells_of_a_key_that_all_may_read_and_of_what_is_open_to_other_machines(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    run_init(directory, "--host", "localhost", "--port", str(neighbours(2)))
    (directory / "keys" / "server.pem").chmod(0o644)
    with (directory / "server.properties").open("a") as file:
        file.write(f"barnabas.metrics.listener=0.0.0.0:{free_ports(1)[0]}\n")
    node = Secured(directory)
    node.start()
    node.stop()

    warnings = [line.partition(" WARNING ")[2] for line in node.log_path.read_text().splitlines() if " WARNING " in line]
    assert f"barnabas.security every user of this machine may read the private key in {directory / 'keys' / 'server.pem'}" in warnings
    assert len([line for line in warnings if "other machines reach the metrics" in line]) == 1
    assert len(warnings) == 2


def test_three_nodes_are_a_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    run_init(directory, "--nodes", "3", "--port", str(neighbours(6)))
    nodes = [Secured(directory / f"node-{number}") for number in (1, 2, 3)]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.serves = lambda: _is_whole(directory)  # type: ignore[method-assign]
            node.wait_ready()

        assert _send(directory, "client", "replicated") is None
    finally:
        for node in nodes:
            node.stop()


def _is_whole(directory: Path) -> bool:
    done = run("cluster", "status", "--command-config", str(directory / "client.properties"))
    return done.stdout.count(" alive ") == 3


def _send(directory: Path, user: str, topic: str) -> int | None:
    """The error of a record; None if it was acknowledged."""
    errors: list[KafkaError | None] = []
    producer = Producer({**librdkafka(directory, user), "acks": "all", "log_level": 0})
    producer.produce(topic, b"of a user", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(30) == 0
    (error,) = errors
    return None if error is None else error.code()


def _read(directory: Path, user: str, topic: str, group: str) -> bytes | None:
    conf = {**librdkafka(directory, user), "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        return message.value()
    finally:
        consumer.close()


def librdkafka(directory: Path, user: str) -> dict[str, str]:
    properties = read_properties(directory / f"{user}.properties")
    words = properties["sasl.jaas.config"].split('"')
    return {
        "bootstrap.servers": properties["bootstrap.servers"],
        "security.protocol": properties["security.protocol"],
        "ssl.ca.pem": properties["ssl.truststore.certificates"],
        "sasl.mechanism": properties["sasl.mechanism"],
        "sasl.username": words[1],
        "sasl.password": words[3],
    }


def _secrets(directory: Path) -> list[str]:
    """Passwords and private keys, by a line of each."""
    lines = [line for path in directory.rglob("*.properties") for line in path.read_text().splitlines() if "sasl.jaas.config=" in line]
    keys = [directory / "ca.key", *directory.rglob("keys/*.pem")]
    assert lines and len(keys) > 2
    return [*(line.split('"')[3] for line in lines), *(path.read_text().splitlines()[1] for path in keys)]
