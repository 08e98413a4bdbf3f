"""The messages that the socket has not taken yet, in order. Broker and worker both have one."""

from __future__ import annotations

import os
import socket
from collections import deque

from broker.worker.messages import ChannelClosedError, send_part


class Outgoing:
    """Owns the descriptors that wait to be sent."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._waiting: deque[tuple[memoryview, int | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, data: bytes, descriptor: int | None) -> None:
        self._waiting.append((memoryview(data), descriptor))

    def flush(self) -> None:
        """Send what the socket takes now. ChannelClosedError when the reader is gone."""
        while self._waiting:
            data, descriptor = self._waiting[0]
            try:
                sent = send_part(self._stream, data, descriptor)
            except BlockingIOError:
                return
            except OSError as error:
                raise ChannelClosedError from error
            if descriptor is not None:
                os.close(descriptor)
            if sent < len(data):
                self._waiting[0] = (data[sent:], None)
            else:
                self._waiting.popleft()

    def close(self) -> None:
        for _, descriptor in self._waiting:
            if descriptor is not None:
                os.close(descriptor)
        self._waiting.clear()
