"""OAUTHBEARER as a client: nodes log in to each other with tokens of a provider, and so do our own commands and Kafka's, by one file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from config.loading import read_properties
from tests.broker.test_cluster_command import Up, up  # noqa: F401
from tests.broker.test_cluster_command_secured import send
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.commands import run_here
from tests.support.java_host import JavaHost
from tests.support.kafka import java_command
from tests.support.ports import HOST, free_ports
from tests.support.process import ServerFailedError
from tests.support.secured import FILES, PASSWORD, USER, cluster_settings
from tests.support.token_endpoint import AUDIENCE, AUTHORITY, CLIENT, ISSUER, KEYS_PATH, SCOPE, SECRET, TOKEN_PATH, TokenEndpoint

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule"
TRUST = f'ssl.truststore.type="PEM" ssl.truststore.location="{AUTHORITY}"'
TOKEN_S = 8
"""Three nodes and four rounds of half a token's time."""
FILE = "client.properties"


def validation(prefix: str, endpoint: TokenEndpoint) -> dict[str, str]:
    """Of the listener to which `prefix` belongs."""
    return {
        f"{prefix}sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": endpoint.url + KEYS_PATH,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }


def login(prefix: str, endpoint: TokenEndpoint, *, secret: str = SECRET) -> dict[str, str]:
    credentials = f'clientId="{CLIENT}" clientSecret="{secret}" scope="{SCOPE}"'
    return {
        f"{prefix}sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{prefix}sasl.oauthbearer.token.endpoint.url": endpoint.url + TOKEN_PATH,
        f"{prefix}sasl.jaas.config": f"{MODULE} required {credentials} {TRUST};",
    }


def test_nodes_replicate_beyond_the_end_of_their_tokens(tmp_path: Path) -> None:
    prefix = "listener.name.secure.oauthbearer."
    with TokenEndpoint(lifetime_s=TOKEN_S) as endpoint:
        settings = cluster_settings(tmp_path / "keys", "OAUTHBEARER") | {
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            **validation(prefix, endpoint),
            **login(prefix, endpoint),
            "sasl.login.refresh.window.factor": "0.5",  # before the sessions are renewed, however slow the machine is
            "sasl.login.refresh.window.jitter": "0.0",
            "sasl.oauthbearer.clock.skew.seconds": "0",
        }
        with Cluster(tmp_path, secure="SASL_SSL", settings=settings) as cluster:
            cluster.create_topic("tokens", partitions=3)
            errors: list[KafkaError | None] = []
            producer = Producer({**_client(cluster), "acks": "all", "log_level": 0})
            first = len(endpoint.issued)
            for round_number in range(4):  # three tokens are issued between two rounds, one for each node; a session ends with the second
                endpoint.wait_for_tokens(first + 3 * round_number, 60)
                for partition in range(3):
                    producer.produce("tokens", b"v", partition=partition, on_delivery=lambda error, message: errors.append(error))
                assert producer.flush(60) == 0

            assert errors == [None] * 12
            assert set(endpoint.issued) == {CLIENT}
            assert [form["scope"] for _, _, form in endpoint.requests] == [[SCOPE]] * len(endpoint.requests)
            logs = "".join(node.log_path.read_text() for node in cluster.nodes.values())
            assert [line for line in logs.splitlines() if "login failed" in line or "is refused" in line] == [], "an old token was shown"
            assert SECRET not in logs


