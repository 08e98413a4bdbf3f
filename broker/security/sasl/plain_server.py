"""PlainServer: the broker's side of PLAIN (RFC 4616).

Source: PlainSaslServer and PlainServerCallbackHandler.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from protocol.sasl.exchange import Identity, SaslAuthenticationError


class PlainServer:
    """SaslServer of PLAIN. `users` has each user's password by name (the options `user_<name>` of PlainLoginModule).

    The client is told why it is refused, in Kafka's words, which do not say whether the user exists. An unknown user's password is compared
    too, so that the time does not say it either. Bytes that are not UTF-8 are refused; Java replaces them.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity | None:
        return self._identity

    def evaluate(self, response: bytes) -> bytes:
        try:
            tokens = response.decode().split("\0", 3)
        except UnicodeDecodeError as e:
            raise SaslAuthenticationError("Invalid SASL/PLAIN response: not UTF-8") from e
        if len(tokens) != 3:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, username, password = tokens
        if not username:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        if not self._is_password(username, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != username:
            raise SaslAuthenticationError("Authentication failed: Client requested an authorization id that is different from username")
        self._identity = Identity(username)
        return b""

    def _is_password(self, username: str, password: str) -> bool:
        expected = self._users.get(username)
        is_equal = hmac.compare_digest(_digest(password), _digest(expected or ""))  # digests: the time does not depend on the length
        return is_equal and expected is not None


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
