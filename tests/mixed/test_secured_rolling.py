"""A secured cluster is changed by rolling restarts while it is used: another authority, other certificates, another mechanism between the
brokers. Producer and consumer go on, and all that was acknowledged is read once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from broker.cli.authority import LOCAL_NAMES, Authority
from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.ports import HOST, free_ports
from tests.support.process import ServerProcess
from tests.support.secured import ADMIN, FILES, PASSWORD, USER, cluster_settings, scram_of_nodes

TOPIC = "rolling"
FLUSH_S = 90
OURS, MIXED = (BARNABAS, BARNABAS, BARNABAS), (BARNABAS, KAFKA, BARNABAS)
KINDS = [OURS, MIXED] if os.environ.get("BARNABAS_TEST_MIXED_ROLLING") else [OURS]
"""Each restart of a node of Apache Kafka costs 5 s of CPU, so mixed clusters are left out of `make test`."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Traffic:
    """One producer with acks=all and one consumer in a group, for as long as the test lasts."""

    def __init__(self, client: Mapping[str, str | int | bool], group: str = "readers", *, expected: int = 0) -> None:
        """`expected`: how many records are there before."""
        self._group = group
        self._expected = expected
        self.acknowledged: list[bytes] = []
        self.read: list[bytes] = []
        self._errors: list[str] = []
        self._over = threading.Event()
        self._has_read = threading.Event()
        self._client = client
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            # A librdkafka that waits for the metadata before its first join waits five minutes if that broker goes away meanwhile
            # ("Broker handle destroyed without termination").
            assert self._has_read.wait(FLUSH_S), "the consumer reads nothing"
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(FLUSH_S + 30)
        assert not self._errors, self._errors

    def _produce(self) -> None:
        producer = Producer({**self._client, "acks": "all", "enable.idempotence": True, "delivery.timeout.ms": FLUSH_S * 1_000})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._errors.append(str(error))
            else:
                self.acknowledged.append(message.value() or b"")

        number = 0
        while not self._over.is_set():
            producer.produce(TOPIC, b"%d" % number, partition=number % 3, on_delivery=delivered)
            number += 1
            producer.poll(0.01)
        if producer.flush(FLUSH_S):
            self._errors.append("not all was delivered")

    def _consume(self) -> None:
        consumer = Consumer({**self._client, "group.id": self._group, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        deadline_s = None
        while deadline_s is None or (len(self.read) < self._expected + len(self.acknowledged) and time.monotonic() < deadline_s):
            self.read += [message.value() or b"" for message in consumer.consume(500, timeout=0.2) if message.error() is None]
            if self.read:
                self._has_read.set()
            if self._over.is_set() and not self._threads[0].is_alive() and deadline_s is None:
                deadline_s = time.monotonic() + FLUSH_S
        consumer.close()


def set_properties(node: ServerProcess, change: Mapping[str, str]) -> None:
    """For the node's next start."""
    node.settings |= change
    written = node.directory / "server.properties"  # Kafka's; of two lines with one name the last counts
    if written.exists():
        with written.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in change.items())


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(kinds))
def test_certificates_and_mechanism_change_while_the_cluster_is_used(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    authority = Authority("another authority", time.time_ns() // 1_000_000)
    pair = authority.sign("node", LOCAL_NAMES, is_for_client=True)
    settings = cluster_settings(tmp_path / "keys", "PLAIN")
    new_keys, new_trust, both = (tmp_path / "keys" / name for name in ("new.pem", "new-ca.pem", "both.pem"))
    new_keys.write_text(pair.key + pair.certificate)
    new_trust.write_text(authority.pair.certificate)
    both.write_text((FILES / "ca.pem").read_text() + new_trust.read_text())
    words = () if KAFKA not in kinds else ("--release-version", "4.0-IV3")
    with Cluster(tmp_path, kinds, secure="SASL_SSL", settings=settings, format_words=(*words, *scram_of_nodes())) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        cluster.wait_in_sync(TOPIC)
        client: dict[str, str | int | bool] = {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in cluster.secure_ports.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(both),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
        traffic = Traffic(client)
        with traffic.running():
            for change in (
                {"ssl.truststore.location": str(both)},
                {"ssl.keystore.location": str(new_keys), "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
                {"ssl.truststore.location": str(new_trust)},
            ):
                for node_id, node in cluster.nodes.items():
                    set_properties(node, change)
                    cluster.restart(node_id)
                    cluster.wait_in_sync(TOPIC)

    assert len(traffic.acknowledged) > 100
    assert sorted(traffic.read) == sorted(traffic.acknowledged)


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(kinds))
def test_a_plain_cluster_is_secured_step_by_step(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Kafka's own recipe, each step a rolling restart: a secured listener; the brokers use it; clients move; the plain listener goes; the
    authorizer lets everyone in where there is no ACL, then nobody."""
    security = {name: value for name, value in cluster_settings(tmp_path / "keys", "PLAIN").items() if ".controller." not in name}
    words = () if KAFKA not in kinds else ("--release-version", "4.0-IV3")
    old_ports, new_ports = (dict(enumerate(free_ports(len(kinds)), 1)) for _ in range(2))
    with Cluster(tmp_path, kinds, format_words=words) as cluster:
        listeners = {node_id: node.settings["listeners"] for node_id, node in cluster.nodes.items()}

        def roll(change: Mapping[str, str], *, with_old: bool, with_new: bool) -> None:
            for node_id, node in cluster.nodes.items():
                old, new = f",OLD://{HOST}:{old_ports[node_id]}" * with_old, f",SECURE://{HOST}:{new_ports[node_id]}" * with_new
                protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT" + ",OLD:PLAINTEXT" * with_old + ",SECURE:SASL_SSL" * with_new
                listening = {"listeners": listeners[node_id] + old + new, "listener.security.protocol.map": protocols}
                set_properties(node, listening | dict(change))
                cluster.restart(node_id)
                cluster.wait_in_sync(*topics)

        topics: list[str] = []
        roll({"inter.broker.listener.name": "OLD"}, with_old=True, with_new=False)  # PLAINTEXT is for the test alone
        cluster.create_topic(TOPIC, partitions=3)
        topics.append(TOPIC)
        plain = Traffic({"bootstrap.servers": ",".join(f"{HOST}:{port}" for port in old_ports.values()), "log_level": 0})
        client: dict[str, str | int | bool] = {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in new_ports.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(FILES / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
        with plain.running():
            roll(security, with_old=True, with_new=True)
            roll({"inter.broker.listener.name": "SECURE"}, with_old=True, with_new=True)
        secured = Traffic(client, "secured-readers", expected=len(plain.acknowledged))
        with secured.running():
            roll({}, with_old=False, with_new=True)
            authorizer = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN};User:ANONYMOUS"}
            roll({**authorizer, "allow.everyone.if.no.acl.found": "true"}, with_old=False, with_new=True)
            allow(cluster)
            roll({"allow.everyone.if.no.acl.found": "false"}, with_old=False, with_new=True)

    assert len(plain.acknowledged) > 50 and len(secured.acknowledged) > 50
    assert sorted(plain.read) == sorted(plain.acknowledged)
    assert sorted(secured.read) == sorted([*plain.acknowledged, *secured.acknowledged])  # its group begins at the topic's beginning


def allow(cluster: Cluster) -> None:
    """The rights of the client that goes on."""
    creations = [
        AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=PatternType.LITERAL, principal=f"User:{USER}", host="*",
            operation=operation, permission_type=AclPermissionType.ALLOW,
        )
        for kind, name, operation in (
            (ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, TOPIC, AclOperation.READ),
            (ResourceType.GROUP, "secured-readers", AclOperation.READ),
        )
    ]  # fmt: skip
    results = cluster.ask(CreateAclsRequest(creations=creations), 3).results
    assert {result.error_code for result in results} == {0}, results
