"""ListenerSecurity: makes what lets clients in on each listener, and this node in on others': TLS, and the mechanisms of SASL.

What is wrong with the settings of a listener stops the start, in one line; what they name and is not here does, too. OpenSSL is loaded
only where a listener has TLS: it costs 30 ms and 6 MB.

Source: ChannelBuilders, SslChannelBuilder, SaslChannelBuilder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from broker.loop.clock import Clock
from broker.network.connection import FAILED_AUTHENTICATIONS, Connection, Handle, Refuse
from broker.network.listeners import ConnectionRegistry, Secure
from broker.platform import Platform
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from config.server import ServerConfig

if TYPE_CHECKING:
    import ssl

    from broker.network.login import Login
    from broker.network.tls_transport import CiphertextBuffer, SecuredProtocol
    from broker.security.sasl.conversation import Mechanism
    from broker.security.sasl.exchange import SaslClient, SaslServer
    from broker.security.sasl.jaas import JaasEntry
    from broker.security.sasl.scram_server import ScramCredentials
    from broker.security.tls.principal_mapping import PrincipalMapper
    from broker.security.tls.settings import TlsSettings

logger = logging.getLogger("barnabas.security")

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
ANONYMOUS = "User:ANONYMOUS"
GSSAPI_IS_MISSING = "GSSAPI (Kerberos) is not supported; set sasl.enabled.mechanisms to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
NO_SCRAM_BETWEEN_VOTERS = (
    "sasl.mechanism.controller.protocol: voters cannot use SCRAM, whose credentials are in the log of the quorum that they elect; use "
    "PLAIN, or SSL with client certificates"
)
NONCE_SIZE = 18  # random bytes of a SCRAM nonce


class ListenerSecurity:
    """One for a node. `credentials` returns where SCRAM looks up users; `cluster_secret` is as in ScramServer."""

    def __init__(
        self,
        config: ServerConfig,
        platform: Platform,
        registry: ConnectionRegistry,
        *,
        credentials: Callable[[], ScramCredentials],
        cluster_secret: Callable[[], bytes],
    ) -> None:
        self._config = config
        self._platform = platform
        self._registry = registry
        self._credentials = credentials
        self._cluster_secret = cluster_secret
        self._buffer: CiphertextBuffer | None = None

    def secure(self, listener_name: str, protocol: str) -> tuple[TlsAuthenticator | SaslAuthenticator | None, Secure | None]:
        """Returns who asks the clients of a listener, and what puts TLS before their connections; None where nothing does. Raises
        ConfigError."""
        if protocol == "PLAINTEXT":
            return None, None
        settings = ListenerSettings(self._config.texts, listener_name)
        secure = self._tls(settings, protocol) if protocol in TLS_PROTOCOLS else None
        if protocol in SASL_PROTOCOLS:
            return self._sasl(settings), secure
        from broker.security.tls.principal_mapping import PrincipalMapper

        mapper = PrincipalMapper(str(settings.value("ssl.principal.mapping.rules")))
        return TlsAuthenticator(mapper, self._config.socket_request_max_bytes), secure

    def to_brokers(self) -> Peers | None:
        """How this node connects to other brokers; None if their listener is PLAINTEXT. Raises ConfigError."""
        return self._peers(self._config.inter_broker_listener_name, "sasl.mechanism.inter.broker.protocol")

    def to_controllers(self) -> Peers | None:
        """How this node connects to controllers, as `to_brokers`."""
        config = self._config
        if not config.controller_listener_names:
            return None
        peers = self._peers(config.controller_listener_names[0], "sasl.mechanism.controller.protocol")
        has_other_voters = len(config.controller_quorum_voters) > 1 or not config.is_own_quorum_server
        is_scram = peers is not None and (peers.mechanism or "").startswith("SCRAM")
        if is_scram and has_other_voters and "controller" in config.process_roles:
            raise ConfigError("sasl.mechanism.controller.protocol", None, "", message=NO_SCRAM_BETWEEN_VOTERS)
        return peers

    def _peers(self, listener_name: str, mechanism_property: str) -> Peers | None:
        protocol = self._config.listener_security_protocol_map.get(listener_name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return None
        settings = ListenerSettings(self._config.texts, listener_name)
        context = self._client_context(settings, protocol) if protocol in TLS_PROTOCOLS else None
        mechanism, start = None, None
        if protocol in SASL_PROTOCOLS:
            mechanism = str(settings.value(mechanism_property))
            start = self._client_maker(settings, mechanism, mechanism_property)
        return Peers(context, self._registry, self._platform, mechanism, start)

    def _client_context(self, settings: ListenerSettings, protocol: str) -> ssl.SSLContext:
        from broker.security.tls.context import client_context
        from broker.security.tls.files import read_store_file

        return client_context(tls_settings(settings, is_of_sasl=protocol == "SASL_SSL"), read_store_file)

    def _client_maker(self, settings: ListenerSettings, name: str, mechanism_property: str) -> Callable[[], SaslClient]:
        from broker.security.sasl import jaas, scram
        from broker.security.sasl.plain import PLAIN, PlainClient
        from broker.security.sasl.scram_client import ScramClient

        mechanism = scram.find_mechanism(name)
        if mechanism is None and name != PLAIN:
            why = "nodes log in to each other by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
            raise ConfigError(settings.key(mechanism_property), name, why)
        key, text = settings.of_mechanism(name, "sasl.jaas.config")
        module = jaas.PLAIN_LOGIN_MODULE if mechanism is None else jaas.SCRAM_LOGIN_MODULE
        options = _jaas_entry(text, key, module).options if text is not None else {}
        if "username" not in options or "password" not in options:
            raise ConfigError(key, None, "", message=f"{key}: must name the user of this node, with username and password")
        username, password, entropy = options["username"], options["password"], self._platform.entropy
        if mechanism is None:
            return lambda: PlainClient(username, password)
        is_token = options.get("tokenauth", "").lower() == "true"
        return lambda: ScramClient(mechanism, username, password, entropy(NONCE_SIZE).hex(), is_token=is_token)

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _tls(self, settings: ListenerSettings, protocol: str) -> Secure:
        from broker.network.tls_transport import CiphertextBuffer, TlsTransport
        from broker.security.tls.context import server_context
        from broker.security.tls.files import read_store_file
        from broker.security.tls.layer import TlsLayer

        if protocol == "SASL_SSL" and self._config.is_set("ssl.client.auth") and not settings.is_own("ssl.client.auth"):
            logger.warning("ssl.client.auth has no effect on the SASL_SSL listener %s; set it with its prefix", settings.listener_name)
        context: ssl.SSLContext = server_context(tls_settings(settings, is_of_sasl=protocol == "SASL_SSL"), read_store_file)
        buffer = self._buffer = self._buffer or CiphertextBuffer()
        registry, network, disk = self._registry, self._registry.network, self._platform.disk

        def secure(connection: Connection) -> asyncio.BufferedProtocol:
            return TlsTransport(
                connection,
                TlsLayer(context, is_server=True),
                buffer,
                make_layer=network.make_layer,
                wait_turn=registry.frame_turn.wait,
                pread=disk.pread,
            )

        return secure

    # -- SASL --------------------------------------------------------------------------------------------------------

    def _sasl(self, settings: ListenerSettings) -> SaslAuthenticator:
        names = cast("tuple[str, ...]", settings.value("sasl.enabled.mechanisms"))
        mechanisms = {name: self._mechanism(settings, name) for name in names}
        max_receive_size = cast("int", settings.value("sasl.server.max.receive.size"))
        return SaslAuthenticator(
            mechanisms,
            max_receive_size=max_receive_size,
            failure_delay_ms=self._config.connection_failed_authentication_delay_ms,
            clock=self._platform.clock,
        )

    def _mechanism(self, settings: ListenerSettings, name: str) -> Mechanism:
        from broker.security.sasl.conversation import Mechanism

        key, handler = settings.of_mechanism(name, "sasl.server.callback.handler.class")
        if handler is not None and name != "OAUTHBEARER":
            raise ConfigError(key, handler, "callback handlers written in Java cannot be loaded")
        max_reauth_ms = cast("int", settings.value_of_mechanism(name, "connections.max.reauth.ms"))
        return Mechanism(self._server_maker(settings, name), max_reauth_ms)

    def _server_maker(self, settings: ListenerSettings, name: str) -> Callable[[], SaslServer]:
        from broker.security.sasl import jaas, scram
        from broker.security.sasl.plain import PLAIN, PlainServer
        from broker.security.sasl.scram_server import ScramServer

        if name == PLAIN:
            key, text = settings.of_mechanism(name, "sasl.jaas.config")
            if text is None:
                raise ConfigError(key, None, "", message=f"{key}: must be set, with user_<name>=<password> for each user of PLAIN")
            users = _jaas_entry(text, key, jaas.PLAIN_LOGIN_MODULE).users
            return lambda: PlainServer(users)
        mechanism = scram.find_mechanism(name)
        if mechanism is not None:
            key, text = settings.of_mechanism(name, "sasl.jaas.config")
            if text is not None:
                _jaas_entry(text, key, jaas.SCRAM_LOGIN_MODULE)
            entropy = self._platform.entropy
            return lambda: ScramServer(mechanism, self._credentials(), entropy(NONCE_SIZE).hex(), self._cluster_secret())
        key = settings.key("sasl.enabled.mechanisms")
        why = GSSAPI_IS_MISSING if name == "GSSAPI" else "is no mechanism of Barnabas: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
        raise ConfigError(key, name, why)


class Peers:
    """How this node connects to one listener of the other nodes. Satisfies PeerSecurity."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        registry: ConnectionRegistry,
        platform: Platform,
        mechanism: str | None,
        start_login: Callable[[], SaslClient] | None,
    ) -> None:
        self.has_tls = context is not None
        self.mechanism = mechanism
        self._context = context
        self._registry = registry
        self._platform = platform
        self._start_login = start_login
        self._buffer: CiphertextBuffer | None = None

    def secure(self, inner: SecuredProtocol, host: str) -> asyncio.BufferedProtocol:
        from broker.network.tls_transport import CiphertextBuffer, TlsTransport
        from broker.security.tls.layer import TlsLayer

        assert self._context is not None, "there is TLS"
        self._buffer = self._buffer or CiphertextBuffer()
        return TlsTransport(
            inner,
            TlsLayer(self._context, is_server=False, server_hostname=host),
            self._buffer,
            make_layer=self._registry.network.make_layer,
            wait_turn=self._registry.loop.call_soon,
            pread=self._platform.disk.pread,
        )

    def start_login(self) -> SaslClient:
        assert self._start_login is not None, "there is a mechanism"
        return self._start_login()


