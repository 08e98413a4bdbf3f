"""How our own commands connect: TLS and a login by SASL, as a Java client's properties say (`--command-config FILE`).

security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=/…/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.security.sasl.login_properties import client_maker
from broker.security.tls.context import client_context
from broker.security.tls.files import read_store_file
from broker.server.listener_security import SASL_PROTOCOLS, TLS_PROTOCOLS, tls_settings
from config.listener_settings import ListenerSettings
from config.loading import read_properties
from config.properties import ConfigError
from protocol.sasl import login
from protocol.sasl.exchange import SaslClient
from protocol.sasl.login import Ask
from protocol.sasl.oauthbearer_client import OAUTHBEARER

if TYPE_CHECKING:
    from broker.cli.command_tokens import CommandTokens

PROTOCOLS = ("PLAINTEXT", *TLS_PROTOCOLS, "SASL_PLAINTEXT")
MECHANISM, JAAS = "sasl.mechanism", "sasl.jaas.config"
URL_ENCODE = "sasl.oauthbearer.header.urlencode"
NO_PREFIX = "command"
"""A client's properties have no listener; one of this name is not in its file."""


class LoginError(OSError):
    """The broker did not let us in; `str()` is its line."""


class ClientSecurity:
    """TLS if there is a context, a login if there is a mechanism."""

    def __init__(self, context: ssl.SSLContext | None, mechanism: str = "", start_login: Callable[[], SaslClient] | None = None) -> None:
        self._context = context
        self._mechanism = mechanism
        self._start_login = start_login

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection with TLS. OSError (ssl.SSLError) if one side does not trust the other."""
        return plain if self._context is None else self._context.wrap_socket(plain, server_hostname=host)

    def log_in(self, ask: Ask) -> None:
        """Log in by `ask`, which sends a request and returns its answer. Raises LoginError."""
        if self._start_login is None:
            return
        try:
            login.log_in(ask, self._mechanism, self._start_login())
        except login.LoginError as e:
            raise LoginError(str(e)) from e


class CommandConfig(NamedTuple):
    """What a file says. `bootstrap_servers` is "" if it is not set."""

    security: ClientSecurity | None
    bootstrap_servers: str


def read_command_config(path: Path) -> CommandConfig:
    """Raises ConfigError."""
    texts = read_properties(path)
    return CommandConfig(client_security(texts), texts.get("bootstrap.servers", ""))


def client_security(texts: Mapping[str, str]) -> ClientSecurity | None:
    """By a Java client's properties; None for PLAINTEXT, which is the default. Raises ConfigError."""
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError("security.protocol", protocol, f"is one of {', '.join(PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return None
    context = None
    if protocol in TLS_PROTOCOLS:
        context = client_context(tls_settings(ListenerSettings(texts, NO_PREFIX), is_of_sasl=protocol == "SASL_SSL"), read_store_file)
    if protocol not in SASL_PROTOCOLS:
        return ClientSecurity(context)
    mechanism = texts.get(MECHANISM, "GSSAPI")
    if mechanism == OAUTHBEARER:
        return ClientSecurity(context, mechanism, _tokens(texts).start_login)
    return ClientSecurity(context, mechanism, client_maker(mechanism, MECHANISM, texts.get(JAAS), JAAS, os.urandom))


def _tokens(texts: Mapping[str, str]) -> CommandTokens:
    from broker.cli.command_tokens import CommandTokens
    from broker.server.oauthbearer_login import HANDLER_KEY, make_provider

    encodes_header = texts.get(URL_ENCODE, "").lower() == "true"
    handler, jaas = (HANDLER_KEY, texts.get(HANDLER_KEY)), (JAAS, texts.get(JAAS))
    return CommandTokens(make_provider(ListenerSettings(texts, NO_PREFIX), handler, jaas, encodes_header=encodes_header))


def security_of_listener(texts: Mapping[str, str], listener_name: str, protocol: str) -> ClientSecurity | None:
    """As far as ApiVersions, which needs no login, and by the node's own certificate: for a check whether it answers, which sends nothing
    that is secret. Raises ConfigError."""
    if protocol not in TLS_PROTOCOLS:
        return None
    context = client_context(tls_settings(ListenerSettings(texts, listener_name), is_of_sasl=protocol == "SASL_SSL"), read_store_file)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return ClientSecurity(context)
