"""The quota of request time on each API that clients may send: the table of Kafka's RequestQuotaTest, by a node in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests.broker.authorized_node import ADMIN, Node, error_codes, started
from tests.peers.rights_requests import AT_BROKERS, RightsRequest

LEAST_PERCENT, PLENTY_PERCENT = 0.0001, 2000.0
"""The first is a microsecond of each second, which every request takes."""
ATTEMPTS_MAX = 20
UNLIMITED = b"unlimited"
UNAUTHORIZED = "User:unauthorized"
EXEMPT = {"WriteTxnMarkers"}
"""For who may send them."""
OF_CLIENTS = [request for request in AT_BROKERS if " of a replica" not in request.name]
ONE_OF_EACH_API = list({request.api: request for request in sorted(OF_CLIENTS, key=lambda request: request.version)}.values())
"""In the latest version that there is: early ones cannot tell a throttle time. A follower's Fetch is exempt, for who may send it."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """Each client has next to no time, but one that has plenty."""
    async with started(tmp_path) as node:
        limits = {None: LEAST_PERCENT, UNLIMITED.decode(): PLENTY_PERCENT}
        entries = [
            EntryData(entity=[EntityData(entity_type="client-id", entity_name=name)], ops=[OpData(key="request_percentage", value=value)])
            for name, value in limits.items()
        ]
        assert error_codes(await node.ask(AlterClientQuotasRequest(entries=entries), 1)) == {0}
        yield node


async def is_throttled(node: Node, request: RightsRequest, principal: str, client_id: bytes, *, attempts: int = ATTEMPTS_MAX) -> bool:
    """Whether one of so many requests mutes the connection, and its answer says for how long."""
    for _ in range(attempts):
        message = request.make(node.topic_id)
        answer = await node.ask(message, request.version, principal=principal, client_id=client_id, is_checked=False)
        if node.muted_ms:
            assert getattr(answer, "throttle_time_ms", node.muted_ms[0]) == node.muted_ms[0], request.name
            return True
    return False


@pytest.mark.long("every API, by three clients")
async def test_every_api_is_throttled_also_where_it_is_refused(node: Node) -> None:
    """Each API has a client id of its own, for what one costs mutes the next."""
    throttled, refused, unlimited = set(), set(), set()
    for request in ONE_OF_EACH_API:
        client_id = request.api.encode()
        if await is_throttled(node, request, ADMIN, client_id):
            throttled.add(request.api)
        if await is_throttled(node, request, UNAUTHORIZED, b"refused-" + client_id):
            refused.add(request.api)
        if await is_throttled(node, request, ADMIN, UNLIMITED, attempts=1):
            unlimited.add(request.api)

    apis = {request.api for request in ONE_OF_EACH_API}
    assert throttled == apis - EXEMPT
    assert refused == apis
    assert unlimited == set()
