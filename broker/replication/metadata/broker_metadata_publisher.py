"""BrokerMetadataPublisher: applies changes of the metadata to the partitions of this broker.

It creates partitions, makes them leaders or followers, deletes them, and passes their topics' settings to them and to the throttles.
Thousands of new partitions are created by a LoopJob. The metadata cache calls `apply`.
Source: kafka.server.metadata.BrokerMetadataPublisher, kafka.server.ReplicaManager.applyDelta.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from broker.loop.job import LoopJob
from broker.loop.turns import SLICE_US
from broker.metadata.image import PartitionChange
from broker.replication.hosted_partitions import find_directory
from broker.replication.metadata.leadership_log import LeadershipLog, previous_state
from broker.replication.metadata.new_partitions import NewPartitions
from broker.replication.metadata.removals import PartitionRemovals
from storage.errors import StorageError
from storage.log_creations import NewLog
from storage.log_manager import is_log_of

if TYPE_CHECKING:
    from broker.loop.blocking import BlockingResult, RunBlocking
    from broker.loop.clock import Clock, Timer
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.observability.metrics import Metrics
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.partition import Partition
    from broker.replication.quotas import ReplicationQuotas
    from broker.replication.waiting_requests import WaitingRequests
    from storage.log_creations import CreationWork
    from storage.log_manager import LogManager

NEW_LOGS_AT_ONCE = 50
"""Logs that a thread makes before their partitions are hosted, 0.3 to 1 ms each, more where the disk is slow."""


class BrokerMetadataPublisher:
    """See the module's docstring. `on_removal_failure(path, error)` is called when a deleted partition's directory could not be removed."""

    def __init__(
        self,
        hosted: HostedPartitions,
        waiting: WaitingRequests,
        *,
        clock: Clock,
        metrics: Metrics,
        metadata: MetadataCache,
        log_manager: LogManager,
        run_blocking: RunBlocking,
        quotas: ReplicationQuotas,
        leadership_log: LeadershipLog,
        on_removal_failure: Callable[[Path, StorageError], None],
    ) -> None:
        self._hosted = hosted
        self._waiting = waiting
        self._clock = clock
        self._metrics = metrics
        self._metadata = metadata
        self._log_manager = log_manager
        self._quotas = quotas
        self._leadership_log = leadership_log
        self._new = NewPartitions()
        self._run_blocking = run_blocking
        self._planned: CreationWork | None = None  # logs that a thread is creating
        self._ready: deque[tuple[str, int]] = deque()  # those whose logs it has created
        self._making = LoopJob(clock, self._make_new)
        self._on_demand_us = 0  # time that partitions created for requests have taken in this turn of the loop
        self._turn_end: Timer | None = None
        self._removals = PartitionRemovals(
            clock,
            log_manager,
            run_blocking,
            on_closed=self._note_closed,
            on_left=self.make_new_later,
            on_failure=on_removal_failure,
        )

    def apply(self, delta: MetadataDelta) -> None:
        """Create, lead, follow and delete partitions, and update their settings. Deletions come first: a topic may be deleted and
        created again under its name."""
        hosted = self._hosted
        if delta.deleted_topics:
            deleted_names = {topic.name for topic in delta.deleted_topics}
            self._removals.add(hosted.take_topics(deleted_names))
            self._drop_new(deleted_names)
            self._new.discard_topics(deleted_names)
            for name in deleted_names:
                self._quotas.forget_topic(name)
        if delta.changed_broker_configs:
            self._quotas.take_over_rates()
        changed: list[Partition] = []
        moved_away: list[Partition] = []
        for change in delta.changed_partitions:
            if hosted.node_id in change.image.replicas:
                if not hosted.is_loading and hosted.find(change.topic.name, change.partition) is None:
                    if not hosted.is_unopened(change.topic.name, change.partition):
                        self._new.add((change.topic.name, change.partition))
                    continue
                partition = self._host(change)
                if partition is not None:
                    changed.append(partition)
            elif (gone := hosted.find(change.topic.name, change.partition)) is not None:
                gone.move_away(change.image)
                self._leadership_log.log_removal(gone)
                moved_away.append(gone)
        self._unhost(moved_away)
        for added in delta.added_partitions:
            self._new.add_range(added.topic.name, added.start, added.stop)
        for topic in delta.changed_topic_configs:
            self._take_over_settings(topic)
        hosted.is_loading = hosted.is_loading and not delta.changed_partitions
        for partition in changed:
            self._waiting.wake(partition)
        self.make_new_later()

    def end_loading(self) -> None:
        """Called when all partitions of before this start have been applied: later ones are new. A log whose topic was deleted after the
        logs were opened, or whose replica has moved away since, is set aside now, as other stray logs were at the start."""
        self._hosted.is_loading = False
        logs = self._log_manager
        for log in chain(logs.each_log(), logs.futures.futures()):
            topic = self._metadata.find_topic(log.topic)
            image = self._metadata.find_partition(log.topic, log.partition)
            if topic is None or image is None or self._hosted.node_id not in image.replicas or not is_log_of(log, topic.topic_id):
                logs.set_aside(log.topic, log.partition)

    def stop(self) -> None:
        """Create no more partitions: those that still wait are created at the next start."""
        self._new.clear()
        self._ready.clear()
        self._removals.stop()
        self._making.stop()
        if self._turn_end is not None:
            self._turn_end.cancel()

    def when_made(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """Call `callback` once every partition of these new topics that this broker hosts is created, or has failed to be by its disk."""
        self._new.when_none_of(topics, callback)

    def _take_over_settings(self, topic: str) -> None:
        self._quotas.take_over_topic(topic)
        config = self._metadata.log_config(topic)
        for partition in tuple(self._hosted.topics.get(topic, {}).values()):
            partition.config_changed(config)
            self._waiting.wake(partition)

    def _can_be_made(self) -> Iterator[tuple[str, int]]:
        """The waiting partitions, without those blocked by a deleted partition of the same name. When that one is removed, they
        continue."""
        return (key for key in self._new if not self._removals.is_leaving(*key))

    def make_new_later(self) -> None:
        """Continue with the waiting partitions: a directory that blocked them may be gone."""
        if self._planned is None and not self._ready:
            self._plan_logs()

    def _plan_logs(self) -> None:
        """Have a thread create the logs of the next waiting partitions."""
        names = tuple(islice(self._can_be_made(), NEW_LOGS_AT_ONCE))
        if not names:
            return
        try:
            work = self._log_manager.plan_creations(filter(None, map(self._new_log, names)), self._clock.now_ms())
        except StorageError:  # no directory is online: each partition will get that error
            self._take_ready(names)
            return
        self._planned = work
        self._run_blocking(work.run).add_done_callback(partial(self._note_made, work, names))

    def _new_log(self, name: tuple[str, int]) -> NewLog | None:
        """Returns the log to create for a waiting partition, by the metadata as it is now."""
        topic = self._metadata.find_topic(name[0])
        if topic is None or self._hosted.node_id not in topic.partitions[name[1]].replicas:
            return None
        image = topic.partitions[name[1]]
        epoch = image.leader_epoch if image.leader == self._hosted.node_id and image.leader_epoch >= 0 else None
        return NewLog(*name, topic.topic_id, self._metadata.log_config(topic.name), find_directory(image, self._hosted.node_id), epoch)

    def _note_made(self, work: CreationWork, names: Iterable[tuple[str, int]], done: BlockingResult) -> None:
        self._planned = None
        self._log_manager.created(work)
        self._take_ready(names)
        done.result()

    def _take_ready(self, names: Iterable[tuple[str, int]]) -> None:
        self._ready += (name for name in names if name in self._new)
        self._making.run_now()

    def _make_new(self) -> Generator[None, None, None]:
        """Host the partitions whose logs are created, 0.1 ms each, by the metadata as it is now. Until then requests for them get
        NOT_LEADER_OR_FOLLOWER, as from a Kafka broker that has not applied the commit yet, unless they are created on demand."""
        while self._ready:
            name = self._ready.popleft()
            if name in self._new and not self._removals.is_leaving(*name):
                self._make_one_new(name)
            yield
        self.make_new_later()

    def _drop_new(self, topics: Container[str]) -> None:
        """Create no more partitions of these deleted topics, and delete the logs that are already created."""
        planned = () if self._planned is None else self._planned.names
        names = [name for name in (*planned, *self._ready) if name[0] in topics]
        self._ready = deque(name for name in self._ready if name[0] not in topics)
        self._log_manager.withdraw_creations(names)
        self._delete_logs([name for name in names if self._log_manager.find_log(*name) is not None])

    def _delete_logs(self, names: Iterable[tuple[str, int]]) -> None:
        """Delete logs whose partitions were deleted meanwhile, or are no longer this broker's."""
        self._removals.add_logs(tuple(name for name in names if self._hosted.find(*name) is None))

    def get_for_loading(self, topic: str, partition: int) -> Partition:
        """As `get_partition`, for a coordinator, which loads one partition in each turn: a waiting one is always created, whatever the
        time that requests have taken."""
        if (topic, partition) in self._new and not self._removals.is_leaving(topic, partition):
            self._make_one_new((topic, partition))
        return self._hosted.get(topic, partition)

    def make_on_demand(self, topic: str, partition: int) -> Partition | None:
        """Creates a waiting partition on its first request, so that clients rarely see NOT_LEADER_OR_FOLLOWER. With its log that takes a
        millisecond or two. Once requests have taken a slice of this turn of the loop, the other partitions are left to the LoopJob."""
        if (topic, partition) not in self._new or self._on_demand_us >= SLICE_US or self._removals.is_leaving(topic, partition):
            return None
        if self._turn_end is None:
            self._turn_end = self._clock.call_later(0, self._note_turn_end)
        start_us = self._clock.monotonic_us()
        made = self._make_one_new((topic, partition))
        self._on_demand_us += self._clock.monotonic_us() - start_us
        return made

    def _note_turn_end(self) -> None:
        self._turn_end = None
        self._on_demand_us = 0

    def _make_one_new(self, key: tuple[str, int]) -> Partition | None:
        name, index = key
        topic = self._metadata.find_topic(name)
        made = None
        if topic is not None and self._hosted.node_id in topic.partitions[index].replicas:
            made = self._host(PartitionChange(topic, index, topic.partitions[index]))
        elif self._log_manager.find_log(name, index) is not None:
            self._delete_logs([key])
        self._new.discard(key)
        return made

    def _host(self, change: PartitionChange) -> Partition | None:
        """As HostedPartitions.host. Also logs the change, unless this broker is starting, and lets a new leader expect its followers."""
        before = previous_state(self._hosted.find(change.topic.name, change.partition))
        partition = self._hosted.host(change)
        if partition is None:
            return None
        if partition.followers and (before is None or before.leader_epoch != partition.leader_epoch):
            self._waiting.new_leader_followers.expect_followers(partition)
        if not self._hosted.is_loading:
            self._leadership_log.log_change(partition, before)
        return partition

    def _unhost(self, partitions: Sequence[Partition]) -> None:
        """Stop serving the partitions. Their directories are removed in a thread, after their checkpoint entries."""
        for partition in partitions:
            self._hosted.take(partition)
        self._removals.add(partitions)

    def _note_closed(self, partition: Partition) -> None:
        self._waiting.wake(partition)
        if partition.topic not in self._hosted.topics:
            self._metrics.forget_topic(partition.topic)

    def when_removed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the directories of the partitions deleted so far are out of the way of new ones."""
        self._removals.when_left(callback)
