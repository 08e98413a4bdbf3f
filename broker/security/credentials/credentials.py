"""Credentials: where the listeners of this node look up who logs in by SCRAM: users, and delegation tokens.

Owner: MetadataCache. Source: CredentialProvider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.security.credentials.scram_store import ScramStore
    from broker.security.credentials.token_credentials import TokenCredentials
    from broker.security.credentials.token_store import TokenStore
    from broker.security.sasl.scram_server import TokenCredential
    from protocol.sasl.scram import ScramCredential, ScramMechanism


class Credentials:
    """Satisfies ScramCredentials (broker/security/sasl/scram_server.py). It reads the committed metadata that this node has applied.

    `token_secret_key` is `delegation.token.secret.key`: nobody logs in by a token without one."""

    def __init__(self, users: ScramStore, tokens: TokenStore, *, cluster_id: str, token_secret_key: str | None) -> None:
        self._users = users
        self._tokens = tokens
        self._cluster_id = cluster_id
        self._token_secret_key = token_secret_key
        self._token_credentials: TokenCredentials | None = None

    @property
    def cluster_secret(self) -> bytes:
        """What the salts of unknown users are made from; see cluster_secret.py."""
        from broker.security.credentials.cluster_secret import cluster_secret

        return cluster_secret(self._cluster_id, self._token_secret_key)

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        return self._users.find_user(mechanism, username)

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """The first login by a token computes its credential: 1 to 3 ms."""
        if not self._token_secret_key or token_id not in self._tokens.by_id:
            return None
        if self._token_credentials is None:
            from broker.security.credentials.token_credentials import TokenCredentials
            from broker.security.credentials.token_hmacs import TokenHmacs

            self._token_credentials = TokenCredentials(self._tokens, TokenHmacs(self._token_secret_key), self.cluster_secret)
        return self._token_credentials.find(mechanism, token_id)
