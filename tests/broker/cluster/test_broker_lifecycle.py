"""What a broker tells the controller of itself, and when."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker.cluster.broker_lifecycle import SHUTDOWN_MAX_MS, BrokerLifecycle, LocalReplicas
from broker.controller.channel import ControllerChannel
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import SUPPORTED
from broker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.broker.metadata.room import LISTENERS, registration
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TOPIC_ID = bytes(15) + b"\x01"
HERE, THERE = bytes([7] * 16), bytes([8] * 16)


@stands_for(ControllerChannel)
class Controller:
    """Remembers what it is asked. Answers `errors` first, heartbeats with `heartbeat_errors`, and that the broker is fenced so many
    times."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: list[ErrorCode] = []
        self.heartbeat_errors: list[ErrorCode] = []
        self.fenced_count = 0
        self.shutdowns_refused = 0
        self.registrations_allowed = asyncio.Event()
        self.registrations_allowed.set()

    def _note(self, request: Any) -> None:
        self.asked.append(request)
        if self.errors:
            raise KafkaError(self.errors.pop(0))

    async def register_broker(self, request: BrokerRegistrationRequest, client: RequestContext | None = None) -> BrokerRegistrationResponse:
        self._note(request)
        await self.registrations_allowed.wait()
        return BrokerRegistrationResponse(broker_epoch=42)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, client: RequestContext | None = None) -> BrokerHeartbeatResponse:
        self._note(request)
        if self.heartbeat_errors:
            raise KafkaError(self.heartbeat_errors.pop(0))
        if request.want_shut_down:
            self.shutdowns_refused -= 1
            return BrokerHeartbeatResponse(should_shut_down=self.shutdowns_refused < 0)
        self.fenced_count -= 1
        return BrokerHeartbeatResponse(is_fenced=self.fenced_count >= 0)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self._note(request)
        return AssignReplicasToDirsResponse()


class World:
    def __init__(self, *, is_alone: bool = True) -> None:
        self.clock = ManualClock()
        self.untold_count = 0
        self.controller: Any = Controller()
        self.metadata = MetadataCache(ClusterState(), cluster_id="cluster", node_id=1, config=ServerConfig())
        self.offset = 50
        self.lifecycle = BrokerLifecycle(
            self.controller,
            self.metadata,
            ServerConfig(),
            self.clock,
            metadata_offset=lambda: self.offset,
            is_alone=is_alone,
            on_untold_directory=self.note_untold,
        )

    def note_untold(self) -> None:
        self.untold_count += 1

    async def start(self, replicas: LocalReplicas | None = None) -> None:
        starting = self.lifecycle.start(incarnation_id=bytes([9] * 16), endpoints=LISTENERS, log_dirs=[HERE], replicas=replicas)
        await self.finish(asyncio.ensure_future(starting))

    async def finish(self, task: asyncio.Future[None]) -> None:
        """Time passes until the task is done."""
        while not task.done():
            await let_run()
            self.clock.advance(0 if task.done() else 100)
        await task

    @property
    def kinds(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.controller.asked]


async def let_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_start_registers_and_heartbeats_until_it_is_unfenced() -> None:
    world = World()
    features = {"metadata.version": 30, "x": 2}
    world.metadata.apply_committed([FeatureLevelRecord(name=name, feature_level=level) for name, level in features.items()])
    world.controller.fenced_count = 2

    await world.start()

    assert world.kinds == ["BrokerRegistration", "BrokerHeartbeat", "BrokerHeartbeat", "BrokerHeartbeat"]
    registration, heartbeat = world.controller.asked[:2]
    assert (registration.broker_id, registration.cluster_id, registration.log_dirs) == (1, "cluster", [HERE])
    assert [(each.name, each.port) for each in registration.listeners] == [("PLAINTEXT", 9092), ("INTERNAL", 19092)]
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in registration.features}
    levels_of_two = ("kraft.version", "eligible.leader.replicas.version", "group.version")
    here = {"metadata.version": (7, 30), "transaction.version": (0, 2)} | dict.fromkeys(levels_of_two, (0, 1))
    assert ranges == here | {"x": (0, 2)}
    assert (heartbeat.broker_epoch, heartbeat.current_metadata_offset) == (42, 50)


