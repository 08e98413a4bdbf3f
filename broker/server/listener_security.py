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

from broker.loop.clock import Timer
from broker.network.connection import Connection
from broker.network.listeners import ConnectionRegistry, Secure
from broker.observability.metrics import Metrics
from broker.platform import Platform
from broker.server.authenticators import SaslAuthenticator, TlsAuthenticator
from broker.server.peers import Peers
from config.listener_properties import is_dynamic
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from config.server import ServerConfig

if TYPE_CHECKING:
    import ssl

    from broker.network.tls_transport import CiphertextBuffer
    from broker.security.sasl.conversation import Mechanism
    from broker.security.sasl.scram_server import ScramCredentials
    from broker.security.tls.certificate import Certificate
    from broker.security.tls.settings import TlsSettings
    from broker.server.certificate_watch import CertificateWatch
    from broker.server.oauthbearer import OAuthBearer
    from protocol.sasl.exchange import SaslClient, SaslServer

logger = logging.getLogger("barnabas.security")

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
GSSAPI_IS_MISSING = "GSSAPI (Kerberos) is not supported; set sasl.enabled.mechanisms to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
NO_SCRAM_BETWEEN_VOTERS = (
    "sasl.mechanism.controller.protocol: voters cannot use SCRAM, whose credentials are in the log of the quorum that they elect; use "
    "PLAIN, or SSL with client certificates"
)


Renewal = Callable[[Mapping[str, str]], Callable[[], None]]
"""Given the properties' texts, makes anew what is made of them, and returns what puts it in place. Raises ConfigError."""

REFRESH_MS = 60_000
"""Between two looks at the files of stores; Kafka looks only when it is told of a change."""


