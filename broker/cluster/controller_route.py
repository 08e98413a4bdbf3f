"""ControllerRoute: the ControllerChannel of a broker in a cluster. It sends requests to the leader of the metadata quorum, in this process
or on another node.

If the controller in this process is the active one, it is called directly, and checks the client's rights as it does for others. Another
node gets the same messages at its controller listener, one request at a time and in order, as in Kafka. For `retry_timeout_ms` a request is
sent again if there is no active controller, or if the asked node is not active or does not answer. A request whose answer was lost may have
been executed the first time.

A client's request travels in an Envelope (KIP-590), with the client's principal and address; the broker's own requests do not.

Source: kafka.server.NodeToControllerChannelManagerImpl, ForwardingManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from broker.cluster.envelope import in_envelope, take_out
from broker.cluster.peer_connections import PeerConnections
from broker.controller.channel import ControllerChannel
from broker.loop.clock import Clock, pause
from broker.network.context import RequestContext
from broker.quorum.driver import QuorumDriver
from protocol.errors import ErrorCode, KafkaError
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

Response = TypeVar("Response")

STOPPING_RETRY_TIMEOUT_MS = 3_000
"""Retries of a broker that stops: enough for the others to elect a new controller, if enough of them are left."""
RETRY_MS = 50
"""Between two tries, as retry.backoff.ms of Kafka's channel begins."""


class ActiveController(NamedTuple):
    """The node that leads the metadata quorum, and the address of its controller listener."""

    node_id: int
    host: str
    port: int


def find_active_controller(quorum: QuorumDriver, node_id: int) -> ActiveController | None:
    """Returns the leader of the quorum that this node, `node_id`, knows and can reach; else None."""
    leader_id = quorum.leader_id
    if leader_id == node_id:
        return ActiveController(node_id, "", 0)
    address = quorum.leader_address
    return None if leader_id < 0 or address is None else ActiveController(leader_id, *address)


