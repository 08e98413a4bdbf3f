"""ScramClient: the connecting node's side of a SCRAM exchange (RFC 5802).

    SEND_CLIENT_FIRST -> RECEIVE_SERVER_FIRST -> RECEIVE_SERVER_FINAL -> COMPLETE
    any state -> FAILED

Source: ScramSaslClient.
"""

from __future__ import annotations

import hmac
from enum import Enum

from . import scram, scram_messages
from .exchange import SaslError
from .scram import ITERATIONS_MIN, ScramMechanism

CLIENT_ITERATIONS_MAX = 100_000
"""A server may ask for no more: 25 ms of SHA-256. Kafka's client has no bound, and kafka-python could be frozen so (CVE-2026-10143)."""


class _State(Enum):
    SEND_CLIENT_FIRST = 1
    RECEIVE_SERVER_FIRST = 2
    RECEIVE_SERVER_FINAL = 3
    COMPLETE = 4
    FAILED = 5


class SaltedPassword:
    """A password, salted as a server has asked for last. The server asks for the same until the password changes, so that later exchanges
    need no rounds (RFC 5802, 5.1). Shared by the exchanges of one user."""

    def __init__(self, mechanism: ScramMechanism, password: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._last: tuple[bytes, int, bytes] | None = None  # in one piece: a thread may compute while the loop looks

    def has(self, salt: bytes, iterations: int) -> bool:
        """Whether `get` has it at hand."""
        return self._last is not None and self._last[:2] == (salt, iterations)

    def get(self, salt: bytes, iterations: int) -> bytes:
        """Milliseconds of work, unless `has`."""
        last = self._last
        if last is None or last[:2] != (salt, iterations):
            self._last = last = salt, iterations, scram.salted_password(self._mechanism, self._password, salt, iterations)
        return last[2]


class ScramClient:
    """SaslClient of one exchange. `nonce` is printable ASCII without a comma, new for each exchange, from a secure source. With
    `is_token` the name is a delegation token's id and the password its HMAC."""

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str | SaltedPassword, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = SaltedPassword(mechanism, password) if isinstance(password, str) else password
        self._nonce = nonce
        self._bare = scram_messages.client_first(username, nonce, is_token_authentication=is_token)
        self._state = _State.SEND_CLIENT_FIRST
        self._server_signature = b""

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def may_block(self, challenge: bytes) -> bool:
        if self._state is not _State.RECEIVE_SERVER_FIRST:
            return False
        try:
            first = scram_messages.parse_server_first(challenge)
        except SaslError:
            return False  # `evaluate` says why
        return not self._password.has(first.salt, first.iterations)

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Raises SaslError: also if the server does not prove that it knows the credential."""
        try:
            return self._evaluate(challenge)
        except SaslError:
            self._state = _State.FAILED
            raise

    def _evaluate(self, challenge: bytes) -> bytes | None:
        if self._state is _State.SEND_CLIENT_FIRST:
            if challenge:
                raise SaslError("Expected empty challenge")
            self._state = _State.RECEIVE_SERVER_FIRST
            return (scram_messages.GS2_HEADER + self._bare).encode()
        if self._state is _State.RECEIVE_SERVER_FIRST:
            return self._prove(challenge)
        if self._state is _State.RECEIVE_SERVER_FINAL:
            if not hmac.compare_digest(scram_messages.parse_server_final(challenge), self._server_signature):
                raise SaslError("Invalid server signature in server final message")
            self._state = _State.COMPLETE
            return None
        raise SaslError(f"Unexpected challenge in SCRAM state {self._state.name}")

    def _prove(self, challenge: bytes) -> bytes:
        first = scram_messages.parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise SaslError("Invalid server nonce: it does not extend the client's nonce")
        if not ITERATIONS_MIN <= first.iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslError(f"The server asks for {first.iterations} iterations: {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are accepted")
        without_proof = scram_messages.client_final_without_proof(first.nonce)
        auth_message = scram_messages.auth_message(self._bare, first.text, without_proof)
        salted = self._password.get(first.salt, first.iterations)
        key = scram.server_key(self._mechanism, salted)
        self._server_signature = scram.server_signature(self._mechanism, key, auth_message)
        self._state = _State.RECEIVE_SERVER_FINAL
        return scram_messages.client_final(without_proof, scram.client_proof(self._mechanism, salted, auth_message)).encode()
