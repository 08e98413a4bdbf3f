"""The compose files of Apache Kafka's image with this image: each is understood, and nodes of them start by the entry point."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import config.image
from barnabas.cli.kafka_tools.run import TOOLS
from config.loading import MOUNTED_VARIABLE, load_server_config
from tests.packaging.apache_examples import EXAMPLES, JAAS, MOUNTED_PROPERTIES, PUBLIC
from tests.packaging.containers import ROOT, dockerfile_command, in_image
from tests.support.cluster import free_ports
from tests.support.installed import TIMEOUT_S

ENTRY_POINT = ROOT / "config" / "entrypoint.sh"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir()
    for name in ("kafka_keystore_creds", "kafka_ssl_key_creds", "kafka_truststore_creds"):
        (directory / name).write_text("abcdefgh\n")
    (directory / "broker_jaas.conf").write_text(JAAS)
    monkeypatch.setattr(config.image, "SECRETS_DIRECTORY", directory)
    return directory


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_understood(name: str, secrets: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "server.properties"
    if "file-input" in name:
        mounted.write_text(MOUNTED_PROPERTIES)
    given = {key: text.replace("/etc/kafka/secrets", str(secrets)) for key, text in EXAMPLES[name].items()}

    loaded = load_server_config(None, in_image(**given) | {MOUNTED_VARIABLE: str(mounted)}, [])

    assert ",".join(map(str, loaded.listeners)) == given["KAFKA_LISTENERS"].replace(" ", "")
    assert loaded.log_dirs == ("/tmp/kraft-combined-logs",) and loaded.barnabas_auto_format
    assert loaded.offsets_topic_replication_factor == 1
    assert set(loaded.unknown_keys) <= {"security.protocol"}, "which Apache Kafka ignores, too"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_compose_file_is_understood(name: str) -> None:
    loaded = load_server_config(None, in_image(**PUBLIC[name]), [])

    wanted = PUBLIC[name].get("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:19092")
    assert ",".join(map(str, loaded.listeners)) == wanted and loaded.barnabas_auto_format
    assert loaded.log_dirs == (PUBLIC[name].get("KAFKA_LOG_DIRS", "/var/lib/kafka/data"),)
    assert (loaded.offsets_topic_replication_factor, loaded.transaction_state_log_min_isr) == (1, 1), "one node is one node"
    assert set(loaded.unknown_keys) <= {"kraft.cluster.id"}


@pytest.mark.parametrize("name", ["single-node/sasl_plaintext", "single-node/file-input"])
def test_example_starts_and_is_healthy(name: str, secrets: Path, tmp_path: Path) -> None:
    """By the entry point, on this machine; only hosts, ports and folders are others. Of the mounted file the lines of TLS are left out."""
    ports = iter(free_ports(5))
    here: dict[str, str] = {"/etc/kafka/secrets": str(secrets), "/tmp/kraft-combined-logs": str(tmp_path / "logs")}
    here |= {port: str(next(ports)) for port in ("29093", "19094", "19092", "9094")}
    here |= {":9092": f":{next(ports)}" if "file" in name else ":9092", "broker:": "127.0.0.1:", "SSL://:9093,": ""}

    def in_place(text: str) -> str:
        for there, found in here.items():
            text = text.replace(there, found)
        return text

    program = tmp_path / "barnabas"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli.main "$@"\n')
    program.chmod(0o755)
    mounted = tmp_path / "server.properties"
    if "file" in name:
        lines = [line for line in MOUNTED_PROPERTIES.splitlines() if not line.startswith("ssl.")]
        mounted.write_text(in_place("\n".join(lines).replace("SSL://localhost:9093,", "")))
    given = {key: in_place(text) for key, text in EXAMPLES[name].items()} | {"KAFKA_BARNABAS_METRICS_LISTENER": ""}
    environ = {**os.environ, **in_image(**given), MOUNTED_VARIABLE: str(mounted), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    with subprocess.Popen([ENTRY_POINT, *dockerfile_command("CMD")], env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None and " ready on " in node.stdout.readline()
            subprocess.run([ENTRY_POINT, *dockerfile_command("HEALTHCHECK")[1:]], env=environ, cwd=ROOT, timeout=TIMEOUT_S, check=True)
            if "sasl" in name:
                login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
                login |= {"bootstrap.servers": in_place("localhost:9094"), "sasl.password": "alice-secret"}
                metadata = AdminClient(login).list_topics(timeout=TIMEOUT_S)
                assert metadata.cluster_id == EXAMPLES[name]["CLUSTER_ID"]
        finally:
            node.terminate()
            node.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ((), "barnabas serve"),
        (("serve", "--port", "1"), "barnabas serve --port 1"),
        (("/bin/echo", "a"), "a"),
        (("sh", "-c", "echo b"), "b"),
    ],
)
def test_entry_point_runs_programs_and_commands(words: tuple[str, ...], printed: str, tmp_path: Path) -> None:
    (tmp_path / "barnabas").write_text('#!/bin/sh\necho barnabas "$@"\n')
    (tmp_path / "barnabas").chmod(0o755)

    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run([ENTRY_POINT, *words], env=environ, capture_output=True, text=True, check=True).stdout == f"{printed}\n"


def test_image_has_a_link_for_every_tool() -> None:
    (names,) = re.findall(r"for tool in ([\w\- ]+); do", (ROOT / "Dockerfile").read_text())

    assert {f"kafka-{name}" for name in names.split()} == {*TOOLS}
