"""`barnabas.Cluster` as a test uses it, from the checkout: its brokers' lives, what outlives one of them, what is left."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import barnabas
from tests.support.installed import CHECKOUT, commands_with, wait_until

pytestmark = pytest.mark.usefixtures("temporary")

FAST = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 500}


def produce(cluster: barnabas.Cluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def values(cluster: barnabas.Cluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, timeout=60) if message.error() is None]
    consumer.close()
    return found


def isr_sizes(cluster: barnabas.Cluster, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=30).topics[topic]
    return [len(partition.isrs) for partition in found.partitions.values()]


def test_what_was_acknowledged_outlives_each_broker_in_turn() -> None:
    with barnabas.Cluster(config=FAST, topics={"orders": 1}) as cluster:
        for number, broker in enumerate(cluster.brokers):
            produce(cluster, "orders", b"%d" % number)
            broker.kill()
            assert values(cluster, "orders", number + 1) == [b"%d" % each for each in range(number + 1)]
            broker.start()
            wait_until(lambda: isr_sizes(cluster, "orders") == [3], timeout_s=60, what=lambda: cluster.brokers[0].log)

        assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]


def test_a_cluster_that_was_killed_comes_back_with_its_data_and_ports() -> None:
    with barnabas.Cluster(2, topics=["orders"]) as cluster:
        address = cluster.bootstrap_servers
        produce(cluster, "orders", b"a")

        cluster.kill()
        assert repr(cluster) == "<barnabas.Cluster 0 of 2 brokers are running>"
        with pytest.raises(barnabas.BrokerError, match="no broker of the cluster is running"):
            cluster.create_topic("later")
        cluster.start()

        assert cluster.bootstrap_servers == address
        assert values(cluster, "orders", 1) == [b"a"]


@pytest.mark.parametrize("brokers", [1, 3])
def test_transactions_need_no_setting(brokers: int) -> None:
    with barnabas.Cluster(brokers, topics=["orders"]) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "shop"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"a", partition=0)
        producer.commit_transaction(60)

        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("__transaction_state", timeout=30)
        partitions = metadata.topics["__transaction_state"].partitions.values()
        assert {len(partition.replicas) for partition in partitions} == {brokers}
        assert values(cluster, "orders", 1) == [b"a"]


def test_a_topic_has_as_many_replicas_as_are_asked_for() -> None:
    with barnabas.Cluster() as cluster:
        cluster.create_topic("one", replication_factor=1)
        cluster.create_topic("two", 4, replication_factor=2)
        with pytest.raises(barnabas.BrokerError, match="replication factor of 4 cannot be reached because only 3 broker"):
            cluster.create_topic("four", replication_factor=4)

        assert (isr_sizes(cluster, "one"), isr_sizes(cluster, "two")) == ([1], [2] * 4)


def test_the_leader_of_a_partition_is_one_of_the_brokers_and_another_after_its_death() -> None:
    with barnabas.Cluster(topics={"orders": 6}) as cluster:
        found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("orders", timeout=30).topics["orders"]
        leaders = {index: cluster.leader("orders", index) for index in range(6)}
        assert {index: leader.node_id for index, leader in leaders.items()} == {
            index: partition.leader for index, partition in found.partitions.items()
        }

        first = cluster.leader("orders")
        first.kill()
        second = cluster.leader("orders", 0)

        assert second is not first and second in cluster.brokers and second.is_running


def test_a_partition_that_is_not_there_or_has_no_leader_is_told() -> None:
    with barnabas.Cluster(2, topics={"orders": 1}) as cluster:
        for topic, partition in (("orders", 1), ("order", 0)):
            with pytest.raises(barnabas.BrokerError, match=f"the cluster has no partition {topic}-{partition}"):
                cluster.leader(topic, partition)
        cluster.create_topic("alone", replication_factor=1)
        leader = cluster.leader("alone")
        leader.kill()
        with pytest.raises(barnabas.BrokerError, match=r"no running broker leads alone-0 after 0 s"):
            cluster.leader("alone", timeout_s=0)
        cluster.kill()
        with pytest.raises(barnabas.BrokerError, match="no broker of the cluster answers"):
            cluster.leader("orders")


def test_a_wrong_setting_is_the_broker_s_own_line_and_nothing_is_left() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"^Unknown configuration num\.partition; did you mean num\.partitions\?"):
        barnabas.Cluster(config={"num.partition": 1}).start()


def test_a_cluster_cannot_be_given_away_nor_have_no_broker() -> None:
    with pytest.raises(ValueError, match="a cluster of 0 brokers"):
        barnabas.Cluster(0)
    with barnabas.Cluster(1) as cluster, pytest.raises(TypeError, match="belongs to the process that made it"):
        pickle.dumps(cluster)


def test_a_cluster_ends_with_its_process(temporary: Path) -> None:
    program = (
        f"import os, tempfile; tempfile.tempdir = {str(temporary)!r}; import barnabas; cluster = barnabas.Cluster(3).start();"
        "print(*(broker.data_dir for broker in cluster.brokers), sep=chr(10)); cluster.brokers[0].kill(); os.kill(os.getpid(), 9)"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False)

    assert len(done.stdout.splitlines()) == 3, done.stderr
    wait_until(
        lambda: not list(temporary.iterdir()) and not commands_with(str(temporary)),
        timeout_s=60,
        what=lambda: commands_with(str(temporary)),
    )


def test_the_plugin_gives_a_cluster_and_starts_again_what_a_test_has_killed(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_one(barnabas_cluster):\n"
        "    assert len(barnabas_cluster.bootstrap_servers.split(',')) == 3\n"
        "    barnabas_cluster.brokers[1].kill()\n\n\n"
        "def test_two(barnabas_cluster):\n"
        "    assert all(broker.is_running for broker in barnabas_cluster.brokers)\n"
    )
    plugins = ["no:cacheprovider", "no:barnabas", "barnabas.pytest_plugin"]  # this checkout's, also where one is installed
    command = [sys.executable, "-m", "pytest", "-q", *(word for name in plugins for word in ("-p", name)), str(tmp_path / "test_it.py")]

    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", "/dev/null", "--basetemp", str(tmp_path / "base")],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert "2 passed" in done.stdout, done.stdout + done.stderr
