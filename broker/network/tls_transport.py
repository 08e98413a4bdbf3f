"""TlsTransport: TLS between asyncio's plain transport and one of our connections, accepted or opened.

It is the protocol of the plain transport and the transport of the connection. Ciphertext is received into one buffer that all connections
share, and decrypted straight into the connection's own buffers, so that a large produce is not copied again. Each call of the connection
has as much plaintext as its buffer takes: librdkafka's records have 3 KB, and a call for each would cost half as much again.

While the connection does not read, neither does this; what lies here undelivered is delivered when it reads again, because no event of the
socket announces that. A step of a handshake costs half a millisecond, and more with a client's certificate, so that handshakes take turns
with each other and with the frames of connections that are open.

Source: SslTransportLayer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from broker.loop.cpu_time import UNMEASURED, NetworkTime
from broker.network.transport_layer import TransportLayer
from broker.security.tls.layer import INBOUND_SIZE_MAX, OUTBOUND_SIZE_MAX, TlsError, TlsLayer

PLAINTEXT_PER_TURN = 256 * 1024
"""Bytes decrypted for one connection before others are looked at."""

Pread = Callable[[int, int, int], bytes]


class SecuredProtocol(Protocol):
    """The connection inside: an asyncio.BufferedProtocol, and what TLS has to tell."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def secured(self, certificate: bytes | None) -> None:
        """Called once, when the handshake is done, with the DER of the peer's certificate; None if it has sent none."""

    def security_failed(self, reason: str) -> None:
        """Called when the handshake or a record has failed. The connection closes its transport."""


