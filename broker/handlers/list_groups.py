"""ListGroups (key 16): the groups that this broker coordinates.

Serves v0–v5.

Behaviour:
- Every group whose partition of `__consumer_offsets` this broker leads; COORDINATOR_LOAD_IN_PROGRESS while one is loading.
- A group that only ever committed offsets has an empty protocol type.

Version notes:
- v4: states_filter, letter case aside, and group_state (KIP-518).
- v5: types_filter and group_type; every group here is "classic" (KIP-848).

Not done: share and streams groups.
"""

from __future__ import annotations

from typing import Any

from broker.context import Handler, RequestContext, Services
from broker.groups.classic_group import ClassicGroup
from broker.pieces import at_once_or_in_turns, pieces
from broker.turns import Work
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC_TYPE = "classic"


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ListGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(request))

    def _answer(request: ListGroupsRequest) -> Work:
        states = {state.strip().lower() for state in request.states_filter}
        types = {group_type.strip().lower() for group_type in request.types_filter}
        try:
            groups = coordinator.list_groups()
        except KafkaError as e:
            return ListGroupsResponse(error_code=e.code)
        if types and CLASSIC_TYPE not in types:
            return ListGroupsResponse()
        listed = []
        for piece in pieces(groups):
            listed += [_listed(group) for group in piece if not states or group.state.value.lower() in states]
            yield
        return ListGroupsResponse(groups=listed)

    return handle


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type or "", group_state=group.state.value, group_type=CLASSIC_TYPE
    )
