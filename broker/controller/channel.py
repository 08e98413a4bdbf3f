"""ControllerChannel: how a broker asks the active controller, wherever that is. Requests and responses are the wire's messages.

LocalController is the one in this process; another sends the same messages to the leader of the quorum. So nothing else passes here:
no object of the controller's, no state, no callback.

Source: org.apache.kafka.server.common.NodeToControllerChannelManager, kafka.server.ControllerApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
    from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


class ControllerChannel(Protocol):
    """Each operation returns once its records are committed, or raises KafkaError for the whole request: NOT_CONTROLLER when there is
    no active controller at the other end, or none any more; what was asked for may have happened then, or not.

    `client` is whom the broker asks for: its principal and address, as an Envelope carries them (KIP-590). What a broker asks for itself
    comes with it from another process only: the end of its connection says something of the broker."""

    async def create_topics(
        self, request: CreateTopicsRequest, client: RequestContext | None = None, *, is_automatic: bool = False
    ) -> CreateTopicsResponse:
        """`is_automatic`: no client asked to create the topics. They are logged by this broker, not by the controller."""
        ...

    async def delete_topics(
        self, request: DeleteTopicsRequest, version: int, client: RequestContext | None = None
    ) -> DeleteTopicsResponse: ...

    async def create_partitions(
        self, request: CreatePartitionsRequest, client: RequestContext | None = None
    ) -> CreatePartitionsResponse: ...

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext | None = None
    ) -> IncrementalAlterConfigsResponse: ...

    async def alter_configs(self, request: AlterConfigsRequest, client: RequestContext | None = None) -> AlterConfigsResponse: ...

    async def elect_leaders(self, request: ElectLeadersRequest, client: RequestContext | None = None) -> ElectLeadersResponse: ...

    async def unregister_broker(
        self, request: UnregisterBrokerRequest, client: RequestContext | None = None
    ) -> UnregisterBrokerResponse: ...

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, client: RequestContext | None = None
    ) -> AlterPartitionReassignmentsResponse: ...

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext | None = None
    ) -> ListPartitionReassignmentsResponse: ...

    async def update_features(self, request: UpdateFeaturesRequest, client: RequestContext) -> UpdateFeaturesResponse: ...

    async def ask_quorum(self, request: Any, client: RequestContext) -> Any:
        """The response of the metadata quorum's leader: who votes (DescribeQuorum), and changes of that (AddRaftVoter, RemoveRaftVoter)."""
        ...

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse: ...

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...

    async def register_broker(
        self, request: BrokerRegistrationRequest, client: RequestContext | None = None
    ) -> BrokerRegistrationResponse: ...

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse: ...

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...
