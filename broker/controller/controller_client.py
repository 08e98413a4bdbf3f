"""ControllerClient: how the broker's handlers ask the controller for changes. Here the controller lives in the same process.

There is a controller while this node leads the quorum: it begins with the committed state and what a new leader has to write, and is
thrown away with the leadership, when all that waits is answered NOT_CONTROLLER. Every operation computes on the controller's state,
appends its records, and is answered once they are committed, which the MetadataCache hears of first; also an operation without
records waits for those before it, so that no answer is ahead of the cache. Between computing and appending there is no await; long
operations are computed and appended step by step.

Source: NodeToControllerChannelManager and ControllerApis, which this stands in for; QuorumController.appendWriteEvent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from broker.clock import Clock
from broker.context import RequestContext
from broker.controller.cluster_control import (
    LocalReplicas,
    activation_records,
    election_records,
    fencing_records,
    loss_records,
    producer_id_block,
    registration_records,
)
from broker.controller.controller import Controller
from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, ControllerResult, Steps
from broker.controller.topic_control import PARTITIONS_AT_ONCE
from broker.loop_job import OnBusy, nobody
from broker.metadata.auto_create import AutoTopicCreator
from broker.metadata.change_log import ChangeLog, Telling
from broker.metadata.image import ProducerIdBlock
from broker.metadata.producer_ids import ProducerIdManager
from broker.quorum.quorum import Quorum, SnapshotReader
from config.endpoints import Endpoint
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

Response = TypeVar("Response")

OnCommitted = Callable[[KafkaError | None], None]
"""Called once: with None when a proposal and everything before it is committed and in the cache, or with why it never will be."""

STEPS_AT_ONCE = 2
"""Steps of an operation that are done before others have their turn, 1 to 2 ms each; an operation on few topics has one."""


class _Waiting(NamedTuple):
    offset: int
    on_committed: OnCommitted


class _Leadership:
    """One epoch of this node's: its controller, and who waits for a commit, in the order of the log."""

    def __init__(self, epoch: int, controller: Controller, last_offset: int) -> None:
        self.epoch = epoch
        self.controller = controller
        self.last_offset = self.committed_offset = last_offset
        self.waiting: deque[_Waiting] = deque()

    def end(self, why: KafkaError) -> None:
        waiting, self.waiting = self.waiting, deque()
        for each in waiting:
            each.on_committed(why)