def test_the_folder_of_a_secured_cluster_may_be_changed_to_tokens(up: Callable[..., Up], tmp_path: Path) -> None:  # noqa: F811
    """Its nodes read DIR/security.properties: no secret is in a command line."""
    folder = tmp_path / "cluster"
    words = ("--secure", "--brokers", "2", "--directory", str(folder), "--port")
    first = up(*words, "0")
    assert send(folder, "client", "orders") is None
    assert first.end() == (0, "")
    prefix = "listener.name.sasl_ssl.oauthbearer."
    with TokenEndpoint() as endpoint:
        more = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "super.users": f"User:admin;User:barnabas-node;User:{CLIENT}",
            **validation(prefix, endpoint),
            **login(prefix, endpoint),
        }
        with (folder / "security.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in more.items())
        path = folder / "client.properties"
        before = read_properties(path)["bootstrap.servers"]
        command_config(path, before, login("", endpoint) | _trust(folder) | {"security.protocol": "SASL_SSL"})
        started = up(*words, "0")
        assert read_properties(path)["bootstrap.servers"] == started.bootstrap != before
        assert run_here("secure", "add-user", "alice", "--write", "orders", "--directory", str(folder)).returncode == 0
        assert status(path).stdout.count(" alive ") == 2
        assert send(folder, "alice", "orders") is None, "not all replicas have it"
        assert set(endpoint.issued) == {CLIENT}
        assert SECRET not in Path(f"/proc/{started.process.pid}/cmdline").read_text()
        assert started.end() == (0, "")


def _trust(folder: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}


def _client(cluster: Cluster) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in cluster.secure_ports.values()),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(FILES / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TokenEndpoint, int]]:
    """A provider, and the port of a broker that takes its tokens."""
    directory = tmp_path_factory.mktemp("oauth")
    port, plain_port = free_ports(2)
    prefix = "listener.name.oauth.oauthbearer."
    with TokenEndpoint() as endpoint:
        settings = {
            "listeners": f"OAUTH://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain_port}",
            "listener.security.protocol.map": "OAUTH:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}sasl.jaas.config": f"{MODULE} required {TRUST};",
            **validation(prefix, endpoint),
        }
        broker = BrokerProcess(directory, settings)
        broker.port = plain_port
        broker.start()
        yield endpoint, port
        broker.stop()


def servers(provided: tuple[TokenEndpoint, int]) -> str:
    return f"127.0.0.1:{provided[1]}"


