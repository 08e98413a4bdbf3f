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

from collections.abc import Generator
from typing import Any

from broker.context import RequestContext
from broker.groups.classic_group import GroupState
from broker.groups.descriptions import GroupListing
from broker.pieces import PIECE_ELEMENTS, at_once_or_in_turns, text_pieces
from broker.services import Handler, Services
from broker.turns import Work
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC_TYPE = "classic"
ALL_TYPES = frozenset({CLASSIC_TYPE})
ALL_STATES = frozenset(state.value.lower() for state in GroupState)


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ListGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(request))

    def _answer(request: ListGroupsRequest) -> Work:
        states = yield from _known(request.states_filter, ALL_STATES)
        types = yield from _known(request.types_filter, ALL_TYPES)
        try:
            listings = coordinator.list_groups()
        except KafkaError as e:
            return ListGroupsResponse(error_code=e.code)
        if CLASSIC_TYPE not in types:
            return ListGroupsResponse()
        listed = []
        for piece in listings:
            listed += [_listed(group) for group in piece if group.state.value.lower() in states]
            yield
        return ListGroupsResponse(groups=listed)

    return handle


def _known(names: list[str], known: frozenset[str]) -> Generator[None, None, frozenset[str]]:
    """Which of `known` the names of a filter ask for: all of them if it is empty."""
    found = set[str]()
    for piece in text_pieces(names):
        found |= known.intersection([name.strip().lower() for name in piece])
        if len(piece) == PIECE_ELEMENTS:
            yield
    return frozenset(found) if names else known


def _listed(group: GroupListing) -> ListedGroup:
    return ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state.value, group_type=CLASSIC_TYPE)
