"""Kafka's tools for APIs that are not there yet: each ends at once with an error that says so, and none waits for a timeout."""

from __future__ import annotations

import time

import pytest

from tests.clients.topics import create_topic
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess

PATIENCE_S = 25.0  # below the tools' own timeouts of 30 s and a minute

TOOLS = [
    ("streams.StreamsGroupCommand", "--describe --group programs", "STREAMS_GROUP_DESCRIBE"),
    # The share consumer logs the error at once but throws it only when its poll is over.
    ("consumer.ConsoleShareConsumer", "--topic TOPIC --timeout-ms 1000", "SHARE_GROUP_HEARTBEAT"),
]


@pytest.mark.parametrize(("tool", "arguments", "api"), TOOLS, ids=[api for _, _, api in TOOLS])
def test_a_tool_for_what_is_not_there_says_so_at_once(
    server: ServerProcess, java_host: JavaHost, topic_name: str, tool: str, arguments: str, api: str
) -> None:
    create_topic(server, topic_name)
    words = [topic_name if word == "TOPIC" else word for word in arguments.split()]
    started = time.monotonic()

    result = java_host.tool(tool, "--bootstrap-server", server.bootstrap, *words, expected_status=None)

    assert f"The node does not support {api}" in result.stdout + result.stderr
    assert time.monotonic() - started < PATIENCE_S
