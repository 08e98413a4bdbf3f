"""QuotaFilter: which entities a DescribeClientQuotas asks for.

Source: ClientQuotasImage.describe.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.security.quotas.client_quotas import QuotaEntity
from protocol.client_quotas import CLIENT_ID, IP, USER, MatchType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_client_quotas import ComponentData


class QuotaFilter:
    """Raises KafkaError for components that cannot be asked for: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type of entity."""

    __slots__ = ("_exact", "_is_strict", "_specified")

    def __init__(self, components: Iterable[ComponentData], *, is_strict: bool) -> None:
        self._exact: dict[str, str | None] = {}
        self._specified: set[str] = set()
        self._is_strict = is_strict
        for component in components:
            self._add(component)
        types = self._exact.keys() | self._specified
        if IP in types and len(types) > 1:
            why = "IP filter component should not be used with user or clientId filter component."
            raise _invalid(f"Invalid entity filter component combination. {why}")

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the entity has a part for each component and, if the filter is strict, no others."""
        if self._is_strict and len(entity) != len(self._exact) + len(self._specified):
            return False
        parts: dict[str, str | None] = dict(entity)
        for kind, name in self._exact.items():
            if kind not in parts or parts[kind] != name:
                return False
        return all(kind in parts for kind in self._specified)

    def _add(self, component: ComponentData) -> None:
        kind, match = component.entity_type, component.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._exact or kind in self._specified:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in MatchType.__members__.values():
            raise _invalid(f"Unknown match type {component.match_type}")
        how = MatchType(component.match_type)
        if how is MatchType.EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = match
            return
        if match is not None:
            raise _invalid(f"Request specified MATCH_TYPE_{how.name}, but also specified a match string.")
        if how is MatchType.DEFAULT:
            self._exact[kind] = None
        else:
            self._specified.add(kind)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
