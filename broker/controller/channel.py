"""ControllerChannel: the requests of a broker to the active controller, in this process or in another. Requests and responses are wire
messages.

LocalController is the implementation in this process. The other one sends the messages to the leader of the quorum. So only messages pass
here: no object of the controller, no state, no callback.

Source: org.apache.kafka.server.common.NodeToControllerChannelManager, kafka.server.ControllerApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
    from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
    from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
    from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
    from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
    from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


class ControllerChannel(Protocol):
    """Each operation returns once its records are committed, or raises KafkaError for the whole request: NOT_CONTROLLER when there is no
    active controller at the other end, or none any more. The request may or may not have been executed then.

    `client` is the client for which the broker asks: its principal and address, as an Envelope carries them (KIP-590), and what it may do.
    A client's request always has one. A broker's own requests have a `client` only if they come from another process: the end of that
    connection is a sign of the broker's failure."""

    async def create_topics(
        self, request: CreateTopicsRequest, client: RequestContext | None, *, is_automatic: bool = False
    ) -> CreateTopicsResponse:
        """`client` is None for topics that this broker creates by itself. `is_automatic` means that no client asked to create the topics.
        This broker logs them then, not the controller."""
        ...

    async def delete_topics(self, request: DeleteTopicsRequest, version: int, client: RequestContext) -> DeleteTopicsResponse: ...

    async def create_partitions(self, request: CreatePartitionsRequest, client: RequestContext) -> CreatePartitionsResponse: ...

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext
    ) -> IncrementalAlterConfigsResponse: ...

    async def alter_configs(self, request: AlterConfigsRequest, client: RequestContext) -> AlterConfigsResponse: ...

    async def alter_client_quotas(self, request: AlterClientQuotasRequest, client: RequestContext) -> AlterClientQuotasResponse: ...

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, client: RequestContext
    ) -> AlterUserScramCredentialsResponse: ...

    async def create_acls(self, request: CreateAclsRequest, client: RequestContext) -> CreateAclsResponse: ...

    async def delete_acls(self, request: DeleteAclsRequest, client: RequestContext) -> DeleteAclsResponse: ...

    async def create_delegation_token(
        self, request: CreateDelegationTokenRequest, client: RequestContext
    ) -> CreateDelegationTokenResponse: ...

    async def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, client: RequestContext
    ) -> RenewDelegationTokenResponse: ...

    async def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, client: RequestContext
    ) -> ExpireDelegationTokenResponse: ...

    async def elect_leaders(self, request: ElectLeadersRequest, client: RequestContext) -> ElectLeadersResponse: ...

    async def unregister_broker(self, request: UnregisterBrokerRequest, client: RequestContext) -> UnregisterBrokerResponse: ...

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, client: RequestContext
    ) -> AlterPartitionReassignmentsResponse: ...

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext
    ) -> ListPartitionReassignmentsResponse: ...

    async def update_features(self, request: UpdateFeaturesRequest, client: RequestContext) -> UpdateFeaturesResponse: ...

    async def ask_quorum(self, request: Any, client: RequestContext) -> Any:
        """Returns the response of the metadata quorum's leader to DescribeQuorum, AddRaftVoter or RemoveRaftVoter."""
        ...

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse: ...

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...

    async def register_broker(
        self, request: BrokerRegistrationRequest, client: RequestContext | None = None
    ) -> BrokerRegistrationResponse: ...

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse: ...

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...