class ListenerSecurity:
    """One for a node. `credentials` returns where SCRAM looks up users; `cluster_secret` is as in ScramServer.

    What a running broker is told anew of its listeners is taken up for new connections, each time by new contexts: on an old one, session
    tickets would still let in a client whose certificate is trusted no more."""

    def __init__(
        self,
        config: ServerConfig,
        platform: Platform,
        registry: ConnectionRegistry,
        *,
        credentials: Callable[[], ScramCredentials],
        cluster_secret: Callable[[], bytes],
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._watch: CertificateWatch | None = None
        self._config = config
        self._platform = platform
        self._registry = registry
        self._credentials = credentials
        self._cluster_secret = cluster_secret
        self._buffer: CiphertextBuffer | None = None
        self._overrides: Mapping[str, str] = {}
        self._renewals: list[Renewal] = []
        self._contents: dict[str, bytes] = {}  # digests of the stores' files, as they were read last
        self._refresh_timer: Timer | None = None
        self._oauth: OAuthBearer | None = None
        self._is_running = False

    def secure(self, listener_name: str, protocol: str) -> tuple[TlsAuthenticator | SaslAuthenticator | None, Secure | None]:
        """Returns who asks the clients of a listener, and what puts TLS before their connections; None where nothing does. Raises
        ConfigError."""
        if protocol == "PLAINTEXT":
            return None, None
        secure = self._tls(listener_name, protocol) if protocol in TLS_PROTOCOLS else None
        settings = ListenerSettings(self._config.texts, listener_name)
        if protocol in SASL_PROTOCOLS:
            return self._sasl(listener_name, settings), secure
        from broker.security.tls.principal_mapping import PrincipalMapper

        mapper = PrincipalMapper(str(settings.value("ssl.principal.mapping.rules")))
        return TlsAuthenticator(mapper, self._config.socket_request_max_bytes), secure

    # -- changes while it runs ---------------------------------------------------------------------------------------

    def find_fault(self, overrides: Mapping[str, str]) -> str | None:
        """What is wrong with these dynamic configs of this broker; None if all listeners could take them up."""
        self._is_running = True
        contents = dict(self._contents)
        try:
            for prepare in self._renewals:
                prepare({**self._config.texts, **_of_listeners(overrides)})
        except ConfigError as e:
            return str(e)
        finally:
            self._contents = contents  # what was only looked at is not in use
        return None

    def take_over(self, overrides: Mapping[str, str]) -> None:
        """Take up the dynamic configs of this broker, and files that have changed. What cannot be used is a line, and the old holds."""
        self._is_running = True
        texts = {**self._config.texts, **_of_listeners(overrides)}
        try:
            for apply in [prepare(texts) for prepare in self._renewals]:
                apply()
        except ConfigError as e:
            logger.error("changes of listeners are not taken up: %s", e)
            return
        self._overrides = overrides

    async def close(self) -> None:
        """Look at files no more, and fetch no keys of OAuth providers."""
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
            self._refresh_timer = None
        if self._watch is not None:
            self._watch.close()
        if self._oauth is not None:
            await self._oauth.close()

    def _watch_files(self) -> None:
        if self._refresh_timer is None:
            self._refresh_timer = self._platform.clock.call_later(REFRESH_MS, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        self._watch_files()
        if any(self._has_changed(path) for path in tuple(self._contents)):
            logger.info("a key store or trust store has changed")
            self.take_over(self._overrides)

    def _read_file(self, path: str) -> bytes:
        from broker.security.tls.files import read_store_file

        data = read_store_file(path)
        self._contents[path] = _digest(data)
        return data

    def _has_changed(self, path: str) -> bool:
        from broker.security.tls.files import StoreFileError, read_store_file

        try:
            return _digest(read_store_file(path)) != self._contents[path]
        except StoreFileError:
            return False  # it is being replaced

    # -- this node as a client ---------------------------------------------------------------------------------------

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
        mechanism = None
        if protocol in SASL_PROTOCOLS:
            mechanism = str(ListenerSettings(self._config.texts, listener_name).value(mechanism_property))
        peers = Peers(self._registry, self._platform, mechanism)

        def prepare(texts: Mapping[str, str]) -> Callable[[], None]:
            settings = ListenerSettings(texts, listener_name)
            context = self._client_context(settings, protocol) if protocol in TLS_PROTOCOLS else None
            start_login = None if mechanism is None else self._client_maker(settings, mechanism, mechanism_property)
            return lambda: peers.use(context, start_login)

        prepare(self._config.texts)()
        self._renewals.append(prepare)
        return peers

    def _client_context(self, settings: ListenerSettings, protocol: str) -> ssl.SSLContext:
        from broker.security.tls.context import client_context

        return client_context(tls_settings(settings, is_of_sasl=protocol == "SASL_SSL"), self._read_file)

    def _client_maker(self, settings: ListenerSettings, name: str, mechanism_property: str) -> Callable[[], SaslClient]:
        from broker.security.sasl.login_properties import client_maker

        if name == "OAUTHBEARER":
            return self._oauthbearer().keeper(settings.listener_name).start_login
        key, text = settings.of_mechanism(name, "sasl.jaas.config")
        return client_maker(name, settings.key(mechanism_property), text, key, self._platform.entropy)

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _tls(self, listener_name: str, protocol: str) -> Secure:
        from broker.network.tls_transport import CiphertextBuffer, TlsTransport
        from broker.security.tls.context import server_context
        from broker.security.tls.files import is_readable_by_all
        from broker.security.tls.layer import TlsLayer
        from broker.server.certificate_watch import CertificateWatch

        watch = self._watch = self._watch or CertificateWatch(self._platform.clock, self._metrics)
        is_own = ListenerSettings(self._config.texts, listener_name).is_own("ssl.client.auth")
        if protocol == "SASL_SSL" and self._config.is_set("ssl.client.auth") and not is_own:
            logger.warning("ssl.client.auth has no effect on the SASL_SSL listener %s; set it with its prefix", listener_name)
        buffer = self._buffer = self._buffer or CiphertextBuffer()
        registry, network, disk = self._registry, self._registry.network, self._platform.disk
        present: list[tuple[ssl.SSLContext, Certificate]] = []
        is_between_brokers = listener_name == self._config.inter_broker_listener_name
        clients: list[ssl.SSLContext] = []  # of the broker's own side, as `present`; empty for other listeners

        def prepare(texts: Mapping[str, str]) -> Callable[[], None]:
            settings = ListenerSettings(texts, listener_name)
            found = tls_settings(settings, is_of_sasl=protocol == "SASL_SSL")
            chain = self._chain(found)
            new = server_context(found, self._read_file), chain[0]
            new_clients = self._check_trust(found, new[0], present[0][0] if present else new[0], clients) if is_between_brokers else []
            if present:
                self._check_change(found, present[0][1], new[1])
            elif found.keystore_location is not None and is_readable_by_all(found.keystore_location):
                logger.warning("every user of this machine may read the private key in %s", found.keystore_location)

            def apply() -> None:
                present[:] = [new]
                clients[:] = new_clients
                watch.note(listener_name, chain)

            return apply

        def secure(connection: Connection) -> asyncio.BufferedProtocol:
            return TlsTransport(
                connection,
                TlsLayer(present[0][0], is_server=True),
                buffer,
                make_layer=network.make_layer,
                wait_turn=registry.frame_turn.wait,
                pread=disk.pread,
                time=lambda: connection.facts.network_time,
            )

        prepare(self._config.texts)()
        self._renewals.append(prepare)
        self._watch_files()
        return secure

    def _check_trust(
        self, settings: TlsSettings, server: ssl.SSLContext, present: ssl.SSLContext, clients: list[ssl.SSLContext]
    ) -> list[ssl.SSLContext]:
        """Raises ConfigError if brokers with these settings could not connect to each other, or to those with the `present` ones, as
        SslFactory does. Returns the client's side of the settings."""
        from broker.security.tls.context import client_context
        from broker.security.tls.trust_check import find_distrust

        client = client_context(settings, self._read_file)
        client.check_hostname = False
        for one_server, one_client in ((server, clients[0] if clients else client), (present, client)):
            why = find_distrust(one_server, one_client)
            if why is not None:
                raise settings.refusal(
                    "keystore.location", f"brokers with these settings would not trust each other's certificates on this listener: {why}"
                )
        return [client]

    def _chain(self, settings: TlsSettings) -> tuple[Certificate, ...]:
        from broker.security.tls.stores import load_key

        key = load_key(settings, self._read_file)
        assert key is not None, "a listener with TLS has a key"
        return key.chain

    def _check_change(self, settings: TlsSettings, old: Certificate, new: Certificate) -> None:
        """Raises ConfigError if the certificate is of somebody else, as SslFactory.CertificateEntries.ensureCompatible."""
        if new.subject != old.subject and not self._config.value_of("ssl.allow.dn.changes"):
            why = f"Keystore DistinguishedName does not match: existing={old.subject_text}, new={new.subject_text}"
            raise settings.refusal("keystore.location", why)
        if not new.alternative_names >= old.alternative_names and not self._config.value_of("ssl.allow.san.changes"):
            raise settings.refusal("keystore.location", "Keystore SubjectAltNames do not match")

    # -- SASL --------------------------------------------------------------------------------------------------------

    def _sasl(self, listener_name: str, settings: ListenerSettings) -> SaslAuthenticator:
        def prepare(texts: Mapping[str, str]) -> Callable[[], None]:
            settings = ListenerSettings(texts, listener_name)
            names = cast("tuple[str, ...]", settings.value("sasl.enabled.mechanisms"))
            mechanisms = {name: self._mechanism(settings, name) for name in names}

            def apply() -> None:
                authenticator.mechanisms = mechanisms

            return apply

        max_receive_size = cast("int", settings.value("sasl.server.max.receive.size"))
        authenticator = SaslAuthenticator(
            {},
            max_receive_size=max_receive_size,
            failure_delay_ms=self._config.connection_failed_authentication_delay_ms,
            clock=self._platform.clock,
        )
        prepare(self._config.texts)()
        self._renewals.append(prepare)
        return authenticator

    def _mechanism(self, settings: ListenerSettings, name: str) -> Mechanism:
        from broker.security.sasl.conversation import Mechanism

        key, handler = settings.of_mechanism(name, "sasl.server.callback.handler.class")
        if handler is not None and name != "OAUTHBEARER":
            raise ConfigError(key, handler, "callback handlers written in Java cannot be loaded")
        max_reauth_ms = cast("int", settings.value_of_mechanism(name, "connections.max.reauth.ms"))
        return Mechanism(self._server_maker(settings, name), max_reauth_ms)

    def _server_maker(self, settings: ListenerSettings, name: str) -> Callable[[], SaslServer]:
        from broker.security.sasl.login_properties import parse_entry
        from broker.security.sasl.plain_server import PlainServer
        from broker.security.sasl.scram_server import ScramServer
        from protocol.sasl import jaas, scram
        from protocol.sasl.clients import NONCE_SIZE
        from protocol.sasl.plain import PLAIN

        if name == PLAIN:
            key, text = settings.of_mechanism(name, "sasl.jaas.config")
            if text is None:
                raise ConfigError(key, None, "", message=f"{key}: must be set, with user_<name>=<password> for each user of PLAIN")
            users = parse_entry(text, key, jaas.PLAIN_LOGIN_MODULE).users
            return lambda: PlainServer(users)
        mechanism = scram.find_mechanism(name)
        if mechanism is not None:
            key, text = settings.of_mechanism(name, "sasl.jaas.config")
            if text is not None:
                parse_entry(text, key, jaas.SCRAM_LOGIN_MODULE)
            entropy = self._platform.entropy
            return lambda: ScramServer(mechanism, self._credentials(), entropy(NONCE_SIZE).hex(), self._cluster_secret())
        if name == "OAUTHBEARER":
            return self._oauthbearer().validator(settings.listener_name, may_block=not self._is_running).start
        key = settings.key("sasl.enabled.mechanisms")
        why = GSSAPI_IS_MISSING if name == "GSSAPI" else "is no mechanism of Barnabas: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
        raise ConfigError(key, name, why)

    def _oauthbearer(self) -> OAuthBearer:
        from broker.server.oauthbearer import OAuthBearer

        if self._oauth is None:
            self._oauth = OAuthBearer(self._config.texts, self._platform)
        return self._oauth


def _of_listeners(overrides: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in overrides.items() if is_dynamic(name)}


def _digest(data: bytes) -> bytes:
    import hashlib  # late: a broker without stores does without

    return hashlib.sha256(data).digest()


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