class TlsAuthenticator:
    """Names clients by their certificates; who has none is User:ANONYMOUS (where ssl.client.auth lets him in)."""

    def __init__(self, mapper: PrincipalMapper, frame_size_max: int) -> None:
        self.frame_size_max = frame_size_max
        self._mapper = mapper

    def begin(self, connection: Connection, handle: Handle, refuse: Refuse) -> Handle:
        return handle

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        from broker.security.tls.certificate import parse
        from broker.security.tls.der import DerError
        from broker.security.tls.principal_mapping import NoMatchingRuleError

        if certificate is None:
            connection.authenticated(ANONYMOUS)
            return
        try:
            connection.authenticated(f"User:{self._mapper.map_name(parse(certificate).subject_text)}")
        except (DerError, NoMatchingRuleError) as e:
            connection.close(str(e), FAILED_AUTHENTICATIONS)


class SaslAuthenticator:
    """Has clients log in by SASL. `mechanisms` may be changed for new logins."""

    def __init__(self, mechanisms: Mapping[str, Mechanism], *, max_receive_size: int, failure_delay_ms: int, clock: Clock) -> None:
        from broker.network.login import Login
        from broker.security.sasl.conversation import SaslConversation
        from broker.security.sasl.events import Now

        self.mechanisms = mechanisms
        self.frame_size_max = max_receive_size
        self._failure_delay_ms = failure_delay_ms
        self._clock = clock
        self._make_login, self._make_conversation, self._make_now = Login, SaslConversation, Now

    def begin(self, connection: Connection, handle: Handle, refuse: Refuse) -> Login:
        clock = self._clock
        return self._make_login(
            connection,
            self._make_conversation(self.mechanisms, self.frame_size_max),
            handle,
            now=lambda: self._make_now(clock.now_ms(), clock.monotonic_ms()),
            monotonic_ms=clock.monotonic_ms,
            failure_delay_ms=self._failure_delay_ms,
            refuse=refuse,
        )

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        """The login follows."""


