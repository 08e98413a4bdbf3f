"""A port on which every client is one user: what comes in goes on to a SASL_PLAINTEXT listener of a broker, logged in as that user.

Kafka's tests of rights tell users apart by the listener, with a principal.builder.class of their own and without logins. Such a class
cannot be given to a broker that is another process and no JVM; with one of these ports for each listener the tests need none.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.ports import HOST
from tests.support.wire import WireClient

CHUNK_BYTES = 65_536


class LoginProxy:
    """Listens until it is closed. The broker behind it need not run yet."""

    def __init__(self, user: str, password: str, broker_port: int) -> None:
        self._token = f"\0{user}\0{password}".encode()
        self._broker_port = broker_port
        self._listener = socket.create_server((HOST, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                broker = self._logged_in()
            except (OSError, EOFError):  # it does not run: the client's connection ends too
                return
            with broker:
                threading.Thread(target=_relay, args=(broker, client), daemon=True).start()
                _relay(client, broker)

    def _logged_in(self) -> socket.socket:
        connection = WireClient(HOST, self._broker_port)
        connection.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = connection.request(SaslAuthenticateRequest(auth_bytes=self._token), 2)
        assert answer.error_code == ErrorCode.NONE, answer
        return connection.detach()


def _relay(source: socket.socket, target: socket.socket) -> None:
    """All bytes, and then the end."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
