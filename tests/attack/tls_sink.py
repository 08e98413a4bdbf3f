"""A process that does nothing but shake hands: what a storm of handshakes costs the machine when it strikes somebody else.

`python -m tests.attack.tls_sink` prints its port. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path

import uvloop

from tests.support.secured import FILES

POLL_S = 1.0


class SinkProcess:
    """The process from outside."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.attack.tls_sink"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class _Visitor(asyncio.Protocol):
    """Says nothing, and leaves when its peer does."""


async def _serve() -> None:
    parent = os.getppid()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / "server.pem", FILES / "server.key")
    server = await asyncio.get_running_loop().create_server(_Visitor, "127.0.0.1", 0, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while os.getppid() == parent:
        await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    uvloop.run(_serve())
