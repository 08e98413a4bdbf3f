"""ListGroups (key 16): the groups that this broker coordinates.

Serves v0–v5.

Behaviour:
- Every group whose partition of `__consumer_offsets` this broker leads; COORDINATOR_LOAD_IN_PROGRESS while one is loading.
- A group that only ever committed offsets has an empty protocol type.

Version notes:
- v4: states_filter, letter case aside, and group_state (KIP-518).
- v5: types_filter and group_type, "classic" or "consumer" (KIP-848).

Not done: share and streams groups.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.context import RequestContext
from broker.groups.descriptions import CLASSIC_TYPE, CONSUMER_TYPE, GroupListing
from broker.pieces import PIECE_ELEMENTS, at_once_or_in_turns, text_pieces
from broker.services import Handler, Services
from broker.turns import Work
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ListGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(request))

    def _answer(request: ListGroupsRequest) -> Work:
        states = yield from _lowered(request.states_filter)
        types = yield from _lowered(request.types_filter)
        try:
            listings = coordinator.list_groups()
        except KafkaError as e:
            return ListGroupsResponse(error_code=e.code)
        if types and not types & {CLASSIC_TYPE, CONSUMER_TYPE}:
            return ListGroupsResponse()
        listed = []
        for piece in listings:
            listed += [
                _listed(group)
                for group in piece
                if (not types or group.group_type in types) and (not states or group.state.lower() in states)
            ]
            yield
        return ListGroupsResponse(groups=listed)

    return handle


def _lowered(names: list[str]) -> Generator[None, None, frozenset[str]]:
    """The names of a filter, letter case aside; none if it lets everything pass."""
    found = set[str]()
    for piece in text_pieces(names):
        found.update([name.strip().lower() for name in piece])
        if len(piece) == PIECE_ELEMENTS:
            yield
    return frozenset(found)


def _listed(group: GroupListing) -> ListedGroup:
    return ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.group_type)
