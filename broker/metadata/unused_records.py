"""UnusedRecords: metadata that this broker stores and passes on, but does not use yet: controllers and delegation tokens.

Each record is kept completely, under its key in Kafka's image, and is written to snapshots: another node may use it.

Source: the deltas of org.apache.kafka.image: ClusterDelta, DelegationTokenDelta.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from protocol.messages.stored import metadata_records as records

KeyOf = Callable[[Any], Hashable]


_KEPT: Mapping[type, KeyOf] = {
    records.RegisterControllerRecord: attrgetter("controller_id"),
    records.DelegationTokenRecord: attrgetter("token_id"),
}
"""What is kept and by which key, in the order of a snapshot."""

_REMOVED: Mapping[type, tuple[type, KeyOf]] = {
    records.RemoveDelegationTokenRecord: (records.DelegationTokenRecord, attrgetter("token_id")),
}


class UnusedRecords:
    """Owner: ClusterState. The records are immutable."""

    __slots__ = ("_by_type",)

    def __init__(self) -> None:
        self._by_type: dict[type, dict[Hashable, Any]] = {}

    def __iter__(self) -> Iterator[Any]:
        """All of them, type by type."""
        for kind in _KEPT:
            yield from self._by_type.get(kind, {}).values()

    @property
    def controllers(self) -> Mapping[int, records.RegisterControllerRecord]:
        """The registrations of the quorum's voters by node id."""
        return self._by_type.get(records.RegisterControllerRecord, {})  # type: ignore[return-value]

    def apply(self, record: Any) -> bool:
        """Keep the record, or remove the one that it deletes. Returns False for a record of another type."""
        kind = type(record)
        if kind in _KEPT:
            self._by_type.setdefault(kind, {})[_KEPT[kind](record)] = record
            return True
        if kind not in _REMOVED:
            return False
        removed_kind, key_of = _REMOVED[kind]
        self._by_type.get(removed_kind, {}).pop(key_of(record), None)
        return True

    def copy(self) -> UnusedRecords:
        copy = UnusedRecords()
        copy._by_type = {kind: kept.copy() for kind, kept in self._by_type.items() if kept}
        return copy
