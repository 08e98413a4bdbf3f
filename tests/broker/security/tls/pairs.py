"""Two TlsLayers that talk to each other in memory."""

from __future__ import annotations

import ssl

from broker.security.tls.layer import INBOUND_SIZE_MAX, TlsLayer

BUFFER_SIZE = 1 << 20


class Pair:
    """A client and a server. `carry` brings what each has to send to the other."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, hostname: str | None = "localhost") -> None:
        self.server = TlsLayer(server, is_server=True)
        self.client = TlsLayer(client, is_server=False, server_hostname=hostname)

    def carry(self) -> None:
        for sender, receiver in ((self.client, self.server), (self.server, self.client)):
            while ciphertext := sender.take(INBOUND_SIZE_MAX):
                receiver.feed(ciphertext)

    def handshake(self) -> None:
        """Both sides are done, or TlsError."""
        for _ in range(5):
            done = [side.handshake() for side in (self.client, self.server)]
            self.carry()
            if all(done):
                return
        raise AssertionError("the handshake does not end")


def read(layer: TlsLayer, size: int = BUFFER_SIZE) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: layer.read_into(memoryview(buffer))])
