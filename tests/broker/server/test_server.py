"""The node as an operator sees it: starts, refusals in one line, clean and unclean stops, named listeners."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker.observability.logs import Console, TextFormatter
from broker.server import process, server
from broker.server.formatting import format_directories
from broker.server.garbage import THRESHOLDS
from config.loading import load_server_config
from config.server import STANDARD_AUTHORIZER
from protocol.messages.metadata import MetadataRequest
from protocol.messages.stored.metadata_records import AccessControlEntryRecord
from tests.broker.metadata.room import CLUSTER_ID, open_room
from tests.support.broker import BrokerProcess
from tests.support.process import STOP_TIMEOUT_S, free_port
from tests.support.wire import WireClient

CHECKOUT = Path(__file__).resolve().parents[3]


def serve(*overrides: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected not to start."""
    words = [word for override in overrides for word in ("--override", override)]
    if config is not None:
        words += ["--config", str(config)]
    command = [sys.executable, "-m", "broker.cli.main", "serve", *words]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)


def one_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def listeners(port: int) -> str:
    return f"listeners=PLAINTEXT://127.0.0.1:{port}"


def test_the_ready_line_says_address_data_node_and_time(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    broker.stop()

    (line,) = [line for line in broker.log_path.read_text().splitlines() if line.startswith("barnabas ")]
    assert f" ready on PLAINTEXT://127.0.0.1:{broker.port} data={broker.data_dir} node=1 in " in line


def test_sigterm_stops_cleanly_with_clients_waiting(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    with WireClient(broker.host, broker.port) as client:
        client.request(MetadataRequest(topics=None), 9)
        os.kill(broker.pid, signal.SIGTERM)

        assert client.is_closed_by_peer()
        assert broker.wait(STOP_TIMEOUT_S) == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_taken_port_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        outcome = serve(listeners(port), f"log.dirs={tmp_path}")

    assert outcome.returncode == 1
    assert one_line(outcome.stderr) == f"barnabas: listener PLAINTEXT: can't listen on 127.0.0.1:{port}: Address already in use"


def test_a_taken_metrics_port_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"

        outcome = serve(listeners(free_port()), f"log.dirs={tmp_path}", f"barnabas.metrics.listener={address}")

    assert outcome.returncode == 1
    assert one_line(outcome.stderr) == f"barnabas: metrics: can't listen on {address}: Address already in use"


def test_a_directory_in_use_stops_the_start_with_one_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()

    outcome = serve(listeners(free_port()), f"log.dirs={broker.data_dir}")
    broker.stop()

    assert outcome.returncode == 1
    assert str(broker.data_dir) in one_line(outcome.stderr)


def test_a_wrong_value_stops_the_start_with_the_key_and_the_range(tmp_path: Path) -> None:
    outcome = serve("num.partitions=0", f"log.dirs={tmp_path}")

    assert outcome.returncode == 1
    line = one_line(outcome.stderr)
    assert "num.partitions" in line
    assert "0" in line
    assert "1" in line


def test_voters_without_this_node_stop_the_start_with_one_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=3@localhost:9093,2@other.example:9093\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs={tmp_path}\n"
    )

    outcome = serve(config=config)

    assert outcome.returncode == 1
    assert "controller.quorum.voters" in one_line(outcome.stderr)


async def write_acl(data: Path) -> None:
    room = await open_room(data)
    room.quorum.propose(room.quorum.epoch, [AccessControlEntryRecord(id=bytes(15) + b"\x01", principal="User:a")])
    await room.close()


def test_a_cluster_with_acls_is_served_only_with_an_authorizer(tmp_path: Path) -> None:
    format_directories(load_server_config(None, {}, [f"log.dirs={tmp_path}"]), CLUSTER_ID, ignore_formatted=False, random_bytes=os.urandom)
    asyncio.run(write_acl(tmp_path))

    outcome = serve(listeners(free_port()), f"log.dirs={tmp_path}")
    broker = BrokerProcess(tmp_path / "told", {"authorizer.class.name": STANDARD_AUTHORIZER})
    broker.data_dir = tmp_path
    broker.start()

    assert outcome.returncode == 1
    assert "ACLs" in one_line(outcome.stderr) and f"authorizer.class.name={STANDARD_AUTHORIZER}" in outcome.stderr
    assert broker.stop() == 0


def test_a_super_user_without_a_type_stops_the_start(tmp_path: Path) -> None:
    authorizer = f"authorizer.class.name={STANDARD_AUTHORIZER}"

    outcome = serve(listeners(free_port()), f"log.dirs={tmp_path}", "barnabas.auto.format=true", authorizer, "super.users=alice")

    assert outcome.returncode == 1
    assert "super.users" in one_line(outcome.stderr) and "alice" in outcome.stderr


async def test_a_node_that_learns_of_an_acl_stops(tmp_path: Path) -> None:
    config = load_server_config(None, {}, [f"log.dirs={tmp_path}", listeners(0), "barnabas.auto.format=true"])
    broker = server.Broker(config)
    await broker.start()
    try:
        quorum = broker._quorum.driver  # type: ignore[union-attr]
        quorum.propose(quorum.epoch, [AccessControlEntryRecord(id=bytes(15) + b"\x01", principal="User:a")])

        assert await asyncio.wait_for(broker.wait_stopped(), 10) == 1
    finally:
        await broker.stop()

    assert "ACLs" in broker.stop_reason


def test_an_unformatted_directory_is_not_served_without_being_asked_to_format(tmp_path: Path) -> None:
    outcome = serve(listeners(free_port()), f"log.dirs={tmp_path / 'data'}", "barnabas.auto.format=false")

    assert outcome.returncode == 1
    assert "barnabas format" in one_line(outcome.stderr)


def test_a_directory_that_cannot_be_made_stops_the_start_with_one_line() -> None:
    outcome = serve(listeners(free_port()), "log.dirs=/proc/barnabas")

    assert outcome.returncode == 1
    assert one_line(outcome.stderr) == "barnabas: cannot create /proc/barnabas: No such file or directory"


def test_an_unknown_key_is_one_line_of_the_log(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"zookeeper.connect": "localhost:2181"})
    broker.start()
    broker.stop()

    (line,) = [line for line in broker.log_path.read_text().splitlines() if "zookeeper" in line]
    assert line.endswith("WARNING barnabas.config unknown configurations are ignored: zookeeper.connect")


