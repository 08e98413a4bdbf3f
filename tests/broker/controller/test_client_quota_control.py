"""ClientQuotaControlManagerTest's cases; the messages are Kafka's, but where ours says more."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from broker.controller.client_quota_control import ADDRESS_QUOTAS, USER_AND_CLIENT_QUOTAS, ClientQuotaControl, check_value, quotas_of
from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX
from broker.security.quotas.client_quotas import ClientQuotas, make_entity, quota_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntityData, EntryData, OpData
from protocol.messages.stored.metadata_records import ClientQuotaRecord

Parts = list[tuple[str, str | None]]

USER: Parts = [("user", "user-1")]


def entry(parts: Parts, *changes: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes],
    )


def alter(
    quotas: ClientQuotas, *entries: EntryData, validate_only: bool = False
) -> tuple[list[ClientQuotaRecord], AlterClientQuotasResponse]:
    """Does what the controller does with the steps."""
    steps = ClientQuotaControl(quotas).alter(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    records: list[ClientQuotaRecord] = []
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return records, end.value
        for record in step:
            quotas.replay(record)
        records.extend(step)


def changed(quotas: ClientQuotas, parts: Parts, changes: Mapping[str, float | None]) -> Mapping[str, float]:
    """Returns the entity's quotas after changes that succeed."""
    _, response = alter(quotas, entry(parts, *changes.items()))
    assert [(each.error_code, each.error_message) for each in response.entries] == [(0, None)]
    return quotas.by_entity.get(make_entity(parts), {})


def refusal(*entries: EntryData) -> str | None:
    """Returns the message of the only entry that is answered, after a check that nothing was changed."""
    quotas = ClientQuotas()
    records, response = alter(quotas, *entries)
    assert records == [] and not quotas.by_entity
    (result,) = response.entries
    assert result.error_code == ErrorCode.INVALID_REQUEST
    return result.error_message


def test_quotas_are_set_changed_and_removed() -> None:
    """testAlterAndRemove"""
    quotas = ClientQuotas()

    assert changed(quotas, USER, {"producer_byte_rate": 10000.0}) == {"producer_byte_rate": 10000.0}
    both = {"producer_byte_rate": 10001.0, "consumer_byte_rate": 20000.0}
    assert changed(quotas, USER, both) == both
    assert changed(quotas, USER, {"producer_byte_rate": None}) == {"consumer_byte_rate": 20000.0}
    assert changed(quotas, USER, {"request_percentage": None}) == {"consumer_byte_rate": 20000.0}
    assert changed(quotas, USER, {"consumer_byte_rate": None}) == {}
    assert changed(quotas, USER, {"consumer_byte_rate": None}) == {}
    assert not quotas.by_entity
    mixed: dict[str, float | None] = {
        "request_percentage": 99.0,
        "controller_mutation_rate": None,
        "producer_byte_rate": 10002.0,
        "consumer_byte_rate": 20001.0,
    }
    assert changed(quotas, USER, mixed) == {key: value for key, value in mixed.items() if value is not None}


def test_only_what_changes_is_recorded() -> None:
    quotas = ClientQuotas()
    changes = (("producer_byte_rate", 1.0), ("consumer_byte_rate", 2.0))
    alter(quotas, entry(USER, *changes))

    records, _ = alter(quotas, entry(USER, *changes), entry([("user", "b")]), entry([("user", "c")], ("unknown", None)))
    assert records == []

    records, _ = alter(quotas, entry(USER, ("producer_byte_rate", 1.0), ("consumer_byte_rate", 3.0)))
    assert records == [quota_record(make_entity(USER), "consumer_byte_rate", 3.0)]


