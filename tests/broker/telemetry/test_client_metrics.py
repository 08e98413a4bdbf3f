"""Subscriptions, pushes and what comes out at a scrape, through the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.cluster import api_versions, get_telemetry_subscriptions, push_telemetry
from broker.metadata.cluster_state import RESOURCE_CLIENT_METRICS, ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.telemetry import client_metrics
from broker.telemetry.client_metrics import DECOMPRESSED_BYTES_MAX, DEFAULT_INTERVAL_MS, ClientMetricsManager
from config.server import ServerConfig
from protocol.compression import Compression, compress
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from protocol.messages.push_telemetry import PushTelemetryRequest
from protocol.messages.stored.metadata_records import ConfigRecord
from protocol.uuids import ZERO_UUID
from tests.broker.telemetry.pushed import double_point, gauge, int_point, metrics_data, total
from tests.support.clock import ManualClock
from tests.support.services import request_context, services

MAX_BYTES = 10_000
INTERVAL_MS = 1_000
UNKNOWN_ID = bytes(range(16))


class Room:
    """A manager whose subscriptions a test sets."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ClusterState()
        ids = iter(range(1_000, 100_000))
        self.manager = ClientMetricsManager(self.state, self.clock, lambda: next(ids).to_bytes(16, "big"), MAX_BYTES)
        self.services = services(clock=self.clock, client_metrics=lambda: self.manager)

    def subscribe_clients(self, name: str = "all", **configs: str) -> None:
        for key, value in ({"interval_ms": str(INTERVAL_MS), "metrics": "*"} | configs).items():
            self.state.replay(
                ConfigRecord(resource_type=RESOURCE_CLIENT_METRICS, resource_name=name, name=key.replace("_", "."), value=value)
            )

    def ask(self, instance_id: bytes = ZERO_UUID, client_id: str = "client") -> GetTelemetrySubscriptionsResponse:
        context = request_context(71, 0, client_id=client_id)
        answer: Any = get_telemetry_subscriptions.build(self.services)(
            context, GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        )
        assert isinstance(answer, GetTelemetrySubscriptionsResponse)
        return answer

    def push(self, subscribed: GetTelemetrySubscriptionsResponse, *metrics: bytes, **fields: Any) -> ErrorCode:
        """What a push is answered with."""
        request = PushTelemetryRequest(
            **{
                "client_instance_id": subscribed.client_instance_id,
                "subscription_id": subscribed.subscription_id,
                "metrics": metrics_data(*metrics) if metrics else b"",
            }
            | fields
        )
        try:
            answer: Any = push_telemetry.build(self.services)(request_context(72, 0), request)
        except KafkaError as error:
            return error.code
        return ErrorCode(answer.error_code)

    def scraped(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        return {
            sample.name: [(dict(zip(sample.label_names, labels, strict=True)), value) for labels, value in sample.values]
            for sample in self.manager.samples()
        }


@pytest.fixture
def room() -> Room:
    room = Room()
    room.subscribe_clients()
    return room


def test_a_client_without_subscriptions_is_asked_for_nothing() -> None:
    answer = Room().ask()

    assert (answer.requested_metrics, answer.push_interval_ms, answer.telemetry_max_bytes) == ([], DEFAULT_INTERVAL_MS, MAX_BYTES)
    assert answer.client_instance_id != ZERO_UUID
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.delta_temporality


def test_subscriptions_that_match_are_put_together() -> None:
    room = Room()
    room.subscribe_clients("a", metrics="x,y", interval_ms="5000", match="client_id=app-.*")
    room.subscribe_clients("b", metrics="y,z", interval_ms="2000", match="client_source_address=127[.]0[.]0[.]1")
    room.subscribe_clients("c", metrics="other", interval_ms="100", match="client_software_name=librdkafka")

    matched, other = room.ask(client_id="app-1"), room.ask(client_id="web")

    assert (matched.requested_metrics, matched.push_interval_ms) == (["x", "y", "z"], 2000)
    assert (other.requested_metrics, other.push_interval_ms) == (["y", "z"], 2000)


def test_what_is_pushed_comes_out_at_a_scrape_with_its_client(room: Room) -> None:
    subscribed = room.ask(client_id="app")

    assert (
        room.push(subscribed, gauge("org.apache.kafka.queue", double_point(1.5, topic="t")), total("sent", int_point(3))) is ErrorCode.NONE
    )

    scraped = room.scraped()
    ((labels, value),) = scraped["org_apache_kafka_queue"]
    assert (labels["topic"], labels["client_id"], value) == ("t", "app", 1.5)
    assert [value for _, value in scraped["sent_total"]] == [3]


def test_differences_of_a_sum_add_up_and_a_gauge_is_replaced(room: Room) -> None:
    subscribed = room.ask()
    for number in (3, 4):
        assert room.push(subscribed, gauge("g", double_point(number)), total("sent", int_point(number))) is ErrorCode.NONE
        room.clock.advance(INTERVAL_MS)

    scraped = room.scraped()
    assert ([value for _, value in scraped["g"]], [value for _, value in scraped["sent_total"]]) == ([4], [7])


@pytest.mark.parametrize("codec", list(Compression))
def test_every_compression_is_read(room: Room, codec: Compression) -> None:
    data = compress(codec, metrics_data(gauge("g", double_point(1.0)))) if codec else metrics_data(gauge("g", double_point(1.0)))

    assert room.push(room.ask(), metrics=data, compression_type=codec) is ErrorCode.NONE
    assert "g" in room.scraped()


def test_a_client_that_asks_too_early_is_told_to_wait_unless_something_changed(room: Room) -> None:
    subscribed = room.ask()

    with pytest.raises(KafkaError) as refused:
        room.ask(subscribed.client_instance_id)
    room.subscribe_clients(metrics="x")
    changed = room.ask(subscribed.client_instance_id)

    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert changed.requested_metrics == ["x"]
    assert changed.subscription_id != subscribed.subscription_id


def test_a_push_that_comes_too_early_is_refused_but_for_the_last(room: Room) -> None:
    subscribed = room.ask()

    errors = [
        room.push(subscribed),
        room.push(subscribed),
        room.push(subscribed, terminating=True),
        room.push(subscribed, terminating=True),
    ]

    assert errors == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"client_instance_id": UNKNOWN_ID}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": b"\0" * (MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no gzip", "compression_type": 1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_pushes_that_are_refused(room: Room, fields: dict[str, Any], error: ErrorCode) -> None:
    assert room.push(room.ask(), **fields) is error


