"""The console's end while pages are open."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path

import pytest

from tests.barnabas.console.running import TOPIC, Console, environment
from tests.support.process import ServerProcess

PATHS = ("/ticks", f"/topics/{TOPIC}/messages/records?mode=tail")


@pytest.mark.parametrize("shown_server", ["barnabas"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_whole_and_nothing_is_logged(shown_server: ServerProcess, tmp_path: Path, number: signal.Signals) -> None:
    console = Console("-b", shown_server.bootstrap, environment=environment(tmp_path, shown_server), log=tmp_path / "log")
    console.page("/topics", until=TOPIC)
    opened = [http.client.HTTPConnection("127.0.0.1", console.port, timeout=60) for _ in PATHS]
    streams = []
    for connection, path in zip(opened, PATHS, strict=True):
        connection.request("GET", console.base + path, headers={"Host": f"localhost:{console.port}"})
        streams.append(connection.getresponse())
        assert streams[-1].readline().startswith(b"event: ")

    console.stop(number)

    for stream in streams:
        stream.read()  # raises IncompleteRead if the stream was cut off
    for connection in opened:
        connection.close()
    assert (tmp_path / "log").read_text() == ""
