"""PeerProtocol: asyncio's side of one connection to another node. It ends once; after that its receiver hears nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from broker.network.outbox import Chunk, Outbox
from protocol.errors import DecodeError
from protocol.framing import FrameAssembler


class FrameReceiver(Protocol):
    """What a PeerProtocol needs of the PeerConnection."""

    def make_outbox(self, transport: asyncio.Transport, on_writable: Callable[[], None], on_broken: Callable[[str], None]) -> Outbox:
        """As for an accepted connection."""

    def make_assembler(self, on_frame: Callable[[memoryview], bool]) -> FrameAssembler:
        """Returns the assembler that splits the received bytes into answers."""

    def frame_received(self, frame: memoryview) -> None:
        """One response; DecodeError when it is not the one that is expected."""

    def peer_takes_more(self) -> None:
        """Called when the peer has caught up."""

    def connection_secured(self, protocol: PeerProtocol) -> None:
        """Called when the TLS handshake is done."""

    def connection_ended(self, protocol: PeerProtocol, reason: str) -> None: ...


class PeerProtocol(asyncio.BufferedProtocol):
    """See the module's docstring."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver: FrameReceiver | None = receiver
        self._assembler = receiver.make_assembler(self._frame)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self.is_secured = False
        """Whether a TLS handshake is done."""

    @property
    def is_behind(self) -> bool:
        """Whether the peer does not read fast enough."""
        return self._outbox is not None and self._outbox.is_behind

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports don't inherit asyncio's
        if self._receiver is not None:
            self._outbox = self._receiver.make_outbox(self._transport, self._writable, self._end)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._assembler.buffer_updated(nbytes)
        except DecodeError as error:
            self._end(f"malformed answer: {error}")

    def secured(self, certificate: bytes | None) -> None:
        """Called after the TLS handshake."""
        self.is_secured = True
        if self._receiver is not None:
            self._receiver.connection_secured(self)

    def security_failed(self, reason: str) -> None:
        """Called when TLS has failed."""
        self._end(reason)

    def eof_received(self) -> bool:
        self._end("closed by the peer")  # now, because `connection_lost` comes a turn later
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_outbox()
        self._transport = None
        self._end(str(exc) if exc is not None else "closed by the peer")

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause_writing()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume_writing()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._outbox is None:
            return
        for chunk in chunks:
            self._outbox.push(chunk)
        self._outbox.flush()

    def abort(self) -> None:
        """Close now; the receiver is not told."""
        self._receiver = None
        self._close()

    def _writable(self) -> None:
        if self._receiver is not None:
            self._receiver.peer_takes_more()

    def _frame(self, frame: memoryview) -> bool:
        if self._receiver is not None:
            self._receiver.frame_received(frame)
        return True

    def _end(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        self._close()
        if receiver is not None:
            receiver.connection_ended(self, reason)

    def _close(self) -> None:
        self._close_outbox()
        self._assembler.close()
        if self._transport is not None:
            self._transport.abort()

    def _close_outbox(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.close()