def test_each_client_is_told_the_address_of_the_listener_it_came_by(tmp_path: Path) -> None:
    inner, outer = free_port(), free_port()
    settings = {
        "listeners": f"INNER://127.0.0.1:{inner},OUTER://127.0.0.1:{outer}",
        "advertised.listeners": f"INNER://127.0.0.1:{inner},OUTER://outer.example:{outer}",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
    }
    broker = BrokerProcess(tmp_path, settings)
    broker.port = inner
    broker.start()
    told = []
    for port in (inner, outer):
        with WireClient("127.0.0.1", port) as client:
            (known,) = client.request(MetadataRequest(topics=[]), 9).brokers
            told.append((known.host, known.port))
    broker.stop()

    assert told == [("127.0.0.1", inner), ("outer.example", outer)]


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_ids_of_cluster_and_topics_survive_a_restart(tmp_path: Path, way: str) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()

    def facts() -> tuple[str, bytes]:
        with WireClient(broker.host, broker.port) as client:
            response = client.request(MetadataRequest(topics=None), 12)
            return response.cluster_id, response.topics[0].topic_id

    from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

    with WireClient(broker.host, broker.port) as client:
        client.request(CreateTopicsRequest(topics=[CreatableTopic(name="kept", num_partitions=1, replication_factor=1)]), 7)
    before = facts()
    getattr(broker, way)()
    broker.start()
    after = facts()
    broker.stop()

    assert after == before


def test_a_new_directory_gets_the_cluster_id_of_the_environment_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the official container image; the id is that of many compose files."""
    broker = BrokerProcess(tmp_path)
    ids = []
    for cluster_id in ("MkU3OEVBNTcwNTJENDM2Qk", "another"):
        monkeypatch.setenv("CLUSTER_ID", cluster_id)
        broker.start()
        with WireClient(broker.host, broker.port) as client:
            ids.append(client.request(MetadataRequest(topics=[]), 9).cluster_id)
        broker.stop()

    assert ids == ["MkU3OEVBNTcwNTJENDM2Qk"] * 2


def test_settings_that_change_nothing_are_named_in_one_warning(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"num.io.threads": "8", "queued.max.requests": "500", "socket.send.buffer.bytes": "102400"})
    broker.start()
    broker.stop()

    warnings = [line for line in broker.log_path.read_text().splitlines() if " WARNING " in line]
    assert [line.partition("tells why: ")[2] for line in warnings] == ["num.io.threads, queued.max.requests"]


def test_a_serving_broker_collects_garbage_by_its_own_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`barnabas serve` imports with the collector off."""
    before = gc.get_threshold()
    found = []

    async def stop_at_once(broker: server.Broker) -> int:
        found.append((gc.isenabled(), gc.get_threshold()))
        return 0

    monkeypatch.setattr(server.Broker, "wait_stopped", stop_at_once)
    config = load_server_config(None, {}, [listeners(free_port()), f"log.dirs={tmp_path / 'data'}"])
    gc.disable()
    try:
        with open(os.devnull, "wb") as nowhere:
            console = Console(nowhere.fileno(), nowhere.fileno(), TextFormatter())
            assert asyncio.run(process._run(config, console)) == 0
            console.close()
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)

    assert found == [(True, THRESHOLDS)]
