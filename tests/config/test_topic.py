"""Topic settings: Kafka's defaults, what the broker gives, what a topic overrides and what is refused."""

from __future__ import annotations

import pytest

from config.docs import documentation
from config.properties import ConfigError
from config.server_rules import server_config
from config.topic import TOPIC_PROPERTIES, LogConfig, log_config, validate_topic_configs


def test_defaults_of_the_class_are_those_of_the_table() -> None:
    config = LogConfig()

    for name, known in TOPIC_PROPERTIES.items():
        assert config.value_of(name) == known.default, name


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_comes_from_the_most_precise_broker_property(texts: dict[str, str], retention_ms: int) -> None:
    assert server_config(texts).topic_defaults.retention_ms == retention_ms


def test_every_broker_synonym_reaches_its_topic_setting() -> None:
    server = server_config(
        {"log.cleanup.policy": "compact", "log.roll.hours": "1", "log.flush.interval.messages": "1", "barnabas.record.validation": "full"}
    )

    config = log_config(server.topic_defaults, {})

    assert config.is_compacted and not config.is_deleted and config.has_full_validation and not config.is_judged_by_header
    assert (config.segment_ms, config.flush_messages) == (3_600_000, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [("log.roll.ms", "0"), ("log.roll.jitter.ms", "-1"), ("log.flush.interval.ms", "-1"), ("log.flush.scheduler.interval.ms", "-1")],
)
def test_a_broker_cannot_give_what_no_topic_may_have(name: str, text: str) -> None:
    """Kafka's ConfigDef has no range for these; KafkaConfig.validateValues and LogConfig refuse them."""
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}: Value must be at least"):
        server_config({name: text})


def test_a_topic_overrides_what_the_broker_gives() -> None:
    server = server_config({"log.retention.ms": "1000", "message.max.bytes": "2000"})

    config = log_config(server.topic_defaults, {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"})

    assert (config.retention_ms, config.max_message_bytes) == (-1, 2000)
    assert config.is_log_append_time


def test_overrides_of_another_version_are_skipped() -> None:
    assert log_config(server_config({}).topic_defaults, {"message.format.version": "3.0-IV1"}) == LogConfig()


def test_small_segments_for_tests_come_by_the_internal_property_alone() -> None:
    with pytest.raises(ConfigError):
        validate_topic_configs({"segment.bytes": "1000"}, LogConfig())

    assert log_config(server_config({}).topic_defaults, {"internal.segment.bytes": "1000"}).segment_bytes == 1000


@pytest.mark.parametrize(
    "overrides",
    [
        {"no.such.config": "1"},
        {"retention.ms": "-2"},
        {"compression.type": "brotli"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"remote.storage.enable": "true"},
    ],
)
def test_what_a_client_may_not_set_is_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        validate_topic_configs(overrides, LogConfig())


def test_every_property_has_a_sentence() -> None:
    for known in TOPIC_PROPERTIES.values():
        assert documentation(known.name).endswith("."), known.name
