"""AlterClientQuotas and DescribeClientQuotas there and back in each version; what is decided is in tests/broker/controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import alter_client_quotas, describe_client_quotas
from broker.security.quotas.client_quotas import make_entity, quota_record
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntityData, EntryData, OpData
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tests.broker.metadata.room import Room, context, open_room
from tests.support.turns import finished

VERSIONS = pytest.mark.parametrize("version", [0, 1])


def change(*parts: tuple[str, str | None], validate_only: bool = False, **values: float | None) -> AlterClientQuotasRequest:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
    return AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)], validate_only=validate_only)


async def alter(room: Room, version: int, request: AlterClientQuotasRequest) -> list[tuple[int, str | None]]:
    answer = await alter_client_quotas.build(room.services)(context(version), over_the_wire(request, version))
    answer = over_the_wire(answer, version)
    assert isinstance(answer, AlterClientQuotasResponse)
    return [(entry.error_code, entry.error_message) for entry in answer.entries]


def describe(room: Room, version: int, *components: ComponentData, strict: bool = False) -> dict[Any, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer = over_the_wire(describe_client_quotas.build(room.services)(context(version), request), version)
    assert isinstance(answer, DescribeClientQuotasResponse) and answer.entries is not None and answer.error_code == 0
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {value.key: value.value for value in entry.values}
        for entry in answer.entries
    }


def over_the_wire(message: Any, version: int) -> Any:
    decoded, _ = decode(type(message), version, encode(message, version))
    return decoded


@VERSIONS
async def test_quotas_are_set_described_and_removed(tmp_path: Path, version: int) -> None:
    """testAlterClientQuotasRequest, testAlterIpQuotasRequest, testClientQuotasSanitized"""
    room = await open_room(tmp_path)
    both = (("user", "user with spaces"), ("client-id", None))

    assert await alter(room, version, change(*both, producer_byte_rate=10000, request_percentage=12.5)) == [(0, None)]
    assert await alter(room, version, change(("ip", "1.2.3.4"), connection_creation_rate=100)) == [(0, None)]
    assert describe(room, version) == {
        tuple(sorted(both)): {"producer_byte_rate": 10000, "request_percentage": 12.5},
        (("ip", "1.2.3.4"),): {"connection_creation_rate": 100},
    }

    assert await alter(room, version, change(*both, producer_byte_rate=None, consumer_byte_rate=20000)) == [(0, None)]
    user = ComponentData(entity_type="user", match_type=0, match="user with spaces")
    assert describe(room, version, user) == {tuple(sorted(both)): {"request_percentage": 12.5, "consumer_byte_rate": 20000}}
    assert describe(room, version, user, strict=True) == {}

    assert await alter(room, version, change(("ip", "1.2.3.4"), connection_creation_rate=None)) == [(0, None)]
    assert list(describe(room, version)) == [tuple(sorted(both))]


@VERSIONS
async def test_what_is_only_validated_and_what_is_refused_changes_nothing(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)

    assert await alter(room, version, change(("user", "u"), validate_only=True, producer_byte_rate=1)) == [(0, None)]
    refused = await alter(room, version, change(("user", "u"), bad=1))

    assert refused == [(ErrorCode.INVALID_REQUEST, "Invalid configuration key bad")]
    assert describe(room, version) == {}


async def test_many_entities_are_described_in_turns(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.cache.apply_committed([quota_record(make_entity([("user", str(index))]), "producer_byte_rate", 1.0) for index in range(2000)])

    work = describe_client_quotas.build(room.services)(context(1), DescribeClientQuotasRequest())
    room.cache.apply_committed([quota_record(make_entity([("user", "0")]), "producer_byte_rate", None)])

    assert len(finished(work).entries) == 2000


async def test_a_request_without_entries_has_an_answer_without(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    assert await alter(room, 1, AlterClientQuotasRequest()) == []


@VERSIONS
async def test_a_filter_that_cannot_be_asked_for_is_answered_without_entries(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)
    request = DescribeClientQuotasRequest(components=[ComponentData(entity_type="other", match_type=2, match=None)])

    with pytest.raises(KafkaError) as refused:
        describe_client_quotas.build(room.services)(context(version), request)
    answer = over_the_wire(describe_client_quotas.error_response(request, refused.value), version)

    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type other")
    assert answer.entries is None


async def test_an_error_of_the_whole_request_is_told_for_each_entity() -> None:
    request = change(("user", "a"), producer_byte_rate=1)

    answer = alter_client_quotas.error_response(request, KafkaError(ErrorCode.NOT_CONTROLLER))

    assert [(entry.error_code, entry.entity) for entry in answer.entries] == [(ErrorCode.NOT_CONTROLLER, request.entries[0].entity)]


async def test_subscribers_of_the_metadata_are_told(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    told: list[Any] = []
    room.cache.subscribe(lambda delta: told.extend(delta.changed_client_quotas))

    await alter(room, 1, change(("user", "a"), producer_byte_rate=1))

    assert [(tuple(quota.entity), quota.key) for quota in told] == [((("user", "a"),), "producer_byte_rate")]
