"""ControllerClient: the controller's operations for this broker's handlers, some awaited, some started without waiting.

It knows the controller only as a channel, and the cluster only from the MetadataCache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.cluster.auto_create import AutoTopicCreator
from broker.cluster.producer_ids import ProducerIdManager
from broker.metadata.change_log import ChangeLog
from broker.metadata.image import ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from broker.controller.channel import ControllerChannel
    from broker.loop.clock import Clock
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.network.context import RequestContext
    from config.server import ServerConfig
    from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


class ControllerClient:
    """Handlers await the operations, which are the channel's own; the other methods return at once."""

    def __init__(self, channel: ControllerChannel, metadata: MetadataCache, config: ServerConfig, clock: Clock) -> None:
        self._channel = channel
        self._metadata = metadata
        self.create_topics = channel.create_topics
        self.delete_topics = channel.delete_topics
        self.create_partitions = channel.create_partitions
        self.alter_configs = channel.alter_configs
        self.incremental_alter_configs = channel.incremental_alter_configs
        self.alter_client_quotas = channel.alter_client_quotas
        self.alter_user_scram_credentials = channel.alter_user_scram_credentials
        self.create_delegation_token = channel.create_delegation_token
        self.renew_delegation_token = channel.renew_delegation_token
        self.expire_delegation_token = channel.expire_delegation_token
        self.create_acls = channel.create_acls
        self.delete_acls = channel.delete_acls
        self.elect_leaders = channel.elect_leaders
        self.unregister_broker = channel.unregister_broker
        self.alter_partition_reassignments = channel.alter_partition_reassignments
        self.list_partition_reassignments = channel.list_partition_reassignments
        self.update_features = channel.update_features
        self.ask_quorum = channel.ask_quorum
        self.producer_ids = ProducerIdManager(self.allocate_producer_ids)
        self._auto_creator = AutoTopicCreator(self, config, ChangeLog(clock), clock)
        self._creations: set[asyncio.Task[None]] = set()

    @property
    def alive_brokers_count(self) -> int:
        """How many brokers can get a replica."""
        return sum(not broker.is_fenced for broker in self._metadata.brokers.values())

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Returns a block of producer ids that is assigned to no other broker."""
        epoch = self._metadata.broker_epoch
        if epoch < 0:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker is not registered yet.")
        request = AllocateProducerIdsRequest(broker_id=self._metadata.node_id, broker_epoch=epoch)
        response = await self._channel.allocate_producer_ids(request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    def auto_create(self, names: Sequence[str], client: RequestContext | None = None) -> dict[str, ErrorCode]:
        """Begin to create missing topics for `client`'s Metadata request; returns what to answer for each now."""
        return self._auto_creator.create(names, client)

    def ensure_internal_topic(self, name: str) -> None:
        """Begin to create an internal topic unless it exists or is being created. Its coordinator answers "not available" meanwhile."""
        if name not in self._metadata.topics:
            self._auto_creator.create([name])

    def prepare_internal_topic(self, name: str, brokers_count: int) -> None:
        """As `ensure_internal_topic`, but it waits until `brokers_count` brokers are unfenced, because no request needs the topic yet.
        With fewer brokers the creation would be refused, or all leaders would be on the first brokers."""
        is_begun = False

        def look(delta: MetadataDelta) -> None:
            nonlocal is_begun
            if not is_begun and self.alive_brokers_count >= brokers_count:
                is_begun = True
                self.ensure_internal_topic(name)

        self._metadata.subscribe(look)

    def begin_creating_topics(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None:
        """Create topics without waiting; `on_done` gets the response, or why there is none."""
        task = asyncio.get_running_loop().create_task(self._create(request, on_done))
        self._creations.add(task)
        task.add_done_callback(self._creations.discard)

    async def _create(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None:
        try:
            response = await self._channel.create_topics(request, None, is_automatic=True)
        except KafkaError as error:
            on_done(error)  # not kept in a variable: the traceback holds this frame, which would be a cycle
        else:
            on_done(response)

    async def close(self) -> None:
        """Stop the tasks that this object owns."""
        self._auto_creator.close()
        for task in self._creations:
            task.cancel()
        await asyncio.gather(*self._creations, return_exceptions=True)
        await self.producer_ids.close()