async def test_with_other_voters_a_broker_claims_only_what_is_here() -> None:
    """The controller refuses it then: a cluster of several nodes relies on what they claim."""
    world = World(is_alone=False)
    world.metadata.apply_committed(
        [FeatureLevelRecord(name="metadata.version", feature_level=25), FeatureLevelRecord(name="x", feature_level=2)]
    )

    await world.start()

    assert {each.name for each in world.controller.asked[0].features} == set(SUPPORTED)


async def test_a_registration_is_tried_again_until_a_controller_takes_it() -> None:
    world = World()
    world.controller.errors = [ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION]

    await world.start()

    assert world.kinds == ["BrokerRegistration"] * 3 + ["BrokerHeartbeat"]


async def test_a_restarted_broker_waits_for_its_last_session_until_the_registration_timeout() -> None:
    world = World()
    world.controller.errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 10_000

    with pytest.raises(KafkaError) as refused:
        await world.start()

    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    timeout_ms = ServerConfig().initial_broker_registration_timeout_ms
    assert timeout_ms <= world.clock.monotonic_ms() <= timeout_ms + 1_000
    assert len(world.kinds) > timeout_ms // 1_000


async def test_a_registration_that_waits_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """It waits for a session's time, ten tries a second."""
    caplog.set_level(logging.INFO)
    world = World()
    world.controller.errors = [ErrorCode.NOT_CONTROLLER] * 50 + [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 50

    await world.start()

    assert [record.message for record in caplog.records] == [
        f"the registration of this broker is tried again: {error}" for error in ("NOT_CONTROLLER", "DUPLICATE_BROKER_REGISTRATION")
    ]


async def test_features_that_keep_a_broker_out_are_named_with_what_lowers_them() -> None:
    """As Apache Kafka's image formats a cluster. The answer of a controller has no text."""
    world = World(is_alone=False)
    world.metadata.apply_committed([FeatureLevelRecord(name="share.version", feature_level=1)])
    world.controller.errors = [ErrorCode.UNSUPPORTED_VERSION]

    with pytest.raises(KafkaError, match=r"finalized share\.version=1, which .* downgrade --feature share\.version=0$"):
        await world.start()

    assert world.kinds == ["BrokerRegistration"]


async def test_a_registration_that_will_never_do_is_told_at_once() -> None:
    world = World()
    world.controller.errors = [ErrorCode.INCONSISTENT_CLUSTER_ID]

    with pytest.raises(KafkaError):
        await world.start()

    assert world.kinds == ["BrokerRegistration"]


@pytest.mark.parametrize("unheard", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
async def test_a_first_heartbeat_that_the_controller_had_no_time_for_is_sent_again(unheard: ErrorCode) -> None:
    world = World()
    world.controller.heartbeat_errors = [unheard, unheard]
    await world.start()
    assert world.kinds == ["BrokerRegistration", "BrokerHeartbeat", "BrokerHeartbeat", "BrokerHeartbeat"]


async def test_replicas_that_are_elsewhere_are_told_before_the_first_heartbeat() -> None:
    world = World()
    known = enumerate([HERE, UNASSIGNED_DIRECTORY, THERE, UNASSIGNED_DIRECTORY])
    partitions = [
        PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, directories=[each]) for index, each in known
    ]
    world.metadata.apply_committed([TopicRecord(name="t", topic_id=TOPIC_ID), *partitions])

    await world.start(LocalReplicas({("t", 0): HERE, ("t", 1): HERE}, frozenset({HERE}), has_offline_directories=True))

    assert world.kinds == ["BrokerRegistration", "AssignReplicasToDirs", "BrokerHeartbeat"]
    asked = {each.id: [part.partition_index for part in each.topics[0].partitions] for each in world.controller.asked[1].directories}
    assert asked == {HERE: [1], LOST_DIRECTORY: [2, 3]}


async def test_a_heartbeat_is_sent_each_interval_and_says_what_was_lost() -> None:
    world = World()
    world.metadata.apply_committed([TopicRecord(name="t", topic_id=TOPIC_ID)])
    await world.start()
    world.offset = 77
    world.controller.asked.clear()

    for _ in range(2):
        world.clock.advance(2_000)
        await let_run()
    world.lifecycle.lose_directory(HERE, [("t", 0)])
    await let_run()

    assert world.kinds == ["BrokerHeartbeat", "BrokerHeartbeat", "AssignReplicasToDirs", "BrokerHeartbeat"]
    assert world.controller.asked[0].current_metadata_offset == 77
    assert world.controller.asked[2].directories[0].id == LOST_DIRECTORY
    assert world.controller.asked[3].offline_log_dirs == [HERE]


async def test_lost_replicas_are_told_again_until_a_controller_hears_of_them() -> None:
    """It may believe them to be in another directory, which the next heartbeat does not tell of."""
    world = World()
    topic = [TopicRecord(name="t", topic_id=TOPIC_ID), PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1)]
    world.metadata.apply_committed(topic)
    await world.start()
    world.controller.asked.clear()
    world.controller.errors = [ErrorCode.NOT_CONTROLLER] * 2

    world.lifecycle.lose_directory(HERE, [("t", 0)])
    for _ in range(10):
        await let_run()
        world.clock.advance(100)
    await let_run()
    await world.lifecycle.stop()

    told = [request.directories[0].id for request in world.controller.asked if isinstance(request, AssignReplicasToDirsRequest)]
    assert told[:3] == [LOST_DIRECTORY] * 3


