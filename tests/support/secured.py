"""A secured broker for tests: listeners of all four security protocols, and what clients need to connect to each."""

from __future__ import annotations

from pathlib import Path

from tests.support.ports import HOST, free_ports

FILES = Path(__file__).parent.parent / "broker" / "security" / "tls" / "files"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD = "alice", "wonder land"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured:
    """Ports and settings. The listener PLAINTEXT is for administration, and for the broker itself."""

    def __init__(self) -> None:
        *ports, self.metrics_port = free_ports(len(PROTOCOLS) + 1)
        self.ports = dict(zip(PROTOCOLS, ports, strict=True))

    def bootstrap(self, protocol: str) -> str:
        return f"{HOST}:{self.ports[protocol]}"

    def settings(self, **changes: str) -> dict[str, str]:
        """The properties of the broker; `changes` with `_` for `.`."""
        jaas = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
        return {
            "listeners": ",".join(f"{protocol}://{self.bootstrap(protocol)}" for protocol in PROTOCOLS),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": one_line("server.key"),
            "ssl.keystore.certificate.chain": one_line("server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": one_line("ca.pem"),
            "listener.name.ssl.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        } | {name.replace("_", "."): value for name, value in changes.items()}

    def librdkafka(self, protocol: str, *, password: str = PASSWORD) -> dict[str, str]:
        """How confluent-kafka connects."""
        conf = {"bootstrap.servers": self.bootstrap(protocol), "security.protocol": protocol}
        if "SSL" in protocol:
            conf |= {"ssl.ca.location": str(FILES / "ca.pem")}
        if protocol == "SSL":
            conf |= {"ssl.certificate.location": str(FILES / "client.pem"), "ssl.key.location": str(FILES / "client.key")}
        if "SASL" in protocol:
            conf |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": password}
        return conf

    def kafka_python(self, protocol: str, *, password: str = PASSWORD) -> dict[str, str]:
        """How kafka-python connects."""
        conf = {"bootstrap_servers": self.bootstrap(protocol), "security_protocol": protocol}
        if "SSL" in protocol:
            conf |= {"ssl_cafile": str(FILES / "ca.pem")}
        if protocol == "SSL":
            conf |= {"ssl_certfile": str(FILES / "client.pem"), "ssl_keyfile": str(FILES / "client.key")}
        if "SASL" in protocol:
            conf |= {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": password}
        return conf


def one_line(name: str) -> str:
    """PEM's text as a value of --override."""
    return (FILES / name).read_text()


ADMIN, ADMIN_PASSWORD = "admin", "of the nodes"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def cluster_settings(directory: Path, mechanism: str, *, reauthenticate_ms: int = 0) -> dict[str, str]:
    """The properties of each node of a Cluster with `secure`. The nodes log in to each other by `mechanism` as ADMIN, clients by PLAIN as
    USER."""
    directory.mkdir(parents=True, exist_ok=True)
    keys = directory / "node.pem"
    keys.write_text((FILES / "server.key").read_text() + (FILES / "server.pem").read_text())
    users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{USER}="{PASSWORD}"'
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(FILES / "ca.pem"),
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.secure.connections.max.reauth.ms": str(reauthenticate_ms),
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}" {users};',
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}";',
    }


def scram_of_nodes() -> tuple[str, str]:
    """Words of the format command that give ADMIN a credential."""
    return "--add-scram", f"SCRAM-SHA-256=[name={ADMIN},password={ADMIN_PASSWORD}]"