def _jaas_entry(text: str, key: str, module: str) -> JaasEntry:
    from broker.security.sasl import jaas

    entry = jaas.parse(text, key)
    if entry.module != module:
        raise ConfigError(key, None, "", message=f"{key}: the login module has to be {module}, not {entry.module}")
    return entry


def tls_settings(settings: ListenerSettings, *, is_of_sasl: bool) -> TlsSettings:
    """The ssl.* properties of a listener. Raises ConfigError."""
    from broker.security.tls.settings import ClientAuth, TlsSettings

    def text(name: str) -> str | None:
        value = settings.value(name)
        return None if value in (None, "") else str(value)

    def names(name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", settings.value(name))

    client_auth = str(settings.value("ssl.client.auth")) if not is_of_sasl or settings.is_own("ssl.client.auth") else "none"
    for refused in ("ssl.engine.factory.class", "ssl.provider"):
        if settings.value(refused):
            raise ConfigError(settings.key(refused), settings.value(refused), "what is written in Java cannot be loaded")
    return TlsSettings(
        keystore_type=text("ssl.keystore.type") or "JKS",
        keystore_location=text("ssl.keystore.location"),
        keystore_password=text("ssl.keystore.password"),
        keystore_key=text("ssl.keystore.key"),
        keystore_certificate_chain=text("ssl.keystore.certificate.chain"),
        key_password=text("ssl.key.password"),
        truststore_type=text("ssl.truststore.type") or "JKS",
        truststore_location=text("ssl.truststore.location"),
        truststore_password=text("ssl.truststore.password"),
        truststore_certificates=text("ssl.truststore.certificates"),
        enabled_protocols=names("ssl.enabled.protocols"),
        cipher_suites=names("ssl.cipher.suites"),
        client_auth=ClientAuth(client_auth),
        endpoint_identification_algorithm=str(settings.value("ssl.endpoint.identification.algorithm") or ""),
        prefix=settings.prefix if any(settings.is_own(name) for name in ("ssl.keystore.location", "ssl.keystore.key")) else "",
    )
