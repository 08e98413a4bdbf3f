"""AuthorizedController: the controller in this process as clients may use it. It is the only way to the LocalController for requests, both
for those of this process's broker and for those that came by a controller listener, in an Envelope or without one.

Each request of a client is checked with the principal and the address of that client, by CONTROLLER_RIGHTS. A node that is not the active
controller checks nothing: its ACLs may be old, and the request is answered with NOT_CONTROLLER. What the broker in this process asks for
itself has no client, and is not checked.

Source: kafka.server.ControllerApis, AclApis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.controller.topic_selection import find_duplicates
from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from broker.metadata.image import CLUSTER_METADATA_TOPIC
from broker.security.authorizer.access import AUTHORIZATION_MESSAGES, REFUSALS, Access
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, ResourceType
from broker.security.authorizer.rights import CONTROLLER_RIGHTS
from protocol.apis import DECLARED
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.controller.local_controller import LocalController
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

NO_AUTHORIZER = "No Authorizer is configured."

NAMES_AT_ONCE = 500
"""Rights that are decided before other work has its turn, 2 to 10 µs each."""

USE_DEFAULT = -1
NO_TIMESTAMP = -1

CONFIG_RESOURCES = {
    RESOURCE_BROKER: ResourceType.CLUSTER,
    RESOURCE_CLIENT_METRICS: ResourceType.CLUSTER,
    RESOURCE_TOPIC: ResourceType.TOPIC,
    RESOURCE_GROUP: ResourceType.GROUP,
}
"""What a right to alter configs is on, by the type of the resource that has them."""


class AuthorizedController:
    """Satisfies ControllerChannel. `has_authorizer`: whether there are ACLs to create and delete."""

    def __init__(self, local: LocalController, *, has_authorizer: bool) -> None:
        self._local = local
        self._has_authorizer = has_authorizer

    # Requests of clients.

    async def create_topics(
        self, request: CreateTopicsRequest, client: RequestContext | None, *, is_automatic: bool = False
    ) -> CreateTopicsResponse:
        """`client` is None for topics that the broker in this process creates itself."""
        if client is None or client.access.is_open:
            return await self._local.create_topics(request, client, is_automatic=is_automatic)
        self._local.check_active()
        access, duplicates = client.access, find_duplicates(request.topics, attrgetter("name"))
        names = [topic.name for topic in request.topics if topic.name not in duplicates and topic.name != CLUSTER_METADATA_TOPIC]
        if access.allows_on_cluster(AclOperation.CREATE, is_logged=False):
            denied = set[str]()
        else:
            denied = set(names) - await _allowed(access, AclOperation.CREATE, names)
        describable = await _allowed(access, AclOperation.DESCRIBE_CONFIGS, names, is_logged=False)
        kept = request if not denied else _with_topics(request, [topic for topic in request.topics if topic.name not in denied])
        response = await self._local.create_topics(kept, client, is_automatic=is_automatic)
        for result in response.topics:
            if not result.error_code and result.name not in describable:
                _hide_configs(result)
        response.topics += _refused_creations(denied)
        return response

    async def delete_topics(self, request: DeleteTopicsRequest, version: int, client: RequestContext) -> DeleteTopicsResponse:
        return await self._local.delete_topics(request, version, client, client.access)

    async def create_partitions(self, request: CreatePartitionsRequest, client: RequestContext) -> CreatePartitionsResponse:
        if client.access.is_open:
            return await self._local.create_partitions(request, client)
        from protocol.messages.create_partitions import CreatePartitionsTopicResult

        self._local.check_active()
        duplicates = find_duplicates(request.topics, attrgetter("name"))
        names = [topic.name for topic in request.topics if topic.name not in duplicates]
        denied = set(names) - await _allowed(client.access, AclOperation.ALTER, names)
        kept = request if not denied else _with_topics(request, [topic for topic in request.topics if topic.name not in denied])
        response = await self._local.create_partitions(kept, client)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.results += [CreatePartitionsTopicResult(name=name, error_code=code, error_message=None) for name in sorted(denied)]
        return response

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        refused = await self._refused_configs(request, client)
        response = await self._local.incremental_alter_configs(_without(request, refused), client)
        if refused:
            from protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse

            _insert(request, refused, response, AlterConfigsResourceResponse)
        return response

    async def alter_configs(self, request: AlterConfigsRequest, client: RequestContext) -> AlterConfigsResponse:
        refused = await self._refused_configs(request, client)
        response = await self._local.alter_configs(_without(request, refused), client)
        if refused:
            from protocol.messages.alter_configs import AlterConfigsResourceResponse

            _insert(request, refused, response, AlterConfigsResourceResponse)
        return response

    async def alter_client_quotas(self, request: AlterClientQuotasRequest, client: RequestContext) -> AlterClientQuotasResponse:
        self._check(client)
        return await self._local.alter_client_quotas(request, client)

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, client: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        self._check(client)
        return await self._local.alter_user_scram_credentials(request, client)

    async def create_acls(self, request: CreateAclsRequest, client: RequestContext) -> CreateAclsResponse:
        """Raises KafkaError SECURITY_DISABLED without an authorizer."""
        self._check(client)
        self._check_has_authorizer()
        return await self._local.create_acls(request, client)

    async def delete_acls(self, request: DeleteAclsRequest, client: RequestContext) -> DeleteAclsResponse:
        """Raises KafkaError SECURITY_DISABLED without an authorizer."""
        self._check(client)
        self._check_has_authorizer()
        return await self._local.delete_acls(request, client)

    async def create_delegation_token(self, request: CreateDelegationTokenRequest, client: RequestContext) -> CreateDelegationTokenResponse:
        self._local.check_active()
        from broker.controller.token_control import described_owners, owner_of

        requester = client.connection.principal
        owner = owner_of(request, requester)
        if owner != requester and not client.access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
            refused = described_owners(owner, requester, client.api_version)
            refused.error_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            refused.issue_timestamp_ms = refused.expiry_timestamp_ms = refused.max_timestamp_ms = NO_TIMESTAMP
            return refused
        return await self._local.create_delegation_token(request, client)

    async def renew_delegation_token(self, request: RenewDelegationTokenRequest, client: RequestContext) -> RenewDelegationTokenResponse:
        return await self._local.renew_delegation_token(request, client)

    async def expire_delegation_token(self, request: ExpireDelegationTokenRequest, client: RequestContext) -> ExpireDelegationTokenResponse:
        return await self._local.expire_delegation_token(request, client)

    async def elect_leaders(self, request: ElectLeadersRequest, client: RequestContext) -> ElectLeadersResponse:
        self._check(client)
        return await self._local.elect_leaders(request, client)

    async def unregister_broker(self, request: UnregisterBrokerRequest, client: RequestContext) -> UnregisterBrokerResponse:
        self._check(client)
        return await self._local.unregister_broker(request, client)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, client: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        self._check(client)
        return await self._local.alter_partition_reassignments(request, client)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        self._check(client)
        return await self._local.list_partition_reassignments(request, client)

    async def update_features(self, request: UpdateFeaturesRequest, client: RequestContext) -> UpdateFeaturesResponse:
        self._check(client)
        return await self._local.update_features(request, client)

    async def ask_quorum(self, request: Any, client: RequestContext) -> Any:
        """On controller listeners dispatch checks these APIs, since a follower of the quorum answers some of them too."""
        self._check(client)
        return await self._local.ask_quorum(request, client)

    # Requests of brokers and controllers: dispatch has checked them, or they are this process's own.

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        return await self._local.register_controller(request)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._local.allocate_producer_ids(request)

    async def register_broker(self, request: BrokerRegistrationRequest, client: RequestContext | None = None) -> BrokerRegistrationResponse:
        return await self._local.register_broker(request, client)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse:
        return await self._local.broker_heartbeat(request, client)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._local.assign_replicas_to_dirs(request)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._local.alter_partition(request)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, client: RequestContext) -> None:
        """Raises KafkaError: NOT_CONTROLLER, or CLUSTER_AUTHORIZATION_FAILED unless the client has the right on the cluster that its
        request needs."""
        self._local.check_active()
        client.access.require_on_cluster(CONTROLLER_RIGHTS[DECLARED[client.api_key].name].cluster)

    def _check_has_authorizer(self) -> None:
        if not self._has_authorizer:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)

    async def _refused_configs(self, request: Any, client: RequestContext) -> dict[int, ErrorCode]:
        """Returns the errors of the resources whose configs the client may not alter, by their places in the request. One that is named
        twice is refused otherwise."""
        if client.access.is_open:
            return {}
        self._local.check_active()
        twice = find_duplicates(request.resources, attrgetter("resource_type", "resource_name"))
        refused: dict[int, ErrorCode] = {}
        for place, resource in enumerate(request.resources):
            kind = CONFIG_RESOURCES.get(resource.resource_type)
            if kind is None or (resource.resource_type, resource.resource_name) in twice:
                continue
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            if not client.access.allows(AclOperation.ALTER_CONFIGS, kind, name):
                refused[place] = REFUSALS[kind]
            if place % NAMES_AT_ONCE == NAMES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return refused


async def _allowed(access: Access, operation: AclOperation, names: Iterable[str], *, is_logged: bool = True) -> set[str]:
    """As Access.allowed, for topics; other work has its turn between many names."""
    allowed: set[str] = set()
    for place, name in enumerate(dict.fromkeys(names)):
        if access.allows(operation, ResourceType.TOPIC, name, is_logged=is_logged):
            allowed.add(name)
        if place % NAMES_AT_ONCE == NAMES_AT_ONCE - 1:
            await asyncio.sleep(0)
    return allowed


def _with_topics(request: Any, topics: list[Any]) -> Any:
    return type(request)(topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only)


def _refused_creations(denied: set[str]) -> list[Any]:
    from protocol.messages.create_topics import CreatableTopicResult

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [CreatableTopicResult(name=name, error_code=code, error_message="Authorization failed.") for name in sorted(denied)]


def _hide_configs(result: Any) -> None:
    """The client may create the topic, but not see its configs (ReplicationControlManager.createTopic)."""
    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result.num_partitions = result.replication_factor = USE_DEFAULT
    result.configs = []


def _without(request: Any, refused: dict[int, ErrorCode]) -> Any:
    if not refused:
        return request
    kept = [resource for place, resource in enumerate(request.resources) if place not in refused]
    return type(request)(resources=kept, validate_only=request.validate_only)


def _insert(request: Any, refused: dict[int, ErrorCode], response: Any, answer_class: type[Any]) -> None:
    """Put the answers of refused resources to their places in the request."""
    answered = iter(response.responses)
    response.responses = [
        next(answered)
        if place not in refused
        else answer_class(
            error_code=refused[place],
            error_message=AUTHORIZATION_MESSAGES[refused[place]],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for place, resource in enumerate(request.resources)
    ]
