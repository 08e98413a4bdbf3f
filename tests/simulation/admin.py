"""An admin that creates and deletes topics, and looks whether the broker keeps its word about them."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.simulation.clients import Client
from tests.simulation.connection import LostError

CREATE_VERSION, DELETE_VERSION, METADATA_VERSION = 5, 5, 9
TIMEOUT_MS = 1_500


class Topic(Enum):
    """What is known of a topic."""

    UNKNOWN = "unknown"  # the outcome of a request was not told
    THERE = "there"
    GONE = "gone"


class Admin(Client):
    """Topics that it creates are its own; `topics` is what the broker must show of them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.topics: dict[str, Topic] = {}
        self._topics_count = 0

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._step()
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(0.05, 0.5))

    async def create(self, name: str, partitions_count: int, configs: dict[str, str], *, replicas_count: int = -1) -> None:
        """Create a topic that the run needs, however often it takes."""
        while True:
            try:
                error = await self._create(name, partitions_count, configs, replicas_count)
            except LostError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            if not self._is_retried(error):
                self.unexpected(f"CreateTopics {name}", error)
                return
            await self.back_off()

    def _is_retried(self, error: int) -> bool:
        """In a cluster brokers may be fenced, or not be registered yet."""
        return error in self.retried or (self.is_of_cluster and error == ErrorCode.INVALID_REPLICATION_FACTOR)

    async def check_topics(self) -> None:
        """Compare what the broker shows with what it acknowledged; raises LostError."""
        expected = dict(self.topics)
        response = await self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION)
        shown = {topic.name for topic in response.topics}
        for name, state in expected.items():
            if self.topics[name] is state and state is not Topic.UNKNOWN and (name in shown) is not (state is Topic.THERE):
                self.history.find("topic-acknowledged", (name, state.value, "shown" if name in shown else "not shown"))

    async def _step(self) -> None:
        what = self.draw.random()
        there = [name for name, state in self.topics.items() if state is Topic.THERE and name.startswith(self.name)]
        self.operations_count += 1
        if what < 0.4 or not self.topics:
            self._topics_count += 1
            name = f"{self.name}.{self._topics_count}"
            error = await self._create(name, self.draw.randint(1, 3), {})
            self.note(f"created {name}: {error}")
        elif what < 0.7 and there:
            name = self.draw.choice(there)
            self.topics[name] = Topic.UNKNOWN
            response = await self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), DELETE_VERSION)
            error = response.responses[0].error_code
            self.note(f"deleted {name}: {error}")
            if error == 0:
                self.topics[name] = Topic.GONE
            elif error not in self.retried:
                self.unexpected(f"DeleteTopics {name}", error)
        elif not self.is_of_cluster:  # there, any broker may be behind
            await self.check_topics()

    async def _create(self, name: str, partitions_count: int, configs: dict[str, str], replicas_count: int = -1) -> int:
        self.topics[name] = Topic.UNKNOWN
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions_count, replication_factor=replicas_count, configs=settings)
        response = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CREATE_VERSION)
        error: int = response.topics[0].error_code
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.topics[name] = Topic.THERE
        elif not self._is_retried(error):
            self.unexpected(f"CreateTopics {name}", error)
        return error
