"""What a secured folder has, whether `secure init` or `cluster up --secure` made it: an authority, the nodes' keys, what clients need.

    DIR/ca.pem                 the certificate of the authority: what clients trust
    DIR/ca.key                 its private key: needed to sign further certificates, and by no node
    DIR/keys/server.pem        private key and certificate for clients and brokers; of a cluster of `secure init` node-N/keys
    DIR/keys/node.pem          the same between nodes and controllers, which know it by its name
    DIR/client.properties      the administrator's, for Java; librdkafka.properties, example.py

Clients and brokers log in by SCRAM over TLS. Controllers are reached by TLS with client certificates: SCRAM's credentials are in the log of
the quorum that they elect. The nodes are one user, barnabas-node, by both.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.cli.client_files import MECHANISM, SCRAM_MODULE, escape, java_client, librdkafka, login, python_example
from broker.cli.private_files import make_private_directory, write_private
from broker.security.sasl.login_properties import parse_entry
from config.loading import read_properties
from config.properties import ConfigError

if TYPE_CHECKING:
    from broker.cli.authority import Authority

ADMINISTRATOR, NODES = "admin", "barnabas-node"
AUTHORITY_NAME = "Barnabas CA"
AUTHORITY_FILE, AUTHORITY_KEY_FILE = "ca.pem", "ca.key"
KEYS_DIRECTORY, SERVER_FILE, NODE_FILE = "keys", "server.pem", "node.pem"
CLIENT_FILE, LIBRDKAFKA_FILE, EXAMPLE_FILE = "client.properties", "librdkafka.properties", "example.py"
CLIENTS_LISTENER = "SASL_SSL"
PASSWORD_BYTES = 24
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
JAAS = f"listener.name.{CLIENTS_LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config"


class Passwords(NamedTuple):
    """Of the two users with whom a cluster begins."""

    administrator: str
    nodes: str

    def __repr__(self) -> str:
        return "Passwords()"  # they may be in no log and no traceback

    def scram_users(self) -> tuple[str, ...]:
        """As `format --add-scram` takes them."""
        return tuple(
            f"{MECHANISM}=[name={name},password={each}]" for name, each in ((ADMINISTRATOR, self.administrator), (NODES, self.nodes))
        )


def new_passwords() -> Passwords:
    return Passwords(secrets.token_urlsafe(PASSWORD_BYTES), secrets.token_urlsafe(PASSWORD_BYTES))


def make_authority(directory: Path, now_ms: int) -> Authority:
    """Raises FileExistsError where there is one. OSError."""
    from broker.cli.authority import Authority  # late: cryptography takes 0.2 s to import

    authority = Authority(AUTHORITY_NAME, now_ms)
    write_private(directory / AUTHORITY_KEY_FILE, authority.pair.key)
    (directory / AUTHORITY_FILE).write_text(authority.pair.certificate)
    return authority


def make_keys(folder: Path, authority: Authority, host: str, names: Iterable[str]) -> None:
    """Of the node, or nodes, that clients reach at `host` and by other `names`. OSError."""
    make_private_directory(folder / KEYS_DIRECTORY)
    for file, pair in (
        (SERVER_FILE, authority.sign(host, names)),
        (NODE_FILE, authority.sign(NODES, names, is_for_client=True)),
    ):
        write_private(folder / KEYS_DIRECTORY / file, pair.key + pair.certificate)


def make_client_files(directory: Path, bootstrap_servers: str, password: str) -> None:
    """Of the administrator. OSError."""
    trusted = directory / AUTHORITY_FILE
    write_private(directory / CLIENT_FILE, java_client(bootstrap_servers, trusted.read_text(), ADMINISTRATOR, password))
    write_private(directory / LIBRDKAFKA_FILE, librdkafka(bootstrap_servers, trusted, ADMINISTRATOR, password))
    (directory / EXAMPLE_FILE).write_text(python_example(directory / LIBRDKAFKA_FILE))


def security_settings(folder: Path, trusted: Path, password: str) -> str:
    """Properties of a node with the keys in `folder`, whose listeners are SASL_SSL and CONTROLLER; `password` is the nodes'."""
    keys = escape(str(folder / KEYS_DIRECTORY))
    return f"""\
# Private key and certificate in one file of PEM.
ssl.keystore.type=PEM
ssl.keystore.location={keys}/{SERVER_FILE}
ssl.truststore.type=PEM
ssl.truststore.location={escape(str(trusted))}

# Nodes know each other by certificates: CN={NODES} is the user {NODES}.
listener.name.controller.ssl.keystore.type=PEM
listener.name.controller.ssl.keystore.location={keys}/{NODE_FILE}
listener.name.controller.ssl.client.auth=required
listener.name.controller.ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT

# Users are in the metadata log: barnabas secure add-user, or kafka-configs --entity-type users.
sasl.enabled.mechanisms={MECHANISM}
sasl.mechanism.inter.broker.protocol={MECHANISM}
{JAAS}={login(NODES, password)}

# What no ACL allows is refused.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMINISTRATOR};User:{NODES}
"""


def is_host(text: str) -> bool:
    """Whether it can be in a certificate: a host's name, or an address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def read_passwords(directory: Path, settings: Path) -> Passwords:
    """Those that the files of the administrator and of a node have. Raises ConfigError."""
    return Passwords(_password(directory / CLIENT_FILE, "sasl.jaas.config"), _password(settings, JAAS))


def _password(path: Path, key: str) -> str:
    password = parse_entry(read_properties(path).get(key, ""), key, SCRAM_MODULE).options.get("password")
    if password is None:
        raise ConfigError(key, None, "", message=f"{path}: {key} has no password")
    return password