def command_config(path: Path, servers: str, properties: Mapping[str, str]) -> Path:
    settings = {"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    path.write_text("".join(f"{name}={value}\n" for name, value in (settings | dict(properties)).items()))
    return path


def status(path: Path) -> subprocess.CompletedProcess[str]:
    return run_here("cluster", "status", "--command-config", str(path))


def test_a_command_fetches_one_token_also_when_the_provider_is_away_for_a_moment(
    tmp_path: Path, provided: tuple[TokenEndpoint, int]
) -> None:
    endpoint, _ = provided
    before = len(endpoint.issued)
    endpoint.statuses = [503, 500]

    done = status(command_config(tmp_path / FILE, servers(provided), login("", endpoint)))

    assert (done.returncode, done.stderr) == (0, "")
    assert " alive " in done.stdout
    assert len(endpoint.issued) == before + 1


def test_the_properties_count_before_the_options_and_may_be_encoded(tmp_path: Path, provided: tuple[TokenEndpoint, int]) -> None:
    endpoint, _ = provided
    properties = login("", endpoint, secret="of an old file") | {
        "sasl.oauthbearer.client.credentials.client.id": "a:b c",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "more than one",
        "sasl.oauthbearer.header.urlencode": "true",
    }

    status(command_config(tmp_path / FILE, servers(provided), properties))

    _, headers, form = endpoint.requests[-1]
    assert headers["Authorization"] == "Basic YSUzQWIrYzpzZWNyZXQrb2YrdGhlK25vZGU=", "a%3Ab+c:secret+of+the+node"
    assert form == {"grant_type": ["client_credentials"], "scope": ["more than one"]}


@pytest.mark.parametrize(("changes", "why"), [
    ({"sasl.oauthbearer.client.credentials.client.secret": "guessed"}, "it answers with status 401"),
    ({"sasl.oauthbearer.token.endpoint.url": "http://localhost/token"}, "must be set: an address with https: or file:"),
    ({"sasl.login.callback.handler.class": ""}, "makes itself an unsigned token"),
    ({"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.JwtBearerJwtRetriever"}, "must be one of"),
    ({"sasl.oauthbearer.assertion.claim.iss": "node"}, "assertions are not supported"),
    ({"sasl.jaas.config": f"{MODULE} required;"}, "sasl.oauthbearer.client.credentials.client.id: must be set, or clientId"),
    ({"sasl.jaas.config": f'{MODULE} required clientId="a" clientSecret="b";'}, "certificate verify failed"),
])  # fmt: skip
def test_what_cannot_be_is_one_line_without_a_secret(
    tmp_path: Path, provided: tuple[TokenEndpoint, int], changes: dict[str, str], why: str
) -> None:
    properties = login("", provided[0]) | {"sasl.login.retry.backoff.max.ms": "0"} | changes

    done = status(command_config(tmp_path / FILE, servers(provided), properties))

    assert done.returncode == 1
    assert why in done.stderr and len(done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr and "guessed" not in done.stderr


def test_a_secret_follows_no_redirect(tmp_path: Path, provided: tuple[TokenEndpoint, int]) -> None:
    endpoint, _ = provided
    asked = len(endpoint.requests)
    endpoint.statuses = [302]

    done = status(command_config(tmp_path / FILE, servers(provided), login("", endpoint) | {"sasl.login.retry.backoff.max.ms": "0"}))

    assert "it answers with status 302" in done.stderr
    assert len(endpoint.requests) == asked + 1


def test_a_node_with_a_wrong_secret_does_not_start(tmp_path: Path, provided: tuple[TokenEndpoint, int]) -> None:
    endpoint, _ = provided
    prefix = "listener.name.oauth.oauthbearer."
    port, controller_port = free_ports(2)
    settings = {
        "listeners": f"OAUTH://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "OAUTH:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "OAUTH",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        **validation(prefix, endpoint),
        **login(prefix, endpoint, secret="guessed"),
    }
    node = BrokerProcess(tmp_path / "node", settings)
    node.port = port

    with pytest.raises(ServerFailedError) as failed:
        node.start()

    line = f"sasl.oauthbearer.token.endpoint.url: {endpoint.url}{TOKEN_PATH}: it answers with status 401"
    assert line in str(failed.value)
    assert "guessed" not in str(failed.value)


def test_a_token_may_be_in_a_file(tmp_path: Path, provided: tuple[TokenEndpoint, int]) -> None:
    endpoint, _ = provided
    import base64
    import json

    basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
    answer = endpoint.answer("", {"Authorization": f"Basic {basic}"}, {"grant_type": ["client_credentials"]})[1]
    (tmp_path / "token").write_text(json.loads(answer)["access_token"] + "\n")
    properties = login("", endpoint) | {"sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()}

    assert " alive " in status(command_config(tmp_path / FILE, servers(provided), properties)).stdout


def test_kafkas_own_tool_logs_in_by_the_same_file(tmp_path: Path, provided: tuple[TokenEndpoint, int], java_host: JavaHost) -> None:
    """In a process of its own: Kafka's client takes addresses of providers from a system property."""
    endpoint, port = provided
    path = command_config(tmp_path / FILE, servers(provided), login("", endpoint))
    before = len(endpoint.issued)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.url}{TOKEN_PATH}"
    words = ["--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(path), "--list"]

    done = subprocess.run(
        java_command("org.apache.kafka.tools.TopicCommand", *words, flags=[allowed]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr + done.stdout
    assert len(endpoint.issued) > before
    kafkas, ours = endpoint.requests[-1], None
    assert status(path).returncode == 0
    ours = endpoint.requests[-1]
    assert (ours[0], ours[2]) == (kafkas[0], kafkas[2])
    for name in ("Authorization", "Content-Type", "Accept", "Cache-Control", "Content-Length"):
        assert ours[1][name] == kafkas[1][name]
