"""Broker settings: the table against the fields, listeners, the rules between properties, and what this broker refuses."""

from __future__ import annotations

import pytest

from config.docs import documentation
from config.endpoints import Endpoint
from config.properties import ConfigError
from config.server import AUTHORIZER_PROPERTIES, SERVER_PROPERTIES, ServerConfig
from config.server_rules import server_config

# Fields that hold the meaning of a property's text instead of its value.
INTERPRETED = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "max.connections.per.ip.overrides",
    "metadata.log.dir",
    "node.id",
    "process.roles",
}


def refusal(**texts: str) -> str:
    with pytest.raises(ConfigError) as raised:
        server_config({key.replace("_", "."): value for key, value in texts.items()})
    return str(raised.value)


def test_defaults_of_the_fields_are_those_of_the_table() -> None:
    config = ServerConfig()
    fields = {known.attribute: known for known in SERVER_PROPERTIES.values()}

    for attribute in ServerConfig.__annotations__.keys() - {"topic_defaults", "texts", "unknown_keys", *AUTHORIZER_PROPERTIES.values()}:
        known = fields[attribute]
        if known.name not in INTERPRETED:
            assert getattr(config, attribute) == known.default, known.name


def test_every_property_has_a_sentence_and_a_default_inside_its_range() -> None:
    for known in SERVER_PROPERTIES.values():
        assert documentation(known.name).endswith("."), known.name
        if known.default_text:
            assert known.parse(known.default_text) == known.default


def test_settings_are_read_only_and_unknown_fields_are_refused() -> None:
    config = server_config({"num.partitions": "3"})

    with pytest.raises(AttributeError):
        config.num_partitions = 4
    with pytest.raises(TypeError):
        ServerConfig(no_such_field=1)
    assert config.num_partitions == 3


def test_values_of_properties_without_a_field_are_known_too() -> None:
    config = server_config({"ssl.keystore.location": "/keys", "num.partitions": "3"})

    assert config.value_of("ssl.keystore.location") == "/keys" and config.is_set("ssl.keystore.location")
    assert config.value_of("ssl.protocol") == "TLSv1.3" and not config.is_set("ssl.protocol")


def test_listeners_are_split_by_whom_they_serve() -> None:
    config = server_config(
        {
            "listeners": "PLAINTEXT://localhost:9092,internal://[::1]:19092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://public:1,INTERNAL://[fe80::1]:2",
        }
    )

    assert [each.listener_name for each in config.client_listeners] == ["PLAINTEXT", "INTERNAL"]
    assert config.listeners[1] == Endpoint("INTERNAL", "::1", 19092, "PLAINTEXT")
    assert [str(each) for each in config.client_advertised_listeners] == ["PLAINTEXT://public:1", "INTERNAL://[fe80::1]:2"]


def test_an_empty_host_is_advertised_by_the_machine_s_name() -> None:
    config = server_config({"listeners": "PLAINTEXT://:9092"})

    assert config.listeners[0].host == "" and config.advertised_listeners[0].host != ""


@pytest.mark.parametrize(
    ("listeners", "why"),
    [
        ("PLAINTEXT:9092", "expected {listener name}://{host}:{port}"),
        ("PLAINTEXT://localhost:65536", "at most 65535"),
        ("PLAINTEXT://local host:1", "expected {listener name}"),
        ("PLAINTEXT://a:1,plaintext://b:2", "a different name"),
        ("PLAINTEXT://a:1,SSL://a:1", "a different port"),
        ("UNKNOWN://a:1", "no security protocol defined for listener UNKNOWN"),
        ("PLAINTEXT://0.0.0.0:9092", "nonroutable address 0.0.0.0"),
    ],
)
def test_wrong_listeners_are_refused(listeners: str, why: str) -> None:
    assert why in refusal(listeners=listeners)


def test_one_port_serves_ipv4_and_ipv6() -> None:
    config = server_config(
        {"listeners": "PLAINTEXT://127.0.0.1:9092,V6://[::1]:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:PLAINTEXT"}
    )

    assert [each.port for each in config.listeners] == [9092, 9092]


CLUSTER = {"node_id": "1", "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093", "controller_listener_names": "CONTROLLER"}
OTHERS = "2@b:9093,3@c:9093"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"process_roles": "broker"}, "must name the controllers' listener"),
        ({"process_roles": "controller", "listeners": "PLAINTEXT://a:9092"}, "is no controller listener"),
        ({"node_id": "1", "controller_quorum_voters": "1@a:9093,2@b:9093"}, "set controller.listener.names"),
        ({"controller_quorum_bootstrap_servers": "other:9093"}, "must name the listener of this controller"),
        (CLUSTER | {"controller_quorum_voters": OTHERS}, "must contain this node (1)"),
        (CLUSTER | {"process_roles": "broker", "controller_quorum_voters": OTHERS}, "is a controller listener"),
        (CLUSTER | {"process_roles": "controller", "controller_quorum_voters": "1@a:9093"}, "is no controller listener"),
        (CLUSTER | {"process_roles": "broker", "listeners": "PLAINTEXT://a:9092"}, "must be set"),
        (
            CLUSTER | {"process_roles": "broker", "listeners": "PLAINTEXT://a:9092", "controller_quorum_voters": "1@a:9093"},
            "must not contain this node (1)",
        ),
    ],
)
def test_roles_listeners_and_voters_that_do_not_fit_are_refused(settings: dict[str, str], why: str) -> None:
    assert why in refusal(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        CLUSTER | {"controller_quorum_voters": f"1@a:9093,{OTHERS}"},
        CLUSTER | {"controller_quorum_bootstrap_servers": "b:9093"},
        CLUSTER | {"process_roles": "broker", "listeners": "PLAINTEXT://a:9092", "controller_quorum_voters": OTHERS},
        CLUSTER | {"process_roles": "controller", "listeners": "CONTROLLER://a:9093", "controller_quorum_voters": "1@a:9093"},
        {"node_id": "1", "controller_quorum_voters": "1@a:9093"},
    ],
)
def test_a_node_of_a_cluster_is_accepted(settings: dict[str, str]) -> None:
    config = server_config({key.replace("_", "."): value for key, value in settings.items()})

    assert [each.listener_name for each in config.controller_listeners] == (
        ["CONTROLLER"] if "CONTROLLER://" in settings.get("listeners", "") else []
    )


