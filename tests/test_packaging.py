"""The built wheel in an environment of its own: one name added, and it serves. The container files against the wheel and the settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaProducer

from broker.cli.health import container_arguments
from config.loading import DEFAULTS_VARIABLE, load_server_config
from config.properties import ConfigError
from config.server import ServerConfig
from tests.support.broker import BrokerProcess
from tests.support.cluster import free_ports
from tests.support.installed import TIMEOUT_S, run, site_packages

ROOT = Path(__file__).parents[1]
IMAGE_DEFAULTS = ROOT / "config" / "container.properties"


class InstalledBroker(BrokerProcess):
    """The installed command instead of the checkout."""

    def __init__(self, environment: Path, directory: Path) -> None:
        super().__init__(directory)
        self._command = str(environment / "bin" / "barnabas")

    def command(self) -> list[str]:
        command = super().command()
        return [self._command, *command[command.index("serve") :]]


@pytest.fixture
def installed_broker(environment: Path, tmp_path: Path) -> Iterator[InstalledBroker]:
    broker = InstalledBroker(environment, tmp_path)
    yield broker
    broker.kill()


def test_wheel_adds_one_module_name_and_one_command(environment: Path) -> None:
    names = {path.name for path in site_packages(environment).iterdir()} - {"borrowed.pth"}
    commands = {path.name for path in (environment / "bin").iterdir() if "python" not in path.name and "ctivate" not in path.name}

    assert {name for name in names if not name.endswith(".dist-info")} == {"barnabas"}
    assert len(names) == 2 and commands == {"barnabas"}


def test_wheel_holds_every_module_of_the_checkout(wheel: Path) -> None:
    carried = set(zipfile.ZipFile(wheel).namelist())

    for folder in ("broker", "config", "pipeline", "protocol", "storage"):
        for path in (ROOT / folder).rglob("*.py"):
            assert f"barnabas/{path.relative_to(ROOT)}" in carried
    assert {f"barnabas/{path.name}" for path in (ROOT / "barnabas").glob("*.py")} <= carried
    assert {"barnabas/config/server.properties", "barnabas/py.typed"} <= carried


def test_users_own_folders_neither_break_the_command_nor_are_broken(environment: Path, tmp_path: Path) -> None:
    """A project with a `config` package of its own, run from its own directory."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "__init__.py").write_text("MINE = 1")
    python = str(environment / "bin" / "python")

    version = subprocess.run([python, "-m", "barnabas", "--version"], cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S, check=True)
    mine = subprocess.run(
        [python, "-c", "import barnabas, config; print(config.MINE)"], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )

    assert version.stdout.startswith(b"barnabas ") and mine.stdout == b"1\n"


def test_installed_command_serves_and_takes_a_record(installed_broker: InstalledBroker) -> None:
    installed_broker.start()

    producer = KafkaProducer(bootstrap_servers=installed_broker.bootstrap, acks="all")
    metadata = producer.send("packaged", b"value").get(30)
    producer.close()

    assert metadata.offset == 0
    assert installed_broker.stop() == 0


