"""Broker configs that are altered while the broker runs: what concerns them has the new value at once, and the old one again later."""

from __future__ import annotations

from pathlib import Path

from broker.metadata.cluster_state import RESOURCE_BROKER, ClusterState
from broker.metadata.dynamic_configs import LIVE_SETTINGS, DynamicSettings
from config.cordoned import CORDONED_LOG_DIRS
from config.server import ServerConfig
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.stored.metadata_records import ConfigRecord
from tests.clients.topics import create_topic
from tests.support.broker import BrokerProcess
from tests.support.raw_transactions import produce
from tests.support.wire import WireClient


def alter(client: WireClient, key: str, value: str | None, broker: str = "1") -> None:
    """Of broker 1, or of all if `broker` is empty."""
    config = AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name=broker, configs=[config])
    answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def is_served(broker: BrokerProcess) -> bool:
    with WireClient(broker.host, broker.port) as client:
        try:
            client.request(ApiVersionsRequest(), 0)
        except (EOFError, ConnectionError):
            return False
    return True


def test_a_lower_limit_of_connections_counts_at_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with WireClient(broker.host, broker.port) as client:
            before = is_served(broker)
            alter(client, "max.connections.per.ip", "1")
            limited = is_served(broker)
            alter(client, "max.connections.per.ip", None)
            after = is_served(broker)
    finally:
        broker.stop()

    assert (before, limited, after) == (True, False, True)


def test_transactions_are_not_verified_while_that_is_off(tmp_path: Path) -> None:
    """Batches of producers that no coordinator knows, by a version of Produce whose partitions are verified."""
    name = "transaction.partition.verification.enable"
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        create_topic(broker, "t")
        with WireClient(broker.host, broker.port) as client:
            errors = []
            for producer_id, value in enumerate(("true", "false", None), start=1):
                alter(client, name, value, broker="")
                errors.append(produce(client.request, "unknown", (producer_id, 0), "t"))
    finally:
        broker.stop()

    assert errors[1] is ErrorCode.NONE
    assert errors[0] is errors[2] is not ErrorCode.NONE


def test_the_number_of_fetchers_is_described_as_a_dynamic_config(tmp_path: Path) -> None:
    """KIP-226: DYNAMIC_BROKER_CONFIG is 2, DEFAULT_CONFIG 5."""
    name = "num.replica.fetchers"
    asked = DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configuration_keys=[name])
    broker = BrokerProcess(tmp_path)
    broker.start()
    found = []
    try:
        with WireClient(broker.host, broker.port) as client:
            for value in ("2", None):
                alter(client, name, value)
                answer = client.request(DescribeConfigsRequest(resources=[asked]), 4)
                found += [(each.value, each.config_source, each.read_only) for each in answer.results[0].configs]
    finally:
        broker.stop()

    assert found == [("2", 2, False), ("1", 5, False)]


def test_a_broker_s_own_value_wins_over_that_of_all_and_over_the_file() -> None:
    state = ClusterState()
    settings = DynamicSettings(state, ServerConfig(), 1)
    name = "log.cleaner.backoff.ms"
    values = [settings.number(name)]

    for broker, text in (("", "2"), ("1", "3"), ("1", None), ("", None)):
        state.replay(ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=broker, name=name, value=text))
        values.append(settings.number(name))

    assert values == [15_000, 2, 3, 2, 15_000]


def test_every_live_setting_has_a_value() -> None:
    settings = DynamicSettings(ClusterState(), ServerConfig(), 1)

    assert settings.elements(CORDONED_LOG_DIRS) == ()
    assert all(settings.number(name) > 0 for name in LIVE_SETTINGS if name != CORDONED_LOG_DIRS)
