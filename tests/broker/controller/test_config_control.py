"""What the controller answers and appends for IncrementalAlterConfigs; codes and messages as a real 4.3.1 broker gave them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.config_control import AlterOperation
from broker.controller.controller import Controller
from broker.metadata.topic_defaults import effective_overrides
from protocol.errors import ErrorCode
from protocol.messages import alter_configs
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.stored.metadata_records import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from protocol.sasl.jaas import OAUTH_BEARER_LOGIN_MODULE
from tests.broker.controller.cluster import collected
from tests.broker.metadata.room import creation, make_controller

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = AlterOperation
OAUTHBEARER_LOGIN = "listener.name.clients.oauthbearer.sasl.jaas.config"


def _controller() -> Controller:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("t", 1, 1, cleanup_policy="compact", retention_ms="7"))).records)
    return controller


def _resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def _alter(controller: Controller, *resources: AlterConfigsResource, validate_only: bool = False) -> Any:
    return collected(
        controller.configs.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only))
    )


@pytest.mark.parametrize(
    ("key", "operation", "value", "stored"),
    [
        ("retention.ms", SET, "99", "99"),
        ("retention.ms", DELETE, None, None),
        ("cleanup.policy", APPEND, "delete", "compact,delete"),
        ("cleanup.policy", SUBTRACT, "compact", ""),
        ("follower.replication.throttled.replicas", APPEND, "0:1", "0:1"),
    ],
)
def test_operations_on_a_topic_config(key: str, operation: AlterOperation, value: str | None, stored: str | None) -> None:
    controller = _controller()

    result = _alter(controller, _resource(TOPIC, "t", (key, operation, value)))

    assert (result.response.responses[0].error_code, result.response.responses[0].error_message) == (0, None)
    assert [(record.resource_type, record.resource_name, record.name, record.value) for record in result.records] == [
        (TOPIC, "t", key, stored)
    ]


def test_an_unchanged_topic_config_makes_no_record() -> None:
    assert _alter(_controller(), _resource(TOPIC, "t", ("retention.ms", SET, "7"))).records == []


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (_resource(TOPIC, "nope", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        (_resource(TOPIC, "t", ("nope", SET, "1")), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (_resource(TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            _resource(TOPIC, "t", ("retention.ms", APPEND, "5")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (_resource(TOPIC, "t", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            _resource(TOPIC, "t", ("flush.ms", SET, "1"), ("flush.ms", SET, "2")),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (_resource(BROKER, "1", ("node.id", SET, "3")), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        (
            _resource(BROKER, "x", ("log.retention.ms", SET, "3")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            _resource(BROKER, "-2", ("log.retention.ms", SET, "3")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received -2",
        ),
        (
            _resource(BROKER, "1", (OAUTHBEARER_LOGIN, SET, f"{OAUTH_BEARER_LOGIN_MODULE} required;")),
            ErrorCode.INVALID_REQUEST,
            f"This broker does not change these configs while it runs: [{OAUTHBEARER_LOGIN}]",
        ),
        (_resource(99, "t", ("a", SET, "1")), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_refusals_have_kafkas_codes_and_words(resource: AlterConfigsResource, code: ErrorCode, message: str) -> None:
    result = _alter(_controller(), resource)

    assert result.records == []
    assert (result.response.responses[0].error_code, result.response.responses[0].error_message) == (code, message)


def test_one_bad_config_refuses_the_whole_resource_but_no_other() -> None:
    good = _resource(TOPIC, "t", ("retention.ms", SET, "1"))
    bad = _resource(BROKER, "1", ("log.retention.ms", SET, "1"), ("log.segment.bytes", SET, "x"))

    result = _alter(_controller(), bad, good)

    assert [response.error_code for response in result.response.responses] == [ErrorCode.INVALID_REQUEST, 0]
    assert [record.resource_name for record in result.records] == ["t"]


def test_a_resource_that_comes_twice_is_refused() -> None:
    result = _alter(_controller(), *[_resource(TOPIC, "t", ("flush.ms", SET, "1"))] * 2)

    assert result.records == []
    assert {response.error_message for response in result.response.responses} == {"Each resource must appear at most once."}


def test_validate_only_makes_no_records() -> None:
    assert _alter(_controller(), _resource(TOPIC, "t", ("flush.ms", SET, "1")), validate_only=True).records == []


@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_default_of_topic_configs_is_accepted(name: str) -> None:
    result = _alter(_controller(), _resource(BROKER, name, ("log.retention.ms", SET, "3600000")))

    assert [(record.resource_name, record.name, record.value) for record in result.records] == [(name, "log.retention.ms", "3600000")]


def test_any_negative_retention_time_of_a_broker_means_unlimited() -> None:
    """A topic takes -1 only; a broker, in server.properties and while it runs, every negative number."""
    controller = _controller()
    result = _alter(controller, _resource(BROKER, "1", ("log.retention.ms", SET, "-5")))

    controller.replay(result.records)

    assert [record.value for record in result.records] == ["-5"]
    assert effective_overrides(controller.state, 1, "other")["retention.ms"] == "-1"


@pytest.mark.parametrize(
    ("broker", "name", "value"),
    [
        ("1", "listeners", "PLAINTEXT://:1"),
        ("", "listeners", "PLAINTEXT://:1"),
        ("", "node.id", "2"),
        ("1", "ssl.keystore.location", "/k"),
        ("", "listener.name.x.ssl.keystore.location", "/k"),
        ("", "log.cleaner.dedupe.buffer.size", "1"),
        ("1", "max.connections.per.ip", "0"),
        ("1", "max.connections", "x"),
    ],
)
def test_a_broker_config_that_cannot_change_is_refused(broker: str, name: str, value: str) -> None:
    result = _alter(_controller(), _resource(BROKER, broker, (name, SET, value)))

    assert result.records == []
    assert result.response.responses[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "name", ["background.threads", "no.such", "log.cleaner.io.max.bytes.per.second", "listener.name.x.ssl.keystore.location"]
)
def test_a_broker_config_is_stored_that_takes_effect_or_has_none_anyway(name: str) -> None:
    result = _alter(_controller(), _resource(BROKER, "1", (name, SET, "11")))

    assert [(record.name, record.value) for record in result.records] == [(name, "11")]


def _with_fetchers(**counts: str) -> Controller:
    """By broker; `all` are those of all brokers."""
    controller = _controller()
    controller.replay(
        [
            ConfigRecord(resource_type=BROKER, resource_name=name.strip("al_"), name="num.replica.fetchers", value=count)
            for name, count in counts.items()
        ]
    )
    return controller


_HALF, _DOUBLE = "be at least half", "not be greater than double"
CONFIG_EXCEPTION, UPDATE_FAILED = "org.apache.kafka.common.config.ConfigException", "Dynamic thread count update validation failed"


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize(
    ("present", "count", "bound"),
    [("1", "2", None), ("1", "3", _DOUBLE), ("8", "16", None), ("8", "17", _DOUBLE), ("8", "4", None), ("8", "3", _HALF), ("5", "2", None)],
)
def test_a_thread_count_changes_by_a_factor_of_two_at_most(broker: str, present: str, count: str, bound: str | None) -> None:
    result = _alter(_with_fetchers(all=present), _resource(BROKER, broker, ("num.replica.fetchers", SET, count)))

    why = (
        f"Dynamic thread count update validation failed for num.replica.fetchers={count}, value should {bound} the current value {present}"
    )
    error = f"Invalid value {CONFIG_EXCEPTION}: {why} for configuration Invalid dynamic configuration"
    expected = (ErrorCode.NONE, None) if bound is None else (ErrorCode.INVALID_REQUEST, error)
    assert (result.response.responses[0].error_code, result.response.responses[0].error_message) == expected
    assert [record.value for record in result.records] == ([count] if bound is None else [])


def test_a_thread_count_that_is_deleted_falls_to_what_holds_then() -> None:
    delete = ("num.replica.fetchers", DELETE, None)

    assert not _alter(_with_fetchers(all="4"), _resource(BROKER, "", delete)).records  # 1 by default
    assert not _alter(_with_fetchers(all="2", _1="8"), _resource(BROKER, "1", delete)).records
    assert _alter(_with_fetchers(all="4", _1="8"), _resource(BROKER, "1", delete)).records


def test_the_thread_count_of_all_brokers_may_be_any_where_a_broker_has_its_own() -> None:
    assert _alter(_with_fetchers(_1="8"), _resource(BROKER, "", ("num.replica.fetchers", SET, "100"))).records


def test_a_config_of_another_version_does_not_stand_in_the_way() -> None:
    """A topic from another broker's log may have a config that this one does not know."""
    controller = _controller()
    controller.state.configs[TOPIC, "t"]["some.future.config"] = "1"

    result = _alter(controller, _resource(TOPIC, "t", ("retention.ms", SET, "1")))

    assert result.response.responses[0].error_code == 0


