"""ClientQuotasRequestTest's filters over its entities, and what cannot be asked for."""

from __future__ import annotations

import pytest

from broker.security.quotas.client_quotas import QuotaEntity, make_entity
from broker.security.quotas.quota_filter import QuotaFilter
from protocol.client_quotas import MatchType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_client_quotas import ComponentData

ENTITIES = [
    make_entity(parts)
    for parts in (
        [("user", "user-1"), ("client-id", "client-id-1")],
        [("user", "user-2"), ("client-id", "client-id-1")],
        [("user", "user-3"), ("client-id", "client-id-2")],
        [("user", None), ("client-id", "client-id-1")],
        [("user", "user-1"), ("client-id", None)],
        [("user", "user-3"), ("client-id", None)],
        [("user", "user-1")],
        [("user", "user-2")],
        [("user", "user-3")],
        [("user", None)],
        [("client-id", "client-id-2")],
        [("ip", "1.2.3.4")],
        [("ip", "2.3.4.5")],
    )
]


def exactly(entity_type: str, name: str | None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=MatchType.DEFAULT if name is None else MatchType.EXACT, match=name)


def any_of(entity_type: str) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=MatchType.SPECIFIED, match=None)


def matching(*components: ComponentData, is_strict: bool) -> list[QuotaEntity]:
    quota_filter = QuotaFilter(components, is_strict=is_strict)
    return [entity for entity in ENTITIES if quota_filter.matches(entity)]


@pytest.mark.parametrize("entity", ENTITIES)
def test_a_strict_filter_of_all_parts_finds_the_entity_alone(entity: QuotaEntity) -> None:
    assert matching(*(exactly(*part) for part in entity), is_strict=True) == [entity]


@pytest.mark.parametrize(
    "parts",
    [
        [("user", "user-1"), ("client-id", "client-id-2")],
        [("user", "user-3"), ("client-id", "client-id-1")],
        [("user", "user-2"), ("client-id", None)],
        [("user", "user-4")],
        [("user", None), ("client-id", "client-id-2")],
        [("client-id", "client-id-1")],
        [("client-id", "client-id-3")],
    ],
)
def test_a_strict_filter_of_parts_that_no_entity_has_alone_finds_nothing(parts: list[tuple[str, str | None]]) -> None:
    assert matching(*(exactly(*part) for part in parts), is_strict=True) == []


@pytest.mark.parametrize(
    ("components", "is_strict", "count"),
    [
        ([exactly("user", "user-1")], False, 3),
        ([exactly("user", "unknown")], False, 0),
        ([exactly("client-id", "client-id-2")], False, 2),
        ([exactly("user", None)], False, 2),
        ([exactly("user", "user-2")], True, 1),
        ([exactly("client-id", "client-id-1")], True, 0),
        ([any_of("user")], True, 4),
        ([any_of("user")], False, 10),
        ([any_of("client-id")], True, 1),
        ([any_of("client-id")], False, 7),
        ([any_of("ip")], False, 2),
        ([any_of("user"), any_of("client-id")], True, 6),
        ([any_of("user"), exactly("client-id", None)], False, 2),
        ([], False, 13),
        ([], True, 0),
    ],
)
def test_partial_matches(components: list[ComponentData], is_strict: bool, count: int) -> None:
    assert len(matching(*components, is_strict=is_strict)) == count


INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "error", "why"),
    [
        ([any_of("")], INVALID, "Invalid empty entity type"),
        ([exactly("user", "a"), any_of("user")], INVALID, "user cannot appear more than once"),
        ([any_of("user"), exactly("user", None)], INVALID, "user cannot appear more than once"),
        ([any_of("group")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([ComponentData(entity_type="user", match_type=0, match=None)], INVALID, "MATCH_TYPE_EXACT, but set match string to null"),
        ([ComponentData(entity_type="user", match_type=1, match="a")], INVALID, "MATCH_TYPE_DEFAULT, but also specified"),
        ([ComponentData(entity_type="user", match_type=2, match="")], INVALID, "MATCH_TYPE_SPECIFIED, but also specified"),
        ([ComponentData(entity_type="user", match_type=3, match=None)], INVALID, "Unknown match type 3"),
        ([ComponentData(entity_type="user", match_type=-1, match=None)], INVALID, "Unknown match type -1"),
        ([any_of("ip"), any_of("user")], INVALID, "Invalid entity filter component combination"),
        ([exactly("client-id", None), exactly("ip", "1.2.3.4")], INVALID, "Invalid entity filter component combination"),
    ],
)
def test_what_cannot_be_asked_for(components: list[ComponentData], error: ErrorCode, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as refused:
        QuotaFilter(components, is_strict=False)

    assert refused.value.code is error
