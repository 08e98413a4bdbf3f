"""Access: what the client of one request may do. Handlers ask it; what they have to ask is in rights.py.

OPEN_ACCESS, for nodes without an authorizer, allows everything. It keeps nothing, so all requests share it.

Source: kafka.server.AuthHelper, AclEntry.supportedOperations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, ResourceType
from broker.security.authorizer.addresses import java_address_of
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.security.authorizer.authorizer_log import AuthorizerLog
    from broker.security.authorizer.standard_authorizer import StandardAuthorizer

SUPPORTED_OPERATIONS: dict[int, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""What authorized operations tell about (KIP-430)."""

NO_OPERATIONS = 0
ALL_OPERATIONS = {kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()}

REFUSALS: dict[int, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a denial, by what the right is on."""

AUTHORIZATION_MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
"""Kafka's words for them, where an answer has room for words (org.apache.kafka.common.protocol.Errors)."""

HOSTS_KEPT = 4096


class Access:
    """The rights of one principal at one host, for its requests of one API. `is_open`: there is no authorizer, and nothing needs to be
    asked."""

    __slots__ = ("_authorizer", "_host", "_log", "_principal", "_request")

    is_open = False

    def __init__(self, authorizer: StandardAuthorizer, log: AuthorizerLog, principal: str, client_host: str, request: str) -> None:
        """`principal` is `Type:name`, `client_host` an address as the system writes it, `request` the API's name, for the log."""
        self._authorizer = authorizer
        self._log = log
        self._principal = principal
        self._host = _host_of(client_host)
        self._request = request

    def is_for(self, principal: str, request: str) -> bool:
        """Whether it is the access of this principal, at the same host, for requests of this API."""
        return self._principal is principal and self._request is request

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_logged: bool = True, count: int = 1) -> bool:
        """Whether the client may do this to a resource. Not `is_logged`: a denial only filters an answer, so it is no line of its own.
        `count` says how often the request names the resource. Raises KafkaError UNKNOWN_SERVER_ERROR before the ACLs are loaded."""
        decision = self._authorizer.authorize(self._principal, self._host, operation, resource_type, name)
        log = self._log
        if not decision.is_allowed or log.is_verbose():
            log.note(decision, self._principal, self._host, operation, resource_type, name, self._request, is_logged=is_logged, count=count)
        return decision.is_allowed

    @property
    def rights(self) -> object:
        """Equal for accesses that allow the same: what was found out with one holds for the other. None where everything is allowed."""
        return self._principal, self._host, self._authorizer.acls.version

    def allows_on_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this to at least one resource of the type, whether it exists or not. As in Kafka, not logged."""
        return self._authorizer.authorize_by_type(self._principal, self._host, operation, resource_type).is_allowed

    def allowed(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> Collection[str]:
        """Returns those of `names` to which the client may do this. Each is asked for once."""
        return {name for name in dict.fromkeys(names) if self.allows(operation, resource_type, name, is_logged=is_logged)}

    def refusal(self, operation: AclOperation, resource_type: ResourceType, name: str) -> ErrorCode:
        """Returns the error of a denial; NONE where the operation is allowed."""
        return ErrorCode.NONE if self.allows(operation, resource_type, name) else REFUSALS[resource_type]

    def require(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Raises KafkaError: the error of a denial."""
        if not self.allows(operation, resource_type, name):
            code = REFUSALS[resource_type]
            raise KafkaError(code, AUTHORIZATION_MESSAGES[code])

    def require_on_cluster(self, operations: tuple[AclOperation, ...]) -> None:
        """Raises KafkaError CLUSTER_AUTHORIZATION_FAILED unless the client has one of these rights on the cluster. The denial of the last
        one is logged."""
        if not any(self.allows_on_cluster(operation, is_logged=False) for operation in operations[:-1]) and not self.allows_on_cluster(
            operations[-1]
        ):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{self._request} needs {operations[-1].name} permission on the cluster."
            )

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Returns the bits of the operations that the client may do, by their codes (KIP-430)."""
        bits = NO_OPERATIONS
        for operation in SUPPORTED_OPERATIONS[resource_type]:
            if self.allows(operation, resource_type, name, is_logged=False):
                bits |= 1 << operation
        return bits

    def cluster_operations(self) -> int:
        """The same for the cluster; none for a client that may not DESCRIBE it."""
        if not self.allows_on_cluster(AclOperation.DESCRIBE):
            return NO_OPERATIONS
        return self.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


class _OpenAccess(Access):
    """Everything is allowed."""

    __slots__ = ()

    is_open = True

    def __init__(self) -> None:
        pass

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_logged: bool = True, count: int = 1) -> bool:
        return True

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True

    @property
    def rights(self) -> object:
        return None

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        return ALL_OPERATIONS[resource_type]

    def allowed(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> Collection[str]:
        return names if isinstance(names, set | dict | frozenset) else frozenset(names)


OPEN_ACCESS: Access = _OpenAccess()


@lru_cache(maxsize=HOSTS_KEPT)
def _host_of(client_host: str) -> str:
    """The address as ACLs have it. What is none stays as it is: no ACL of a host is for it."""
    try:
        return java_address_of(client_host)
    except ValueError:
        return client_host