class CiphertextBuffer:
    """The receive buffer that the TLS connections of one event loop share: a read is one uninterrupted call."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(INBOUND_SIZE_MAX))


class TlsTransport(asyncio.BufferedProtocol):
    """See the module's docstring. `make_layer` gives the sending side of the plain transport. `wait_turn` calls back in a later turn of the
    loop, after those that wait already. `time()` is what measures the decryption, once the connection is made."""

    def __init__(
        self,
        inner: SecuredProtocol,
        tls: TlsLayer,
        buffer: CiphertextBuffer,
        *,
        make_layer: Callable[[asyncio.Transport], TransportLayer],
        wait_turn: Callable[[Callable[[], None]], object],
        pread: Pread,
        time: Callable[[], NetworkTime] = lambda: UNMEASURED,
    ) -> None:
        self._inner: SecuredProtocol | None = inner
        self._tls = tls
        self._buffer = buffer
        self._make_layer = make_layer
        self._wait_turn = wait_turn
        self._pread = pread
        self._time = time
        self._plain: asyncio.Transport | None = None
        self.layer: TlsSendingLayer | None = None
        """What the connection's outbox sends by, once the connection is made."""
        self._is_paused = False
        self._is_waiting = False  # for a turn, in which `_go_on` is called
        self._has_received = False
        self._has_ended = False

    # -- the plain transport's calls ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)
        self.layer = TlsSendingLayer(self._tls, self._make_layer(self._plain), self._pread)
        assert self._inner is not None
        self._inner.connection_made(cast("asyncio.BaseTransport", self))
        self._wait()  # a client speaks first

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        self._has_received = True
        self._tls.feed(self._buffer.view[:nbytes])
        if self._tls.is_established and not self._is_waiting:
            self._deliver()
            return
        self._wait()
        if self._plain is not None:
            self._plain.pause_reading()  # while it waits, which bounds what lies here

    def eof_received(self) -> bool:
        if not self._has_received:
            return False  # a peer that looked whether somebody listens: no failed handshake
        self._tls.feed_end()
        self._has_ended = True
        self._wait()
        return True  # what was received before is delivered first; the connection closes the transport then

    def connection_lost(self, exc: Exception | None) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)
        # The outbox has closed it, but a connection that the limits refused has none. A layer that is left to the collector would close the
        # descriptor once more, whoever has it by then.
        if self.layer is not None:
            self.layer.close()

    def pause_writing(self) -> None:
        if self.layer is not None:
            self.layer.plain.pause_writing()

    def resume_writing(self) -> None:
        if self.layer is not None:
            self.layer.plain.resume_writing()

    # -- the connection's calls: those of asyncio.Transport that it uses ---------------------------------------------

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._plain is not None:
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._plain is not None and not self._is_waiting:
            self._plain.resume_reading()
        if self._tls.unread_size or self._has_ended:
            self._wait()

    def is_closing(self) -> bool:
        return self._plain is None or self._plain.is_closing()

    def abort(self) -> None:
        if self._plain is not None:
            self._plain.abort()

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._plain is None else self._plain.get_extra_info(name, default)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._wait_turn(self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        if self._inner is None or self._plain is None or self._plain.is_closing():
            return
        if not self._is_paused:
            self._plain.resume_reading()
        if not self._tls.is_established and not self._shake_hands():
            return
        self._deliver()

    def _shake_hands(self) -> bool:
        """Go on with the handshake; whether it is done."""
        inner, layer = self._inner, self.layer
        assert inner is not None and layer is not None
        try:
            is_done = self._tls.handshake()
        except TlsError as e:
            layer.drain()  # the alert
            inner.security_failed(str(e))
            return False
        layer.drain()
        if is_done:
            inner.secured(self._tls.peer_certificate)
        return is_done and not self.is_closing()

    def _deliver(self) -> None:
        """Deliver plaintext until none is left, the connection does not read or is closing, or others have a turn."""
        inner, tls, size, time = self._inner, self._tls, 0, self._time()
        while inner is not None and not self._is_paused and not self.is_closing():
            buffer = inner.get_buffer(-1)
            begun = time.begin() if time.meter.is_on else None
            try:
                count = tls.read_into(buffer)
            except TlsError as e:
                self._drain()
                inner.security_failed(str(e))
                return
            finally:
                if begun is not None:
                    time.end(begun)
            if tls.unsent_size:
                self._drain()  # the answer to a KeyUpdate
            if count:
                inner.buffer_updated(count)
                inner = self._inner  # None if that has closed the connection at once
            if count < len(buffer):
                break
            size += count
            if size >= PLAINTEXT_PER_TURN:
                self._wait()
                return
        if inner is not None and tls.end is not None and not self._is_paused and not self.is_closing():
            inner.eof_received()
            self.close()

    def _drain(self) -> None:
        if self.layer is not None:
            self.layer.drain()


class TlsSendingLayer:
    """The TransportLayer of a TlsTransport. `plain` sends the ciphertext.

    An SSLObject takes all that it is given, the socket does not. So `send` tells of bytes that they were taken only when all of their
    ciphertext is with the socket. Until then it raises BlockingIOError, and the next call has to begin with the same bytes, which are not
    encrypted again: so the outbox counts them as waiting.
    """

    __slots__ = ("_callback", "_is_closed", "_pread", "_tls", "_under_way", "_unsent", "plain")

    def __init__(self, tls: TlsLayer, plain: TransportLayer, pread: Pread) -> None:
        self._tls = tls
        self.plain = plain
        self._pread = pread
        self._unsent = memoryview(b"")  # ciphertext that the socket has not taken
        self._under_way = 0  # bytes of plaintext that are encrypted and not told as taken
        self._callback: Callable[[], None] | None = None
        self._is_closed = False

    def send(self, data: bytes | bytearray | memoryview, flags: int, /) -> int:
        if not self._under_way:
            if not self._flush(0):
                raise BlockingIOError
            size = min(len(data), OUTBOUND_SIZE_MAX)
            self._encrypt(data if size == len(data) else memoryview(data)[:size], size)
        return self._finish(flags)

    def send_file(self, fd: int, position: int, size: int, /) -> int:
        if not self._under_way:
            if not self._flush(0):
                raise BlockingIOError
            data = self._pread(fd, min(size, OUTBOUND_SIZE_MAX), position)
            if not data:
                return 0
            self._encrypt(data, len(data))
        return self._finish(0)

    def _encrypt(self, data: bytes | bytearray | memoryview, size: int) -> None:
        try:
            self._tls.write(data)
        except TlsError as e:
            raise OSError(str(e)) from e
        self._under_way = size

    def _finish(self, flags: int) -> int:
        if not self._flush(flags):
            raise BlockingIOError
        taken, self._under_way = self._under_way, 0
        return taken

    def drain(self) -> None:
        """Send what TLS itself has to say: of the handshake, an alert, an answer to a KeyUpdate. What the socket does not take now leaves
        when it takes more."""
        try:
            if not self._is_closed and not self._flush(0):
                self.plain.when_writable(self._writable)
        except OSError:
            pass  # the transport notices it, and closes

    def when_writable(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self.plain.when_writable(self._writable)

    def _writable(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()  # which sends, and so flushes first
        else:
            self.drain()

    def _flush(self, flags: int) -> bool:
        """Whether the socket has taken all ciphertext. Raises OSError if the connection is broken."""
        while True:
            if not self._unsent:
                if not self._tls.unsent_size:
                    return True
                self._unsent = memoryview(self._tls.take())
            try:
                sent = self.plain.send(self._unsent, flags)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]

    def pause_writing(self) -> None:
        self.plain.pause_writing()

    def resume_writing(self) -> None:
        self.plain.resume_writing()

    @property
    def is_reset(self) -> bool:
        return self.plain.is_reset

    @property
    def has_unread_bytes(self) -> bool:
        return self._tls.unread_size > 0 or self.plain.has_unread_bytes

    def close(self) -> None:
        """Say close_notify where the peer takes it now: librdkafka's OpenSSL takes an end without it for an error of the transport
        (librdkafka#4293)."""
        if self._is_closed:
            return
        if not self._under_way:
            self._tls.shut()
        try:
            self._flush(0)
        except OSError:
            pass  # the peer has gone
        self._is_closed = True
        self._callback = None
        self.plain.close()
