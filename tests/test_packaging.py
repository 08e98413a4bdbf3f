"""The built wheel in an environment of its own: one name added, and it serves. The container files against the wheel and the settings."""

from __future__ import annotations

import json
import os
import re
import shutil
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

from config.loading import load_server_config
from tests.support.broker import BrokerProcess
from tests.support.cluster import free_ports
from tests.support.installed import TIMEOUT_S, run, site_packages

ROOT = Path(__file__).parents[1]


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


def advertised_by_entrypoint(environ: dict[str, str]) -> str:
    """What the image's entry point exports, run by a real shell with a stand-in for the command."""
    text = (ROOT / "Dockerfile").read_text()
    entrypoint = json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[0])
    script = entrypoint[2].replace("exec barnabas", "exec env #")
    finished = subprocess.run(
        [*entrypoint[:2], script], env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True, text=True, check=True
    )
    return next(line for line in finished.stdout.splitlines() if line.startswith("KAFKA_ADVERTISED_LISTENERS=")).partition("=")[2]


def test_image_advertises_localhost_and_the_container_s_name() -> None:
    environ = {key: value for key, value in dockerfile_environment().items() if key.startswith("KAFKA_")}
    environ["KAFKA_ADVERTISED_LISTENERS"] = advertised_by_entrypoint({})

    config = load_server_config(None, environ, [])

    first, second = config.client_advertised_listeners
    assert str(first) == "PLAINTEXT://localhost:9092" and second.port == 19092 and second.host not in ("", "localhost", "0.0.0.0")
    assert {each.host for each in config.client_listeners} == {"0.0.0.0"}


def test_image_lets_another_published_port_be_advertised() -> None:
    given = "PLAINTEXT://localhost:29092"

    environ = {**dockerfile_environment(), "KAFKA_ADVERTISED_LISTENERS": advertised_by_entrypoint({"KAFKA_ADVERTISED_LISTENERS": given})}

    assert [str(each) for each in load_server_config(None, environ, []).client_advertised_listeners] == [given]


def test_image_runs_as_a_user_with_a_volume_a_healthcheck_and_compiled_files() -> None:
    text = (ROOT / "Dockerfile").read_text()
    data = dockerfile_environment()["KAFKA_LOG_DIRS"]

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
    assert service["volumes"] == [f"data:{dockerfile_environment()['KAFKA_LOG_DIRS']}"]


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
        assert node["volumes"] == [f"data-{number}:{dockerfile_environment()['KAFKA_LOG_DIRS']}"]
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
            environ = {**os.environ, **given, "KAFKA_LOG_DIRS": str(tmp_path / name)}
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