def test_a_decompression_bomb_is_refused(room: Room) -> None:
    """CVE-2026-111073; CVE-2026-27571 of NATS."""
    bomb = compress(Compression.ZSTD, b"\0" * (DECOMPRESSED_BYTES_MAX + 1))
    assert len(bomb) < MAX_BYTES

    assert room.push(room.ask(), metrics=bomb, compression_type=Compression.ZSTD) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "data", [compress(Compression.GZIP, bytes(DECOMPRESSED_BYTES_MAX))[:-1], compress(Compression.GZIP, b"\xff" * 100_000)]
)
def test_a_large_push_that_cannot_be_read_is_an_invalid_record(room: Room, data: bytes) -> None:
    assert room.push(room.ask(), metrics=data, compression_type=Compression.GZIP) is ErrorCode.INVALID_RECORD


def test_a_push_that_decompresses_to_much_is_kept(room: Room) -> None:
    data = metrics_data(*(gauge(f"g{index}.{'x' * 100}", double_point(2.0)) for index in range(600)))

    assert room.push(room.ask(), metrics=compress(Compression.ZSTD, data, 9), compression_type=Compression.ZSTD) is ErrorCode.NONE
    assert [value for ((_, value),) in room.scraped().values()] == [2.0] * 600


def test_a_silent_client_is_forgotten_with_its_metrics(room: Room) -> None:
    room.push(room.ask(), gauge("g", double_point(1.0)))
    room.clock.advance(59_000)
    before = room.scraped()
    room.clock.advance(2_000)

    assert (list(before), list(room.scraped())) == (["g"], [])


def test_what_all_clients_push_is_bounded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "SERIES_OF_CLIENT_MAX", 3)
    monkeypatch.setattr(client_metrics, "SERIES_MAX", 5)

    for _ in range(3):
        room.push(room.ask(), *(gauge(f"g{number}", double_point(1.0)) for number in range(10)))

    assert sum(len(values) for values in room.scraped().values()) == 5


@pytest.mark.parametrize(("listener", "is_told"), [("", False), ("127.0.0.1:9100", True)])
def test_clients_are_told_of_telemetry_where_metrics_are_served(listener: str, is_told: bool) -> None:
    config = ServerConfig(barnabas_metrics_listener=listener)
    cache = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=config)

    answer: Any = api_versions.build(services(config=config, metadata=cache))(request_context(18, 0), ApiVersionsRequest())

    assert ({71, 72} <= {each.api_key for each in answer.api_keys}) is is_told