@pytest.mark.parametrize("refused_count", [5, 1_000])
async def test_a_broker_that_cannot_tell_of_a_failed_directory_in_time_gives_up(refused_count: int) -> None:
    """log.dir.failure.timeout.ms: the controller would elect nobody else for what is in it."""
    world = World()
    await world.start()
    world.controller.errors = [ErrorCode.NOT_CONTROLLER] * refused_count

    world.lifecycle.lose_directory(HERE, [])
    for _ in range(29):
        world.clock.advance(1_000)
        await let_run()
    assert world.untold_count == 0
    world.clock.advance(1_001)

    assert world.untold_count == (refused_count == 1_000)
    await world.lifecycle.stop()


async def test_a_stop_waits_for_leave_and_no_heartbeat_follows() -> None:
    world = World()
    await world.start()
    world.controller.shutdowns_refused = 2
    world.controller.asked.clear()

    await world.finish(asyncio.ensure_future(world.lifecycle.stop()))
    await world.lifecycle.stop()  # a broker whose start fails half way has it stopped by whoever comes first
    world.clock.advance(10_000)
    await let_run()

    assert [request.want_shut_down for request in world.controller.asked] == [True] * 3


async def test_a_stop_does_not_wait_for_a_controller_that_is_gone() -> None:
    world = World()
    await world.start()
    world.controller.errors = [ErrorCode.NOT_CONTROLLER]
    before_ms = world.clock.monotonic_ms()

    await world.lifecycle.stop()

    assert world.clock.monotonic_ms() == before_ms


async def test_a_stop_that_gets_no_leave_ends() -> None:
    world = World()
    await world.start()
    world.controller.shutdowns_refused = 10**6
    before_ms = world.clock.monotonic_ms()

    await world.finish(asyncio.ensure_future(world.lifecycle.stop()))

    assert world.clock.monotonic_ms() <= before_ms + SHUTDOWN_MAX_MS + 100


