"""The controller's decisions about client quotas: AlterClientQuotas. Pure.

Which quotas an entity may have depends on its types: users and client ids, alone or together, have those of bytes, request time and
mutations; an IP address, which goes with nothing else, has that of new connections.

Stricter than Kafka: an entity that is named twice is not altered at all (Kafka answers with an error, and alters it as the first entry
says); NaN is no value; the name of a host is no address.

Source: ClientQuotaControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, STEP_ELEMENTS, Pace, Steps
from broker.security.quotas.addresses import find_address
from broker.security.quotas.client_quotas import ClientQuotas, QuotaEntity, make_entity, quota_record
from protocol.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    EntryData,
    OpData,
)
from protocol.messages.stored.metadata_records import ClientQuotaRecord

FRACTION_MAX = 1e-6
"""A whole number may be off by this much."""


class ValueType(Enum):
    """The types of quotas' values. All are above 0."""

    INT = 2**31 - 1
    LONG = 2**63 - 1
    DOUBLE = None


USER_AND_CLIENT_QUOTAS = {
    PRODUCER_BYTE_RATE: ValueType.LONG,
    CONSUMER_BYTE_RATE: ValueType.LONG,
    REQUEST_PERCENTAGE: ValueType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ValueType.DOUBLE,
}
ADDRESS_QUOTAS = {CONNECTION_CREATION_RATE: ValueType.INT}


class ClientQuotaControl:
    """Computes the records of changed quotas. Reads `quotas`, never changes them."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def alter(self, request: AlterClientQuotasRequest) -> Steps[AlterClientQuotasResponse]:
        """Each entity is altered completely or not at all. Raises KafkaError POLICY_VIOLATION for too many changes at once."""
        if max(len(request.entries), sum(len(entry.ops) for entry in request.entries)) > RECORDS_PER_OPERATION_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        entries_of: dict[QuotaEntity, list[EntryData]] = {}
        for entry in request.entries:
            entries_of.setdefault(make_entity((part.entity_type, part.entity_name) for part in entry.entity), []).append(entry)
        responses = []
        step: list[ClientQuotaRecord] = []
        pace = Pace()
        for entity, entries in entries_of.items():
            records, response = self._altered(entity, entries)
            responses.append(response)
            step += [] if request.validate_only else records
            if pace.is_due(min(1 + sum(len(entry.ops) for entry in entries), STEP_ELEMENTS)):
                yield step
                step = []
        yield step
        return AlterClientQuotasResponse(entries=responses)

    def _altered(self, entity: QuotaEntity, entries: list[EntryData]) -> tuple[list[ClientQuotaRecord], AlterClientQuotasResponseEntryData]:
        """Returns the records that alter the entity, and its answer."""
        parts = [EntityData(entity_type=part.entity_type, entity_name=part.name) for part in entity]
        try:
            if len(entries) > 1 or _has_duplicates(op.key for op in entries[0].ops):
                raise _invalid(f"Ignoring duplicate entity {_text_of(entity)}")
            return self._records(entity, entries[0].ops), AlterClientQuotasResponseEntryData(error_message=None, entity=parts)
        except KafkaError as error:
            return [], AlterClientQuotasResponseEntryData(error_code=error.code, error_message=error.message, entity=parts)

    def _records(self, entity: QuotaEntity, ops: Iterable[OpData]) -> list[ClientQuotaRecord]:
        value_types = quotas_of(entity)
        records = []
        for op in ops:
            current = self._quotas.find(entity, op.key)
            if op.remove:
                if current is not None:
                    records.append(quota_record(entity, op.key, None))
                continue
            check_value(value_types, op.key, op.value)
            if op.value != current:
                records.append(quota_record(entity, op.key, op.value))
        return records


def quotas_of(entity: QuotaEntity) -> Mapping[str, ValueType]:
    """Returns the quotas that the entity may have, and the types of their values. Raises KafkaError INVALID_REQUEST for an entity that may
    have none."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    names = dict(entity)
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return USER_AND_CLIENT_QUOTAS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = names[IP]
    if address is not None and find_address(address) is None:
        raise _invalid(f"{address} is not a valid IP. Names of hosts are not resolved here.")
    return ADDRESS_QUOTAS


def check_value(value_types: Mapping[str, ValueType], key: str, value: float) -> None:
    """Raises KafkaError INVALID_REQUEST for a quota that the entity cannot have, or a value that the quota cannot have."""
    value_type = value_types.get(key)
    if value_type is None:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value_type is ValueType.DOUBLE:
        return
    if value > float(value_type.value):
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if value_type is ValueType.INT else 'a LONG'}.")
    if value % 1.0 > FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _has_duplicates(keys: Iterable[str]) -> bool:
    seen = list(keys)
    return len(set(seen)) < len(seen)


def _text_of(entity: QuotaEntity) -> str:
    """As Kafka's ClientQuotaEntity.toString."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
