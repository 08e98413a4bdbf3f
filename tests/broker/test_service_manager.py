"""A broker that a service manager has started tells it when it serves and when it begins to stop."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.process import checkout

TIMEOUT_S = 60


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_the_manager_hears_of_readiness_and_of_the_stop(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tmp_path / "notify") if kind == "file" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1) if kind == "abstract" else name)
        manager.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        broker = BrokerProcess(tmp_path / "broker")
        broker.start()
        try:
            assert manager.recv(100) == b"READY=1"
            broker.stop()
            assert manager.recv(100) == b"STOPPING=1"
        finally:
            broker.kill()


def test_a_manager_that_is_gone_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    broker.stop()
    assert not broker.is_running


def test_the_unit_starts_what_there_is() -> None:
    unit = (checkout() / "config" / "barnabas.service").read_text()

    assert "Type=notify\n" in unit and re.search(r"^ExecStart=\S+/barnabas serve --config \S+$", unit, re.MULTILINE)
