"""BrokerLifecycle: registers this broker with the controller, sends its heartbeats, and announces a clean stop.

Everything goes through the ControllerChannel, as Kafka's messages. At a start: BrokerRegistration; AssignReplicasToDirs for replicas that
are not in the directory that the metadata says; BrokerHeartbeat until the broker is unfenced, which elects it. Then it sends one heartbeat
per interval.

Source: org.apache.kafka.server.BrokerLifecycleManager, AssignmentsManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.channel import ControllerChannel
from broker.loop.clock import Clock, Timer, pause
from broker.metadata.features import NOT_SUPPORTED, SUPPORTED, knows_cordoned_directories, registered_ranges
from broker.metadata.image import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from broker.metadata.metadata_cache import MetadataCache, MetadataDelta
from config.endpoints import Endpoint
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from broker.cluster.directory_assignments import DirectoryAssignments, ReplicaKey

logger = logging.getLogger("barnabas.lifecycle")

RETRY_MS = 100
"""Between two tries to be heard by the controller."""
FENCED_RETRY_MIN_MS = 10
"""Until the second heartbeat of a broker that is to be unfenced: it hears of its registration in a few milliseconds. Then the wait doubles
with each, up to RETRY_MS."""
UNHEARD = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""There is no controller, or it had no time: Kafka's gives a heartbeat half of broker.heartbeat.interval.ms
(kafka.server.ControllerApis)."""
RETRIED = (*UNHEARD, ErrorCode.DUPLICATE_BROKER_REGISTRATION)
SHUTDOWN_RETRY_MS = 50
"""Between two heartbeats of a controlled shutdown, as after the first of Kafka's."""
SHUTDOWN_MAX_MS = 5_000
"""How long a controlled shutdown waits for leave; Kafka waits for 5 minutes."""
AWAITED_INTERVAL_MS = 25
"""Between heartbeats while another broker shuts down: it may go once every broker has told that it knows who takes over. Kafka's
brokers tell it at their next heartbeat, up to broker.heartbeat.interval.ms later."""
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class LocalReplicas(NamedTuple):
    """Where a broker's replicas are. `directory_ids` has the log directory of each (topic, index) with a log in an online directory. The
    other fields are the ids of all online directories, and whether there are offline ones, which may hold logs that were not found."""

    directory_ids: Mapping[tuple[str, int], bytes]
    online_ids: Collection[bytes]
    has_offline_directories: bool

    def find_directory(self, key: tuple[str, int], known: bytes) -> bytes:
        """Returns the id of the replica's directory, which is `known` in the metadata; LOST_DIRECTORY if it is offline."""
        found = self.directory_ids.get(key)
        if found is not None:
            return found
        if self.has_offline_directories and known not in self.online_ids:
            return LOST_DIRECTORY
        if known in self.online_ids or known in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
            return known
        return UNASSIGNED_DIRECTORY  # the directory is not this broker's any more: the replica is created again


