"""The secret from which the salts of unknown SCRAM users are made (`scram.unknown_user_credential`).

It has to be the same on every broker, after every restart and whatever happens to users: a salt that changes, or that differs between two
brokers, tells that the user does not exist. Kafka has no such secret, and no record that could hold one, so it is derived from what all
nodes have anyway:

- `delegation.token.secret.key`, where it is set. It must be the same on all nodes, and no client learns it.
- The cluster id. It is random, and is told only to clients that have logged in: without a login nobody can compute a salt. A client that
  has logged in can, where there is no `delegation.token.secret.key`, and so can find out names of users by asking for their salts.
  Apache Kafka tells everybody, at the first message.
"""

from __future__ import annotations

import hmac

_PURPOSE = b"salts of unknown SCRAM users "


def cluster_secret(cluster_id: str, token_secret_key: str | None) -> bytes:
    """Returns 32 bytes. `token_secret_key` is `delegation.token.secret.key`, None where it is not set."""
    return hmac.digest((token_secret_key or cluster_id).encode(), _PURPOSE + cluster_id.encode(), "sha256")
