"""`barnabas.Broker` as a test uses it, from the checkout: its life, its port, its data, its errors."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import barnabas
from tests.support.installed import CHECKOUT, wait_until

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker() as running:
        yield running


def produce(broker: barnabas.Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def first_value(broker: barnabas.Broker, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    return None if message is None else message.value()


def partition_counts(broker: barnabas.Broker) -> dict[str, int]:
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}


def answers(broker: barnabas.Broker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_topics_of_the_constructor_are_there_at_once() -> None:
    with barnabas.Broker({"num.partitions": 2}, {"orders": 3, "payments": 1}) as broker:
        broker.create_topic("defaulted")

        assert partition_counts(broker) == {"orders": 3, "payments": 1, "defaulted": 2}


def test_a_group_and_a_transaction_need_not_wait_for_their_internal_topics(broker: barnabas.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def topics() -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=30).topics.items()}

    wait_until(lambda: topics() == {"__consumer_offsets": 1, "__transaction_state": 1}, 30, topics)


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with barnabas.Broker(topics={"first": 1}) as first, barnabas.Broker(topics={"second": 1}) as second:
        assert first.port != second.port
        assert (partition_counts(first), partition_counts(second)) == ({"first": 1}, {"second": 1})


@pytest.mark.parametrize("end", [barnabas.Broker.stop, barnabas.Broker.kill])
def test_restart_keeps_port_data_and_log(broker: barnabas.Broker, end: Callable[[barnabas.Broker], None]) -> None:
    address, pid = broker.bootstrap_servers, broker.pid
    produce(broker, "kept", b"value")

    end(broker)
    assert not broker.is_running and not answers(broker) and broker.bootstrap_servers == address
    broker.restart()

    assert (broker.is_running, broker.bootstrap_servers) == (True, address) and broker.pid != pid
    assert first_value(broker, "kept") == b"value"


@pytest.mark.skipif(sys.platform != "linux", reason="the port is reserved on Linux only")
def test_nobody_else_gets_the_port_while_the_broker_is_down(broker: barnabas.Broker) -> None:
    broker.kill()

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((broker.host, broker.port))

    broker.restart()


def test_settings_are_given_in_python(broker: barnabas.Broker) -> None:
    settings = {"auto.create.topics.enable": False, "log.retention.ms": 60_000, "log.cleanup.policy": ["compact", "delete"]}

    with barnabas.Broker(settings) as configured:
        with pytest.raises(barnabas.BrokerError, match=r"Topic 'orders' already exists\.$"):
            configured.create_topic("orders", config={"retention.ms": -1})
            configured.create_topic("orders")
        configured.create_topic("orders", exist_ok=True)

        assert configured.is_running


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num.partitions": 0}, r"^Invalid value 0 for configuration num.partitions: Value must be at least 1$"),
        ({"log.retention.hour": 1}, r"^Unknown configuration log.retention.hour; did you mean log.retention.hours\?$"),
        ({"num_partitions": 1}, r"^Unknown configuration num_partitions; did you mean num.partitions\?$"),
    ],
)
def test_a_wrong_setting_is_the_broker_s_own_line(config: dict[str, object], message: str) -> None:
    with pytest.raises(barnabas.BrokerError, match=message):
        barnabas.Broker(config).start()


def test_a_taken_port_is_the_broker_s_own_line(broker: barnabas.Broker) -> None:
    with pytest.raises(barnabas.BrokerError, match=r"^listener PLAINTEXT: can't listen on 127\.0\.0\.1:"):
        barnabas.Broker({"listeners": f"PLAINTEXT://127.0.0.1:{broker.port}"}).start()


def test_a_wrong_topic_ends_the_broker_with_the_reason() -> None:
    broker = barnabas.Broker(topics={"not a name": 1})

    with pytest.raises(barnabas.BrokerError, match="cannot create topic not a name: "):
        broker.start()

    assert not broker.is_running


@pytest.mark.parametrize("topics", ["orders", {"orders": "3"}, [3]])
def test_topics_of_another_kind_are_refused(topics: Any) -> None:
    with pytest.raises(TypeError, match=r"^topics are "):
        barnabas.Broker(topics=topics)


def test_topics_by_name_alone_have_the_default_number_of_partitions() -> None:
    with barnabas.Broker({"num.partitions": 2, "log.retention.ms": None}, ["orders", "payments"]) as broker:
        assert partition_counts(broker) == {"orders": 2, "payments": 2}


def test_a_restart_finds_its_data_from_another_directory(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(temporary.parent)
    monkeypatch.setattr(tempfile, "tempdir", temporary.name)
    with barnabas.Broker(topics={"kept": 2}) as broker:
        monkeypatch.chdir("/")
        broker.restart()

        assert partition_counts(broker) == {"kept": 2}


def test_a_start_that_takes_too_long_says_so() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"did not start within 0\.001 s"):
        barnabas.Broker(start_timeout_s=0.001).start()


def test_asking_a_broker_that_does_not_run_says_why(broker: barnabas.Broker) -> None:
    with pytest.raises(barnabas.BrokerError, match="was not started"):
        print(barnabas.Broker().bootstrap_servers)
    broker.stop()
    broker.stop()
    with pytest.raises(barnabas.BrokerError, match="the broker is stopped"):
        broker.create_topic("late")
    broker.start()
    with pytest.raises(barnabas.BrokerError, match="running already"):
        broker.start()
    broker.close()
    broker.close()
    with pytest.raises(barnabas.BrokerError, match="is closed"):
        broker.restart()


def test_a_broker_that_died_by_itself_is_told_from_one_that_was_stopped(broker: barnabas.Broker) -> None:
    os.kill(broker.pid, 9)

    with pytest.raises(barnabas.BrokerError, match="has exited by itself with status -9"):
        broker.create_topic("after")
    broker.restart()
    broker.create_topic("after")


def test_log_is_the_text_so_far_and_its_end_after_closing() -> None:
    with barnabas.Broker({"num.io.threads": 9}) as broker:
        during = broker.log

    assert "without effect here" in during and broker.log.startswith(during)


def test_log_directories_of_the_user_s_own_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "my data"
    settings = {"log.dirs": directory}
    with barnabas.Broker(settings, {"kept": 1}) as broker:
        produce(broker, "kept", b"value")
        assert broker.data_dir == str(directory)

    with barnabas.Broker(settings, {"kept": 1}) as broker:
        assert first_value(broker, "kept") == b"value"


def test_settings_of_other_brokers_in_the_environment_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "none")
    monkeypatch.setenv("PYTHONWARNINGS", "error")

    with barnabas.Broker() as broker:
        assert broker.is_running


def test_a_project_s_own_modules_are_not_the_broker_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("barnabas.py", "config.py", "signal.py", "uvloop.py"):
        (tmp_path / name).write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)

    with barnabas.Broker() as broker:
        assert broker.is_running


def test_a_broker_is_not_given_to_another_process(broker: barnabas.Broker) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers"):
        pickle.dumps(broker)


def use_in_child(broker: barnabas.Broker) -> None:
    """In a forked child: the broker may be used and not ended; an exit code says what went wrong."""
    broker.create_topic("from-the-child")
    broker.close()
    with pytest.raises(barnabas.BrokerError, match="belongs to process"):
        broker.stop()


def test_a_forked_child_uses_the_broker_and_does_not_end_it(broker: barnabas.Broker) -> None:
    child = multiprocessing.get_context("fork").Process(target=use_in_child, args=(broker,))
    child.start()
    child.join(60)

    assert child.exitcode == 0 and broker.is_running
    assert "from-the-child" in partition_counts(broker)


def test_a_broker_that_nobody_closes_ends_when_it_is_forgotten() -> None:
    broker = barnabas.Broker().start()
    pid = broker.pid

    del broker

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("redirection", ["<&-", "0<&- 1>&- 2>&-", "</dev/null"])
def test_a_program_without_standard_streams_has_a_broker(tmp_path: Path, redirection: str) -> None:
    script = tmp_path / "daemon.py"
    script.write_text(
        "import os, sys, barnabas\nos.setsid() if os.getpid() != os.getsid(0) else None\n"
        f"with barnabas.Broker(topics={{'a': 1}}) as broker:\n    open({str(tmp_path / 'told')!r}, 'w').write(broker.bootstrap_servers)\n"
    )

    subprocess.run(f"{sys.executable} {script} {redirection}", shell=True, cwd=CHECKOUT, env=environ(), timeout=60, check=True)

    assert (tmp_path / "told").read_text().startswith("127.0.0.1:")


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": tempfile.gettempdir()}
