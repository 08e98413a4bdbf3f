"""ClientQuotas: the quotas that the cluster's metadata sets, by entity. A part of the metadata's state: it changes when records of the
metadata log are replayed.

The parts of an entity are in the order of their types, as in Kafka's records: client-id before user. The order of entities is that of
their first records; Kafka's is that of a hash map.

Owner: ClusterState. Source: ClientQuotasImage, ClientQuotasDelta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from protocol.messages.stored.metadata_records import ClientQuotaRecord, EntityData


class EntityPart(NamedTuple):
    """A type of entity and the name of one, None for the default."""

    entity_type: str
    name: str | None


QuotaEntity = tuple[EntityPart, ...]
"""What a quota is for. No two parts have the same type."""


class ClientQuota(NamedTuple):
    """Names one quota; its value is in ClientQuotas."""

    entity: QuotaEntity
    key: str


def make_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Returns the entity with these parts, in any order. Of two parts of one type the last counts, as in Kafka."""
    return tuple(EntityPart(*part) for part in sorted(dict(parts).items()))


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Returns the record that sets the quota; that removes it if `value` is None."""
    parts = [EntityData(entity_type=part.entity_type, entity_name=part.name) for part in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=0.0 if value is None else value, remove=value is None)


class ClientQuotas:
    """See the module's docstring. Only its owner changes it."""

    __slots__ = ("_by_entity",)

    def __init__(self, by_entity: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        self._by_entity: dict[QuotaEntity, dict[str, float]] = {entity: dict(quotas) for entity, quotas in (by_entity or {}).items()}

    def __iter__(self) -> Iterator[ClientQuota]:
        """All quotas that are set."""
        return (ClientQuota(entity, key) for entity, quotas in self._by_entity.items() for key in quotas)

    @property
    def by_entity(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Read-only. Each entity has at least one quota."""
        return self._by_entity

    def find(self, entity: QuotaEntity, key: str) -> float | None:
        quotas = self._by_entity.get(entity)
        return None if quotas is None else quotas.get(key)

    def records(self) -> Iterator[ClientQuotaRecord]:
        """Yields the records that recreate the quotas, for a snapshot."""
        for entity, quotas in self._by_entity.items():
            for key, value in quotas.items():
                yield quota_record(entity, key, value)

    def replay(self, record: ClientQuotaRecord) -> ClientQuota:
        """Set or remove a quota, and return which. Removing one that is not set changes nothing."""
        entity = make_entity((part.entity_type, part.entity_name) for part in record.entity)
        if not record.remove:
            self._by_entity.setdefault(entity, {})[record.key] = record.value
        elif entity in self._by_entity:
            self._by_entity[entity].pop(record.key, None)
            if not self._by_entity[entity]:
                del self._by_entity[entity]
        return ClientQuota(entity, record.key)

    def copy(self) -> ClientQuotas:
        """Returns an independent copy."""
        return ClientQuotas(self._by_entity)

    def become(self, other: ClientQuotas) -> list[ClientQuota]:
        """Replace the content by that of `other`, which the caller must not use afterwards, and return what differs."""
        both = dict.fromkeys((*self, *other))
        changed = [quota for quota in both if self.find(*quota) != other.find(*quota)]
        self._by_entity = other._by_entity
        return changed
