"""ScramServer: the broker's side of a SCRAM exchange (RFC 5802).

    RECEIVE_CLIENT_FIRST -> RECEIVE_CLIENT_FINAL -> COMPLETE
    any state -> FAILED

An unknown user, an unknown token and a wrong password are told at the same step, the proof. The client's final nonce must be the whole
nonce of the server's first message (CVE-2024-56128), and its channel binding the header of its first message. The proof is checked with
the credential that there is when it comes: a user whose credential was removed or changed since the first message is not let in. Kafka
looks the credential up at the first message only.

Source: ScramSaslServer, ScramServerCallbackHandler.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from protocol.sasl import scram, scram_messages
from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_messages import ClientFirst


class TokenCredential(NamedTuple):
    """What a delegation token's id stands for (KIP-48). `end_ms` is the token's expiry by the wall clock."""

    owner: str
    credential: ScramCredential
    end_ms: int


class ScramCredentials(Protocol):
    """Where a broker looks up credentials: the committed metadata that it has applied."""

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None: ...

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None: ...


class _State(Enum):
    RECEIVE_CLIENT_FIRST = 1
    RECEIVE_CLIENT_FINAL = 2
    COMPLETE = 3
    FAILED = 4


class ScramServer:
    """SaslServer of one exchange. `server_nonce` is printable ASCII without a comma, new for each exchange, from a secure source.
    `cluster_secret` makes the credentials of unknown users (`scram.unknown_user_credential`)."""

    def __init__(self, mechanism: ScramMechanism, credentials: ScramCredentials, server_nonce: str, cluster_secret: bytes) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._server_nonce = server_nonce
        self._cluster_secret = cluster_secret
        self._state = _State.RECEIVE_CLIENT_FIRST
        self._found: _Found | None = None
        self._first: ClientFirst | None = None
        self._server_first = ""

    @property
    def identity(self) -> Identity | None:
        return self._found.identity if self._found is not None and self._state is _State.COMPLETE else None

    def evaluate(self, response: bytes) -> bytes:
        """Raises SaslAuthenticationError for an authorization id that is not the user's name, and SaslError."""
        try:
            if self._state is _State.RECEIVE_CLIENT_FIRST:
                return self._receive_first(response)
            if self._state is _State.RECEIVE_CLIENT_FINAL:
                return self._receive_final(response)
            raise SaslError(f"Unexpected token in SCRAM state {self._state.name}")
        except SaslError:
            self._state = _State.FAILED
            raise

    def _receive_first(self, message: bytes) -> bytes:
        first = scram_messages.parse_client_first(message)
        if first.authorization_id and first.authorization_id != first.username:
            raise SaslAuthenticationError("Authentication failed: Client requested an authorization id that is different from username")
        found = self._find(first)
        self._first, self._found = first, found
        self._server_first = scram_messages.server_first(
            first.nonce + self._server_nonce, found.credential.salt, found.credential.iterations
        )
        self._state = _State.RECEIVE_CLIENT_FINAL
        return self._server_first.encode()

    def _receive_final(self, message: bytes) -> bytes:
        first = self._first
        assert first is not None
        found = self._found = self._find(first)  # again: what was withdrawn since the first message lets nobody in
        final = scram_messages.parse_client_final(message)
        if final.nonce != first.nonce + self._server_nonce:
            raise SaslError("Invalid client nonce in the final client message.")
        if final.channel_binding != first.header.encode():
            raise SaslError("The channel binding of the final client message is not the header of the first")
        auth_message = scram_messages.auth_message(first.bare, self._server_first, final.without_proof)
        is_proof = scram.is_proof(self._mechanism, found.credential, auth_message, final.proof)
        if found.refusal is not None or not is_proof:
            raise SaslError(found.refusal or "Invalid client credentials")
        self._state = _State.COMPLETE
        return scram_messages.server_final(scram.server_signature(self._mechanism, found.credential.server_key, auth_message)).encode()

    def _find(self, first: ClientFirst) -> _Found:
        unknown = scram.unknown_user_credential(self._mechanism, first.username, self._cluster_secret)
        if first.is_token_authentication:
            token = self._credentials.find_token(self._mechanism, first.username)
            if token is None:
                return _Found(unknown, Identity(first.username), "Token authentication failed: invalid token id")
            return _Found(token.credential, Identity(token.owner, is_token_authenticated=True, credential_end_ms=token.end_ms), None)
        credential = self._credentials.find_user(self._mechanism, first.username)
        if credential is None:
            return _Found(unknown, Identity(first.username), "Invalid user credentials: the user has none for this mechanism")
        return _Found(credential, Identity(first.username), None)


class _Found(NamedTuple):
    """`refusal`: why this exchange will be refused, whatever the proof is."""

    credential: ScramCredential
    identity: Identity
    refusal: str | None
