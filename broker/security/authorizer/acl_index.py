"""AclIndex: finds the ACLs that bear on a resource by its name's prefixes, and those of a principal, without a look at all others.

Kafka walks a sorted set from the name back over whatever sorts between its prefixes (KAFKA-20667). Here each prefix whose length any
pattern has costs one lookup.

Owner: AclStore. Source of the rules: StandardAuthorizerData.findAclRule and checkSection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from operator import neg

from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import WILDCARD, PatternType, ResourceType

Pattern = tuple[bool, str]
"""Whether it is literal, and the name. Kafka takes every pattern that is not LITERAL for a prefix."""

PrincipalAcls = Mapping[tuple[bool, str, str], tuple[Acl, ...]]
"""The ACLs of one principal on resources of one type: whether the pattern is literal, its name, and the host → ACLs."""

_NONE: PrincipalAcls = {}


class AclIndex:
    """Changes by `add` and `remove` only. An ACL that is stored under two ids is here twice."""

    __slots__ = ("_by_pattern", "_by_principal", "_lengths", "_lengths_in_use")

    def __init__(self) -> None:
        self._by_pattern: dict[tuple[int, bool, str], dict[bytes, Acl]] = {}
        self._by_principal: dict[tuple[int, str], dict[tuple[bool, str, str], tuple[Acl, ...]]] = {}
        self._lengths: dict[int, list[int]] = {}
        """By each resource type that ACLs had: the lengths of the names of prefixed patterns, the longest first."""
        self._lengths_in_use: dict[tuple[int, int], int] = {}
        """By resource type and length: how many prefixed patterns have it."""

    def add(self, acl_id: bytes, acl: Acl) -> None:
        is_literal = acl.pattern_type == PatternType.LITERAL
        pattern = (acl.resource_type, is_literal, acl.resource_name)
        ids = self._by_pattern.get(pattern)
        if ids is None:
            ids = self._by_pattern[pattern] = {}
            self._lengths.setdefault(acl.resource_type, [])
            if not is_literal:
                self._count_length(acl.resource_type, len(acl.resource_name), 1)
        ids[acl_id] = acl
        own = self._by_principal.setdefault((acl.resource_type, acl.principal), {})
        place = (is_literal, acl.resource_name, acl.host)
        own[place] = (*own.get(place, ()), acl)

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        is_literal = acl.pattern_type == PatternType.LITERAL
        pattern = (acl.resource_type, is_literal, acl.resource_name)
        del self._by_pattern[pattern][acl_id]
        if not self._by_pattern[pattern]:
            del self._by_pattern[pattern]
            if not is_literal:
                self._count_length(acl.resource_type, len(acl.resource_name), -1)
        own = self._by_principal[acl.resource_type, acl.principal]
        place = (is_literal, acl.resource_name, acl.host)
        left = list(own[place])
        left.remove(acl)
        if left:
            own[place] = tuple(left)
        elif len(own) > 1:
            del own[place]
        else:
            del self._by_principal[acl.resource_type, acl.principal]

    def __contains__(self, acl: Acl) -> bool:
        place = (acl.pattern_type == PatternType.LITERAL, acl.resource_name, acl.host)
        return acl in self.of_principal(acl.resource_type, acl.principal).get(place, ())

    def of_principal(self, resource_type: int, principal: str) -> PrincipalAcls:
        """The ACLs that name exactly this principal, on resources of the type. Read-only."""
        return self._by_principal.get((resource_type, principal), _NONE)

    def patterns_of(self, resource_type: int, name: str) -> list[Pattern]:
        """Returns the patterns that may cover a resource, as Kafka looks at them: its name, the prefixes of its name from the longest on,
        the wildcard. ACLs need not exist for each."""
        size = len(name)
        patterns = [(True, name)]
        patterns += [(False, name[:length]) for length in self._lengths.get(resource_type, ()) if length <= size]
        if name != WILDCARD:
            patterns.append((True, WILDCARD))
        return patterns

    def has_any(self, resource_type: int, patterns: Iterable[Pattern]) -> bool:
        """Whether at least one of the patterns has an ACL, for any principal."""
        return any((resource_type, *pattern) in self._by_pattern for pattern in patterns)

    def candidates(self, acl_filter: AclFilter) -> Iterator[tuple[bytes, Acl]] | None:
        """Yields ids and ACLs among which are all that the filter selects; None if only a look at all ACLs can tell, because the filter
        names no resource."""
        name = acl_filter.resource_name
        if name is None:
            return None
        is_any = acl_filter.resource_type == ResourceType.ANY
        types: Iterable[int] = self._lengths if is_any else (acl_filter.resource_type,)
        patterns = ((kind, *pattern) for kind in types for pattern in self._named(kind, name, acl_filter.pattern_type))
        return (item for pattern in patterns for item in self._by_pattern.get(pattern, {}).items())

    def _named(self, resource_type: int, name: str, pattern_type: int) -> list[Pattern]:
        if pattern_type == PatternType.MATCH:
            return self.patterns_of(resource_type, name)
        return [(True, name), (False, name)]

    def _count_length(self, resource_type: int, length: int, change: int) -> None:
        count = self._lengths_in_use.get((resource_type, length), 0)
        self._lengths_in_use[resource_type, length] = count + change
        lengths = self._lengths[resource_type]
        if count == 0:
            insort(lengths, length, key=neg)
        elif count + change == 0:
            del self._lengths_in_use[resource_type, length]
            del lengths[bisect_left(lengths, -length, key=neg)]