class ControllerClient:
    """Sends operations to the embedded controller. Handlers await its methods; `submit` is for those that cannot wait.

    Satisfies QuorumListener, to be registered behind the MetadataPublisher. `make_controller` makes one of the committed state;
    `bootstrap` reads what a new cluster's log begins with."""

    def __init__(
        self,
        make_controller: Callable[[], Controller],
        quorum: Quorum,
        config: ServerConfig,
        clock: Clock,
        *,
        node_id: int,
        bootstrap: Callable[[], Sequence[Any]],
        on_busy: OnBusy = nobody,
    ) -> None:
        self._make_controller = make_controller
        self._bootstrap = bootstrap
        self._leadership: _Leadership | None = None
        self._quorum = quorum
        self._config = config
        self._node_id = node_id
        self._on_busy = on_busy
        self.producer_ids = ProducerIdManager(self.allocate_producer_ids)
        self._changes = ChangeLog(clock)
        self.auto_creator = AutoTopicCreator(self, config, self._changes, clock)
        self._turn = asyncio.Lock()
        self._creations: set[asyncio.Task[None]] = set()

    @property
    def alive_brokers_count(self) -> int:
        """How many brokers can take a replica."""
        return sum(not broker.is_fenced for broker in self._active.state.brokers.values())

    # -- QuorumListener --------------------------------------------------------------------------------------------

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        leadership.committed_offset = offset
        while leadership.waiting and leadership.waiting[0].offset <= offset:
            leadership.waiting.popleft().on_committed(None)

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        assert self._leadership is None, "a leader has everything"

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        if self._leadership is not None:
            self._step_down(KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more."))
        if leader_id == self._node_id:
            self._leadership = _Leadership(epoch, self._make_controller(), self._quorum.end_offset - 1)
            try:
                self._begin()
            except KafkaError as error:  # it leads no more: the next word of a leader tells so too
                self._step_down(error)

    def _begin(self) -> None:
        state = self._active.state
        self._append(activation_records(state, [] if state.features else self._bootstrap()), _ignore_outcome)
        self._append(fencing_records(state, except_node_id=self._node_id), _ignore_outcome)

    def fail(self, error: Exception) -> None:
        """The metadata log has failed: nothing more will be committed here."""
        self._step_down(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written."))

    def _step_down(self, why: KafkaError) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            leadership.end(why)

    @property
    def _active(self) -> Controller:
        """Raises KafkaError NOT_CONTROLLER while this node does not lead."""
        if self._leadership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        return self._leadership.controller

    # -- this broker -----------------------------------------------------------------------------------------------

    async def activate(
        self,
        *,
        incarnation_id: bytes,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[bytes],
        replicas: LocalReplicas | None = None,
    ) -> None:
        """Register this broker, and elect it. Returns when all that is committed.

        `endpoints` are the advertised listeners for clients, `log_dirs` the online log directories' ids, `replicas` what is
        in them.
        """
        state = self._active.state
        registration = registration_records(
            state,
            node_id=self._node_id,
            broker_epoch=self._quorum.end_offset,
            incarnation_id=incarnation_id,
            endpoints=endpoints,
            rack=self._config.broker_rack,
            log_dirs=log_dirs,
        )
        self._append(registration, _ignore_outcome)
        elections = election_records(state, self._node_id, replicas)
        self._append_all(elections)
        await self._submitted(ControllerResult([], None))

    def lose_replicas(self, lost: Iterable[tuple[str, int]]) -> None:
        """This broker's log directory with these (topic, index) has failed. Without waiting; KafkaError when it cannot be noted."""
        self._append_all(loss_records(self._active.state, self._node_id, lost))

    # What clients ask for. `client` is who asked, for the log.

    async def create_topics(self, request: CreateTopicsRequest, client: RequestContext | None = None) -> CreateTopicsResponse:
        with self._telling("topics not created", client):
            steps = self._active.topics.create_topics_in_steps(request)
            return await self._carried_out(steps, lambda response: self._changes.topics_created(request, response, client))

    async def delete_topics(self, request: DeleteTopicsRequest, version: int, client: RequestContext | None = None) -> DeleteTopicsResponse:
        with self._telling("topics not deleted", client):
            steps = self._active.topics.delete_topics_in_steps(request, version)
            return await self._carried_out(steps, lambda response: self._changes.topics_deleted(response, client))

    async def create_partitions(self, request: CreatePartitionsRequest, client: RequestContext | None = None) -> CreatePartitionsResponse:
        with self._telling("partitions not added", client):
            steps = self._active.topics.create_partitions_in_steps(request)
            return await self._carried_out(steps, lambda response: self._changes.partitions_added(request, response, client))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, client: RequestContext | None = None
    ) -> IncrementalAlterConfigsResponse:
        with self._telling("configs not changed", client):
            steps = self._active.configs.incremental_alter_configs_in_steps(request)
            return await self._carried_out(steps, lambda response: self._changes.configs_altered(request, response, client))

    # What the broker asks for itself.

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids that nobody else has or will have."""
        state = self._active.state
        broker = state.brokers.get(self._node_id)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker is not registered yet.")
        block, records = producer_id_block(state, node_id=self._node_id, broker_epoch=broker.epoch)
        return await self._submitted(ControllerResult(records, block))

    def begin_creating_topics(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None:
        """Create topics without waiting; `on_done` gets the response, or why there is none."""
        try:
            topics = self._active.topics
        except KafkaError as error:
            on_done(error)
            return
        if any(topics.partitions_asked_for(topic) > PARTITIONS_AT_ONCE for topic in request.topics):
            task = asyncio.get_running_loop().create_task(self._create_in_turns(request, on_done))
            self._creations.add(task)
            task.add_done_callback(self._creations.discard)
            return
        try:
            result = topics.create_topics(request)
            self._append(result.records, lambda error: on_done(result.response if error is None else error))
        except KafkaError as error:
            on_done(error)

    async def _create_in_turns(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None:
        try:
            on_done(await self._carried_out(self._active.topics.create_topics_in_steps(request), lambda response: iter(())))
        except KafkaError as error:
            on_done(error)

    def auto_create(self, names: Sequence[str], client: RequestContext | None = None) -> dict[str, ErrorCode]:
        """Begin to create missing topics for `client`'s Metadata request; returns what to answer for each now."""
        return self.auto_creator.create(names, client)

    def ensure_internal_topic(self, name: str) -> None:
        """Begin to create an internal topic unless it is there or on its way; its coordinator answers "not available" meanwhile."""
        if self._leadership is None or name not in self._leadership.controller.state.topics:
            self.auto_creator.create([name])

    async def close(self) -> None:
        """Stop the tasks that this object owns."""
        for task in self._creations:
            task.cancel()
        await asyncio.gather(*self._creations, return_exceptions=True)
        await self.producer_ids.close()

    def _append_all(self, records: Sequence[Any]) -> None:
        """More records than one operation may have, each standing for itself."""
        for start in range(0, len(records), RECORDS_PER_OPERATION_MAX):
            self._append(records[start : start + RECORDS_PER_OPERATION_MAX], _ignore_outcome)

    def _append(self, records: Sequence[Any], on_committed: OnCommitted) -> None:
        """Append to the log and, that done, replay into the controller's state. Without records: wait for what was appended before.

        Raises KafkaError NOT_CONTROLLER while this node does not lead, and then nothing was appended."""
        controller = self._active
        leadership = self._leadership
        assert leadership is not None
        if records:
            leadership.last_offset = self._quorum.propose(leadership.epoch, records)
            try:
                controller.replay(records)
            except Exception:
                # This controller's state is no longer what the log tells; the next begins with the committed one.
                self._quorum.resign(leadership.epoch)
                raise
        if leadership.last_offset <= leadership.committed_offset:
            on_committed(None)
        else:
            leadership.waiting.append(_Waiting(leadership.last_offset, on_committed))

    @contextmanager
    def _telling(self, what: str, client: RequestContext | None) -> Iterator[None]:
        """Log it when the controller refuses a request as a whole."""
        try:
            yield
        except KafkaError as error:
            self._changes.request_refused(what, error, client)
            raise

    async def _carried_out(self, steps: Steps[Response], tell: Callable[[Response], Telling]) -> Response:
        """Append each step's records; the answer when all of them are durable and replayed.

        What has a few steps is done at once. Of longer operations one has a step each turn of the loop, the others wait for it."""
        try:
            response = await self._step_by_step(steps)
            telling = tell(response)
            await self._submitted(ControllerResult([], None), lambda: deque(telling, maxlen=0))
            for _ in telling:
                await asyncio.sleep(0)
            return response
        finally:
            self._on_busy(steps, False)

    async def _step_by_step(self, steps: Steps[Response]) -> Response:
        leadership = self._leadership
        has_turn = False
        steps_count = 0
        try:
            while True:
                if self._leadership is not leadership:
                    # What was appended may be lost, and what is computed on the old state is of no use.
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more.")
                try:
                    records = next(steps)
                except StopIteration as e:
                    response: Response = e.value
                    return response
                if records:
                    self._append(records, _ignore_outcome)
                steps_count += 1
                if steps_count >= STEPS_AT_ONCE:
                    if not has_turn:
                        self._on_busy(steps, True)
                        await self._turn.acquire()
                        has_turn = True
                    await asyncio.sleep(0)
        finally:
            if has_turn:
                self._turn.release()

    async def _submitted(self, result: ControllerResult[Response], on_unwatched: Callable[[], object] | None = None) -> Response:
        """The response, once its records are committed; `on_unwatched` is called then if nobody waits for it any more."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_committed(error: KafkaError | None) -> None:
            # The waiting request may have been cancelled with its connection; the change stands all the same.
            if committed.done():
                if error is None and on_unwatched is not None:
                    on_unwatched()
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        self._append(result.records, on_committed)
        await committed
        return result.response


def _ignore_outcome(error: KafkaError | None) -> None:
    """For proposals whose fate a later proposal tells: they are committed in order, and fail together."""