@pytest.mark.parametrize(
    "parts",
    [
        [("user", "user-1"), ("client-id", "client-id-1")],
        [("user", None), ("client-id", "client-id-1")],
        [("user", "user-1"), ("client-id", None)],
        [("user", "user-1")],
        [("user", None)],
        [("client-id", "client-id-2")],
        [("client-id", None)],
    ],
)
def test_users_and_client_ids_have_their_quotas(parts: Parts) -> None:
    """testEntityTypes, testConfigKeysForEntityType…"""
    records, response = alter(ClientQuotas(), entry(parts, ("request_percentage", 50.5)))

    assert records == [quota_record(make_entity(parts), "request_percentage", 50.5)]
    assert [(part.entity_type, part.entity_name) for part in response.entries[0].entity] == sorted(parts)
    assert quotas_of(make_entity(parts)) is USER_AND_CLIENT_QUOTAS


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:1.2.3.4", None])
def test_addresses_have_theirs(address: str | None) -> None:
    assert quotas_of(make_entity([("ip", address)])) is ADDRESS_QUOTAS
    assert refusal(entry([("ip", address)], ("producer_byte_rate", 1.0))) == "Invalid configuration key producer_byte_rate"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([("foo", "bar")], "Unhandled client quota entity type: foo"),
        ([("", "name")], "Unhandled client quota entity type: "),
        ([("user", "user-1"), ("foo", "bar")], "Unhandled client quota entity type: foo"),
        ([("foo", "bar"), ("ip", "1.2.3.4")], "Unhandled client quota entity type: foo"),
        (
            [("user", "user-1"), ("ip", "1.2.3.4")],
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        (
            [("client-id", "user-1"), ("ip", None)],
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ([], "Invalid empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("ip", "")], "Empty ip not supported"),
        ([("ip", "localhost")], "localhost is not a valid IP. Names of hosts are not resolved here."),
        ([("ip", "not a valid host because it has spaces")], None),
    ],
)
def test_entities_that_have_no_quotas(parts: Parts, why: str | None) -> None:
    message = refusal(entry(parts, ("producer_byte_rate", 10000.0)))

    assert message == why or (why is None and message is not None and "is not a valid IP" in message)


@pytest.mark.parametrize("keys", [("not.a.quota.key", "request_percentage"), ("request_percentage", "not.a.quota.key")])
def test_one_invalid_key_refuses_all_of_the_entity(keys: tuple[str, str]) -> None:
    """testInvalidQuotaKeys"""
    assert refusal(entry(USER, (keys[0], 99.0), (keys[1], 99.0))) == "Invalid configuration key not.a.quota.key"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("foobar", 1.0, "Invalid configuration key foobar"),
        ("producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("consumer_byte_rate", -2.0, "Quota consumer_byte_rate must be greater than 0"),
        ("request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        ("consumer_byte_rate", 36893488147419103232.4, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ("consumer_byte_rate", math.inf, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ("consumer_byte_rate", 2.245, "consumer_byte_rate cannot be a fractional value."),
        ("connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
    ],
)
def test_values_that_a_quota_cannot_have(key: str, value: float, why: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_value(USER_AND_CLIENT_QUOTAS, key, value)

    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, why)


def test_an_address_s_rate_fits_an_int() -> None:
    check_value(ADDRESS_QUOTAS, "connection_creation_rate", 2.0**31 - 1)

    with pytest.raises(KafkaError, match="too large for an INT"):
        check_value(ADDRESS_QUOTAS, "connection_creation_rate", 2.0**31)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consumer_byte_rate", 1234.0),
        ("consumer_byte_rate", 1235.0000001),
        ("producer_byte_rate", 2.0**63),
        ("request_percentage", 56.62367),
        ("controller_mutation_rate", 1e-9),
    ],
)
def test_values_that_a_quota_can_have(key: str, value: float) -> None:
    assert changed(ClientQuotas(), USER, {key: value}) == {key: value}


def test_a_key_twice_refuses_the_entity() -> None:
    why = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=a})"

    twice = entry([("user", "a"), ("client-id", None)], ("producer_byte_rate", 1.0), ("producer_byte_rate", None))

    assert refusal(twice) == why


def test_an_entity_twice_is_answered_once_and_changes_nothing() -> None:
    """Kafka tells the error too, but does what the first entry says."""
    first = entry([("user", "a"), ("client-id", "c")], ("producer_byte_rate", 1.0))
    second = entry([("client-id", "c"), ("user", "a")], ("consumer_byte_rate", 1.0))

    assert refusal(first, second) == "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=a})"


def test_entities_are_altered_or_refused_one_by_one() -> None:
    quotas = ClientQuotas()

    _, response = alter(
        quotas, *(entry([("user", f"u{index}")], ("producer_byte_rate", float(index))) for index in range(300)), entry([("group", "g")])
    )

    assert [index for index, each in enumerate(response.entries) if each.error_code] == [0, 300]
    assert len(quotas.by_entity) == 299


def test_what_is_only_validated_changes_nothing() -> None:
    quotas = ClientQuotas()
    alter(quotas, entry(USER, ("producer_byte_rate", 1.0)))

    records, response = alter(
        quotas,
        entry(USER, ("producer_byte_rate", None), ("consumer_byte_rate", 5.0)),
        entry([("user", "b")], ("producer_byte_rate", -1.0)),
        validate_only=True,
    )

    assert records == []
    assert [each.error_code for each in response.entries] == [0, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    "entries",
    [
        [entry([("user", str(index))]) for index in range(RECORDS_PER_OPERATION_MAX + 1)],
        [entry(USER, *((str(index), None) for index in range(RECORDS_PER_OPERATION_MAX + 1)))],
    ],
)
def test_too_many_changes_at_once_are_refused(entries: list[EntryData]) -> None:
    with pytest.raises(KafkaError) as refused:
        alter(ClientQuotas(), *entries)

    assert refused.value.code is ErrorCode.POLICY_VIOLATION
