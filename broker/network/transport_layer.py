"""Sends an outbox's bytes, through the socket's descriptor or through the asyncio transport.

A plaintext connection writes to the descriptor itself: record bytes go from the page cache to the socket by sendfile and are never
seen by Python. With TLS (tls_transport.py), and where there is no descriptor (the simulated network), the same outbox reads them.

Source: org.apache.kafka.common.network.TransportLayer, PlaintextTransportLayer, SslTransportLayer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""Linux: hold these bytes back until more follow, which saves a segment."""

NOT_WATCHED: Final = -1
PIECE_SIZE = 64 * 1024
"""Bytes of a file that are read for one write to a transport: as much as it queues before it says that it is full."""
_PEEK: Final = int(socket.MSG_PEEK) | int(socket.MSG_DONTWAIT)


class TransportLayer(Protocol):
    """The sending side of one connection. Owned by its outbox, which closes it before the transport closes. Nothing here blocks."""

    def send(self, data: bytes | bytearray | memoryview, flags: int, /) -> int:
        """Send bytes with flags (MSG_MORE or 0). Returns how many were taken. BlockingIOError if none were, OSError if the connection is
        broken."""

    def send_file(self, fd: int, position: int, size: int, /) -> int:
        """Send up to `size` bytes of a file. Returns how many were taken; 0 at the file's end. Raises as `send`."""

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, in a later turn of the loop, when `send` may succeed again."""

    def pause_writing(self) -> None:
        """The transport's queue is full. Its protocol forwards asyncio's call."""

    def resume_writing(self) -> None:
        """The transport takes more again."""

    @property
    def is_reset(self) -> bool:
        """Whether the peer has reset the connection. A connection that does not read from it has to ask."""

    @property
    def has_unread_bytes(self) -> bool:
        """Whether the peer has sent what the transport has not read, as far as can be told."""

    def close(self) -> None:
        """Drop the callback and close what was opened here; the owner closes the transport. Idempotent."""


MakeLayer = Callable[[asyncio.Transport, asyncio.AbstractEventLoop], TransportLayer]


class DescriptorLayer:
    """Sends on the transport's descriptor, never through `transport.write`: mixing the two reorders bytes.

    To wait until the socket takes more, it watches a duplicate, because uvloop watches the original; most connections never need one."""

    __slots__ = ("_callback", "_fd", "_is_closed", "_loop", "_socket", "_watched_fd", "send")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A second socket object on the transport's descriptor, which the transport keeps open until after `connection_lost`.
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._fd = self._socket.fileno()
        self._watched_fd = NOT_WATCHED
        self._callback: Callable[[], None] | None = None
        self._is_closed = False
        self.send: Callable[[bytes | bytearray | memoryview, int], int] = self._socket.send

    def send_file(self, fd: int, position: int, size: int, /) -> int:
        return os.sendfile(self._fd, fd, position, size)

    def when_writable(self, callback: Callable[[], None]) -> None:
        if self._watched_fd == NOT_WATCHED:
            self._watched_fd = os.dup(self._fd)
        self._callback = callback
        self._loop.add_writer(self._watched_fd, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._watched_fd)
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def pause_writing(self) -> None:
        """Nothing is ever written to the transport."""

    def resume_writing(self) -> None:
        """Nothing is ever written to the transport."""

    @property
    def is_reset(self) -> bool:
        try:
            self._peek()
        except OSError:
            return True
        return False

    @property
    def has_unread_bytes(self) -> bool:
        try:
            return self._peek()
        except OSError:
            return False

    def _peek(self) -> bool:
        """Whether bytes wait to be read; an orderly end by the peer counts as none. Raises OSError when it reset the connection."""
        try:
            return not self._is_closed and self._socket.recv(1, _PEEK) != b""
        except (BlockingIOError, InterruptedError):
            return False

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._callback is not None:
            self._loop.remove_writer(self._watched_fd)  # before the close: a watcher on a closed descriptor spins the loop
            self._callback = None
        if self._watched_fd != NOT_WATCHED:
            os.close(self._watched_fd)  # left open, the duplicate would keep the peer from seeing our FIN
        self._socket.detach()


class StreamLayer:
    """Writes to the transport, a file's bytes a piece at a time, and stops while the transport says that it is full.

    `pread` is the disk's."""

    __slots__ = ("_callback", "_is_paused", "_loop", "_pread", "_transport")

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        pread: Callable[[int, int, int], bytes] = os.pread,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._is_paused = False
        self._callback: Callable[[], None] | None = None
        self._pread = pread

    def send(self, data: bytes | bytearray | memoryview, flags: int, /) -> int:
        if self._is_paused:
            raise BlockingIOError
        self._transport.write(data if type(data) is bytes else bytes(data))  # the transport may keep it
        return len(data)

    def send_file(self, fd: int, position: int, size: int, /) -> int:
        if self._is_paused:
            raise BlockingIOError
        data = self._pread(fd, min(size, PIECE_SIZE), position)
        self._transport.write(data)
        return len(data)

    def when_writable(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        if not self._is_paused:  # the caller lets others run
            self._loop.call_soon(self._writable)

    def _writable(self) -> None:
        if self._callback is not None and not self._is_paused:
            callback, self._callback = self._callback, None
            callback()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._callback is not None:
            self._loop.call_soon(self._writable)  # not from inside the transport

    @property
    def is_reset(self) -> bool:
        return self._transport.is_closing()

    @property
    def has_unread_bytes(self) -> bool:
        """True until it closes: the transport does not tell, so the peer is assumed to have sent something."""
        return not self._transport.is_closing()

    def close(self) -> None:
        self._callback = None
        self._is_paused = True  # nothing is written any more
