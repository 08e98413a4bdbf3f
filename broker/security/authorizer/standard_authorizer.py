"""StandardAuthorizer: may this principal do this, from this host, to this resource? It decides by super.users and the ACLs of the
metadata log.

What was asked before costs one lookup in a dict until an ACL changes. Principals, hosts and names are the peers' choice, so the number of
kept decisions is bounded, and so is the length of what they are kept for.

Source: StandardAuthorizer, StandardAuthorizerData.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.decision import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SUPER_USER,
    Decision,
    check_by_type,
    decide,
    decide_by_type,
)
from protocol.errors import ErrorCode, KafkaError

GENERATION_SIZE = 8192
"""Decisions of a generation, some 0.3 KB each. Two generations are kept. When the younger one is full, it becomes the older one, and what
is in the older one and was not asked for again goes."""

KEPT_CHARS_MAX = 512
"""The length of principal and resource name, together, up to which a decision is kept. Names of groups may have 32 KB."""

ANY_NAME = "hardcode"
"""The name of the resource that stands for all of its type (Authorizer.authorizeByResourceType)."""

_Question = tuple[str, str, int, int, str | None]


class StandardAuthorizer:
    """Reads `acls`, never changes it. `super_users` are principals as `Type:name`.

    Invariant: the kept decisions are those of the version `_version` of the ACLs."""

    __slots__ = ("_acls", "_older", "_recent", "_super_users", "_version", "_without_acls", "allowed_count", "denied_count", "is_loaded")

    def __init__(self, acls: AclStore, *, super_users: Iterable[str] = (), is_allowed_without_acls: bool = False) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._without_acls = DEFAULT_ALLOW if is_allowed_without_acls else DEFAULT_DENY
        """The answer for a resource that no ACL has to do with (allow.everyone.if.no.acl.found)."""
        self.is_loaded = False
        """Whether `acls` has all ACLs up to the first high watermark. Set by the owner, once (completeInitialLoad)."""
        self.allowed_count = 0
        self.denied_count = 0
        """Decisions about one resource since the start; decisions by type are not counted, as in Kafka."""
        self._recent: dict[_Question, Decision] = {}
        self._older: dict[_Question, Decision] = {}
        self._version = acls.version

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Decides about one operation on one resource. `principal` is `Type:name`, `host` an address as Java writes it (addresses.py).

        Raises KafkaError UNKNOWN_SERVER_ERROR before the ACLs are loaded, except for super users: AuthorizerNotReadyException, for which
        Kafka has no code of its own. Clients try again after it, which they would not after a denial."""
        question = (principal, host, operation, resource_type, name)
        if self._version != self._acls.version:
            self._forget()
        decision = self._recent.get(question)
        if decision is None:
            decision = self._older.get(question) or self._decide(*question)
            self._keep(question, decision)
        if decision.is_allowed:
            self.allowed_count += 1
        else:
            self.denied_count += 1
        return decision

    @property
    def acls(self) -> AclStore:
        """Read-only."""
        return self._acls

    def authorize_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> Decision:
        """Decides whether the operation is allowed on at least one resource of the type.

        Raises ValueError for codes that are for filters or undeclared, else as `authorize`."""
        question = (principal, host, operation, resource_type, None)
        if self._version != self._acls.version:
            self._forget()
        decision = self._recent.get(question)
        if decision is None:
            check_by_type(operation, resource_type)
            decision = self._older.get(question) or self._decide_by_type(principal, host, operation, resource_type)
            self._keep(question, decision)
        return decision

    @property
    def kept_count(self) -> int:
        """The number of decisions that are kept; one that is in both generations counts twice."""
        return len(self._recent) + len(self._older)

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        if principal in self._super_users:
            return SUPER_USER
        if not self.is_loaded:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The authorizer has not loaded the ACLs yet.")
        return decide(self._acls.index, principal, host, operation, resource_type, name, without_acls=self._without_acls)

    def _decide_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> Decision:
        decision = self._decide(principal, host, operation, resource_type, ANY_NAME)
        return decision if decision.is_allowed else decide_by_type(self._acls.index, principal, host, operation, resource_type)

    def _keep(self, question: _Question, decision: Decision) -> None:
        if len(question[0]) + len(question[4] or "") > KEPT_CHARS_MAX:
            return
        if len(self._recent) >= GENERATION_SIZE:
            self._older, self._recent = self._recent, {}
        self._recent[question] = decision

    def _forget(self) -> None:
        self._recent, self._older = {}, {}
        self._version = self._acls.version
