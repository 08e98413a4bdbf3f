"""Whether two sides would trust each other: a handshake in memory, without a check of the host's name.

Source: SslFactory.SslEngineValidator.
"""

from __future__ import annotations

import ssl

ROUNDS_MAX = 10
"""A handshake takes two or three."""


def find_distrust(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Returns why a connection of the client's side to the server's would fail; None if it would not. `client` must not check names."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server, server_side=False), server.wrap_bio(to_server, to_client, server_side=True)]
    done = [False, False]
    for _ in range(ROUNDS_MAX):
        for number, side in enumerate(sides):
            try:
                side.do_handshake()
                done[number] = True
                side.read(1)  # in TLS 1.3 a server that does not trust the client's certificate says so after the client's handshake
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return (error.reason or "the handshake failed").lower().replace("_", " ")
        if all(done) and not to_server.pending and not to_client.pending:
            return None
    return "the handshake does not end"
