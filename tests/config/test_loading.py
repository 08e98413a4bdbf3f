"""Where settings come from, and which wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.loading import load_server_config, log_warnings, parse_properties, properties_from_environment
from config.properties import ConfigError

# Apache Kafka 4.3's config/server.properties without its comments.
STOCK_SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_shipped_defaults_differ_from_kafka_s_only_where_the_design_says() -> None:
    config = load_server_config(None, {}, [])

    assert set(config.texts) == {
        "process.roles",
        "node.id",
        "listeners",
        "log.dirs",
        "barnabas.auto.format",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "group.initial.rebalance.delay.ms",
    }
    assert str(config.listeners[0]) == "PLAINTEXT://localhost:9092" and config.log_dirs == ("./data",)


def test_a_stock_single_node_kraft_file_is_taken_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    path.write_text(STOCK_SERVER_PROPERTIES)

    config = load_server_config(path, {}, [])

    assert [str(each) for each in config.client_advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.unknown_keys == () and not caplog.records and not config.barnabas_auto_format


def test_environment_beats_the_file_and_overrides_beat_both(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\ndefault.replication.factor=1\nlog.retention.ms=7\n")

    config = load_server_config(path, {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_RETENTION_MS": "8"}, ["num.partitions=4"])

    assert (config.num_partitions, config.topic_defaults.retention_ms) == (4, 8)


def test_environment_is_mapped_as_the_container_image_maps_it() -> None:
    environ = {
        "KAFKA_LOG_DIRS": "/data",
        "KAFKA_SASL_A__B___C": "x",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_OPTS": "y",
        "PATH": "/bin",
        "KAFKA_": "z",
    }

    assert properties_from_environment(environ) == {"log.dirs": "/data", "sasl.a_b-c": "x"}


def test_advertised_listeners_alone_give_listeners_on_every_address() -> None:
    properties = properties_from_environment({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1,INTERNAL://b:2"})

    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:1,INTERNAL://0.0.0.0:2"


def test_empty_listener_variables_count_as_none() -> None:
    """As in the image's `configure` script: compose files pass on variables that may be empty."""
    environ = {"KAFKA_LISTENERS": "", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1"}

    assert properties_from_environment(environ)["listeners"] == "PLAINTEXT://0.0.0.0:1"
    assert "listeners" not in properties_from_environment({"KAFKA_ADVERTISED_LISTENERS": ""})


def test_what_a_list_names_twice_counts_once_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka since 4.1 (KIP-1161)."""
    config = load_server_config(None, {}, ["log.dirs=/a,/b,/a"])
    log_warnings(config)

    assert config.log_dirs == ("/a", "/b")
    assert [record.getMessage() for record in caplog.records] == ["configuration log.dirs names something twice; what counts is /a,/b"]


def test_a_listener_that_is_not_advertised_warns(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka takes it without a word, and Metadata by that listener names no broker: easily done by one variable of a container."""
    environ = {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,INTERNAL://:19092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:29092",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }

    log_warnings(load_server_config(None, environ, []))

    (record,) = caplog.records
    assert record.getMessage() == "listener INTERNAL is not in advertised.listeners: clients that come by it find no broker"


@pytest.mark.parametrize("override", ["num.partitions", "=3"])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        load_server_config(None, {}, [override])


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^.*/none cannot be read: No such file or directory$"):
        load_server_config(tmp_path / "none", {}, [])

    (tmp_path / "bad").write_text("a=\\u12")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("bad", "binary"):
        assert_is_not_a_properties_file(tmp_path / name)


def assert_is_not_a_properties_file(path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a properties file"):
        load_server_config(path, {}, [])


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! too\n\na = 1\nb:2\nc 3\n d\\ e=f\ng=x,\\\n   y\nh=\\u0041\\t\\\\\nempty\r\ntwice=1\ntwice=2\nurl=a://b:1=c\n"

    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d e": "f",
        "g": "x,y",
        "h": "A\t\\",
        "empty": "",
        "twice": "2",
        "url": "a://b:1=c",
    }


def test_what_was_set_and_is_ignored_is_said_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    overrides = ["zookeeper.connect=x", "num.io.threads=8", "listener.name.plaintext.ssl.protocol=TLSv1.3", "num.partitions=2", "a\tb=1"]
    config = load_server_config(None, {"KAFKA_LOG_PREALLOCATE": "true"}, overrides)

    log_warnings(config)

    assert config.unknown_keys == ("zookeeper.connect", "a\tb") and config.num_partitions == 2
    assert [record.getMessage() for record in caplog.records] == [
        "unknown configurations are ignored: zookeeper.connect, a\\tb",
        "configurations without effect here, DescribeConfigs tells why: "
        "listener.name.plaintext.ssl.protocol, log.preallocate, num.io.threads",
    ]


def test_replicas_that_a_single_node_cannot_have_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is not set has Kafka's default: 3 for the topic of consumer groups."""
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlisteners=PLAINTEXT://localhost:9092\nlog.dirs=/data\ndefault.replication.factor=2\n")

    log_warnings(load_server_config(path, {}, []))

    groups, topics = [record.getMessage() for record in caplog.records]
    assert groups == (
        "offsets.topic.replication.factor=3, but this is a single node: consumer groups cannot work; set offsets.topic.replication.factor=1"
    )
    assert topics.startswith("default.replication.factor=2, but this is a single node: ")


def test_replicas_of_a_node_that_has_others_do_not_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\nlog.dirs=/data\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093,2@other:9093,3@third:9093\n"
    )

    log_warnings(load_server_config(path, {}, []))

    assert not [record for record in caplog.records if "single node" in record.getMessage()]


def test_the_shipped_properties_all_have_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    log_warnings(load_server_config(None, {}, []))

    assert caplog.records == []
