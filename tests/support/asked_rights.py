"""Notes what requests ask about their clients' rights, and holds it against the table of rights: a response that left without the asking,
or after another question than the table has, is a failure."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.dispatch import KafkaApis
from broker.network.context import ConnectionFacts
from broker.routes import Route
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.authorizer_log import AuthorizerLog
from broker.security.authorizer.rights import CLIENT_RIGHTS, CONTROLLER_RIGHTS, NOTHING, Checker, Rights
from broker.security.authorizer.standard_authorizer import StandardAuthorizer


class Question(NamedTuple):
    operation: AclOperation
    resource: ResourceType
    is_logged: bool


class NotedAccess(Access):
    """Answers as Access does. `asked` has the questions of the request, but for those about authorized operations."""

    __slots__ = ("asked", "request")

    def __init__(self, authorizer: StandardAuthorizer, log: AuthorizerLog, principal: str, client_host: str, request: str) -> None:
        super().__init__(authorizer, log, principal, client_host, request)
        self.request = request
        self.asked: list[Question] = []

    def is_for(self, principal: str, request: str) -> bool:
        """Each request gets an access of its own."""
        return False

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_logged: bool = True, count: int = 1) -> bool:
        self.asked.append(Question(operation, resource_type, is_logged))
        return super().allows(operation, resource_type, name, is_logged=is_logged, count=count)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        self.asked.append(Question(operation, resource_type, False))
        return super().allows_any(operation, resource_type)

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        before = list(self.asked)
        bits = super().authorized_operations(resource_type, name)
        self.asked = before
        return bits

    def check(self, *, is_of_controller: bool) -> None:
        """Call this when the response is there. AssertionError names the question that is missing, or that the table does not have."""
        lines = _lines(self.request, is_of_controller=is_of_controller)
        for question in self.asked:
            assert any(_has(line, question) for line in lines), f"{self.request} asks for {question}, which the table does not have"
        assert self.asked or lines == [NOTHING], f"a response to {self.request} left without a question about its client's rights"


def _lines(api: str, *, is_of_controller: bool) -> list[Rights]:
    if is_of_controller:
        return [CONTROLLER_RIGHTS[api]]
    line = CLIENT_RIGHTS[api]
    return [line] if line.checked_by is Checker.DISPATCH else [line, CONTROLLER_RIGHTS[api]]


def _has(line: Rights, question: Question) -> bool:
    if question.resource is ResourceType.CLUSTER and question.operation in line.cluster:
        return True
    rights = [right for right in line.named if (right.operation, right.resource) == (question.operation, question.resource)]
    return any(right.is_logged or not question.is_logged for right in rights)


def noted(made: list[NotedAccess]) -> Any:
    """What stands for KafkaApis._access: each access that is made is added to `made`."""

    def access(self: KafkaApis, route: Route, facts: ConnectionFacts) -> Access:
        assert self._authorizer is not None and self._authorizer_log is not None
        made.append(NotedAccess(self._authorizer, self._authorizer_log, facts.principal, facts.client_host, route.api.name))
        return made[-1]

    return access