async def test_heartbeats_follow_faster_while_another_broker_waits_to_stop() -> None:
    """It waits until every broker has told the controller that it knows who takes over."""
    world = World()
    await world.start()
    world.metadata.apply_committed([*registration(1), *registration(2)])

    async def count_heartbeats(ms: int) -> int:
        world.controller.asked.clear()
        for _ in range(0, ms, 25):
            world.clock.advance(25)
            await let_run()
        return len(world.controller.asked)

    counts = [await count_heartbeats(1_000)]
    world.metadata.apply_committed([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=10, in_controlled_shutdown=1)])
    counts.append(await count_heartbeats(1_000))
    world.metadata.apply_committed([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=10, fenced=1)])
    await count_heartbeats(25)
    counts.append(await count_heartbeats(1_000))

    assert counts == [0, 40, 0]


async def test_a_stop_does_not_wait_for_a_registration_that_is_tried_again() -> None:
    world = World()
    await world.start()
    world.metadata.apply_committed(registration(1))
    world.controller.errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 10_000
    world.metadata.apply_committed([UnregisterBrokerRecord(broker_id=1, broker_epoch=10)])
    await let_run()
    before_ms = world.clock.monotonic_ms()

    await world.finish(asyncio.ensure_future(world.lifecycle.stop()))

    assert world.kinds[1:3] == ["BrokerHeartbeat", "BrokerRegistration"]
    assert world.clock.monotonic_ms() <= before_ms + 1_000


async def test_a_broker_that_is_unregistered_while_it_registers_anew_does_it_once_more() -> None:
    world = World()
    await world.start()
    world.metadata.apply_committed(registration(1))
    world.controller.registrations_allowed.clear()
    for _ in range(2):
        world.metadata.apply_committed([UnregisterBrokerRecord(broker_id=1, broker_epoch=10)])
        await let_run()
        world.metadata.apply_committed(registration(1))

    world.controller.registrations_allowed.set()
    await let_run()

    assert world.kinds.count("BrokerRegistration") == 3


async def test_a_broker_registers_anew_without_the_directories_that_it_has_lost() -> None:
    """Else it would be elected for replicas that are in them."""
    world = World()
    await world.start()
    world.metadata.apply_committed(registration(1))
    world.lifecycle.lose_directory(HERE, [])
    await let_run()

    world.metadata.apply_committed([UnregisterBrokerRecord(broker_id=1, broker_epoch=10)])
    await let_run()

    registrations = [request for request in world.controller.asked if isinstance(request, BrokerRegistrationRequest)]
    assert len(registrations) == 2 and registrations[1].log_dirs == []


def _told(world: World) -> list[list[bytes] | None]:
    return [request.cordoned_log_dirs for request in world.controller.asked if isinstance(request, BrokerHeartbeatRequest)]


async def test_the_controller_hears_at_once_which_directories_are_cordoned() -> None:
    world = World()
    world.metadata.apply_committed([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    starting = world.lifecycle.start(incarnation_id=bytes([9] * 16), endpoints=LISTENERS, log_dirs=[HERE, THERE], cordoned_log_dirs=[THERE])
    await world.finish(asyncio.ensure_future(starting))
    at_start = _told(world)

    world.lifecycle.cordon_directories([THERE, HERE])
    await let_run()
    world.lifecycle.cordon_directories([HERE, THERE])
    await let_run()
    world.lifecycle.cordon_directories([])
    await let_run()

    assert at_start == [[THERE]]
    assert _told(world) == [[THERE], [HERE, THERE], []]
    await world.finish(asyncio.ensure_future(world.lifecycle.stop()))


async def test_it_hears_of_them_once_the_metadata_version_has_them() -> None:
    world = World()
    world.metadata.apply_committed([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    await world.start()
    world.lifecycle.cordon_directories([HERE])
    await let_run()

    world.metadata.apply_committed([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    world.clock.advance(ServerConfig().broker_heartbeat_interval_ms)
    await let_run()

    assert _told(world) == [None, None, [HERE]]
    await world.finish(asyncio.ensure_future(world.lifecycle.stop()))
