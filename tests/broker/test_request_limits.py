"""Requests beyond barnabas.request.entries.max and barnabas.request.bytes.max, over a socket: what is just below is served."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from protocol import codec
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.support.broker import BrokerProcess
from tests.support.ports import free_port
from tests.support.wire import WireClient, frame

ENTRIES_MAX = 1_000
BYTES_MAX = 65_536
METADATA_KEY, DELETE_GROUPS_KEY = 3, 42
LINES_MAX = 10  # of one kind in a minute


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[BrokerProcess]:
    settings = {
        "barnabas.request.entries.max": str(ENTRIES_MAX),
        "barnabas.request.bytes.max": str(BYTES_MAX),
        "barnabas.metrics.listener": f"127.0.0.1:{metrics_port}",
        "num.partitions": "1",
    }
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings)
    process.start()
    yield process
    process.stop()


def metadata(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def groups_of_size(size: int) -> DeleteGroupsRequest:
    """A request whose frame has `size` bytes; its names have 30,000 at most."""
    request = DeleteGroupsRequest(groups_names=["g" * 30_000, "h" * 30_000, ""])
    missing = size - len(frame(DELETE_GROUPS_KEY, 2, codec.encode(request, 2)))
    request.groups_names[-1] = "i" * (missing - 1)  # its length takes a byte more
    return request


def refused_count(metrics_port: int, request: str, limit: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as page:
        text = page.read().decode()
    name = f'barnabas_refused_requests_total{{limit="{limit}",request="{request}"}} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def test_as_many_entries_as_the_limit_are_answered_and_one_more_closes_the_connection(broker: BrokerProcess, metrics_port: int) -> None:
    with WireClient(broker.host, broker.port) as client:
        assert len(client.request(metadata(ENTRIES_MAX), 12).topics) == ENTRIES_MAX
        with pytest.raises(EOFError):
            client.request(metadata(ENTRIES_MAX + 1), 12)

    (line,) = broker.lines_with("barnabas.request.entries.max")
    assert "WARNING" in line
    assert "Metadata" in line
    assert "127.0.0.1" in line
    assert "wire-test" in line
    assert refused_count(metrics_port, "Metadata", "barnabas.request.entries.max") == 1


def test_a_fetch_may_have_half_more_entries(broker: BrokerProcess) -> None:
    def fetch(count: int) -> FetchRequest:
        topics = [FetchTopic(topic=f"missing-{number}", partitions=[FetchPartition(partition=0)]) for number in range(count // 2)]
        return FetchRequest(replica_id=-1, max_wait_ms=0, session_epoch=-1, topics=topics)

    with WireClient(broker.host, broker.port) as client:
        assert len(client.request(fetch(ENTRIES_MAX * 3 // 2), 12).responses) == ENTRIES_MAX * 3 // 4
        with pytest.raises(EOFError):
            client.request(fetch(ENTRIES_MAX * 3 // 2 + 2), 12)


def test_a_request_as_large_as_the_limit_is_answered_and_one_byte_more_closes_the_connection(
    broker: BrokerProcess, metrics_port: int
) -> None:
    at_most, too_large = groups_of_size(BYTES_MAX), groups_of_size(BYTES_MAX + 1)
    assert len(frame(DELETE_GROUPS_KEY, 2, codec.encode(at_most, 2))) == BYTES_MAX

    with WireClient(broker.host, broker.port) as client:
        assert len(client.request(at_most, 2).results) == 3
        with pytest.raises((EOFError, ConnectionError)):
            client.request(too_large, 2)

    (line,) = broker.lines_with("barnabas.request.bytes.max")
    assert "DeleteGroups" in line
    assert refused_count(metrics_port, "DeleteGroups", "barnabas.request.bytes.max") == 1


def test_a_produce_may_be_larger(broker: BrokerProcess) -> None:
    records = bytes(build_batch([SimpleRecord(None, bytes(3 * BYTES_MAX))]))
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=records)])

    with WireClient(broker.host, broker.port) as client:
        client.request(MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True), 12)
        response = client.request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)

    assert response.responses[0].partition_responses[0].error_code in (0, 3)  # 3: the topic is not there yet


def test_log_lines_about_such_requests_are_limited(broker: BrokerProcess) -> None:
    for _ in range(2 * LINES_MAX):
        with WireClient(broker.host, broker.port) as client, pytest.raises(EOFError):
            client.request(metadata(ENTRIES_MAX + 1), 12)

    assert len(broker.lines_with("is beyond barnabas.request", count=LINES_MAX)) == LINES_MAX
    with WireClient(broker.host, broker.port) as client:
        assert client.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0
