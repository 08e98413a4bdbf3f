"""The controller's decisions about ACLs: CreateAcls and DeleteAcls. Pure.

A request's records are appended together, as in Kafka: none of its denials is missing where one of its permissions counts.

Source: AclControlManager, AclApis.
"""

from __future__ import annotations

import random

from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, STEP_ELEMENTS, Pace, Steps
from broker.metadata.cluster_state import ClusterState
from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType, known
from broker.security.authorizer.acl_requests import acl_of, check_codes, filter_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.stored.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.uuids import random_uuid

SCANNED_PER_ELEMENT = 20
"""ACLs that a filter without a resource's name looks at in the time of an element of a step."""


class AclControl:
    """Computes the records of changes of ACLs. Reads `state`, never changes it; `random_source` draws ids."""

    def __init__(self, state: ClusterState, random_source: random.Random) -> None:
        self._state = state
        self._random = random_source

    def create_acls(self, request: CreateAclsRequest) -> Steps[CreateAclsResponse]:
        """Each ACL is created or refused on its own; for one that exists the answer is as if it had been created.

        Raises KafkaError: POLICY_VIOLATION for more than RECORDS_PER_OPERATION_MAX new ACLs, INVALID_REQUEST for a code 0."""
        acls = [acl_of(creation) for creation in request.creations]
        check_codes(acls)
        existing = self._state.acls
        version = existing.version
        pace = Pace()
        results = []
        created: dict[Acl, AccessControlEntryRecord] = {}
        for acl in acls:
            try:
                check_new_acl(acl)
            except KafkaError as error:
                results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            else:
                results.append(AclCreationResult())
                if acl not in created and acl not in existing:
                    created[acl] = acl.to_record(self._new_id())
            if len(created) > RECORDS_PER_OPERATION_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            if pace.is_due():
                yield []
        is_unchanged = existing.version == version
        yield [record for acl, record in created.items() if is_unchanged or acl not in existing]  # others may have created it meanwhile
        return CreateAclsResponse(results=results)

    def delete_acls(self, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
        """Each filter is answered with what it selects before the request, also what another of its filters selects.

        Raises KafkaError INVALID_REQUEST for more than RECORDS_PER_OPERATION_MAX deleted ACLs, then none is, and for a code 0."""
        filters = [filter_of(each) for each in request.filters]
        check_codes(filters)
        existing = self._state.acls
        version = existing.version
        pace = Pace()
        results = []
        deleted: dict[bytes, RemoveAccessControlEntryRecord] = {}
        for acl_filter in filters:
            results.append(self._delete(acl_filter, deleted))
            if pace.is_due(self._elements_of(acl_filter, len(results[-1].matching_acls))):
                yield []
        is_unchanged = existing.version == version
        yield [record for acl_id, record in deleted.items() if is_unchanged or acl_id in existing.by_id]  # others may have deleted it
        return DeleteAclsResponse(filter_results=results)

    def _delete(self, acl_filter: AclFilter, deleted: dict[bytes, RemoveAccessControlEntryRecord]) -> DeleteAclsFilterResult:
        """Adds the records that delete what the filter selects to `deleted`, and returns its answer."""
        try:
            check_filter(acl_filter)
        except KafkaError as error:
            return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
        matching = []
        for acl_id, acl in self._state.acls.find(acl_filter):
            if len(deleted) >= RECORDS_PER_OPERATION_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Cannot remove more than {RECORDS_PER_OPERATION_MAX} acls in a single delete operation."
                )
            deleted[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
            matching.append(_told(acl))
        return DeleteAclsFilterResult(error_message=None, matching_acls=matching)

    def _elements_of(self, acl_filter: AclFilter, matching_count: int) -> int:
        scanned = len(self._state.acls) if acl_filter.resource_name is None else 0
        return min(1 + matching_count + scanned // SCANNED_PER_ELEMENT, STEP_ELEMENTS)

    def _new_id(self) -> bytes:
        while True:
            acl_id = random_uuid(self._random.getrandbits)
            if acl_id not in self._state.acls.by_id:
                return acl_id


def check_new_acl(acl: Acl) -> None:
    """Raises KafkaError INVALID_REQUEST for an ACL that cannot be created (AclControlManager.validateNewAcl, AclApis.handleCreateAcls)."""
    resource_type, pattern_type = known(ResourceType, acl.resource_type), known(PatternType, acl.pattern_type)
    operation, permission_type = known(AclOperation, acl.operation), known(AclPermissionType, acl.permission_type)
    if resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {resource_type.name}")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {operation.name}")
    if permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {permission_type.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from the principal name)"
        )


def check_filter(acl_filter: AclFilter) -> None:
    """Raises KafkaError INVALID_REQUEST for a filter with a code that is not declared (AclControlManager.validateFilter)."""
    if acl_filter.has_unknown_pattern:
        raise _invalid("Unknown patternFilter.")
    if acl_filter.has_unknown_entry:
        raise _invalid("Unknown entryFilter.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _told(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
