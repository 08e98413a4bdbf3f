"""`barnabas.Cluster(secure=True)`: TLS and SASL on every listener, one authority, users that all brokers know."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

import barnabas
from broker.cli.client_security import LoginError, client_security
from broker.cli.wire_client import WireClient
from protocol.messages.metadata import MetadataRequest
from tests.support.installed import CHECKOUT

pytestmark = pytest.mark.usefixtures("temporary")

API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
TLS_ALERT = b"\x15\x03"


def values(config: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**config, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, timeout=60) if message.error() is None]
    consumer.close()
    return found


def lets_in(broker: barnabas.Broker, config: dict[str, str]) -> bool:
    """Whether the broker lets in the user of `config` at once: librdkafka would try again."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    security = client_security(
        {
            "security.protocol": config["security.protocol"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": config["ssl.ca.location"],
            "sasl.mechanism": config["sasl.mechanism"],
            "sasl.jaas.config": f'{module} required username="{config["sasl.username"]}" password="{config["sasl.password"]}";',
        }
    )
    try:
        with WireClient(broker.host, broker.port, timeout_s=30, security=security) as client:
            return len(client.request(MetadataRequest()).brokers) > 0
    except LoginError:
        return False


def listeners(admin: AdminClient, node_id: int) -> list[tuple[str, int]]:
    """Addresses of a node's listeners, as it tells an administrator."""
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, str(node_id))]).values()
    text = future.result(30)["listeners"].value
    return [(host, int(port)) for host, port in re.findall(r"://([^:,]+):(\d+)", str(text))]


def test_a_producer_outlives_the_leader_and_then_the_whole_cluster() -> None:
    with barnabas.Cluster(secure=True, topics={"orders": 1}) as cluster:
        config = cluster.client_config("alice")
        producer = Producer({**config, "enable.idempotence": True})
        for number in range(2_000):
            producer.produce("orders", b"%d" % number, partition=0)
            if number == 1_000:
                assert producer.flush(60) == 0
                leader = cluster.leader("orders")
                leader.kill()
        assert producer.flush(60) == 0
        assert cluster.leader("orders") is not leader
        expected = [b"%d" % number for number in range(2_000)]
        assert values(config, "orders", 2_000) == expected

        cluster.kill()
        with pytest.raises(barnabas.BrokerError, match="no broker of the cluster is running"):
            cluster.client_config("alice")
        cluster.start()

        assert cluster.client_config("alice") == config
        assert values(config, "orders", 2_000) == expected


def test_every_broker_knows_a_user_and_no_listener_answers_without_tls_or_shows_a_secret() -> None:
    with barnabas.Cluster(secure=True) as cluster:
        users = [f"user-{number}" for number in range(5)]
        for user in users:
            config = cluster.client_config(user)
            assert [lets_in(broker, config) for broker in cluster.brokers] == [True] * 3
        single = cluster.brokers[2].client_config(users[0])
        assert single == cluster.client_config(users[0]) | {"bootstrap.servers": cluster.brokers[2].bootstrap_servers}

        admin = AdminClient(cluster.client_config())
        addresses = [address for broker in cluster.brokers for address in listeners(admin, broker.node_id)]
        assert len(addresses) == 6, "of each node its own and its controller's"
        for address in addresses:
            with socket.create_connection(address, 10) as plain:
                plain.sendall(API_VERSIONS_V0)
                assert plain.recv(100)[:2] in (b"", TLS_ALERT)

        paths = [Path(broker.data_dir) / "barnabas-secure.json" for broker in cluster.brokers]
        (text,) = {path.read_text() for path in paths}
        assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600] * 3
        secrets = [json.loads(text)["key"].splitlines()[1], *(cluster.client_config(user)["sasl.password"] for user in (None, *users))]
        for broker in cluster.brokers:
            shown = broker.log + Path(f"/proc/{broker.pid}/cmdline").read_text()
            assert [secret for secret in secrets if secret in shown] == []
        assert not re.search(r" (ERROR|CRITICAL) ", "".join(broker.log for broker in cluster.brokers))


def test_a_user_is_made_while_a_broker_is_away() -> None:
    with barnabas.Cluster(2, secure=True) as cluster:
        cluster.brokers[1].kill()
        config = cluster.client_config("alice")
        assert lets_in(cluster.brokers[0], config)
        cluster.brokers[1].start()

        assert lets_in(cluster.brokers[1], config)


def test_an_async_cluster_is_the_same() -> None:
    async def make() -> None:
        async with barnabas.AsyncCluster(2, secure=True, topics=["orders"]) as cluster:
            config = await cluster.client_config("alice")
            assert config["bootstrap.servers"] == cluster.bootstrap_servers
            assert config["ssl.ca.location"] == cluster.ca_file
            assert await cluster.brokers[1].client_config("alice") == config | {"bootstrap.servers": cluster.brokers[1].bootstrap_servers}
            await cluster.leader("orders")

    asyncio.run(make())


def test_a_plain_cluster_has_no_users_and_one_that_was_not_started_no_authority() -> None:
    with barnabas.Cluster(1) as cluster:
        assert cluster.client_config() == {"bootstrap.servers": cluster.bootstrap_servers}
        with pytest.raises(barnabas.BrokerError, match="not secure"):
            cluster.client_config("alice")
    with pytest.raises(barnabas.BrokerError, match="was not started"):
        _ = barnabas.Cluster(1, secure=True).ca_file


@pytest.mark.parametrize("key", ["listeners", "listener.security.protocol.map", "log.dirs"])
def test_settings_that_would_open_it_are_refused(key: str) -> None:
    with pytest.raises(barnabas.BrokerError, match=f"a secure broker has listeners and a directory of its own.*{re.escape(key)}"):
        barnabas.Cluster(config={key: "x"}, secure=True)


def test_a_start_that_fails_leaves_nothing(temporary: Path) -> None:
    """What `temporary` looks for at the end: the nodes may be making keys in the directory of the first."""
    with pytest.raises(barnabas.BrokerError, match=r"^Unknown configuration num\.partition"):
        barnabas.Cluster(config={"num.partition": 1}, secure=True).start()


def test_the_plugin_s_mark_makes_them_secure(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.barnabas(secure=True)\n"
        "class TestSecure:\n"
        "    def test_one(self, barnabas_broker, barnabas_topic):\n"
        "        assert barnabas_broker.client_config('alice')['security.protocol'] == 'SASL_SSL'\n"
        "    @pytest.mark.barnabas(brokers=2, topics={'orders': 1})\n"
        "    def test_two(self, barnabas_cluster):\n"
        "        assert barnabas_cluster.client_config('alice')['security.protocol'] == 'SASL_SSL'\n"
        "        assert barnabas_cluster.leader('orders').is_running\n"
        "    @pytest.mark.barnabas(secure=False)\n"
        "    def test_three(self, barnabas_broker):\n"
        "        assert barnabas_broker.client_config().keys() == {'bootstrap.servers'}\n"
        "@pytest.mark.barnabas(secure=1)\n"
        "def test_four(barnabas_broker): ...\n"
    )
    plugins = ["no:cacheprovider", "no:barnabas", "barnabas.pytest_plugin"]  # this checkout's, also where one is installed
    command = [sys.executable, "-m", "pytest", "-q", *(word for name in plugins for word in ("-p", name)), str(tmp_path / "test_it.py")]

    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", os.devnull, "--basetemp", str(tmp_path / "base")],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "secure is True or False, not 1" in done.stdout