def _with_elr() -> Controller:
    controller = _controller()
    controller.replay([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    change = {"min.insync.replicas": "1"}
    controller.replay([ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value) for name, value in change.items()])
    return controller


@pytest.mark.parametrize(("kind", "name", "cleared"), [(TOPIC, "t", "t"), (BROKER, "", "")])
def test_a_new_min_isr_makes_nobody_eligible(kind: int, name: str, cleared: str) -> None:
    """KIP-966: who left an ISR by the old minimum may lack what was committed by the new one."""
    result = _alter(_with_elr(), _resource(kind, name, ("min.insync.replicas", SET, "2"), ("retention.ms", SET, "8") if name else _OTHER))

    assert [record for record in result.records if isinstance(record, ClearElrRecord)] == [ClearElrRecord(topic_name=cleared)]


_OTHER = ("log.retention.ms", SET, "8")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("1", ("min.insync.replicas", SET, "2"), "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", ("min.insync.replicas", DELETE, None), "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ],
)
def test_with_eligible_leaders_all_brokers_keep_one_min_isr(name: str, change: tuple[str, int, str | None], message: str) -> None:
    result = _alter(_with_elr(), _resource(BROKER, name, change))

    (response,) = result.response.responses
    assert (response.error_code, response.error_message, result.records) == (ErrorCode.INVALID_CONFIG, message, [])
    assert _alter(_controller(), _resource(BROKER, name, change)).response.responses[0].error_code == ErrorCode.NONE


def _replace(controller: Controller, kind: int, name: str, validate_only: bool = False, **configs: str) -> Any:
    entries = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return collected(controller.configs.alter_configs(alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)))