class BrokerLifecycle:
    """Owner: client_server.py. `metadata_offset()` returns the last offset of the metadata log that this broker has read. `is_alone`
    means that its quorum has no other voter. `on_untold_directory` is called when a failed log directory could not be reported to the
    controller for log.dir.failure.timeout.ms: the controller takes its replicas for alive and elects no others. `notices_silence` means
    that `report_silent` will be called."""

    def __init__(
        self,
        channel: ControllerChannel,
        metadata: MetadataCache,
        config: ServerConfig,
        clock: Clock,
        *,
        metadata_offset: Callable[[], int],
        is_alone: bool = True,
        notices_silence: bool = False,
        on_untold_directory: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel = channel
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._metadata_offset = metadata_offset
        self._is_alone = is_alone
        self._notices_silence = notices_silence
        self._silent_brokers: list[int] = []
        self._on_untold_directory = on_untold_directory
        self._epoch = -1
        self._request: BrokerRegistrationRequest | None = None  # the last registration
        self._offline_log_dirs: list[bytes] = []
        self._untold_log_dirs: dict[bytes, Timer] = {}  # failed directories not yet reported, and the timers of their reports
        self._cordoned_log_dirs: list[bytes] = []
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_unregistered = False  # by an operator, while this broker runs
        self._registration_turn = asyncio.Lock()
        self._is_awaited = False  # by another broker that is shutting down
        self._is_closed = False
        self._assignments: DirectoryAssignments | None = None

    # -- the start -------------------------------------------------------------------------------------------------

    async def start(
        self,
        *,
        incarnation_id: bytes,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[bytes],
        replicas: LocalReplicas | None = None,
        previous_epoch: int = -1,
        cordoned_log_dirs: Iterable[bytes] = (),
    ) -> None:
        """Returns when this broker is unfenced and elected, and the cache shows it.

        `endpoints` are the advertised listeners for clients, `log_dirs` the ids of the online log directories, `replicas` the replicas
        in them, `previous_epoch` the broker epoch of the last clean stop, `cordoned_log_dirs` as cordon_directories takes them. Raises
        KafkaError when the controller refuses this broker."""
        self._cordoned_log_dirs = sorted(cordoned_log_dirs)
        self._request = self._registration(incarnation_id, endpoints, log_dirs, previous_epoch)
        self._epoch = await self._register(self._request)
        if replicas is not None:
            await self._assign(self._misplaced(replicas))
        await self._heartbeat_until_unfenced()
        if self._is_closed:
            return
        self._timer = self._clock.call_later(self._config.broker_heartbeat_interval_ms, self._beat)
        self._metadata.subscribe(self._note_brokers)

    async def _register(self, request: BrokerRegistrationRequest) -> int:
        """Returns the broker's epoch. Tries again while there is no controller, or while the session of its last incarnation has not
        ended."""
        deadline_ms = self._clock.monotonic_ms() + self._config.initial_broker_registration_timeout_ms
        told: ErrorCode | None = None
        while True:
            try:
                return (await self._channel.register_broker(request)).broker_epoch
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION and (why := self._refused_features()):
                    raise KafkaError(error.code, why) from error
                if error.code not in RETRIED or self._is_closed or self._clock.monotonic_ms() >= deadline_ms:
                    raise
                if error.code is not told:
                    logger.info("the registration of this broker is tried again: %s", error)
                    told = error.code
            await pause(self._clock, RETRY_MS)

    def _refused_features(self) -> str:
        """Why a controller may have refused this broker, and what to do; "" if it supports all that the metadata has finalized. Apache
        Kafka finalizes share groups and streams groups since 4.2, whether there are any or not."""
        ranges = registered_ranges(notices_silence=False)
        found = {name: level for name, level in self._metadata.state.features.items() if level > ranges.get(name, NOT_SUPPORTED)[1]}
        if not found:
            return ""
        lower = " ".join(f"--feature {name}={ranges.get(name, NOT_SUPPORTED)[1]}" for name in found)
        names = ", ".join(f"{name}={level}" for name, level in found.items())
        return (
            f"the cluster has finalized {names}, which this broker does not support: lower that first, while the nodes that do still run: "
            f"kafka-features.sh --bootstrap-server … downgrade {lower}"
        )

    def _registration(
        self, incarnation_id: bytes, endpoints: Sequence[Endpoint], log_dirs: Sequence[bytes], previous_epoch: int
    ) -> BrokerRegistrationRequest:
        metadata = self._metadata
        ranges = registered_ranges(notices_silence=self._notices_silence)
        if self._is_alone:
            # A node that takes over from Kafka accepts the features that were finalized there, but does not advertise them to clients.
            ranges |= {name: (0, level) for name, level in metadata.state.features.items() if name not in SUPPORTED}
        features = [Feature(name=name, min_supported_version=low, max_supported_version=high) for name, (low, high) in ranges.items()]
        return BrokerRegistrationRequest(
            broker_id=metadata.node_id,
            cluster_id=metadata.cluster_id,
            incarnation_id=incarnation_id,
            listeners=[
                Listener(
                    name=each.listener_name, host=each.host, port=each.port, security_protocol=SECURITY_PROTOCOLS[each.security_protocol]
                )
                for each in endpoints
            ],
            features=features,
            rack=self._config.broker_rack,
            log_dirs=list(log_dirs),
            previous_broker_epoch=previous_epoch,
        )

    def _misplaced(self, replicas: LocalReplicas) -> dict[ReplicaKey, bytes]:
        """Returns the replicas that are in other directories than the metadata says, each with its directory."""
        misplaced: dict[ReplicaKey, bytes] = {}
        node_id = self._metadata.node_id
        for topic in self._metadata.topics.values():
            for index, partition in enumerate(topic.partitions):
                if node_id in partition.replicas and len(partition.directories) == len(partition.replicas):
                    known = partition.directories[partition.replicas.index(node_id)]
                    found = replicas.find_directory((topic.name, index), known)
                    if found != known:
                        misplaced[topic.topic_id, index] = found
        return misplaced

    async def _assign(self, directories: Mapping[ReplicaKey, bytes]) -> None:
        if directories:
            from broker.cluster.directory_assignments import request_of  # late: few starts need it

            await self._channel.assign_replicas_to_dirs(request_of(directories, self._metadata.node_id, self._epoch))

    # -- while it runs ---------------------------------------------------------------------------------------------

    def lose_directory(self, directory_id: bytes, lost: Iterable[tuple[str, int]]) -> None:
        """A log directory has failed, with the `lost` replicas in it (topic and index): this broker must lead none of them until the
        directory is back. Does not wait."""
        self._offline_log_dirs.append(directory_id)
        if not self._is_closed:
            timer = self._clock.call_later(self._config.log_dir_failure_timeout_ms, self._on_untold_directory)
            self._untold_log_dirs[directory_id] = timer
        found = ((self._metadata.topics.get(name), index) for name, index in lost)
        self._begin({(topic.topic_id, index): LOST_DIRECTORY for topic, index in found if topic is not None})

    def cordon_directories(self, directory_ids: Iterable[bytes]) -> None:
        """Report that exactly these log directories are cordoned, that is, get no new replicas (KIP-1066). If the finalized
        metadata.version is too low, they are reported when it is raised. Does not wait."""
        cordoned = sorted(directory_ids)
        if cordoned != self._cordoned_log_dirs:
            self._cordoned_log_dirs = cordoned
            self._begin({})

    def assign_directory(self, topic_id: bytes, index: int, directory_id: bytes, on_accepted: Callable[[], None] | None = None) -> None:
        """As DirectoryAssignments.assign. Does not wait."""
        if self._is_closed:
            return
        if self._assignments is None:
            from broker.cluster.directory_assignments import DirectoryAssignments  # late: few brokers have several log directories

            self._assignments = DirectoryAssignments(self._channel, self._metadata, self._clock, lambda: self._epoch)
        self._assignments.assign((topic_id, index), directory_id, on_accepted)

    def report_silent(self, node_ids: Collection[int]) -> None:
        """Report that exactly these brokers do not answer this one: to the controller at once, and in every heartbeat."""
        self._silent_brokers = sorted(node_ids)
        self._begin({})

    def _beat(self) -> None:
        if not self._tasks:  # else the last heartbeat is still unanswered
            self._begin({})
        interval_ms = AWAITED_INTERVAL_MS if self._is_awaited else self._config.broker_heartbeat_interval_ms
        self._timer = self._clock.call_later(interval_ms, self._beat)

    def _note_brokers(self, delta: MetadataDelta) -> None:
        """Send a heartbeat at once when another broker begins to shut down, because it waits for that. Register again if this broker was
        unregistered while it runs."""
        was_awaited = self._is_awaited
        if not delta.changed_brokers or self._is_closed:
            return
        own_id = self._metadata.node_id
        if own_id in delta.changed_brokers and own_id not in self._metadata.brokers:
            self._is_unregistered = True
            self._begin({})
        self._is_awaited = any(
            broker.is_in_controlled_shutdown and not broker.is_fenced
            for broker in self._metadata.brokers.values()
            if broker.node_id != own_id
        )
        if self._is_awaited and not was_awaited and self._timer is not None:
            self._timer.cancel()
            self._timer = self._clock.call_later(AWAITED_INTERVAL_MS, self._beat)

    def _begin(self, lost: Mapping[ReplicaKey, bytes]) -> None:
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._report_lost_replicas(lost))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report_lost_replicas(self, lost: Mapping[ReplicaKey, bytes]) -> None:
        try:
            if self._is_unregistered:
                await self._register_anew()
            await self._assign(lost)
            await self._send_heartbeat()
        except KafkaError as error:
            logger.warning("the controller cannot be told of this broker: %s", error)
            # The next heartbeat reports the directory again, but not the replicas that the controller believes to be elsewhere.
            for (topic_id, index), directory_id in lost.items():
                self.assign_directory(topic_id, index, directory_id)

    async def _register_anew(self) -> None:
        """Register again after an operator has unregistered this running broker. A Kafka broker has to be restarted then. The previous
        epoch tells the controller that this broker has lost no data."""
        request = self._request
        assert request is not None, "the broker was not started"
        async with self._registration_turn:
            if not self._is_unregistered:
                return  # another task has done it
            logger.warning("this broker was unregistered, and registers anew: a broker is to be stopped before it is unregistered")
            request.previous_broker_epoch = self._epoch
            request.log_dirs = [each for each in request.log_dirs if each not in self._offline_log_dirs]
            self._is_unregistered = False  # now, not after the answer: before that it may be unregistered again
            try:
                self._epoch = await self._register(request)
            except KafkaError:
                self._is_unregistered = True
                raise
        await self._heartbeat_until_unfenced()

    async def _heartbeat_until_unfenced(self) -> None:
        wait_ms = FENCED_RETRY_MIN_MS
        while not self._is_closed and await self._is_still_fenced():
            await pause(self._clock, wait_ms)
            wait_ms = min(2 * wait_ms, RETRY_MS)

    async def _is_still_fenced(self) -> bool:
        try:
            return (await self._send_heartbeat()).is_fenced
        except KafkaError as error:
            if error.code not in UNHEARD:
                raise
            logger.info("the heartbeat that unfences this broker is sent again: %s", error)
            return True

    async def _send_heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._metadata.node_id,
            broker_epoch=self._epoch,
            current_metadata_offset=self._metadata_offset(),
            want_shut_down=want_shut_down,
            offline_log_dirs=self._offline_log_dirs.copy(),
            cordoned_log_dirs=self._cordoned_log_dirs.copy() if knows_cordoned_directories(self._metadata.state.features) else None,
            silent_brokers=self._silent_brokers.copy(),
        )
        response = await self._channel.broker_heartbeat(request)
        for directory_id in request.offline_log_dirs:
            timer = self._untold_log_dirs.pop(directory_id, None)
            if timer is not None:
                timer.cancel()
        return response

    # -- the stop --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Give up leaderships to brokers that can take them, then stop, even if the controller does not answer. Later calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._timer, *self._untold_log_dirs.values()):
            if timer is not None:
                timer.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._assignments is not None:
            await self._assignments.stop()
        if self._epoch < 0 or not self._config.controlled_shutdown_enable:
            return
        deadline_ms = self._clock.monotonic_ms() + SHUTDOWN_MAX_MS
        try:
            while self._clock.monotonic_ms() < deadline_ms:
                if (await self._send_heartbeat(want_shut_down=True)).should_shut_down:
                    return
                await pause(self._clock, SHUTDOWN_RETRY_MS)
            logger.warning("this broker stops without the controller's leave, after %d ms", SHUTDOWN_MAX_MS)
        except KafkaError as error:
            logger.warning("this broker stops without the controller's leave: %s", error)
