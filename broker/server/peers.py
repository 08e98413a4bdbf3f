"""Peers: how this node connects to one listener of the other nodes: by TLS, and by the login of a SASL mechanism.

Source: ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.network.listeners import ConnectionRegistry
from broker.platform import Platform

if TYPE_CHECKING:
    import ssl

    from broker.network.tls_transport import CiphertextBuffer, SecuredProtocol
    from protocol.sasl.exchange import SaslClient


class Peers:
    """How this node connects to one listener of the other nodes. Satisfies PeerSecurity."""

    def __init__(self, registry: ConnectionRegistry, platform: Platform, mechanism: str | None) -> None:
        self.has_tls = False
        self.mechanism = mechanism
        self._context: ssl.SSLContext | None = None
        self._registry = registry
        self._platform = platform
        self._start_login: Callable[[], SaslClient] | None = None
        self._buffer: CiphertextBuffer | None = None

    def use(self, context: ssl.SSLContext | None, start_login: Callable[[], SaslClient] | None) -> None:
        """Connect and log in so from now on."""
        self.has_tls = context is not None
        self._context = context
        self._start_login = start_login

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
