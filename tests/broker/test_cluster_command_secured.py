"""`barnabas cluster up --secure`, as a person runs it: the cluster, its state, its users, its next start."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from config.loading import read_properties
from tests.broker.test_cluster_command import TIMEOUT_S, Up, has_internal_topics, report, status, up, wait_for_report  # noqa: F401
from tests.broker.test_secure_command import librdkafka
from tests.support.commands import run_here
from tests.support.ports import neighbours

PRIVATE = {"ca.key", "server.pem", "node.pem", "client.properties", "librdkafka.properties", "security.properties", "alice.properties"}


def send(directory: Path, user: str, topic: str) -> int | None:
    """The error of a record; None if it was acknowledged."""
    errors: list[KafkaError | None] = []
    producer = Producer({**librdkafka(directory, user), "acks": "all", "log_level": 0})
    producer.produce(topic, b"of a user", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(30) == 0
    (error,) = errors
    return None if error is None else error.code()


def secrets(directory: Path) -> list[str]:
    """Passwords and private keys, by a line of each."""
    passwords = [read_properties(path).get("sasl.jaas.config", "") for path in directory.glob("*.properties")]
    passwords += [value for name, value in read_properties(directory / "security.properties").items() if name.endswith("jaas.config")]
    return [
        *(text.split('"')[3] for text in passwords if text),
        *(path.read_text().splitlines()[1] for path in (directory / "ca.key", *directory.glob("keys/*.pem"))),
    ]


def logs(directory: Path) -> str:
    return "".join((directory / f"node-{node_id}" / "log").read_text() for node_id in (1, 2, 3))


def test_a_secured_cluster_is_begun_told_of_used_and_comes_back_on_other_ports_with_its_users(
    up: Callable[..., Up],  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cluster"
    first = up("--secure", "--directory", str(folder), "--port", str(neighbours(3)))
    said = [first.line, *(first.process.stdout.readline() for _ in range(4))]  # type: ignore[union-attr]
    assert said[2].startswith(f"connect:   {folder / 'client.properties'} ")
    assert run_here("secure", "add-user", "alice", "--write", "orders", "--directory", str(folder)).returncode == 0
    known = wait_for_report(has_internal_topics, "--directory", str(folder))
    assert [(broker["id"], broker["is_fenced"]) for broker in known["brokers"]] == [(1, False), (2, False), (3, False)]
    assert [voter["id"] for voter in known["quorum"]["voters"]] == [1, 2, 3]
    assert (send(folder, "client", "orders"), send(folder, "alice", "orders")) == (None, None)
    assert send(folder, "alice", "others") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert re.findall(r".* (?:ERROR|WARNING) .*", logs(folder)) == []
    assert first.end() == (0, "")

    second = up("--secure", "--directory", str(folder), "--port", str(neighbours(3)), "--json")
    assert second.bootstrap != first.bootstrap
    assert json.loads(second.line)["client_properties"] == str(folder / "client.properties")
    assert read_properties(folder / "alice.properties")["bootstrap.servers"] == second.bootstrap
    consumer = Consumer({**librdkafka(folder, "client"), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(2, TIMEOUT_S)) == 2
    consumer.close()
    assert send(folder, "alice", "orders") is None

    shown = "".join(said) + second.line + logs(folder)
    shown += "".join(Path(f"/proc/{broker['pid']}/cmdline").read_text() for broker in json.loads(second.line)["brokers"])
    assert [secret for secret in secrets(folder) if secret in shown] == []
    assert second.end() == (0, "")


def test_its_secrets_are_for_this_user_alone_and_it_ends_with_its_pipe(up: Callable[..., Up], tmp_path: Path) -> None:  # noqa: F811
    cluster = up("--ephemeral", "--secure", "--brokers", "1")
    folder = Path(json.loads(cluster.line)["ca_file"]).parent
    assert run_here("secure", "add-user", "alice", "--directory", str(folder)).returncode == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.name in PRIVATE}
    assert modes == dict.fromkeys(PRIVATE, 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert send(folder, "client", "orders") is None

    _, errors = cluster.process.communicate(timeout=TIMEOUT_S)  # closes its standard input

    assert (cluster.process.returncode, errors, os.listdir(tmp_path)) == (0, "", [])


@pytest.mark.parametrize(("begun", "then", "why"), [
    ((), ("--secure",), "was begun without --secure"),
    (("--secure",), (), "is a secured one: give --secure"),
])  # fmt: skip
def test_a_folder_stays_what_it_was_begun_as(
    up: Callable[..., Up],  # noqa: F811
    tmp_path: Path,
    begun: tuple[str, ...],
    then: tuple[str, ...],
    why: str,
) -> None:
    folder = tmp_path / "cluster"
    assert up("--directory", str(folder), "--brokers", "1", "--port", "0", *begun).end()[0] == 0
    before = sorted(path.name for path in folder.iterdir())

    _, errors = (refused := up("--directory", str(folder), *then)).process.communicate(timeout=TIMEOUT_S)

    assert refused.process.returncode == 1
    assert why in errors and len(errors.splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_folder_of_secure_init_is_no_cluster_s(up: Callable[..., Up], tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "made"
    assert run_here("secure", "init", str(folder)).returncode == 0

    _, errors = up("--secure", "--directory", str(folder)).process.communicate(timeout=TIMEOUT_S)

    assert errors == f"barnabas cluster up: {folder / 'ca.key'} is there already, and no cluster.json: name an empty or a new folder\n"