def dockerfile_environment() -> dict[str, str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in line.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def dockerfile_command(instruction: str) -> list[str]:
    """The words of ENTRYPOINT, CMD or of HEALTHCHECK's command."""
    text = (ROOT / "Dockerfile").read_text()
    words: list[str] = json.loads(re.findall(rf"^{instruction}\b.*?(\[.*\])$", text, re.MULTILINE)[0])
    return words


def in_image(**given: str) -> dict[str, str]:
    """The variables of a container that is started with those that are given."""
    return {**dockerfile_environment(), DEFAULTS_VARIABLE: str(IMAGE_DEFAULTS), **given}


def image_config(**given: str) -> ServerConfig:
    return load_server_config(None, in_image(**given), [])


def test_image_advertises_localhost_and_the_container_s_name() -> None:
    config = image_config()

    first, second = config.client_advertised_listeners
    assert str(first) == "PLAINTEXT://localhost:9092" and (second.host, second.port) == (socket.getfqdn(), 19092)
    assert {each.host for each in config.client_listeners} == {"0.0.0.0"}


def test_image_sets_nothing_that_could_be_taken_for_the_user_s() -> None:
    environ = dockerfile_environment()

    assert not [name for name in environ if name.startswith("KAFKA_")]
    assert f"cp config/{IMAGE_DEFAULTS.name} {environ[DEFAULTS_VARIABLE].rpartition('/')[0]}/" in (ROOT / "Dockerfile").read_text()
    assert dockerfile_command("ENTRYPOINT") == ["barnabas"] and dockerfile_command("CMD") == ["serve"]


def test_image_s_defaults_are_those_of_a_start_without_it_but_for_where_it_serves() -> None:
    shipped, image = load_server_config(None, {}, []).texts, image_config().texts

    differing = {key for key in shipped.keys() | image.keys() if shipped.get(key) != image.get(key)}
    assert differing == {
        "node.id",  # so that KAFKA_BROKER_ID may say it
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "barnabas.metrics.listener",
        "log.dirs",
    }


@pytest.mark.parametrize(
    ("given", "listeners", "advertised"),
    [
        # Only advertised listeners: Kafka's image listens on the same ports, on every address.
        ({"ADVERTISED_LISTENERS": "PLAINTEXT://localhost:29092"}, ["PLAINTEXT://0.0.0.0:29092"], ["PLAINTEXT://localhost:29092"]),
        # Without a map, the names of the security protocols are those of listeners, and the controller's listener is plaintext.
        ({"LISTENERS": "PLAINTEXT://:9095"}, ["PLAINTEXT://:9095"], [f"PLAINTEXT://{socket.getfqdn()}:9095"]),
        (
            {
                "LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
                "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            },
            ["PLAINTEXT://:9092", "CONTROLLER://:9093"],
            ["PLAINTEXT://localhost:9092"],
        ),
        (
            {
                "ADVERTISED_LISTENERS": "IN://broker:29092,OUT://localhost:9092",
                "LISTENER_SECURITY_PROTOCOL_MAP": "IN:PLAINTEXT,OUT:PLAINTEXT",
                "INTER_BROKER_LISTENER_NAME": "IN",
            },
            ["IN://0.0.0.0:29092", "OUT://0.0.0.0:9092"],
            ["IN://broker:29092", "OUT://localhost:9092"],
        ),
        # A variable of compose's that is not set arrives empty.
        (
            {"ADVERTISED_LISTENERS": "", "LISTENERS": ""},
            ["PLAINTEXT://0.0.0.0:9092", "INTERNAL://0.0.0.0:19092"],
            ["PLAINTEXT://localhost:9092", f"INTERNAL://{socket.getfqdn()}:19092"],
        ),
    ],
)
def test_listeners_of_the_user_replace_the_image_s(given: dict[str, str], listeners: list[str], advertised: list[str]) -> None:
    config = image_config(**{f"KAFKA_{name}": value for name, value in given.items()})

    assert [str(each) for each in config.listeners] == listeners
    assert [str(each) for each in config.client_advertised_listeners] == advertised


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"KAFKA_LISTENERS": "OUT://:9092"}, "no security protocol defined for listener OUT in listener.security.protocol.map"),
        ({"KAFKA_ADVERTISED_LISTENERS": "OUT://a:1"}, "no security protocol defined for listener OUT in listener.security.protocol.map"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners: .*it is not set, so that listeners counts"),
        ({"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "OUT:PLAINTEXT"}, "OUT:PLAINTEXT .* goes with listeners"),
        ({"KAFKA_CFG_NODE_ID": "1"}, "^KAFKA_CFG_NODE_ID is a name of bitnami's image; set KAFKA_NODE_ID"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_the_user_s_words(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        image_config(**given)

    assert "INTERNAL" not in str(refusal.value)


def test_node_of_several_in_the_image_has_kafka_s_numbers_of_replicas() -> None:
    listeners = {"KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
    voters = "1@a:9093,2@b:9093,3@c:9093"

    assert image_config(**listeners).offsets_topic_replication_factor == 1
    assert image_config(**listeners, KAFKA_CONTROLLER_QUORUM_VOTERS=voters).offsets_topic_replication_factor == 3
    listeners["KAFKA_LISTENERS"] = "PLAINTEXT://:9092"
    broker = {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_NODE_ID": "4", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093"}
    assert image_config(**listeners, **broker).offsets_topic_replication_factor == 3


def test_configuration_file_in_the_image_is_not_mixed_with_the_image_s(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listeners=MINE://localhost:9095\nlistener.security.protocol.map=MINE:PLAINTEXT\ninter.broker.listener.name=MINE\n")

    config = load_server_config(path, in_image(), [])

    assert [str(each) for each in config.advertised_listeners] == ["MINE://localhost:9095"]
    assert not config.barnabas_metrics_listener


def run_in_image(*words: str, **given: str) -> subprocess.Popen[str]:
    """The entry point with these words and variables, on this machine."""
    assert dockerfile_command("ENTRYPOINT") == ["barnabas"]
    command = [sys.executable, "-m", "broker.cli.main", *words]
    environ = {**os.environ, **in_image(**given), "PATH": os.environ["PATH"]}
    return subprocess.Popen(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_healthy(**given: str) -> bool:
    with run_in_image(*dockerfile_command("HEALTHCHECK")[1:], **given) as check:
        check.communicate(timeout=TIMEOUT_S)
        return check.returncode == 0


@pytest.mark.parametrize("roles", ["broker,controller", "controller"])
def test_healthcheck_asks_the_listeners_that_are_configured(roles: str, tmp_path: Path) -> None:
    """No listener is called PLAINTEXT, and none has port 9092."""
    client, controller = free_ports(2)
    given = {
        "KAFKA_PROCESS_ROLES": roles,
        "KAFKA_LISTENERS": f"MINE://:{client},QUORUM://:{controller}" if "broker" in roles else f"QUORUM://:{controller}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "MINE:PLAINTEXT,QUORUM:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "MINE",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "QUORUM",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{controller}",
        "KAFKA_LOG_DIRS": str(tmp_path),
        "KAFKA_BARNABAS_METRICS_LISTENER": "",
    }
    assert not is_healthy(**given)

    with run_in_image(*dockerfile_command("CMD"), **given) as node:
        assert node.stdout is not None and " ready on " in node.stdout.readline()
        try:
            assert is_healthy(**given)
        finally:
            node.terminate()
            node.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["/opt/barnabas/bin/python", "/opt/barnabas/bin/barnabas", "serve", "--config", "/etc/mine"], ["--config", "/etc/mine"]),
        (["/sbin/docker-init", "--", "barnabas", "serve"], []),
        (["/bin/sh", "-c", "sleep 1"], []),
        (["/opt/barnabas/bin/barnabas"], []),
    ],
)
def test_healthcheck_takes_the_arguments_of_the_container_s_first_process(words: list[str], arguments: list[str], tmp_path: Path) -> None:
    command_line = tmp_path / "cmdline"
    command_line.write_bytes(b"".join(word.encode() + b"\0" for word in words))

    assert container_arguments(command_line) == arguments
    assert container_arguments(tmp_path / "none") == []


def test_image_runs_as_a_user_with_a_volume_a_healthcheck_and_compiled_files() -> None:
    text = (ROOT / "Dockerfile").read_text()
    data = image_config().log_dirs[0]

    assert text.rindex("\nUSER barnabas\n") > text.rindex("\nFROM ")
    assert f"\nVOLUME {data}\n" in text and "\nHEALTHCHECK " in text and "compileall" in text


def test_image_is_built_from_files_that_are_there_and_not_ignored() -> None:
    copied = {
        name for line in re.findall(r"^COPY (?!--)(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) for name in line.split()[:-1]
    }
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)


def test_compose_publishes_what_the_broker_advertises() -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["barnabas"]
    advertised = re.fullmatch(r"\$\{KAFKA_ADVERTISED_LISTENERS:-(.*)\}", service["environment"]["KAFKA_ADVERTISED_LISTENERS"])

    assert advertised is not None
    assert advertised[1] == f"PLAINTEXT://localhost:9092,INTERNAL://{service['hostname']}:19092"
    assert "127.0.0.1:9092:9092" in service["ports"]
    assert service["volumes"] == [f"data:{image_config().log_dirs[0]}"]


def test_compose_is_understood_by_docker() -> None:
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        run("docker", "compose", "config", "--quiet")


def compose_nodes() -> dict[str, dict[str, Any]]:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return {name: service for name, service in services.items() if name.startswith("barnabas-")}


def test_compose_s_cluster_has_three_nodes_with_volumes_and_healthchecks() -> None:
    nodes = compose_nodes()

    assert len(nodes) == 3
    for number, (name, node) in enumerate(nodes.items(), start=1):
        published = node["ports"][0].split(":")[1]
        assert (name, node["hostname"], node["environment"]["KAFKA_NODE_ID"]) == (f"barnabas-{number}", f"barnabas-{number}", number)
        assert node["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://localhost:{published},INTERNAL://{name}:19092"
        assert node["volumes"] == [f"data-{number}:{image_config().log_dirs[0]}"]
        assert node["healthcheck"]["test"][:4] == ["CMD", "barnabas", "cluster", "status"]
    assert yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"].keys() == {"data", "data-1", "data-2", "data-3"}


def until_healthy(command: list[str]) -> str:
    """What the check prints once it succeeds: it is repeated, as Docker repeats it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if checked.returncode == 0:
            return checked.stdout
        assert time.monotonic() < deadline_s, checked.stderr


def test_compose_s_cluster_forms_from_its_environment_and_is_healthy(tmp_path: Path) -> None:
    """Three processes on this machine with the containers' variables; only hosts and ports are others."""
    nodes = compose_nodes()
    ports = dict(zip(nodes, zip(*[iter(free_ports(3 * len(nodes)))] * 3, strict=True), strict=True))

    def here(name: str, text: str) -> str:
        published = nodes[name]["ports"][0].split(":")[1]
        text = text.replace(f"localhost:{published}", f"127.0.0.1:{ports[name][0]}")
        for host, addresses in {**ports, "0.0.0.0": ports[name]}.items():
            for port, address in zip((9092, 19092, 9190), addresses, strict=True):
                text = text.replace(f"{host}:{port}", f"127.0.0.1:{address}")
        return text

    cluster_id = "4L6g3nShT-eMCtK--X86sw"
    processes = []
    try:
        for name, node in nodes.items():
            given = {key: here(name, str(value)) for key, value in node["environment"].items()} | {"CLUSTER_ID": cluster_id}
            environ = {**os.environ, **in_image(**given, KAFKA_LOG_DIRS=str(tmp_path / name), KAFKA_BARNABAS_METRICS_LISTENER="")}
            environ["PATH"] = os.environ["PATH"]
            command = [sys.executable, "-m", "broker.cli.main"]
            processes.append(subprocess.Popen([*command, "serve"], env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        assert all(process.stdout is not None and " ready on " in process.stdout.readline() for process in processes)

        for name, node in nodes.items():
            check = [here(name, word) for word in node["healthcheck"]["test"][2:]]
            own = [word.replace("127.0.0.1:19092", f"127.0.0.1:{ports[name][1]}") for word in check]
            printed = until_healthy([*command, *own])
            assert f"cluster {cluster_id}" in printed and "3 brokers" in printed
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=TIMEOUT_S)
    assert [process.returncode for process in processes] == [0, 0, 0]
