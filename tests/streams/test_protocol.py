"""What Kafka Streams does when it asks for groups of its own protocol (KIP-1071), which are not here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from tests.streams.topics import create_topics
from tests.support.fixtures import new_server
from tests.support.kafka import KafkaServer
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost
from tests.support.wire import WireClient


@pytest.fixture
def without_streams_groups(tmp_path: Path) -> Iterator[ServerProcess]:
    server = new_server(tmp_path / "server")
    if isinstance(server, KafkaServer):
        server.format_arguments = ("--feature", "streams.version=0")
    server.start()
    yield server
    server.stop()


def test_streams_groups_are_refused(
    without_streams_groups: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """The program ends at once and says why."""
    server = without_streams_groups
    create_topics(server, application_id, "lines")
    settings = {"group.protocol": "streams"}

    with WireClient(server.host, server.port) as client:
        features = {feature.name for feature in client.request(ApiVersionsRequest(), 3).finalized_features}
    with streams_host.start("word-count", application_id, server.bootstrap, tmp_path / "state", settings) as instance:
        failure = instance.wait_failed()

    assert "streams.version" not in features
    assert "UnsupportedVersionException: The cluster does not support the STREAMS group protocol" in failure
