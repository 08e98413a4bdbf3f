"""ScramStore: the SCRAM credentials of the cluster's users. A part of the metadata's state: it changes when records of the metadata log are
replayed.

A credential of a mechanism that does not exist is kept and used for nothing, as in Kafka.

Owner: ClusterState. Source: ScramImage, ScramDelta, CredentialProvider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from protocol.messages.stored.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from protocol.sasl.scram import ScramCredential, ScramMechanism


class ScramKey(NamedTuple):
    """Names a credential. `mechanism` is the type by which records name it."""

    user: str
    mechanism: int


def scram_record(user: str, mechanism: ScramMechanism, credential: ScramCredential) -> UserScramCredentialRecord:
    """Returns the record that sets the user's credential."""
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.value,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


class ScramStore:
    """See the module's docstring. Only its owner changes it; the records are immutable."""

    __slots__ = ("_by_key",)

    def __init__(self, by_key: Mapping[ScramKey, UserScramCredentialRecord] | None = None) -> None:
        self._by_key: dict[ScramKey, UserScramCredentialRecord] = dict(by_key or {})

    def __len__(self) -> int:
        """The number of credentials."""
        return len(self._by_key)

    def __contains__(self, key: ScramKey) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[ScramKey]:
        return iter(self._by_key)

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        """Returns the user's credential of this mechanism."""
        from protocol.sasl.scram import ScramCredential  # with hashlib: only where somebody logs in

        record = self._by_key.get(ScramKey(username, mechanism.value))
        return None if record is None else ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)

    def find_iterations(self, key: ScramKey) -> int | None:
        """Returns the rounds of a credential: all that may be told of it."""
        record = self._by_key.get(key)
        return None if record is None else record.iterations

    def records(self) -> Iterator[UserScramCredentialRecord]:
        """Yields the records that recreate the credentials, for a snapshot."""
        return iter(self._by_key.values())

    def replay(self, record: UserScramCredentialRecord) -> None:
        """Set the user's credential of a mechanism, in place of an earlier one."""
        self._by_key[ScramKey(record.name, record.mechanism)] = record

    def replay_removal(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a credential. It need not exist, as in Kafka's brokers."""
        self._by_key.pop(ScramKey(record.name, record.mechanism), None)

    def copy(self) -> ScramStore:
        """Returns an independent copy."""
        return ScramStore(self._by_key)

    def become(self, other: ScramStore) -> None:
        """Replace the content by that of `other`, which the caller must not use afterwards. This object stays the same."""
        self._by_key = other._by_key
