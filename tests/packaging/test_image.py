"""The container files against the settings: what is configured, published and checked. Nothing is started here."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
import yaml

import config.image
from broker.cli.health import container_arguments
from config.loading import DEFAULTS_VARIABLE, MOUNTED_VARIABLE, load_server_config
from config.properties import ConfigError
from tests.packaging.containers import (
    IMAGE_DEFAULTS,
    ROOT,
    compose_nodes,
    dockerfile_command,
    dockerfile_environment,
    image_config,
    in_image,
)


def test_image_advertises_localhost_and_the_container_s_name() -> None:
    config = image_config()

    first, second = config.client_advertised_listeners
    assert str(first) == "PLAINTEXT://localhost:9092" and (second.host, second.port) == (socket.getfqdn(), 19092)
    assert {each.host for each in config.client_listeners} == {"0.0.0.0"}


def test_image_sets_nothing_that_could_be_taken_for_the_user_s() -> None:
    environ = dockerfile_environment()

    assert not [name for name in environ if name.startswith("KAFKA_")]
    home = environ[DEFAULTS_VARIABLE].rpartition("/")[0]
    assert f"cp config/{IMAGE_DEFAULTS.name} config/entrypoint.sh config/kafka-tool.sh {home}/" in (ROOT / "Dockerfile").read_text()
    assert dockerfile_command("ENTRYPOINT") == [f"{home}/entrypoint.sh"] and dockerfile_command("CMD") == ["serve"]


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


def test_data_of_apache_kafka_s_image_are_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume at its own place, and no KAFKA_LOG_DIRS: a start that is empty would look like a loss of all topics."""
    former = tmp_path / "kraft-combined-logs"
    monkeypatch.setattr(config.image, "FORMER_DATA", (tmp_path / "none", former))
    former.mkdir()
    assert image_config().log_dirs == ("/var/lib/kafka/data",)
    (former / "meta.properties").write_text("cluster.id=x\n")

    with pytest.raises(
        ConfigError, match=f"^KAFKA_LOG_DIRS is not set, and {former} has the data of a node: KAFKA_LOG_DIRS={former} serves"
    ):
        image_config()
    for name in ("KAFKA_LOG_DIRS", "KAFKA_LOG_DIR"):
        assert image_config(**{name: str(former)}).log_dirs == (str(former),)
    mounted = tmp_path / "server.properties"
    mounted.write_text("log.dirs=/data\n")
    assert load_server_config(None, in_image() | {MOUNTED_VARIABLE: str(mounted)}, []).log_dirs == ("/data",)
    assert load_server_config(mounted, in_image(), []).log_dirs == ("/data",)


def test_configuration_file_in_the_image_is_not_mixed_with_the_image_s(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listeners=MINE://localhost:9095\nlistener.security.protocol.map=MINE:PLAINTEXT\ninter.broker.listener.name=MINE\n")

    config = load_server_config(path, in_image(), [])

    assert [str(each) for each in config.advertised_listeners] == ["MINE://localhost:9095"]
    assert not config.barnabas_metrics_listener


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


def test_compose_s_cluster_has_three_nodes_with_volumes_and_healthchecks() -> None:
    nodes = compose_nodes()

    assert len(nodes) == 3
    for number, (name, node) in enumerate(nodes.items(), start=1):
        published = node["ports"][0].split(":")[1]
        assert (name, node["hostname"], node["environment"]["KAFKA_NODE_ID"]) == (f"barnabas-{number}", f"barnabas-{number}", number)
        assert node["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://localhost:{published},INTERNAL://{name}:19092"
        assert node["volumes"] == [f"data-{number}:{image_config().log_dirs[0]}"]
        assert node["healthcheck"]["test"][:4] == ["CMD", "barnabas", "cluster", "status"]
    assert yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"].keys() == {
        "data",
        "data-1",
        "data-2",
        "data-3",
        "data-secured",
    }


def test_compose_example_of_the_docs_reaches_the_broker_where_it_listens() -> None:
    (text,) = re.findall(r"```yaml\n(services:.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    services = yaml.safe_load(text)["services"]
    broker, app = services["kafka"], services["app"]

    config = image_config(**{name: str(value) for name, value in broker["environment"].items()})

    host, _, port = app["environment"]["BOOTSTRAP_SERVERS"].rpartition(":")
    assert host == broker["hostname"] and int(port) in {listener.port for listener in config.client_listeners}
    assert app["depends_on"]["kafka"]["condition"] == "service_healthy" and dockerfile_command("HEALTHCHECK")