def test_settings_that_would_be_silently_dropped_are_refused() -> None:
    assert "other authorizers, written in Java, cannot be loaded" in refusal(authorizer_class_name="com.example.MyAuthorizer")
    assert "cannot be loaded" in refusal(create_topic_policy_class_name="x.Policy")
    assert "tiered storage" in refusal(remote_log_storage_system_enable="true")


def test_what_is_cordoned_is_a_log_directory_of_the_broker() -> None:
    two = {"log_dirs": "/a,/b"}

    assert server_config({"log.dirs": "/a,/b", "cordoned.log.dirs": " /b , /b"}).cordoned_log_dirs == ("/b",)
    assert server_config({"log.dirs": "/a,/b", "cordoned.log.dirs": "*"}).cordoned_log_dirs == ("*",)
    assert refusal(**two, cordoned_log_dirs="/b,/c,/d").endswith("must be present in log.dirs or log.dir. Missing entries : /c, /d")
    assert refusal(**two, cordoned_log_dirs="*,/a").endswith("When cordoned.log.dirs is set to *, it must not contain other values")
    assert "must not be empty" in refusal(**two, cordoned_log_dirs="/a,,/b")


def test_an_empty_inter_broker_listener_is_not_the_default_one() -> None:
    assert "inter.broker.listener.name" in refusal(inter_broker_listener_name="")


def test_rules_between_numbers_are_kafka_s() -> None:
    assert "socket.request.max.bytes" in refusal(queued_max_request_bytes="1000")
    assert "must be unlimited (-1) or at least 1" in refusal(log_retention_ms="0")
    assert "must not exceed" in refusal(replica_fetch_wait_max_ms="40000")
    assert "same as node.id" in refusal(broker_id="3", node_id="4")
    assert "between group.consumer.min.session.timeout.ms (45000)" in refusal(group_consumer_session_timeout_ms="44999")
    short_sessions = {"group_consumer_min_session_timeout_ms": "1000", "group_consumer_session_timeout_ms": "5000"}
    assert "less than group.consumer.session.timeout.ms (5000)" in refusal(**short_sessions)
    assert "group.share.max.heartbeat.interval.ms (4999)" in refusal(group_share_max_heartbeat_interval_ms="4999")
    assert "must not exceed group.max.session.timeout.ms (5)" in refusal(group_max_session_timeout_ms="5")
    assert "expected {host}:{port}" in refusal(barnabas_metrics_listener="9404")


@pytest.mark.parametrize("key", ["offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"])
def test_internal_topics_that_could_not_be_created_are_refused_at_the_start(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server_config({key: "1048575"})

    assert str(refused.value) == f"Invalid value 1048575 for configuration {key}: Value must be at least 1048576"
    server_config({key: "1048576"})


def test_our_finite_limits_count_where_kafka_has_none() -> None:
    assert ServerConfig().connections_limit == 10_000
    assert server_config({"max.connections": "7"}).connections_limit == 7
    assert server_config({"queued.max.request.bytes": "200000000"}).queued_request_bytes_limit == 200_000_000


def test_replica_selectors_of_kafka_are_taken_and_others_refused() -> None:
    name = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

    assert server_config({"replica.selector.class": name}).replica_selector_class == name
    server_config({"replica.selector.class": "org.apache.kafka.common.replica.LeaderSelector"})
    assert "replica.selector.class" in refusal(replica_selector_class="com.example.Nearest")


def test_the_controllers_listeners_open_early_unless_others_are_named() -> None:
    cluster = {key.replace("_", "."): value for key, value in (CLUSTER | {"controller_quorum_voters": f"1@a:9093,{OTHERS}"}).items()}

    assert server_config(cluster).early_listener_names == ("CONTROLLER",)
    assert server_config(cluster | {"early.start.listeners": "plaintext"}).early_listener_names == ("PLAINTEXT",)
    assert server_config(cluster | {"early.start.listeners": ""}).early_listener_names == ()
    assert "must name a listener" in refusal(early_start_listeners="OTHER")


def test_the_authorizer_s_own_properties_are_known() -> None:
    config = server_config({"super.users": "User:a;User:CN=b,O=c", "allow.everyone.if.no.acl.found": "true"})

    assert (config.super_users, config.allow_everyone_if_no_acl_found) == ("User:a;User:CN=b,O=c", "true")
    assert config.unknown_keys == () and config.settings_without_effect() == []