class ControllerRoute:
    """Satisfies ControllerChannel. Owns `connections`; `local` is the controller in this process, None where there is none."""

    def __init__(
        self,
        find_active: Callable[[], ActiveController | None],
        connections: PeerConnections,
        clock: Clock,
        *,
        local: ControllerChannel | None,
        node_id: int,
        retry_timeout_ms: int,
    ) -> None:
        self._find_active = find_active
        self._connections = connections
        self._clock = clock
        self._local = local
        self._node_id = node_id
        self._retry_timeout_ms = retry_timeout_ms
        self._turn = asyncio.Lock()

    @property
    def versions(self) -> Mapping[int, tuple[int, int]] | None:
        """The API versions of the active controller, if it is another node that has been asked before: API key → (lowest, highest
        version)."""
        active = self._find_active()
        if active is None or active.node_id == self._node_id:
            return None
        return self._connections.get(active.host, active.port).versions or None

    def shorten_retries(self) -> None:
        """Shorten the timeout of requests, including waiting ones, because this broker is stopping."""
        self._retry_timeout_ms = min(self._retry_timeout_ms, STOPPING_RETRY_TIMEOUT_MS)

    async def close(self) -> None:
        await self._connections.close()

    # -- ControllerChannel -----------------------------------------------------------------------------------------

    async def create_topics(
        self, request: CreateTopicsRequest, client: RequestContext | None, *, is_automatic: bool = False
    ) -> CreateTopicsResponse:
        return await self._ask(request, lambda local: local.create_topics(request, client, is_automatic=is_automatic), client=client)

    async def delete_topics(self, request: DeleteTopicsRequest, version: int, client: RequestContext) -> DeleteTopicsResponse:
        return await self._ask(request, lambda local: local.delete_topics(request, version, client), client=client, version=version)

    async def create_partitions(self, request: CreatePartitionsRequest, client: RequestContext) -> CreatePartitionsResponse:
        return await self._ask(request, lambda local: local.create_partitions(request, client), client=client)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        return await self._ask(request, lambda local: local.incremental_alter_configs(request, client), client=client)

    async def alter_configs(self, request: AlterConfigsRequest, client: RequestContext) -> AlterConfigsResponse:
        return await self._ask(request, lambda local: local.alter_configs(request, client), client=client)

    async def alter_client_quotas(self, request: AlterClientQuotasRequest, client: RequestContext) -> AlterClientQuotasResponse:
        return await self._ask(request, lambda local: local.alter_client_quotas(request, client), client=client)

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, client: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        return await self._ask(request, lambda local: local.alter_user_scram_credentials(request, client), client=client)

    async def create_acls(self, request: CreateAclsRequest, client: RequestContext) -> CreateAclsResponse:
        return await self._ask(request, lambda local: local.create_acls(request, client), client=client)

    async def delete_acls(self, request: DeleteAclsRequest, client: RequestContext) -> DeleteAclsResponse:
        return await self._ask(request, lambda local: local.delete_acls(request, client), client=client)

    async def create_delegation_token(self, request: CreateDelegationTokenRequest, client: RequestContext) -> CreateDelegationTokenResponse:
        return await self._ask(request, lambda local: local.create_delegation_token(request, client), client=client)

    async def renew_delegation_token(self, request: RenewDelegationTokenRequest, client: RequestContext) -> RenewDelegationTokenResponse:
        return await self._ask(request, lambda local: local.renew_delegation_token(request, client), client=client)

    async def expire_delegation_token(self, request: ExpireDelegationTokenRequest, client: RequestContext) -> ExpireDelegationTokenResponse:
        return await self._ask(request, lambda local: local.expire_delegation_token(request, client), client=client)

    async def elect_leaders(self, request: ElectLeadersRequest, client: RequestContext) -> ElectLeadersResponse:
        return await self._ask(request, lambda local: local.elect_leaders(request, client), client=client)

    async def unregister_broker(self, request: UnregisterBrokerRequest, client: RequestContext) -> UnregisterBrokerResponse:
        return await self._ask(request, lambda local: local.unregister_broker(request, client), client=client)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, client: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        return await self._ask(request, lambda local: local.alter_partition_reassignments(request, client), client=client)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        return await self._ask(request, lambda local: local.list_partition_reassignments(request, client), client=client)

    async def update_features(self, request: UpdateFeaturesRequest, client: RequestContext) -> UpdateFeaturesResponse:
        return await self._ask(request, lambda local: local.update_features(request, client), client=client)

    async def ask_quorum(self, request: Any, client: RequestContext) -> Any:
        return await self._ask(request, lambda local: local.ask_quorum(request, client), client=client)

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        return await self._ask(request, lambda local: local.register_controller(request))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._ask(request, lambda local: local.allocate_producer_ids(request))

    async def register_broker(self, request: BrokerRegistrationRequest, client: RequestContext | None = None) -> BrokerRegistrationResponse:
        return await self._ask(request, lambda local: local.register_broker(request, client))

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse:
        return await self._ask(request, lambda local: local.broker_heartbeat(request, client))

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._ask(request, lambda local: local.assign_replicas_to_dirs(request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._ask(request, lambda local: local.alter_partition(request))

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        request: Any,
        ask_local: Callable[[ControllerChannel], Awaitable[Response]],
        *,
        client: RequestContext | None = None,
        version: int | None = None,
    ) -> Response:
        """Returns the response of the active controller. Raises KafkaError as AuthorizedController does. `client` is that whose request it
        is; None for the broker's own."""
        active = self._find_active()
        if self._local is not None and active is not None and active.node_id == self._node_id and not self._turn.locked():
            try:
                return await ask_local(self._local)  # it keeps the order itself, and runs several requests at once
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
        started_ms = self._clock.monotonic_ms()
        async with self._turn:
            while True:
                try:
                    return await self._ask_once(request, ask_local, client, version)
                except KafkaError as error:
                    waited_ms = self._clock.monotonic_ms() - started_ms
                    if error.code is not ErrorCode.NOT_CONTROLLER:
                        raise
                    if waited_ms >= self._retry_timeout_ms:
                        if client is None:
                            raise
                        # The client asked a broker, which is not the controller, so NOT_CONTROLLER is no answer for it. As Kafka does, it
                        # is answered with a timeout.
                        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from error
                await pause(self._clock, RETRY_MS)

    async def _ask_once(
        self,
        request: Any,
        ask_local: Callable[[ControllerChannel], Awaitable[Response]],
        client: RequestContext | None,
        version: int | None,
    ) -> Response:
        active = self._find_active()
        if active is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No active controller is known.")
        if active.node_id == self._node_id:
            if self._local is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no controller.")
            return await ask_local(self._local)
        if client is None:
            response: Response = _checked(await self._answer_of(active, request, version))
        else:
            response = take_out(await self._answer_of(active, in_envelope(request, client), None), client)
        return response

    async def _answer_of(self, active: ActiveController, request: Any, version: int | None) -> Any:
        """Returns the answer; KafkaError NOT_CONTROLLER if there is none. The wait also ends when another node becomes leader: an old
        leader that is paused or partitioned would keep this broker waiting."""
        answers: list[Any | None] = []
        news = asyncio.Event()

        def on_answer(response: Any | None) -> None:
            answers.append(response)
            news.set()

        self._connections.get(active.host, active.port).send(request, on_answer, version=version)
        while not answers:
            timer = self._clock.call_later(RETRY_MS, news.set)
            try:
                await news.wait()
            finally:
                timer.cancel()
            news.clear()
            now_active = self._find_active()
            if not answers and now_active is not None and now_active != active:
                self._connections.drop(active.host, active.port)  # which answers None
        response = answers[0]
        if response is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The active controller, node {active.node_id}, does not answer.")
        return response


def _checked(response: Any) -> Any:
    """Returns `response`. Raises KafkaError if it has an error for the whole request. An API without a field for that has the error in
    each part."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    if code:
        raise KafkaError(ErrorCode(code), getattr(response, "error_message", None) or "")
    parts = next((getattr(response, name) for name in ("topics", "results", "responses") if hasattr(response, name)), ())
    if any(getattr(part, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER for part in parts):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The node that was asked is not the active controller.")
    return response
