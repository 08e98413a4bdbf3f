"""What stands before a secured broker of a campaign: listeners with TLS and SASL, users, an authorizer. And the ways past it.

The listener PLAINTEXT is the campaign's own, for its canary and its chores: whoever comes there is a super user. Attackers come by the
others, either logged in as a user with rights, or as strangers who are not logged in.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas._wire import exchange, string
from config.server import STANDARD_AUTHORIZER
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.support.jwts import ES256, jwk, key_set
from tests.support.secured import FILES, PASSWORD, PLAIN_MODULE, PROTOCOLS, USER, Secured
from tests.support.wire import WireClient

ADMIN, ADMIN_PASSWORD = "admin", "of the campaign"
CONTROLLER = "CONTROLLER"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, ALL, ALLOW, LITERAL = 2, 3, 4, 5, 2, 3, 3
CLUSTER_OPERATIONS = (5, 8, 9, 10, 11, 12)
"""All but ALTER: CREATE, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE. Who may alter the cluster may delete
the rights of all others."""


class Way(NamedTuple):
    """To a listener. `enter` is given the connected socket and returns the one to go on with; OSError if it is not let in."""

    name: str
    port: int
    enter: Callable[[socket.socket], socket.socket]


def stay_outside(connection: socket.socket) -> socket.socket:
    return connection


class Guard:
    """Ports are quiet ones, from `make_port`."""

    def __init__(self, make_port: Callable[[], int], *, has_controllers: bool = False) -> None:
        self._secured = Secured()
        self._secured.ports = {protocol: make_port() for protocol in PROTOCOLS}
        self._controller_port = make_port() if has_controllers else None
        self._context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))

    def port(self, protocol: str) -> int:
        found = self._controller_port if protocol == CONTROLLER else self._secured.ports[protocol]
        assert found is not None
        return found

    def settings(self, directory: Path, mechanisms: str = "PLAIN,SCRAM-SHA-256,OAUTHBEARER") -> dict[str, str]:
        """The properties of the broker. `directory` gets the keys of the OAuth provider."""
        directory.mkdir(parents=True, exist_ok=True)
        keys = directory / "jwks.json"
        keys.write_bytes(key_set(jwk(ES256, "a")))
        users = f'user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}"'
        jaas = f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}" {users};'
        settings = {
            **self._secured.settings(),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": mechanisms,
            "sasl.oauthbearer.expected.audience": "brokers",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
            "delegation.token.secret.key": "of the tokens",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = jaas
            settings[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = OAUTH_HANDLER
            settings[f"listener.name.{listener}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = keys.as_uri()
        if self._controller_port is not None:
            address = f"127.0.0.1:{self._controller_port}"
            settings |= {
                "listeners": f"{settings['listeners']},{CONTROLLER}://{address}",
                "controller.listener.names": CONTROLLER,
                "controller.quorum.voters": f"1@{address}",
                "listener.security.protocol.map": ",".join([*(f"{each}:{each}" for each in PROTOCOLS), f"{CONTROLLER}:SASL_PLAINTEXT"]),
                "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": jaas,
                "sasl.mechanism.controller.protocol": "PLAIN",
            }
        return settings

    def give_rights(self, client: WireClient) -> None:
        """To USER, whom attackers log in as: everything but to alter the cluster."""
        named = [(resource, "*", ALL) for resource in (TOPIC, GROUP, TRANSACTIONAL_ID)]
        named += [(CLUSTER, "kafka-cluster", operation) for operation in CLUSTER_OPERATIONS]
        creations = [
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal=f"User:{USER}",
                host="*",
                operation=operation,
                permission_type=ALLOW,
            )
            for resource, name, operation in named
        ]
        answer = client.request(CreateAclsRequest(creations=creations), 3)
        assert all(result.error_code == 0 for result in answer.results), answer

    # -- ways in ---------------------------------------------------------------------------------------------------------

    def logged_in(self, protocol: str = "SASL_SSL", user: str = USER) -> Way:
        password = PASSWORD if user == USER else ADMIN_PASSWORD

        def enter(connection: socket.socket) -> socket.socket:
            if protocol == "SASL_SSL":
                connection = self.shake_hands(connection)
            log_in(connection, user, password)
            return connection

        return Way(f"{protocol} as {user}", self.port(protocol), enter)

    def strangers(self, protocol: str | None = None) -> Iterator[Way]:
        """Ways of those who have not logged in, again and again from the beginning; or only to one listener without TLS."""
        if protocol is not None:
            return itertools.repeat(Way(protocol, self.port(protocol), stay_outside))
        return itertools.cycle(
            (
                Way("SASL_PLAINTEXT", self.port("SASL_PLAINTEXT"), stay_outside),
                Way("SASL_SSL before the handshake", self.port("SASL_SSL"), stay_outside),
                Way("SASL_SSL after the handshake", self.port("SASL_SSL"), self.shake_hands),
                Way("SSL without a certificate", self.port("SSL"), self.shake_hands),
            )
        )

    def shake_hands(self, connection: socket.socket) -> socket.socket:
        """With TLS, whose certificate is checked. OSError."""
        return self._context.wrap_socket(connection, server_hostname="localhost")


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """By PLAIN. OSError if the broker refuses."""
    answer = exchange(connection, SASL_HANDSHAKE, 1, string("PLAIN"))
    if struct.unpack_from(">h", answer) == (0,):
        token = f"\0{user}\0{password}".encode()
        answer = exchange(connection, SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    if struct.unpack_from(">h", answer) != (0,):
        raise ConnectionError(f"{user} is not let in")
