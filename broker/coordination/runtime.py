"""CoordinatorRuntime: the shards of one internal topic's partitions that this broker leads (Kafka's class of this name).

It follows the partitions' leadership: a shard is loaded when this broker becomes the leader and dropped when another does. It finds the
shard that a key belongs to. Each user (groups, transactions) brings its own state machine and record table.

Subscribe `on_metadata_delta` after the ReplicaManager, which must know that it leads before a log can be read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic

from broker.coordination.coordinator_log import CoordinatorLog
from broker.coordination.java_hash import positive_java_hash
from broker.coordination.records import RecordTable
from broker.coordination.shard import Load, Machine, Shard, ShardState
from broker.coordination.timers import DueTimers
from broker.loop.clock import Clock
from broker.loop.job import LoopJob
from broker.loop.recent_times import RecentTimes
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.metadata.image import MetadataDelta

log = logging.getLogger("barnabas.coordination")


class CoordinatorRuntime(Generic[Machine]):
    """See the module's docstring. `on_all_loaded` is called each time no shard is left to load."""

    def __init__(
        self,
        topic: str,
        *,
        node_id: int,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        table: RecordTable[Machine],
        make_machine: Callable[[Shard[Machine]], Machine],
        write_timeout_ms: int,
        limited_log: LimitedLog,
        on_all_loaded: Callable[[], None],
        is_partition_count_stable: bool = False,
    ) -> None:
        """With `is_partition_count_stable` the number of partitions at the first load holds until the topic is deleted. If it changed while
        this broker runs, keys would have another coordinator than before, which knows nothing of them: a load after a change fails."""
        self._topic = topic
        self._node_id = node_id
        self._log = coordinator_log
        self._clock = clock
        self._table = table
        self._make_machine = make_machine
        self._write_timeout_ms = write_timeout_ms
        self._limited_log = limited_log
        self._on_all_loaded = on_all_loaded
        self.load_times = RecentTimes(clock)
        self._shards: dict[int, Shard[Machine]] = {}
        self._loads: deque[tuple[Shard[Machine], Load, Any]] = deque()  # loads that can continue, with the value that they waited for
        self._loads_waiting = 0  # loads that wait for the disk
        self._loading = LoopJob(clock, self._load_all)
        self._due_timers = DueTimers(clock)
        self._is_running = False
        self._is_partition_count_stable = is_partition_count_stable
        self._stable_count = 0
        """The number of partitions that holds, 0 if that of the log does."""

    # Life.

    def start(self) -> None:
        """Serve from now on."""
        self._is_running = True

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR and serve no more."""
        self._is_running = False
        self._loading.stop()
        self._due_timers.stop()
        self._loads.clear()
        for partition in list(self._shards):
            self.on_resigned(partition)

    # Leadership.

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Load the partitions that this broker leads now, drop those that it does not."""
        if any(topic.name == self._topic for topic in delta.deleted_topics):
            self._stable_count = 0
            for partition in list(self._shards):
                self.on_resigned(partition)
        added = (change for each in delta.added_partitions if each.topic.name == self._topic for change in each.changes())
        for change in chain(delta.changed_partitions, added):
            if change.topic.name != self._topic:
                continue
            if change.image.leader == self._node_id:
                self.on_elected(change.partition, change.image.leader_epoch)
            else:
                self.on_resigned(change.partition)

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load the partition; requests for it are answered with COORDINATOR_LOAD_IN_PROGRESS until that is done."""
        current = self._shards.get(partition)
        if current is not None and current.leader_epoch >= leader_epoch:
            return
        self.on_resigned(partition)
        self._load(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.resign()

    def _load(self, partition: int, leader_epoch: int) -> None:
        shard = Shard(
            partition,
            leader_epoch,
            coordinator_log=self._log,
            clock=self._clock,
            due_timers=self._due_timers,
            table=self._table,
            make_machine=self._make_machine,
            write_timeout_ms=self._write_timeout_ms,
            limited_log=self._limited_log,
            on_failed=self._reload,
        )
        self._shards[partition] = shard
        if self._is_partition_count_stable and not self._has_same_count():
            shard.fail_loading()
            return
        shard.when_loaded(partial(self.load_times.record, self._clock.monotonic_ms()))
        self._go_on(shard, shard.load(), None)

    def _has_same_count(self) -> bool:
        """Whether the number of partitions is still that of the first load."""
        count = self._log.partition_count
        self._stable_count = self._stable_count or count
        if self._stable_count != count:
            log.error(
                "the partitions of %s have changed from %d to %d: none is loaded until the brokers are started again",
                self._topic,
                self._stable_count,
                count,
            )
        return self._stable_count == count

    def _reload(self, failed: Shard[Machine]) -> None:
        """Load the shard again, if this broker still leads. Otherwise the log cannot be read, and the shard stays failed."""
        if self._shards.get(failed.partition) is failed:
            self._load(failed.partition, failed.leader_epoch)

    def _load_all(self) -> Generator[None, None, None]:
        """Run one load after another. While one waits for the disk the next one continues."""
        while self._loads:
            yield from self._go_on_loading(*self._loads.popleft())
            if not self._loads and not self._loads_waiting:
                self._on_all_loaded()
            yield

    def _go_on_loading(self, shard: Shard[Machine], steps: Load, answer: Any) -> Generator[None, None, None]:
        try:
            while shard.state is ShardState.LOADING:
                awaited = steps.send(answer)
                answer = None
                if awaited is not None:
                    self._loads_waiting += 1
                    awaited.when_done(partial(self._end_wait, shard, steps))
                    return
                yield
        except StopIteration:
            pass  # it is loaded
        except KafkaError as e:
            # Leadership moved, or the disk failed: clients look for the coordinator on another broker.
            log.warning("partition %d of %s could not be loaded: %s", shard.partition, self._topic, e)
            shard.fail_loading()
        except Exception:
            log.exception("partition %d of %s could not be loaded", shard.partition, self._topic)
            shard.fail_loading()

    def _end_wait(self, shard: Shard[Machine], steps: Load, answer: Any) -> None:
        self._loads_waiting -= 1
        if self._is_running:
            self._go_on(shard, steps, answer)

    def _go_on(self, shard: Shard[Machine], steps: Load, answer: Any) -> None:
        self._loads.append((shard, steps, answer))
        self._loading.resume()

    # Which shard.

    def partition_for(self, key: str) -> int:
        """The partition that keeps the state of this id."""
        return positive_java_hash(key) % (self._stable_count or self._log.partition_count)

    def get_shard(self, key: str) -> Shard[Machine]:
        """The key's shard, active. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS otherwise."""
        return self.get_shard_of(positive_java_hash(key) % (self._stable_count or self._log.partition_count))

    def get_shard_of(self, partition: int) -> Shard[Machine]:
        """The partition's shard, active. KafkaError as above."""
        shard = self._shards.get(partition)
        if shard is not None and shard.is_active:
            return shard
        if not self._is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_loading = shard is not None and shard.state is ShardState.LOADING
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR)

    def get_active_shards(self) -> list[Shard[Machine]]:
        """All shards. COORDINATOR_LOAD_IN_PROGRESS while some are loading: a client could not tell a partial list from a whole one."""
        if not self._is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(shard.state is ShardState.LOADING for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.active_shards()

    def active_shards(self) -> list[Shard[Machine]]:
        """The shards that are active now."""
        return [shard for shard in self._shards.values() if shard.is_active]

    def shards(self) -> list[Shard[Machine]]:
        """All shards: active, loading and failed ones."""
        return list(self._shards.values())
