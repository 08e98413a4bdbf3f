"""PLAIN (RFC 4616): the user's name and password in one token; the connecting side.

Source: PlainSaslClient of Java.
"""

from __future__ import annotations

from .exchange import SaslError

PLAIN = "PLAIN"


class PlainClient:
    """SaslClient of PLAIN."""

    def __init__(self, username: str, password: str) -> None:
        self._token: bytes | None = b"\0".join((b"", username.encode(), password.encode()))
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def may_block(self, challenge: bytes) -> bool:
        return False

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge or self._is_complete:
            raise SaslError("Unexpected challenge of the PLAIN server")
        token, self._token = self._token, None
        self._is_complete = token is None
        return token
