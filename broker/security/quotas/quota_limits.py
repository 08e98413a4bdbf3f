"""QuotaLimits: the limits of one kind of quota by entity, and which of them counts for a client. Kafka's order, the first that is set:

1. user and client id
2. user and the default client id
3. user
4. the default user and client id
5. the default user and the default client id
6. the default user
7. client id
8. the default client id

Clients that share a limit's *tags* share its rate: those of a user-and-client-id limit have both in their tags, those of a user limit have
the user alone, and so on. Where one level alone is in use, Kafka takes its tags for every client, and so does this.

As in Kafka a client with an empty client id is bound only by limits of users and of the default user: an empty tag means "not part of it".

Source: ClientQuotaManager.DefaultQuotaCallback and its updateQuotaTypes.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT = None
ABSENT = ""


class QuotaScope(NamedTuple):
    """What a limit is for. Each part is a name, DEFAULT or ABSENT."""

    user: str | None
    client_id: str | None


class QuotaTags(NamedTuple):
    """Whose rate is measured together: a user, a client id or both; the other is empty. The names as the clients told them."""

    user: str
    client_id: str


_DEFAULT_USER_AND_CLIENT = QuotaScope(DEFAULT, DEFAULT)
_DEFAULT_USER = QuotaScope(DEFAULT, ABSENT)


class QuotaLimits:
    """Owner: ClientSensors. `is_empty` says that no client has a limit."""

    __slots__ = ("_clients_count", "_limits", "_users_count", "is_empty")

    def __init__(self) -> None:
        self._limits: dict[QuotaScope, float] = {}
        self._users_count = 0
        self._clients_count = 0
        self.is_empty = True

    def set(self, scope: QuotaScope, limit: float | None) -> None:
        """Set the limit of `scope`; None removes it. At least one of the scope's parts is not ABSENT."""
        if (scope in self._limits) != (limit is not None):
            step = -1 if limit is None else 1
            self._users_count += step * (scope.client_id == ABSENT)
            self._clients_count += step * (scope.user == ABSENT)
        if limit is None:
            self._limits.pop(scope, None)
        else:
            self._limits[scope] = limit
        self.is_empty = not self._limits

    def tags_of(self, user: str, client_id: str) -> QuotaTags:
        """Returns the tags by which the client's rate is measured."""
        if self._clients_count == len(self._limits):
            return QuotaTags(ABSENT, client_id)
        if self._users_count == len(self._limits):
            return QuotaTags(user, ABSENT)
        if not self._users_count and not self._clients_count:
            return QuotaTags(user, client_id)
        limits = self._limits
        if QuotaScope(user, client_id) in limits or QuotaScope(user, DEFAULT) in limits:
            return QuotaTags(user, client_id)
        if QuotaScope(user, ABSENT) in limits:
            return QuotaTags(user, ABSENT)
        if QuotaScope(DEFAULT, client_id) in limits or _DEFAULT_USER_AND_CLIENT in limits:
            return QuotaTags(user, client_id)
        return QuotaTags(user, ABSENT) if _DEFAULT_USER in limits else QuotaTags(ABSENT, client_id)

    def find(self, tags: QuotaTags) -> float | None:
        """Returns the limit of those who have these tags; None if they have none."""
        user, client_id = tags
        scopes: tuple[QuotaScope, ...]
        if user and client_id:
            scopes = (QuotaScope(user, client_id), QuotaScope(user, DEFAULT), QuotaScope(DEFAULT, client_id), _DEFAULT_USER_AND_CLIENT)
        elif user:
            scopes = (QuotaScope(user, ABSENT), _DEFAULT_USER)
        elif client_id:
            scopes = (QuotaScope(ABSENT, client_id), QuotaScope(ABSENT, DEFAULT))
        else:
            return None
        for scope in scopes:
            limit = self._limits.get(scope)
            if limit is not None:
                return limit
        return None
