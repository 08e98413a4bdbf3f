"""TokenHmacs: the passwords of delegation tokens. Each is the HMAC-SHA-512 of the token's id by `delegation.token.secret.key`, so every
node that has the key knows them, and the metadata log has none.

Source: DelegationTokenManager.createHmac, DelegationTokenCache.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.security.credentials.token_store import TokenStore
    from protocol.messages.stored.metadata_records import DelegationTokenRecord


class TokenHmacs:
    """One node's: it has the secret key. Owner: who uses it. Clients that renew or expire a token name it by its HMAC."""

    def __init__(self, secret_key: str) -> None:
        self._key = secret_key.encode()
        self._id_by_hmac: dict[bytes, str] = {}
        self._indexed: TokenStore | None = None
        self._indexed_version = -1

    def __repr__(self) -> str:
        return "TokenHmacs()"  # the key is a secret

    def of(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, tokens: TokenStore, token_hmac: bytes) -> DelegationTokenRecord | None:
        """Returns the token with this HMAC. The first call after a change of the tokens takes 2 µs for each new one."""
        if self._indexed is not tokens or self._indexed_version != tokens.version:
            known = {token_id: known_hmac for known_hmac, token_id in self._id_by_hmac.items()}
            self._id_by_hmac = {known.get(token_id) or self.of(token_id): token_id for token_id in tokens.by_id}
            self._indexed, self._indexed_version = tokens, tokens.version
        token_id = self._id_by_hmac.get(token_hmac)
        return None if token_id is None else tokens.by_id[token_id]
