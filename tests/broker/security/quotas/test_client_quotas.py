"""The quotas of the metadata: replayed, described by records, and byte for byte what Kafka writes (ClientQuotasImageTest)."""

from __future__ import annotations

import pytest

from broker.security.quotas.client_quotas import ClientQuota, ClientQuotas, EntityPart, make_entity, quota_record
from protocol.messages.stored.metadata_records import ClientQuotaRecord, EntityData, encode_metadata_record

FOO = make_entity([("user", "foo")])
BAR = make_entity([("user", "bar"), ("ip", "127.0.0.1")])
IMAGE = {FOO: {"producer_byte_rate": 123.0}, BAR: {"consumer_byte_rate": 456.0}}
CHANGES = [
    quota_record(BAR, "consumer_byte_rate", None),
    quota_record(FOO, "producer_byte_rate", 234.0),
    quota_record(FOO, "consumer_byte_rate", 999.0),
]
CHANGED_IMAGE = {FOO: {"producer_byte_rate": 234.0, "consumer_byte_rate": 999.0}}


def replayed(*records: ClientQuotaRecord, onto: ClientQuotas | None = None) -> ClientQuotas:
    quotas = ClientQuotas() if onto is None else onto
    for record in records:
        quotas.replay(record)
    return quotas


@pytest.mark.parametrize("image", [{}, IMAGE, CHANGED_IMAGE])
def test_records_recreate_the_quotas(image: dict[tuple[EntityPart, ...], dict[str, float]]) -> None:
    assert replayed(*ClientQuotas(image).records()).by_entity == image


@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_records_of_any_state_between_and_the_rest_lead_to_the_same(count: int) -> None:
    between = replayed(*CHANGES[:count], onto=ClientQuotas(IMAGE))

    after = replayed(*between.records(), *CHANGES[count:])

    assert after.by_entity == CHANGED_IMAGE


def test_parts_of_an_entity_may_come_in_any_order() -> None:
    parts = [EntityData(entity_type="user", entity_name="a"), EntityData(entity_type="client-id", entity_name=None)]
    quotas = replayed(ClientQuotaRecord(entity=parts, key="k", value=1.0), ClientQuotaRecord(entity=parts[::-1], key="k", value=2.0))

    assert quotas.by_entity == {(EntityPart("client-id", None), EntityPart("user", "a")): {"k": 2.0}}


def test_removing_what_is_not_set_changes_nothing() -> None:
    quotas = ClientQuotas(IMAGE)

    quotas.replay(quota_record(FOO, "consumer_byte_rate", None))
    quotas.replay(quota_record(make_entity([("user", None)]), "producer_byte_rate", None))

    assert quotas.by_entity == IMAGE


def test_a_copy_is_independent() -> None:
    quotas = ClientQuotas(IMAGE)
    copy = quotas.copy()

    replayed(*CHANGES, onto=copy)

    assert quotas.by_entity == IMAGE


def test_what_differs_is_told_when_the_content_is_replaced() -> None:
    quotas = ClientQuotas(IMAGE)

    changed = quotas.become(ClientQuotas(CHANGED_IMAGE))

    assert changed == [
        ClientQuota(FOO, "producer_byte_rate"),
        ClientQuota(BAR, "consumer_byte_rate"),
        ClientQuota(FOO, "consumer_byte_rate"),
    ]
    assert quotas.by_entity == CHANGED_IMAGE
    assert quotas.become(ClientQuotas(CHANGED_IMAGE)) == []


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (
            quota_record(make_entity([("user", "alice"), ("client-id", None)]), "producer_byte_rate", 1024.0),
            "010e00030a636c69656e742d69640000057573657206616c696365001370726f64756365725f627974655f7261746540900000000000000000",
        ),
        (
            quota_record(make_entity([("ip", "10.0.0.1")]), "connection_creation_rate", None),
            "010e00020369700931302e302e302e310019636f6e6e656374696f6e5f6372656174696f6e5f7261746500000000000000000100",
        ),
    ],
)
def test_records_are_those_that_kafka_writes(record: ClientQuotaRecord, written: str) -> None:
    """As ClientQuotaControlManager and MetadataRecordSerde of Apache Kafka 4.3.1 wrote them for the same quotas."""
    assert bytes(encode_metadata_record(record, 0)).hex() == written
