"""AclStore: all ACLs of the cluster, by id. A part of the metadata's state: it changes when records of the metadata log are replayed.

The index is made when somebody first asks, so a node without an authorizer, a replay of the log and a copy for a snapshot do without it.
`version` grows with each change, so that the keeper of an answer sees that it may be wrong now.

Owner: ClusterState. Source: AclsImage, AclsDelta, AclCache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.security.authorizer.acl import Acl, AclFilter, acl_of_record
from broker.security.authorizer.acl_index import AclIndex
from protocol.messages.stored.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from storage.errors import StorageError


class AclStore:
    """See the module's docstring. Ids are 16 bytes. Only its owner changes it."""

    __slots__ = ("_by_id", "_index", "version")

    def __init__(self, by_id: Mapping[bytes, Acl] | None = None) -> None:
        self._by_id: dict[bytes, Acl] = dict(by_id or {})
        self._index: AclIndex | None = None
        self.version = 0

    def __len__(self) -> int:
        """The number of ACLs (Kafka's metric acls-total-count)."""
        return len(self._by_id)

    @property
    def by_id(self) -> Mapping[bytes, Acl]:
        """Read-only."""
        return self._by_id

    @property
    def index(self) -> AclIndex:
        """The index, made now if this is the first time that anybody asks: a µs for each ACL."""
        if self._index is None:
            self._index = AclIndex()
            for acl_id, acl in self._by_id.items():
                self._index.add(acl_id, acl)
        return self._index

    def __contains__(self, acl: Acl) -> bool:
        """Whether the same rule exists, under whatever id."""
        return acl in self.index

    def candidates(self, acl_filter: AclFilter) -> list[Acl]:
        """Returns ACLs among which are all that the filter selects now."""
        candidates = self.index.candidates(acl_filter)
        return list(self._by_id.values()) if candidates is None else [acl for _, acl in candidates]

    def find(self, acl_filter: AclFilter) -> Iterator[tuple[bytes, Acl]]:
        """Yields id and ACL of all that the filter selects. The ACLs must not change meanwhile."""
        candidates = self.index.candidates(acl_filter)
        for acl_id, acl in self._by_id.items() if candidates is None else candidates:
            if acl_filter.matches(acl):
                yield acl_id, acl

    def records(self) -> Iterator[AccessControlEntryRecord]:
        """Yields the records that recreate the ACLs, for a snapshot (AclsImage.write)."""
        for acl_id, acl in self._by_id.items():
            yield acl.to_record(acl_id)

    def replay(self, record: AccessControlEntryRecord) -> None:
        """Add the ACL, in place of another with its id."""
        self._remove(record.id)
        acl = self._by_id[record.id] = acl_of_record(record)
        self.version += 1
        if self._index is not None:
            self._index.add(record.id, acl)

    def replay_removal(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove the ACL. Raises StorageError if there is none with this id: the log is damaged."""
        if self._remove(record.id) is None:
            raise StorageError(f"RemoveAccessControlEntryRecord for id {record.id.hex()}, which does not exist")
        self.version += 1

    def copy(self) -> AclStore:
        """Returns an independent copy, without an index."""
        return AclStore(self._by_id)

    def become(self, other: AclStore) -> None:
        """Replace the content by that of `other`, which the caller must not use afterwards. This object stays the same."""
        self._by_id, self._index = other._by_id, other._index
        self.version += 1

    def _remove(self, acl_id: bytes) -> Acl | None:
        acl = self._by_id.pop(acl_id, None)
        if acl is not None and self._index is not None:
            self._index.remove(acl_id, acl)
        return acl
