"""One worker process and the socket to it, as the broker's loop sees them.

The process is spawned, never forked: it gets its end of the socket and stderr, no other descriptor of the broker's, no lock. It ends when
the broker's end is closed, however the broker ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable

from broker.worker.messages import ChannelClosedError, Message, MessageReader
from broker.worker.outgoing import Outgoing

SOCKET_BUFFER_BYTES = 1024 * 1024
END_TIMEOUT_S = 2.0

_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from broker.worker.main import run
run(int(sys.argv[1]), int(sys.argv[3]))
"""


def spawn(niceness: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process; returns it and our end of its socket. Blocks for some milliseconds; OSError."""
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path), str(niceness)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            # A terminal's signals are for the broker. In a session of its own the process would not be nicer than the broker is: Linux
            # shares cores among sessions first (autogroup), and niceness counts within one.
            process_group=0,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


class Channel:
    """`on_message` gets what the process sends; `on_lost` is called once when the process has closed its end, which `close` forestalls."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: subprocess.Popen[bytes],
        stream: socket.socket,
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._process = process
        self._stream = stream
        self._on_message = on_message
        self._on_lost = on_lost
        self._reader = MessageReader()
        self._outgoing = Outgoing(stream)
        self._is_writing = False
        self._is_open = True
        loop.add_reader(stream.fileno(), self._readable)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def send(self, data: bytes, descriptor: int | None) -> None:
        """The descriptor is ours from now on."""
        self._outgoing.add(data, descriptor)
        if not self._is_writing:
            self._flush()

    def close(self) -> None:
        """Close our end, which ends the process."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._stream.fileno())
        if self._is_writing:
            self._loop.remove_writer(self._stream.fileno())
        self._stream.close()
        self._reader.close()
        self._outgoing.close()

    def wait_for_process(self) -> None:
        """Blocks until it is gone: END_TIMEOUT_S at most, then it is killed."""
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _readable(self) -> None:
        try:
            messages = self._reader.receive(self._stream)
        except BlockingIOError:
            return
        except (ChannelClosedError, OSError):
            self._on_lost()
            return
        for message in messages:
            self._on_message(message)

    def _flush(self) -> None:
        if not self._is_open:
            return
        try:
            self._outgoing.flush()
        except ChannelClosedError:
            return  # the reader hears of it too
        if bool(self._outgoing) is not self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._loop.add_writer(self._stream.fileno(), self._flush)
            else:
                self._loop.remove_writer(self._stream.fileno())
