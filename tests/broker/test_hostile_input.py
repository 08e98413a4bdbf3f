"""Malformed and unsupported input over the socket: answered as Kafka does, and the next connection is served as if nothing was.

BARNABAS_TEST_SERVER=kafka runs the same against Apache Kafka, except where the name says that ours is stricter.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from protocol import codec
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.support.fixtures import server as server
from tests.support.process import ServerProcess
from tests.support.wire import WireClient, frame

IS_KAFKA = os.environ.get("BARNABAS_TEST_SERVER") == "kafka"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[WireClient]:
    with WireClient(server.host, server.port) as connected:
        yield connected
    with WireClient(server.host, server.port) as other:
        assert other.request(MetadataRequest(topics=[]), 9).brokers, "the server does not serve the next connection"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_frame_size_out_of_range_closes_the_connection(client: WireClient, size: int) -> None:
    client.send_raw(struct.pack(">i", size))

    assert client.is_closed_by_peer()


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x03\x00\x09\x00\x00", struct.pack(">hhih", 3, 9, 1, 100)])
def test_a_cut_header_closes_the_connection(client: WireClient, body: bytes) -> None:
    client.send_frame(body)

    assert client.is_closed_by_peer()


@pytest.mark.parametrize(("key", "version"), [(18, 0), (18, 2), (16, 0), (16, 2)])
def test_a_cut_client_id_closes_the_connection_of_a_request_without_a_body(client: WireClient, key: int, version: int) -> None:
    """Nothing behind the header is read that would find out."""
    client.send_frame(frame(key, version, b"")[:-1])

    assert client.is_closed_by_peer()


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 0), (0, 2), (0, 99), (1, 3), (3, 99), (3, -1)])
def test_what_is_not_served_closes_the_connection(client: WireClient, key: int, version: int) -> None:
    client.send_frame(frame(key, version, b"\x00" * 40))

    assert client.is_closed_by_peer()


@pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka cannot encode such an answer and closes the connection")
def test_an_error_that_repeats_a_long_name_fits_into_a_string(client: WireClient) -> None:
    config = CreatableTopicConfig(name="é" * 16_383, value="1")
    topic = CreatableTopic(name="never", num_partitions=1, replication_factor=1, configs=[config])

    (created,) = client.request(CreateTopicsRequest(topics=[topic]), 6).topics

    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert created.error_message.startswith("Unknown topic config name: éé") and len(created.error_message) < 1_100


@pytest.mark.skipif(IS_KAFKA, reason="in Apache Kafka the time wraps round, and the offset expires at once")
def test_an_offset_may_be_kept_longer_than_time_lasts(client: WireClient) -> None:
    client.request(CreateTopicsRequest(topics=[CreatableTopic(name="kept", num_partitions=1, replication_factor=1)]), 6)
    commit = OffsetCommitRequest(
        group_id="eternal", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name="kept", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=3)])],
    )  # fmt: skip

    codes = {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    while codes <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}:
        client.request(FindCoordinatorRequest(key="eternal"), 3)
        codes = {client.request(commit, 4).topics[0].partitions[0].error_code}

    assert codes == {ErrorCode.NONE}


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_the_layout_of_version_0(client: WireClient, version: int) -> None:
    client.send_frame(frame(18, version, b"anything"))

    answer = client.receive_frame()
    response, _ = codec.decode(ApiVersionsResponse, 0, answer, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(known.api_key, known.min_version) for known in response.api_keys] == [(18, 0)]
    assert response.api_keys[0].max_version < version


@pytest.mark.parametrize("name", ["", "-x", "x y", "x\n", "ü"])
def test_a_bad_software_name_is_an_invalid_request(client: WireClient, name: str) -> None:
    response = client.request(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)

    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [key for key in sorted(APIS) if key != 18])
def test_every_api_closes_on_a_body_without_its_last_byte(server: ServerProcess, key: int) -> None:
    api = APIS[key]
    for version in {max(api.min_version, 0), api.max_version}:
        body = codec.encode(api.request_class(), version)
        if not body:
            continue  # ListGroups v0 asks nothing
        with WireClient(server.host, server.port) as client:
            client.send_frame(frame(key, version, body[:-1]))
            assert client.is_closed_by_peer(), f"{api.name} v{version}"


@pytest.mark.skipif(IS_KAFKA, reason="Kafka substitutes U+FFFD where we refuse")
def test_a_client_id_that_is_not_utf_8_closes_the_connection(client: WireClient) -> None:
    client.send_frame(frame(3, 9, codec.encode(MetadataRequest(topics=[]), 9), client_id=b"\xff\xfe"))

    assert client.is_closed_by_peer()


def test_requests_of_one_connection_are_answered_in_order(client: WireClient) -> None:
    for version in (0, 3, 4, 1, 2) * 20:
        client.send(
            ApiVersionsRequest(client_software_name="a", client_software_version="1") if version > 2 else ApiVersionsRequest(), version
        )

    assert [client.receive().error_code for _ in range(100)] == [0] * 100
