"""LocalController: the controller in this process. Requests come by AuthorizedController, which satisfies the ControllerChannel.

A Controller exists while this node leads the quorum. It begins with the committed state and writes the records that a new leader has to
write. When the leadership ends, it is discarded and all waiting operations are answered with NOT_CONTROLLER. An operation computes on the
controller's state; ControllerWrites appends its records and answers it when they are committed. The MetadataCache is updated before the
answer.

Source: kafka.server.ControllerApis, QuorumController.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from broker.controller.broker_failure_watch import BrokerFailureWatch, Prove
from broker.controller.cluster_control import activation_records, controller_registration, producer_id_block
from broker.controller.controller_result import ControllerResult, Steps
from broker.controller.controller_writes import ControllerWrites, ignore_outcome
from broker.controller.periodic_elections import PeriodicElections
from broker.controller.silence_reports import AskOnce, SilenceReports
from broker.controller.token_removal import TokenRemoval
from broker.metadata.change_log import ChangeLog
from broker.observability.limited_log import PARTITION_LINES_INTERVAL_MS, PARTITION_LINES_MAX, LimitedLog
from broker.security.authorizer.access import OPEN_ACCESS, Access
from broker.security.quotas.controller_mutation_quota import ControllerMutationQuotaManager
from broker.security.quotas.mutations import UNCOUNTED, Mutations, Uncounted
from protocol.apis import ListenerKind
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from broker.controller.config_control import ConfigControl
    from broker.controller.controller import Controller
    from broker.controller.decision_log import DecisionLog
    from broker.loop.clock import Clock, Timer
    from broker.loop.deferred import Deferred
    from broker.network.context import RequestContext
    from broker.quorum.quorum import Quorum, SnapshotReader
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

logger = logging.getLogger("barnabas.controller")

Response = TypeVar("Response")

ADD_RAFT_VOTER_KEY = 80

# From these versions on what is over a quota of mutations is refused; what older ones ask for is done, and throttled afterwards (KIP-599).
CREATE_TOPICS_STRICT_VERSION_MIN = 6
DELETE_TOPICS_STRICT_VERSION_MIN = 5
CREATE_PARTITIONS_STRICT_VERSION_MIN = 3


class LocalController:
    """Satisfies QuorumListener, to be registered behind the MetadataPublisher.

    `make_controller` creates a Controller from the committed state. `bootstrap` reads the first records of a new cluster's log.
    `is_alone` means that no other broker can reach this node. Other brokers are probed (with `prove`) and asked (with `ask`) at their
    listener `listener_name`."""

    def __init__(
        self,
        make_controller: Callable[[], Controller],
        quorum: Quorum,
        clock: Clock,
        *,
        node_id: int,
        bootstrap: Callable[[], Sequence[Any]],
        is_alone: bool = True,
        listener_name: str = "",
        prove: Prove | None = None,
        ask: AskOnce | None = None,
        quotas: ControllerMutationQuotaManager | None = None,
    ) -> None:
        self._make_controller = make_controller
        self._bootstrap = bootstrap
        self._is_alone = is_alone
        self._listener_name = listener_name
        self._prove = prove
        self._ask = ask
        self._writes = ControllerWrites(quorum)
        self._broker_failure_watch: BrokerFailureWatch | None = None  # while this node leads, unless it is alone
        self._silence_reports: SilenceReports | None = None  # the same, if `ask` is given
        self._quorum = quorum
        self._node_id = node_id
        self._changes = ChangeLog(clock)
        self._isr_refusals = LimitedLog(logger, clock, lines_max=PARTITION_LINES_MAX, interval_ms=PARTITION_LINES_INTERVAL_MS)
        self._clock = clock
        self.mutation_quotas = ControllerMutationQuotaManager(window_ms=1000, windows_count=11) if quotas is None else quotas
        self._session_check: Timer | None = None
        self._periodic: PeriodicElections | None = None  # while this node leads
        self._token_removal: TokenRemoval | None = None  # the same

    # -- QuorumListener --------------------------------------------------------------------------------------------

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        self._writes.handle_commit(offset)

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        assert not self.is_active, "a leader has everything"

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        if self.is_active:
            self._step_down(KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more."))
        if leader_id == self._node_id:
            self._writes.begin(epoch, self._make_controller())
            try:
                self._begin()
            except KafkaError as error:  # the leadership has ended; the next leader change says so too
                self._step_down(error)

    def _begin(self) -> None:
        state = self._active.state
        bootstrap = [] if state.features else self._bootstrap()
        self._writes.append(activation_records(state, bootstrap, self._active.config.min_insync_replicas), ignore_outcome)
        if self._is_alone:
            for records in self._active.brokers.fence_others(self._node_id):
                self._writes.append(records, ignore_outcome)
        else:
            logger.info("this node is the active controller epoch=%d", self._writes.leadership.epoch)
            self._writes.decisions = self._make_decision_log()
            self._broker_failure_watch = self._make_broker_failure_watch()
            self._broker_failure_watch.probe_all()
            self._silence_reports = self._make_silence_reports()
            self._writes.run(self._active.elections.prepare())
            self._watch_sessions()
        self._periodic = PeriodicElections(self._active, self._clock, self._writes.run)
        self._periodic.begin()
        self._token_removal = TokenRemoval(self._active, self._clock, self._writes.run)
        self._token_removal.begin()

    def fail(self, error: Exception) -> None:
        """Called when the metadata log has failed: nothing more will be committed here."""
        self._step_down(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written."))

    def _step_down(self, why: KafkaError) -> None:
        if self._session_check is not None:
            self._session_check.cancel()
            self._session_check = None
        if self._broker_failure_watch is not None:
            self._broker_failure_watch.end()
            self._broker_failure_watch = None
        if self._silence_reports is not None:
            self._silence_reports.end()
            self._silence_reports = None
        if self._periodic is not None:
            self._periodic.end()
            self._periodic = None
        if self._token_removal is not None:
            self._token_removal.end()
            self._token_removal = None
        epoch = self._writes.end(why)
        if epoch is not None and not self._is_alone:
            logger.info("this node is no longer the active controller epoch=%d", epoch)

    @property
    def is_active(self) -> bool:
        """Whether this node leads the metadata quorum."""
        return self._writes.is_active

    def check_active(self) -> None:
        """Raises KafkaError NOT_CONTROLLER while this node does not lead."""
        self._writes.check_active()

    @property
    def _active(self) -> Controller:
        """Raises KafkaError NOT_CONTROLLER while this node does not lead."""
        return self._writes.leadership.controller

    async def wait_first_records_committed(self) -> None:
        """Returns when the first records of a new leader are committed; for a new cluster these include its features. Returns at once on
        other nodes."""
        if self.is_active:
            await self._writes.submitted(ControllerResult([], None))

    # -- ControllerChannel -----------------------------------------------------------------------------------------

    # Requests of clients. `client` is for the log.

    async def create_topics(
        self, request: CreateTopicsRequest, client: RequestContext | None = None, *, is_automatic: bool = False
    ) -> CreateTopicsResponse:
        with self._logging_refusal("topics not created", client):
            mutations = self._mutations(client, CREATE_TOPICS_STRICT_VERSION_MIN)
            steps = self._active.topics.create_topics(request, mutations.count)
            if is_automatic:
                return await self._writes.append_steps(steps)
            response = await self._writes.append_steps(steps, lambda response: self._changes.topics_created(request, response, client))
            return mutations.tell(response)

    async def delete_topics(
        self, request: DeleteTopicsRequest, version: int, client: RequestContext | None = None, access: Access = OPEN_ACCESS
    ) -> DeleteTopicsResponse:
        with self._logging_refusal("topics not deleted", client):
            mutations = self._mutations(client, DELETE_TOPICS_STRICT_VERSION_MIN)
            steps = self._active.topics.delete_topics(request, version, access, mutations.count)
            response = await self._writes.append_steps(steps, lambda response: self._changes.topics_deleted(response, client))
            return mutations.tell(response)

    async def create_partitions(self, request: CreatePartitionsRequest, client: RequestContext | None = None) -> CreatePartitionsResponse:
        with self._logging_refusal("partitions not added", client):
            mutations = self._mutations(client, CREATE_PARTITIONS_STRICT_VERSION_MIN)
            steps = self._active.topics.create_partitions(request, mutations.count)
            told: Callable[[Any], None] = lambda response: self._changes.partitions_added(request, response, client)  # noqa: E731
            return mutations.tell(await self._writes.append_steps(steps, told))

    def _mutations(self, client: RequestContext | None, strict_version_min: int) -> Uncounted:
        """What counts the partitions that a request creates or deletes. Those of topics that a broker creates itself do not count."""
        if client is None or not self.mutation_quotas.is_enabled:
            return UNCOUNTED
        user = client.connection.principal.partition(":")[2]
        is_strict = client.api_version >= strict_version_min
        return Mutations(self.mutation_quotas, user, client.client_id, self._clock.monotonic_ms, is_strict=is_strict)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext | None = None
    ) -> IncrementalAlterConfigsResponse:
        return await self._alter_configs(
            request, lambda configs: configs.incremental_alter_configs(request, is_direct=_is_direct(client)), client
        )

    async def alter_configs(self, request: AlterConfigsRequest, client: RequestContext | None = None) -> AlterConfigsResponse:
        return await self._alter_configs(request, lambda configs: configs.alter_configs(request, is_direct=_is_direct(client)), client)

    async def _alter_configs(
        self, request: Any, begin: Callable[[ConfigControl], Steps[Response]], client: RequestContext | None
    ) -> Response:
        with self._logging_refusal("configs not changed", client):
            configs = self._active.configs
            altered_before = configs.unclean_elections_altered
            told: Callable[[Any], None] = lambda response: self._changes.configs_altered(request, response, client)  # noqa: E731
            response = await self._writes.append_steps(begin(configs), told)
        if configs.unclean_elections_altered != altered_before:
            self._writes.run(self._active.elections.elect_unclean())  # Kafka does so at the next check, 5 minutes later
        return response

    async def alter_client_quotas(self, request: AlterClientQuotasRequest, client: RequestContext) -> AlterClientQuotasResponse:
        told: Callable[[Any], None] = lambda response: self._changes.client_quotas_altered(request, response, client)  # noqa: E731
        with self._logging_refusal("client quotas not changed", client):
            return await self._writes.append_steps(self._active.client_quotas.alter(request), told)

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, client: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        told: Callable[[Any], None] = lambda response: self._changes.scram_credentials_altered(request, response, client)  # noqa: E731
        with self._logging_refusal("SCRAM credentials not changed", client):
            return await self._writes.append_steps(self._active.scram.alter(request), told)

    async def create_acls(self, request: CreateAclsRequest, client: RequestContext) -> CreateAclsResponse:
        with self._logging_refusal("ACLs not created", client):
            return await self._writes.append_steps(self._active.acls.create_acls(request))

    async def delete_acls(self, request: DeleteAclsRequest, client: RequestContext) -> DeleteAclsResponse:
        with self._logging_refusal("ACLs not deleted", client):
            return await self._writes.append_steps(self._active.acls.delete_acls(request))

    async def create_delegation_token(self, request: CreateDelegationTokenRequest, client: RequestContext) -> CreateDelegationTokenResponse:
        requester, now_ms = client.connection.principal, self._clock.now_ms()
        result = self._active.tokens.create(request, requester, client.api_version, now_ms)
        return await self._change_token("created", result, client)

    async def renew_delegation_token(self, request: RenewDelegationTokenRequest, client: RequestContext) -> RenewDelegationTokenResponse:
        requester, now_ms = client.connection.principal, self._clock.now_ms()
        result = self._active.tokens.renew(request, requester, now_ms)
        return await self._change_token("renewed", result, client)

    async def expire_delegation_token(self, request: ExpireDelegationTokenRequest, client: RequestContext) -> ExpireDelegationTokenResponse:
        requester, now_ms = client.connection.principal, self._clock.now_ms()
        result = self._active.tokens.expire(request, requester, now_ms)
        return await self._change_token("expired", result, client)

    async def _change_token(self, what: str, result: ControllerResult[Response], client: RequestContext) -> Response:
        def log() -> None:
            self._changes.delegation_token_changed(what, result.records, result.response, client)

        response = await self._writes.submitted(result, log)
        log()
        return response

    async def elect_leaders(self, request: ElectLeadersRequest, client: RequestContext | None = None) -> ElectLeadersResponse:
        from broker.controller.election_requests import elect_leaders

        with self._logging_refusal("leaders not elected", client):
            steps = elect_leaders(self._active.state, self._active.elections, request)
            return await self._writes.append_steps(steps)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, client: RequestContext | None = None
    ) -> AlterPartitionReassignmentsResponse:
        with self._logging_refusal("partitions not reassigned", client):
            return await self._writes.append_steps(self._active.reassignments.alter(request))

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext | None = None
    ) -> ListPartitionReassignmentsResponse:
        return await self._writes.append_steps(self._active.reassignments.list(request))

    async def unregister_broker(self, request: UnregisterBrokerRequest, client: RequestContext | None = None) -> UnregisterBrokerResponse:
        from protocol.messages.unregister_broker import UnregisterBrokerResponse

        with self._logging_refusal("broker not unregistered", client):
            await self._writes.append_own(self._active.brokers.unregister(request.broker_id))
        return UnregisterBrokerResponse(error_message=None)

    async def update_features(self, request: UpdateFeaturesRequest, client: RequestContext) -> UpdateFeaturesResponse:
        leadership = self._writes.leadership
        with self._logging_refusal("features not updated", client):
            result = leadership.controller.features.update(request, client.api_version, self._quorum, leadership.epoch)
        if result.response.error_code:
            error = KafkaError(ErrorCode(result.response.error_code), result.response.error_message)
            self._changes.request_refused("features not updated", error, client)
        return await self._writes.submitted(result)

    async def ask_quorum(self, request: Any, client: RequestContext) -> Any:
        self._writes.check_active()
        if self._is_alone and client.api_key == ADD_RAFT_VOTER_KEY:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This node has no controller listener: no other can join its quorum.")
        answer = self._quorum.handle_request(request, client.api_version, client.connection.listener.name)
        return await _outcome_of(answer)

    # Requests of brokers and controllers.

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        return await self._writes.submitted(controller_registration(self._active.state, request))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Returns a block of producer ids that no other broker has."""
        controller = self._active
        broker = controller.brokers.checked(request.broker_id, request.broker_epoch)
        block, records = producer_id_block(controller.state, node_id=broker.node_id, broker_epoch=broker.epoch)
        response = AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.ids_count)
        return await self._writes.submitted(ControllerResult(records, response))

    async def register_broker(self, request: BrokerRegistrationRequest, client: RequestContext | None = None) -> BrokerRegistrationResponse:
        response = await self._writes.append_own(self._active.brokers.register(request, self._next_offset, self._clock.monotonic_ms()))
        self._note_connection(request.broker_id, response.broker_epoch, client)
        return response

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse:
        steps = self._active.brokers.heartbeat(request, self._next_offset, self._clock.monotonic_ms())
        # After the contact was recorded: if the connection has ended meanwhile, its end has to come after the contact.
        self._note_connection(request.broker_id, request.broker_epoch, client)
        if self._silence_reports is not None:
            self._silence_reports.note(request.broker_id, request.silent_brokers)
        return await self._writes.append_own(steps)

    def _next_offset(self) -> int:
        return self._quorum.end_offset

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._writes.submitted(self._active.brokers.assign_replicas(request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._writes.append_own(self._active.partitions.alter_partition(request, self._isr_refusals))

    # -- fencing ---------------------------------------------------------------------------------------------------

    def _watch_sessions(self) -> None:
        """Check the sessions periodically as long as this node leads, also while no broker has a session: fenced brokers come back by
        heartbeats."""
        self._session_check = None
        if not self.is_active:
            return
        controller = self._active
        self._session_check = self._clock.call_later(controller.heartbeats.check_interval_ms, self._watch_sessions)
        for node_id in controller.brokers.find_expired(self._clock.monotonic_ms()):
            logger.warning("fencing broker %d: it has not been heard of for broker.session.timeout.ms", node_id)
            self._fence(node_id)

    def _fence(self, node_id: int) -> None:
        self._writes.run(self._active.brokers.fence(node_id))

    def _make_broker_failure_watch(self) -> BrokerFailureWatch:
        controller = self._active

        def fence(node_id: int) -> None:
            logger.warning("fencing broker %d: its process is gone", node_id)
            self._fence(node_id)

        return BrokerFailureWatch(
            controller.state,
            controller.heartbeats,
            fence,
            node_id=self._node_id,
            listener_name=self._listener_name,
            prove=self._prove,
        )

    def _make_silence_reports(self) -> SilenceReports | None:
        if self._ask is None:
            return None

        def fence(node_id: int) -> None:
            logger.warning("fencing broker %d: it answers nobody", node_id)
            self._fence(node_id)

        controller = self._active
        return SilenceReports(
            controller.state,
            controller.heartbeats,
            fence,
            self._ask,
            self._clock,
            node_id=self._node_id,
            listener_name=self._listener_name,
        )

    def _make_decision_log(self) -> DecisionLog:
        from broker.controller.decision_log import DecisionLog

        return self._writes.decisions or DecisionLog(self._clock)

    def _note_connection(self, node_id: int, epoch: int, client: RequestContext | None) -> None:
        if self._broker_failure_watch is not None and client is not None:
            self._broker_failure_watch.note_connection(node_id, epoch, client.connection)

    async def close(self) -> None:
        """Stop the periodic jobs. Operations end with the quorum."""
        if self._session_check is not None:
            self._session_check.cancel()
        if self._periodic is not None:
            self._periodic.end()
        if self._token_removal is not None:
            self._token_removal.end()
        await self._writes.close()

    @contextmanager
    def _logging_refusal(self, what: str, client: RequestContext | None) -> Iterator[None]:
        """Log a refusal of the whole request."""
        try:
            yield
        except KafkaError as error:
            self._changes.request_refused(what, error, client)
            raise


def _is_direct(client: RequestContext | None) -> bool:
    """Whether the client has sent its request to a controller, not to a broker."""
    if client is None or client.connection.is_forwarded:
        return False
    return client.connection.listener.kind is ListenerKind.CONTROLLER


async def _outcome_of(answer: Deferred) -> Any:
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_done(value: Any) -> None:
        if not outcome.done():
            outcome.set_result(value)

    answer.when_done(on_done)
    value = await outcome
    if isinstance(value, Exception):
        try:
            raise value
        finally:
            del value, outcome  # the traceback holds this frame: a cycle
    return value
