"""What strangers make the log say: what they are, and not more of it than anybody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.observability.limited_log import EVENT_LINES_MAX, LINES_MAX
from protocol.messages.metadata import MetadataRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.broker import BrokerProcess
from tests.support.ports import free_port
from tests.support.wire import WireClient

FLOOD = 3 * LINES_MAX


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, {"max.connections.per.ip": "20"})
    process.start()
    yield process
    process.kill()


def lines_with(broker: BrokerProcess, text: str) -> list[str]:
    """Stops the broker first, which then waits for its last lines: a thread writes them."""
    if broker.is_running:
        broker.stop()
    return [line for line in broker.log_path.read_text().splitlines() if text in line]


def flood(broker: BrokerProcess, data: bytes) -> None:
    for _ in range(FLOOD):
        with WireClient(broker.host, broker.port) as client:
            client.send_raw(data)
            assert client.is_closed_by_peer()


@pytest.mark.parametrize(
    ("data", "reason", "level"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS: this listener is PLAINTEXT", "WARNING"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "looks like HTTP: this listener speaks Kafka's protocol", "WARNING"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes", "INFO"),
        (b"\x00\x00\x00\x00", "request header cut after 0 bytes", "INFO"),
        (b"\x00\x00\x00\x0a" + b"\x03\xe7" + bytes(8), "API key 999 is not served", "INFO"),
    ],
)
def test_garbage_is_named_within_a_limit(broker: BrokerProcess, data: bytes, reason: str, level: str) -> None:
    flood(broker, data)
    lines = lines_with(broker, "closing connection")

    assert len(lines) == LINES_MAX
    assert all(f"{level} barnabas.network closing connection client=127.0.0.1 listener=PLAINTEXT reason={reason}" in line for line in lines)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS: this listener is PLAINTEXT"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP: this listener speaks Kafka's protocol"),
    ],
)
def test_a_listener_of_controllers_names_other_protocols_too(tmp_path: Path, data: bytes, reason: str) -> None:
    broker = BrokerProcess(tmp_path)
    controller_port = free_port()
    broker.settings |= {
        "listeners": f"PLAINTEXT://{broker.bootstrap},CONTROLLER://{broker.host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{broker.host}:{controller_port}",
    }
    broker.start()
    with WireClient(broker.host, controller_port) as client:
        client.send_raw(data)
        assert client.is_closed_by_peer()

    (line,) = lines_with(broker, "closing connection")
    assert line.endswith(f"WARNING barnabas.network closing connection client=127.0.0.1 listener=CONTROLLER reason={reason}")


def test_refused_connections_are_told_within_a_limit_and_other_lines_still_come(broker: BrokerProcess) -> None:
    kept = [WireClient(broker.host, broker.port) for _ in range(20)]
    for client in kept:
        client.request(MetadataRequest(topics=[]), 9)
    for _ in range(FLOOD):
        with WireClient(broker.host, broker.port) as refused:
            assert refused.is_closed_by_peer()
    kept[0].send_raw(b"GET / HTTP/1.1\r\n\r\n")
    assert kept[0].is_closed_by_peer()
    for client in kept:
        client.close()

    assert len(lines_with(broker, "refusing connection")) == LINES_MAX
    assert len(lines_with(broker, "looks like HTTP")) == 1


def test_refused_features_are_told_within_a_limit_and_in_one_line_each(broker: BrokerProcess) -> None:
    update = FeatureUpdateKey(feature="a\nforged line", max_version_level=9, upgrade_type=1)
    with WireClient(broker.host, broker.port) as client:
        for _ in range(2 * EVENT_LINES_MAX):
            assert client.request(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code

    assert len(lines_with(broker, "features not updated error=INVALID_UPDATE_VERSION")) == EVENT_LINES_MAX
    assert not [line for line in lines_with(broker, "forged line") if line.startswith("forged")]
