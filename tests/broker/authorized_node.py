"""A node with an authorizer in this process, whose dispatch is asked directly, from connections of whoever it is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker.dispatch import KafkaApis
from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.security.authorizer.acl import Acl
from broker.server import server
from config.loading import load_server_config
from config.server import STANDARD_AUTHORIZER
from protocol import codec
from protocol.apis import DECLARED
from protocol.framing import skip_tags
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message
from storage.file_slice import FileSlice
from tests.peers.odd_request import committing, topic
from tests.peers.rights_requests import GROUP, TOPIC, TRANSACTION
from tests.peers.rights_settings import CLIENT_HOST, Setting, creation
from tests.support.asked_rights import NotedAccess, noted
from tests.support.wire import frame

ADMIN = "User:admin"
ATTEMPTS_MAX = 100


class Node:
    """A broker that is its own controller. Requests go to its dispatch, from connections of whoever it is said."""

    def __init__(self, broker: server.Broker, apis: KafkaApis) -> None:
        self.broker = broker
        self.topic_id = bytes(16)
        self.made: list[NotedAccess] = []
        self.muted_ms: list[int] = []
        self._apis = apis

    async def ask(
        self, message: Any, version: int, *, principal: str = ADMIN, client_id: bytes = b"wire-test", is_checked: bool = True
    ) -> Any:
        """The answer. `is_checked`: AssertionError unless the client's rights were asked for. For how long the connection is muted because
        of quotas is in `muted_ms`."""
        key = next(key for key, api in DECLARED.items() if api.request_class is type(message))
        facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), CLIENT_HOST)
        facts.principal = principal
        self.muted_ms = []
        facts.throttle = self.muted_ms.append
        made = self.made
        made.clear()
        outcome = self._apis.handle(memoryview(bytearray(frame(key, version, codec.encode(message, version), client_id=client_id))), facts)
        if isinstance(outcome, Deferred):
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            outcome.when_done(answered.set_result)
            outcome = await asyncio.wait_for(answered, 30)
        if isinstance(outcome, Exception):
            raise outcome
        for access in self.made if is_checked else ():
            access.check(is_of_controller=False)
        data = memoryview(b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in outcome))
        api = DECLARED[key]
        position = skip_tags(data, 8) if api.response_header_version(version) >= 1 else 8
        return codec.decode(api.response_class, version, data, position)[0]

    async def until_ready(self, message: Any, version: int) -> Any:
        for _ in range(ATTEMPTS_MAX):
            answer = await self.ask(message, version)
            if not error_codes(answer) & {3, 14, 15, 16}:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"the node is not ready: {answer}")

    async def prepare(self) -> None:
        await self.until_ready(CreateTopicsRequest(topics=[topic(TOPIC)]), 7)
        await self.until_ready(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        await self.until_ready(FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1), 4)
        await self.until_ready(committing(GROUP, TOPIC, (0, 3)), 9)
        await self.until_ready(InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=1000), 4)
        told = await self.until_ready(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 10)
        self.topic_id = told.topics[0].topic_id

    async def allow(self, *acls: Acl) -> None:
        """Add rules."""
        assert error_codes(await self.ask(CreateAclsRequest(creations=[creation(acl) for acl in acls]), 3)) == {0}

    async def apply(self, setting: Setting) -> None:
        """Give the client these rights and no others."""
        every = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
            operation=1, permission_type=1,
        )  # fmt: skip
        assert error_codes(await self.ask(DeleteAclsRequest(filters=[every]), 3)) == {0}
        await self.allow(*setting.acls())


def error_codes(value: Any) -> set[int]:
    if isinstance(value, Message):
        own = {getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)}
        return (own or {0}).union(*(error_codes(getattr(value, name)) for name in value.__slots__))
    return set[int]().union(*map(error_codes, value)) if isinstance(value, list) else set()


@asynccontextmanager
async def started(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a topic, a group's offset, a transactional id, and no rules yet."""
    config = load_server_config(
        None,
        {},
        [
            f"log.dirs={tmp_path}",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "barnabas.auto.format=true",
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
            f"super.users={ADMIN}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.num.partitions=1",
        ],
    )
    broker = server.Broker(config)
    await broker.start()
    try:
        assert broker._clients is not None and broker._clients._apis is not None
        node = Node(broker, broker._clients._apis)
        with patch.object(KafkaApis, "_access", noted(node.made)):
            await node.prepare()
            yield node
    finally:
        await broker.stop()
