"""Credentials: where the listeners of this node look up who logs in by SCRAM: users, and delegation tokens.

Owner: MetadataCache. Source: CredentialProvider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.security.credentials.scram_store import ScramStore
    from broker.security.sasl.scram import ScramCredential, ScramMechanism
    from broker.security.sasl.scram_server import TokenCredential


class Credentials:
    """Satisfies ScramCredentials (broker/security/sasl/scram_server.py). It reads the committed metadata that this node has applied."""

    def __init__(self, users: ScramStore) -> None:
        self._users = users

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        return self._users.find_user(mechanism, username)

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """None: there are no delegation tokens yet."""
        return None
