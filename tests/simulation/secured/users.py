"""Users whose requests other worlds do not have: Maker, Visitor and Scout."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.quorum.raft_log import METADATA_TOPIC
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from protocol.messages.metadata import MetadataRequest
from tests.simulation.clients import Address, Client
from tests.simulation.connection import LostError

CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, DESCRIBE_QUORUM_VERSION, CREATE_ACLS_VERSION = 5, 5, 2, 3
METADATA_VERSION = 9
TIMEOUT_MS = 1_500
MADE = "made-"
TOPICS_COUNT = 3
_ANSWERS = frozenset(
    {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICATION_FACTOR}
)


class Maker(Client):
    """Asks for what the active controller decides: topics, the quorum's state, and rights that she must not get. `principal` is who she is:
    the world sets it."""

    principal = ""

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._step()
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0.0, 0.2))

    async def _step(self) -> None:
        self.operations_count += 1
        what = self.draw.random()
        name = f"{MADE}{self.draw.randrange(TOPICS_COUNT)}"
        if what < 0.4:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[])
            response = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CREATE_TOPICS_VERSION)
            self._told(f"created {name}", response.topics[0].error_code)
        elif what < 0.65:
            response = await self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), DELETE_TOPICS_VERSION)
            self._told(f"deleted {name}", response.responses[0].error_code)
        elif what < 0.85:
            described = await self.ask(_quorum_request(), DESCRIBE_QUORUM_VERSION)
            self._told("asked for the quorum", described.error_code)
        else:
            acl = AclCreation(
                resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME, resource_pattern_type=PatternType.LITERAL,
                principal=self.principal, host="*", operation=AclOperation.ALTER, permission_type=AclPermissionType.ALLOW,
            )  # fmt: skip
            response = await self.ask(CreateAclsRequest(creations=[acl]), CREATE_ACLS_VERSION)
            self._told("asked for all rights", response.results[0].error_code)

    def _told(self, what: str, error: int) -> None:
        self.note(f"{what}: {error}")
        if error not in _ANSWERS and error not in self.retried:
            self.unexpected(what, error)


class Visitor(Client):
    """Logs in anew for each request."""

    async def run(self) -> None:
        while not self.is_stopping:
            self.operations_count += 1
            try:
                await self.ask(MetadataRequest(topics=None), METADATA_VERSION)
            except LostError:
                await self.back_off()
            self.close()
            await asyncio.sleep(self.draw.uniform(0.0, 0.15))


class Scout(Client):
    """Asks controllers on their own listeners, also those that have just started."""

    def __init__(self, *arguments: Any, controllers: list[Address]) -> None:
        super().__init__(*arguments)
        self._controllers = controllers

    async def run(self) -> None:
        while not self.is_stopping:
            self.operations_count += 1
            try:
                described = await self.ask(_quorum_request(), DESCRIBE_QUORUM_VERSION, self.draw.choice(self._controllers))
                if described.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    self.loop.trace.cover("asked before the ACLs were loaded")
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0.0, 0.08))


def _quorum_request() -> DescribeQuorumRequest:
    asked = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData()])
    return DescribeQuorumRequest(topics=[asked])