def test_replaced_configs_leave_no_others() -> None:
    result = _replace(_controller(), TOPIC, "t", retention_ms="7", flush_ms="5")

    assert [(record.name, record.value) for record in result.records] == [("flush.ms", "5"), ("cleanup.policy", None)]
    assert result.response.responses[0].error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "configs", "error"),
    [
        (TOPIC, "t", {"retention_ms": "x"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "gone", {"retention_ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", {"node_id": "2"}, ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", {"root": "INFO"}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", {"retention_ms": None}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_are_not_replaced_by_what_cannot_be(kind: int, name: str, configs: dict[str, Any], error: ErrorCode) -> None:
    result = _replace(_controller(), kind, name, **configs)

    assert result.records == []
    assert result.response.responses[0].error_code == error


def test_replacement_can_be_tried_out() -> None:
    assert _replace(_controller(), TOPIC, "t", validate_only=True, flush_ms="5").records == []


def test_replaced_configs_of_a_broker_are_all_of_them() -> None:
    controller = _controller()
    controller.replay(_alter(controller, _resource(BROKER, "1", ("log.retention.ms", SET, "5"), ("no.such", SET, "x"))).records)

    result = _replace(controller, BROKER, "1", log_segment_bytes="2000000")

    assert [(record.name, record.value) for record in result.records] == [
        ("log.segment.bytes", "2000000"),
        ("log.retention.ms", None),
        ("no.such", None),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "error"),
    [
        (GROUP, "g", "consumer.session.timeout.ms", "50000", 0),
        (GROUP, "g", "consumer.session.timeout.ms", "5", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "x", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:PT1H", 0),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:1h", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "retention.ms", "5", ErrorCode.INVALID_CONFIG),
        (GROUP, "", "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", "interval.ms", "100", 0),
        (METRICS, "m", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", "interval.ms", "x", ErrorCode.INVALID_CONFIG),
        (METRICS, "m", "match", "client_id=a.*,client_software_version=1[.]2", 0),
        (METRICS, "m", "match", "client_id=[", ErrorCode.INVALID_CONFIG),
        (METRICS, "m", "match", "colour=blue", ErrorCode.INVALID_CONFIG),
        (METRICS, "m", "no.such", "5", ErrorCode.INVALID_REQUEST),
        (METRICS, "", "interval.ms", "100", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_groups_and_client_metrics(kind: int, name: str, key: str, value: str, error: int) -> None:
    result = _alter(_controller(), _resource(kind, name, (key, SET, value)))

    assert result.response.responses[0].error_code == error
    stored = [(record.resource_type, record.resource_name, record.name, record.value) for record in result.records]
    assert stored == ([] if error else [(kind, name, key, value)])


def test_what_is_appended_must_fit_into_a_record() -> None:
    controller = _controller()
    long = ",".join(f"{number}:1" for number in range(6_000))
    controller.replay(
        _alter(
            controller, _resource(TOPIC, "t", ("follower.replication.throttled.replicas", SET, long[: long.rindex(",", 0, 32_000)]))
        ).records
    )

    result = _alter(controller, _resource(TOPIC, "t", ("follower.replication.throttled.replicas", APPEND, "9:" + "1" * 2_000)))

    assert result.response.responses[0].error_code == ErrorCode.INVALID_CONFIG


CORDONED = "cordoned.log.dirs"


def _cordon(controller: Controller, value: str | None, *, is_direct: bool = False) -> tuple[int, str | None]:
    """The answer; what it makes is appended."""
    resource = _resource(BROKER, "1", (CORDONED, SET if value is not None else DELETE, value))
    request = IncrementalAlterConfigsRequest(resources=[resource])
    result = collected(controller.configs.incremental_alter_configs(request, is_direct=is_direct))
    controller.replay(result.records)
    return result.response.responses[0].error_code, result.response.responses[0].error_message


@pytest.mark.parametrize("value", ["/a", None])
def test_below_4_3_no_directory_can_be_cordoned_nor_the_other_way_round(value: str | None) -> None:
    why = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"

    assert _cordon(_controller(), value) == (ErrorCode.INVALID_CONFIG, why)


def test_directories_are_cordoned_by_way_of_the_broker_that_knows_them() -> None:
    controller = _controller()
    controller.replay([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    why = "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current configuration value."

    assert _cordon(controller, "/a", is_direct=True) == (ErrorCode.INVALID_CONFIG, why)
    assert _cordon(controller, "/a,/b") == (0, None)
    assert _cordon(controller, "/b,/c", is_direct=True) == (ErrorCode.INVALID_CONFIG, why)
    assert _cordon(controller, "/b", is_direct=True) == (0, None)
    assert controller.state.broker_overrides("1")[CORDONED] == "/b"
    assert _cordon(controller, "", is_direct=True) == (0, None)
    assert _cordon(controller, None, is_direct=True) == (0, None)
