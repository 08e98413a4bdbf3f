"""ListGroups (key 16): the groups that this broker coordinates.

Serves v0–v5.

Behaviour:
- Every group whose partition of `__consumer_offsets` this broker leads; COORDINATOR_LOAD_IN_PROGRESS while one is loading.
- Without DESCRIBE on the cluster, only groups that the client may DESCRIBE.
- A group that only ever committed offsets has an empty protocol type.

Version notes:
- v4: states_filter, letter case aside, and group_state (KIP-518).
- v5: types_filter and group_type, "classic" or "consumer" (KIP-848).

Not done: share and streams groups.
"""

from __future__ import annotations

from typing import Any

from broker.groups.descriptions import CLASSIC_TYPE, CONSUMER_TYPE, STATES, GroupListing
from broker.handlers.services import Handler, Services
from broker.loop.turns import ELEMENTS_AT_ONCE, Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

TYPES = frozenset({CLASSIC_TYPE, CONSUMER_TYPE})


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ListGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(context.access, request), ELEMENTS_AT_ONCE)

    def _answer(access: Access, request: ListGroupsRequest) -> Work:
        states = _wanted(request.states_filter, STATES)
        types = _wanted(request.types_filter, TYPES)
        try:
            listings = coordinator.list_groups()
        except KafkaError as e:
            return ListGroupsResponse(error_code=e.code)
        if not types:
            return ListGroupsResponse()
        listed = []
        is_everything_visible = access.allows_on_cluster(AclOperation.DESCRIBE, is_logged=False)
        for group in listings:
            if (
                group.group_type in types
                and group.state.lower() in states
                and (is_everything_visible or access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, is_logged=False))
            ):
                listed.append(_listed(group))
            yield
        return ListGroupsResponse(groups=listed)

    return handle


def _wanted(names: list[str], known: frozenset[str]) -> frozenset[str]:
    """Returns the lower-case `known` names that the filter contains, ignoring case; all if it is empty."""
    return known.intersection([name.strip().lower() for name in names]) if names else known


def _listed(group: GroupListing) -> ListedGroup:
    return ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.group_type)
