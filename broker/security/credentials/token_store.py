"""TokenStore: the cluster's delegation tokens (KIP-48). A part of the metadata's state: it changes when records of the metadata log are
replayed. A token's password, its HMAC, is in no record; see token_hmacs.py.

Owner: ClusterState. Source: DelegationTokenImage, DelegationTokenDelta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.messages.stored.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord


class TokenStore:
    """See the module's docstring. Only its owner changes it; the records are immutable. `version` grows with each change."""

    __slots__ = ("_by_id", "version")

    def __init__(self, by_id: Mapping[str, DelegationTokenRecord] | None = None) -> None:
        self._by_id: dict[str, DelegationTokenRecord] = dict(by_id or {})
        self.version = 0

    @property
    def by_id(self) -> Mapping[str, DelegationTokenRecord]:
        """Read-only. Tokens that have expired are here until the active controller removes them."""
        return self._by_id

    def replay(self, record: DelegationTokenRecord) -> None:
        """Add the token, or change one that has its id."""
        self._by_id[record.token_id] = record
        self.version += 1

    def replay_removal(self, record: RemoveDelegationTokenRecord) -> None:
        """Remove a token. It need not exist, as in Kafka."""
        self._by_id.pop(record.token_id, None)
        self.version += 1

    def copy(self) -> TokenStore:
        """Returns an independent copy."""
        return TokenStore(self._by_id)

    def become(self, other: TokenStore) -> None:
        """Replace the content by that of `other`, which the caller must not use afterwards. This object stays the same."""
        self._by_id = other._by_id
        self.version += 1


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether the token's time is over, by the wall clock."""
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def is_of(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal (`Type:name`) owns the token, has asked for it or may renew it (TokenInformation.ownerOrRenewer)."""
    return principal in (token.owner, token.requester) or principal in token.renewers
