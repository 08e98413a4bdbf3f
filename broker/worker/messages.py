"""Messages between the broker and its worker over a stream socket: a header, a pickled value, and bytes beside it.

Bytes up to INLINE_BYTES_MAX travel in the stream. More are written into a file in memory, whose descriptor travels with the message, so
that megabytes are neither pickled nor pushed through a socket. Both ends are this program, in two processes of one user.
"""

from __future__ import annotations

import array
import mmap
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from broker.worker.jobs import Buffer

INLINE_BYTES_MAX = 64 * 1024
RECEIVE_BYTES = 256 * 1024
DESCRIPTORS_MAX = 64  # that one receive may bring

_HEADER = struct.Struct(">II?")  # bytes of the pickled value, bytes in the stream behind it, whether a file comes along


class ChannelClosedError(Exception):
    """The other process has closed its end, or is gone."""


class Message(NamedTuple):
    """`value` is what was pickled; `buffers` are writable views."""

    value: Any
    buffers: list[memoryview]


def memory_file(buffers: Sequence[Buffer]) -> int:
    """A descriptor of a new file in memory with the buffers one after the other. Blocks for the copy; OSError."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("barnabas-worker")
    else:  # macOS
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def encode_message(value: Any, buffers: Sequence[Buffer], *, has_file: bool) -> bytes:
    """The bytes for the stream. With `has_file` the buffers are in a file, whose descriptor is sent along."""
    sizes = [len(buffer) for buffer in buffers]
    pickled = pickle.dumps((value, sizes), protocol=pickle.HIGHEST_PROTOCOL)
    inline = [] if has_file else buffers
    return b"".join([_HEADER.pack(len(pickled), 0 if has_file else sum(sizes), has_file), pickled, *inline])


def send_part(stream: socket.socket, data: memoryview, descriptor: int | None) -> int:
    """Send what the socket takes, and with its first byte the descriptor. Returns how many bytes; OSError as the socket raises it."""
    if descriptor is None:
        return stream.send(data)
    return stream.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])


class MessageReader:
    """Cuts messages out of the stream."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._descriptors: deque[int] = deque()

    def receive(self, stream: socket.socket) -> list[Message]:
        """The whole messages after one receive. BlockingIOError as the socket raises it; ChannelClosedError at its end."""
        try:
            data, descriptors, _, _ = socket.recv_fds(stream, RECEIVE_BYTES, DESCRIPTORS_MAX)
        except ConnectionError as error:
            raise ChannelClosedError from error
        if not data:
            raise ChannelClosedError
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        self._received += data
        return self._cut()

    def close(self) -> None:
        """Close the descriptors that no message has claimed."""
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _cut(self) -> list[Message]:
        messages = []
        while len(self._received) >= _HEADER.size:
            value_size, inline_size, has_file = _HEADER.unpack_from(self._received)
            end = _HEADER.size + value_size + inline_size
            if len(self._received) < end:
                break
            value, sizes = pickle.loads(memoryview(self._received)[_HEADER.size : _HEADER.size + value_size])
            content = _map(self._descriptors.popleft()) if has_file else memoryview(self._received[_HEADER.size + value_size : end])
            ends = list(accumulate(sizes))
            messages.append(Message(value, [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]))
            del self._received[:end]
        return messages


def _map(descriptor: int) -> memoryview:
    """The file's content as memory, which goes with the last view of it."""
    try:
        return memoryview(mmap.mmap(descriptor, 0))
    finally:
        os.close(descriptor)
