"""The containers' commands, run on this machine with the containers' variables: the healthcheck and the cluster of docker-compose.yml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.packaging.containers import ROOT, compose_nodes, compose_services, dockerfile_command, in_image
from tests.support.cluster import free_ports
from tests.support.installed import TIMEOUT_S, run


def run_in_image(*words: str, **given: str) -> subprocess.Popen[str]:
    """`barnabas`, which the entry point runs, with these words and variables on this machine."""
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


def test_compose_is_understood_by_docker() -> None:
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        run("docker", "compose", "config", "--quiet")


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


def test_compose_s_secured_broker_is_made_once_and_is_healthy(tmp_path: Path) -> None:
    """The commands of both services, on this machine; only the folder and the port are others."""
    services = compose_services()
    program = tmp_path / "barnabas"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m broker.cli.main "$@"\n')
    program.chmod(0o755)
    port = str(free_ports(1)[0])

    def in_place(words: list[str]) -> list[str]:
        return [word.replace("/var/lib/kafka", str(tmp_path)).replace("9292", port) for word in words]

    (making,) = in_place(services["secured-init"]["command"])
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        made = subprocess.run(["sh", "-c", making], env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert made.returncode == 0, made.stderr
    words = in_place(services["secured"]["command"])
    with run_in_image(*words) as node:
        assert node.stdout is not None and " ready on SASL_SSL://" in node.stdout.readline()
        try:
            with run_in_image("health", *words[1:]) as check:
                check.communicate(timeout=TIMEOUT_S)
            assert check.returncode == 0
        finally:
            node.terminate()
            node.communicate(timeout=TIMEOUT_S)
