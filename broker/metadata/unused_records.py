"""UnusedRecords: metadata that this broker stores and passes on, and reads for itself only in part: the registrations of controllers.

Each record is kept completely, under its key in Kafka's image, and is written to snapshots: another node may use it.

Source: org.apache.kafka.image.ClusterDelta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protocol.messages.stored.metadata_records import RegisterControllerRecord


class UnusedRecords:
    """Owner: ClusterState. The records are immutable."""

    __slots__ = ("_controllers",)

    def __init__(self, controllers: Mapping[int, RegisterControllerRecord] | None = None) -> None:
        self._controllers: dict[int, RegisterControllerRecord] = dict(controllers or {})

    def __iter__(self) -> Iterator[RegisterControllerRecord]:
        return iter(self._controllers.values())

    @property
    def controllers(self) -> Mapping[int, RegisterControllerRecord]:
        """The registrations of the quorum's voters by node id."""
        return self._controllers

    def apply(self, record: Any) -> bool:
        """Keep the record. Returns False for a record of another type."""
        if type(record) is not RegisterControllerRecord:
            return False
        self._controllers[record.controller_id] = record
        return True

    def copy(self) -> UnusedRecords:
        return UnusedRecords(self._controllers)
