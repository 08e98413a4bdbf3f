"""Who asks the clients of a listener who they are: by their certificates, or by SASL. Both satisfy network's Authenticator.

Source: SslChannelBuilder, SaslChannelBuilder, DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.loop.clock import Clock
from broker.network.connection import Connection
from broker.network.connection_interfaces import Handle, Refuse

if TYPE_CHECKING:
    from broker.network.login import Login
    from broker.security.sasl.conversation import Mechanism
    from broker.security.tls.principal_mapping import PrincipalMapper

ANONYMOUS = "User:ANONYMOUS"


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
            connection.authentication_failed(str(e))


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
