"""The least that a server can do: sends back what it receives, on one connection. Its canary's timings are the machine's own.

`python -m tests.attack.echo` prints its port. It ends with its parent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

RECEIVE_SIZE = 65536
POLL_S = 1.0


class EchoProcess:
    """The process from outside."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.attack.echo"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main() -> None:
    parent = os.getppid()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        listening.settimeout(POLL_S)
        while os.getppid() == parent:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(ConnectionResetError):  # a canary that is stopped
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(None)
                while data := connection.recv(RECEIVE_SIZE):
                    connection.sendall(data)


if __name__ == "__main__":
    main()
