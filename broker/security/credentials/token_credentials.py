"""TokenCredentials: the SCRAM credentials of delegation tokens. Who logs in by a token has its id for a name and its HMAC, in Base64, for a
password.

A credential is computed when somebody first logs in by the token here, in 1 to 3 ms of the loop, and kept as long as the token exists.
Only a token that exists costs this, and once for each mechanism, so nobody can make the broker compute much. Kafka computes all of them
in advance, on each broker; a broker that did so off the loop would refuse, for a moment, a client whose token is new.

The salt is the one that an unknown token of this name would have: the broker's first message does not tell whether the token exists.

Source: DelegationTokenManager.updateToken, ScramServerCallbackHandler.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from broker.security.sasl.scram_server import TokenCredential
from protocol.sasl import scram
from protocol.sasl.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from broker.security.credentials.token_hmacs import TokenHmacs
    from broker.security.credentials.token_store import TokenStore


class TokenCredentials:
    """See the module's docstring. Owner: Credentials."""

    def __init__(self, tokens: TokenStore, hmacs: TokenHmacs, cluster_secret: bytes) -> None:
        self._tokens = tokens
        self._hmacs = hmacs
        self._cluster_secret = cluster_secret
        self._computed: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        self._computed_version = 0

    def find(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """Returns what the token stands for. Its end may have come already."""
        token = self._tokens.by_id.get(token_id)
        if token is None:
            return None
        self._forget_removed()
        credential = self._computed.get((mechanism, token_id))
        if credential is None:
            credential = self._computed[mechanism, token_id] = self._compute(mechanism, token_id)
        owner = token.owner.partition(":")[2]
        return TokenCredential(owner, credential, min(token.max_timestamp, token.expiration_timestamp))

    def _forget_removed(self) -> None:
        if self._computed_version != self._tokens.version:
            self._computed = {key: credential for key, credential in self._computed.items() if key[1] in self._tokens.by_id}
            self._computed_version = self._tokens.version

    def _compute(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        password = base64.b64encode(self._hmacs.of(token_id)).decode()
        salt = scram.unknown_user_credential(mechanism, token_id, self._cluster_secret).salt
        salted = scram.salted_password(mechanism, password, salt, ITERATIONS_MIN)
        return scram.credential_of(mechanism, salted, salt, ITERATIONS_MIN)
