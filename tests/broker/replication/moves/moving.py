"""A broker with two log directories on a simulated disk, and partition a-0, which moves between them; the controller is played by hand.

moving = Moving()
moving.produce("x", "y")
moving.alter(SECOND)
moving.run()          # … until nothing more happens by itself
moving.accept()       # the controller has committed where the replica is
"""

from __future__ import annotations

import random
from pathlib import Path

from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
from protocol.records import iterate_headers
from storage.log import Log
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties
from tests.broker.replication.world import NODE_ID, World, batch
from tests.simulation.disk import SimulatedDisk
from tests.storage.conftest import read_bytes
from tests.support.clock import WALL_START_MS

FIRST, SECOND = Path("/simulated/first"), Path("/simulated/second")
IDS = {FIRST: bytes([7] * 16), SECOND: bytes([8] * 16)}
TOPIC_ID = bytes(15) + b"\x01"
CATCH_UP_TURNS = 500
SOON_MS = 2_000  # timers of requests are further away
FAR_MS = 1_000_000_000_000


class Moving:
    """See the module's docstring. `known` is where the controller believes the replica to be."""

    def __init__(self, *, seed: int = 0, **settings: object) -> None:
        self.disk = SimulatedDisk(random.Random(seed), lambda: WALL_START_MS / 1000, lambda kind, text: None)
        self.known = IDS[FIRST]
        self._settings = settings
        self._leader_epoch = -1
        self.start()

    def start(self) -> None:
        """A process on this disk, with the metadata as they are."""
        self._leader_epoch += 1
        self.view = self.disk.boot(on_death=lambda: self.view.die())
        self.logs = LogManager([FIRST, SECOND], random_source=random.Random(1), disk=self.view)
        self.logs.lock()
        for directory in self.logs.directories:
            if directory.meta is None:
                directory.format(MetaProperties("cluster", NODE_ID, IDS[directory.path]))
        self.world = world = World(Path("/simulated"), logs=self.logs, is_alone=True, **self._settings)
        self.logs.open(
            config_of=world.metadata.log_config,
            topic_id_of=lambda topic, index: TOPIC_ID,
            directory_id_of=lambda topic, index: self.known,
            now_ms=world.clock.now_ms(),
        )
        world.register_broker(NODE_ID)
        created = PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[NODE_ID], isr=[NODE_ID], leader=NODE_ID, leader_epoch=self._leader_epoch,
            partition_epoch=self._leader_epoch, directories=[self.known],
        )  # fmt: skip
        world.metadata.apply_committed([TopicRecord(name="a", topic_id=TOPIC_ID), created])
        for topic_id, index, directory_id in world.misplaced:
            assert (topic_id, index) == (TOPIC_ID, 0)
            self.known = directory_id
        world.misplaced.clear()
        world.replica_manager.end_loading()

    def kill(self) -> None:
        self.view.die()
        self.start()

    def cut_power(self) -> None:
        self.view.die()
        self.disk.cut_power()
        self.start()

    def stop(self) -> None:
        self.world.replica_manager.stop()
        self.logs.close_clean(broker_epoch=1)
        self.view.die()
        self.start()

    # -- what the broker is asked ----------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.world.partition("a")

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def future(self) -> Log | None:
        return self.logs.futures.find("a", 0)

    @property
    def place(self) -> Path:
        return Path(self.log.log_dir)

    def produce(self, *values: str) -> None:
        (answer,) = self.world.produce("a", batch(*values), acks=1)
        assert answer.error_code is ErrorCode.NONE

    def produce_many(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            self.produce("v" * size)

    def alter(self, path: Path | str, topic: str = "a", index: int = 0) -> ErrorCode:
        return self.world.replica_manager.moves.alter(topic, index, str(path))

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One turn of the loop, and everything that threads have to do."""
        self.world.clock.advance(1)
        self.world.executor.run()

    def run(self) -> None:
        """Turns until nothing has to be done any more before something happens outside."""
        for _ in range(CATCH_UP_TURNS):
            self.turn()
            clock = self.world.clock
            due_ms = min((timer.due_ms for timer in clock.pending_timers), default=FAR_MS) - clock.monotonic_ms()
            if not self.world.executor.pending:
                if due_ms > SOON_MS:
                    return
                clock.advance(due_ms)
        raise AssertionError("the copy does not come to an end")

    @property
    def is_told(self) -> bool:
        """Whether the controller was asked, and did not answer yet."""
        return self.world.on_accepted is not None

    def accept(self) -> None:
        """The controller commits the last assignment, which the metadata tell, and then answers."""
        self.commit_assignment()
        on_accepted, self.world.on_accepted = self.world.on_accepted, None
        if on_accepted is not None:
            on_accepted()

    def commit_assignment(self) -> None:
        *_, self.known = self.world.misplaced[-1]
        self.world.change_partition("a", directories=[self.known])

    def move(self, target: Path) -> None:
        """From the request to the end."""
        assert self.alter(target) is ErrorCode.NONE
        self.run()
        self.accept()
        self.run()

    # -- what is on the disk ---------------------------------------------------------------------------------------

    def directories(self) -> list[str]:
        """The partition's directories, with what is unique in their names left out."""
        found = []
        for path in (FIRST, SECOND):
            for name, is_directory in self.view.scan(path):
                if is_directory:
                    base, _, suffix = name.partition(".")
                    found.append(f"{path.name}/{base}{suffix[32:]}")
        return sorted(found)


def batches_of(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, header in iterate_headers(data):
            found.append(data[position : position + header.size_bytes])
            offset = header.next_offset
    return found
