"""One simulated machine with a broker on it: its disk and wall clock outlive the broker's processes.

The broker is `broker.server.server.Broker`, unchanged. It is started, killed, paused and cut off from power as a process on a machine
is; one that ends by itself, because its disk failed, is started again, as a supervisor does.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from typing import Any

from broker.cli.formatter import FormatOptions, format_node
from broker.loop.clock import NS_PER_MS
from broker.loop.turns import SLICE_US
from broker.platform import Platform
from broker.server.node import StartError
from broker.server.server import Broker
from broker.worker.inline import InlineWorker
from broker.worker.lines import SLICE_NS, Lines
from config.loading import load_server_config
from config.server import ServerConfig
from protocol.records import Record, iterate_headers, iterate_records
from tests.simulation.clients import EPOCH_S
from tests.simulation.disk import DiskView, ProcessDiedError, SimulatedDisk
from tests.simulation.inodes import SimulatedFile
from tests.simulation.loop import Life, SimulatedLoop, current_life
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node_network import NodeNetwork
from tests.simulation.shapes import COMBINED

CLUSTER_ID = "simulated"
DRIFT_MAX = 0.000_2  # of a second in a second: bad quartz
OFFSET_MAX_S = 5.0
THREADS_MAX = 4
DESCRIPTORS_MAX = 4_096
WORK_MEAN_S = 0.000_3
STEPS_IN_A_SLICE = (1, 8, 64)
SLOW_STEPS = (0.05, 0.3, 1.0)  # of the steps of a node whose steps are slow
SLOW_STEP_US_MAX = 200
RESTART_DELAY_S, RESTART_DELAY_MAX_S = 0.1, 10.0  # of a supervisor, for a broker that ended by itself: longer each time


class NodeClock:
    """A node's clocks: the loop's time, and a wall clock that is wrong and may jump."""

    def __init__(self, loop: SimulatedLoop, draw: random.Random) -> None:
        self._loop = loop
        self._offset_s = draw.uniform(-OFFSET_MAX_S, OFFSET_MAX_S)
        self._rate = 1 + draw.uniform(-DRIFT_MAX, DRIFT_MAX)
        self._slow_steps: tuple[random.Random, float] | None = None
        self._slow_steps_us = 0

    def slow_down_steps(self, draw: random.Random) -> None:
        """From now on some steps of jobs that go in slices end their slice, and take time. Less than a slice: a node that was busy all the
        time would do nothing else."""
        self._slow_steps = draw, draw.choice(SLOW_STEPS)

    def now_s(self) -> float:
        return EPOCH_S + self._offset_s + self._loop.time() * self._rate

    def jump(self, seconds: float) -> None:
        self._offset_s += seconds

    def now_ms(self) -> int:
        return int(self.now_s() * 1000)

    def now_ns(self) -> int:
        return self.now_ms() * NS_PER_MS

    def monotonic_ms(self) -> int:
        return self._loop.now_us // 1000

    def monotonic_us(self) -> int:
        """For slices only: they ask after each step."""
        if self._slow_steps is not None:
            draw, share = self._slow_steps
            if draw.random() < share:
                self._slow_steps_us += SLICE_US
                self._loop.take_time(draw.randrange(SLOW_STEP_US_MAX))
        return self._loop.now_us + self._slow_steps_us

    def monotonic_ns(self) -> int:
        return self._loop.now_us * 1_000

    def cpu_ns(self) -> int:
        """As of computing that takes no time."""
        return 0

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, *arguments)


class SimulatedExecutor(Executor):
    """A thread pool's stand-in: a work runs at once and whole, after a drawn delay; its result comes after another one."""

    def __init__(self, loop: SimulatedLoop, draw: random.Random, slowness: Callable[[], float]) -> None:
        self._loop = loop
        self._draw = draw
        self._slowness = slowness
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running_count = 0

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*arguments, **named)))
        self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is to be waited for: whoever shuts it down has waited for its works."""

    def _begin(self) -> None:
        while self._waiting and self._running_count < THREADS_MAX:
            self._running_count += 1
            future, work = self._waiting.popleft()
            self._loop.call_in_later(current_life(), self._draw_delay_s(), self._run, future, work)

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            result, error = work(), None
        except ProcessDiedError:
            raise
        except BaseException as raised:
            result, error = None, raised
        self._loop.call_in_later(current_life(), self._draw_delay_s(), self._end, future, result, error)

    def _end(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        self._running_count -= 1
        if future.set_running_or_notify_cancel():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        self._begin()

    def _draw_delay_s(self) -> float:
        return self._draw.expovariate(1 / WORK_MEAN_S) * self._slowness()


class Node:
    """See the module's docstring. `host` is its name in the network; `settings` are Kafka's properties."""

    def __init__(self, loop: SimulatedLoop, network: SimulatedNetwork, host: str, seed: str, settings: dict[str, str]) -> None:
        self.loop = loop
        self.network = network
        self.host = host
        self.clock = NodeClock(loop, random.Random(f"{seed}:clock"))
        self.disk = SimulatedDisk(random.Random(f"{seed}:disk"), self.clock.now_s, loop.note)
        self.slowness = 1.0  # of the disk: how many times longer a work takes
        self.starts_count = 0
        self._exits_count = 0
        self._seed = seed
        self._settings = settings
        self._life: Life | None = None
        self._view: DiskView | None = None
        self._broker: Broker | None = None
        self._is_wanted = False
        self._is_stopping = False

    @property
    def is_up(self) -> bool:
        return self._life is not None

    @property
    def is_paused(self) -> bool:
        return self._life is not None and self._life.is_paused

    @property
    def is_broker(self) -> bool:
        return "broker" in self._roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self._roles

    @property
    def _roles(self) -> str:
        return self._settings.get("process.roles", COMBINED)

    @property
    def node_id(self) -> int:
        return int(self._settings["node.id"])

    @property
    def is_running(self) -> bool:
        """Up, and not paused."""
        return self._life is not None and not self._life.is_paused

    @property
    def is_ailing(self) -> bool:
        """Whether its disk is slow, full or fails."""
        disk = self.disk
        has_errors = bool(disk.write_error_share or disk.sync_error_share or disk.failed_dir)
        return self.slowness > 1 or has_errors or disk.capacity_bytes is not None

    # -- what a run does to it ---------------------------------------------------------------------------------------

    def format(self, initial_controllers: str | None, features: Sequence[str] = (), scram_users: Sequence[str] = ()) -> None:
        """As `barnabas format` does before the first start. Where `initial_controllers` are given, the voters are in the metadata log
        (kraft.version 1), which a broker that is no controller does not begin. `features`: texts of the form name=level;
        `scram_users`: arguments of --add-scram."""
        if initial_controllers and not self.is_controller:
            options = FormatOptions(CLUSTER_ID, ignore_formatted=True, has_no_initial_controllers=True)
        else:
            options = FormatOptions(
                CLUSTER_ID, ignore_formatted=True, features=features, scram_users=scram_users, initial_controllers=initial_controllers
            )
        self._format(options, "format")

    def replace_metadata_disk(self) -> None:
        """While no process runs: the metadata log is gone, and its directory formatted for a node that is to be none of the voters."""
        assert not self.is_up, "its files are open"
        self.loop.note(self.host, "gets another disk for its metadata")
        _remove(self.disk.boot(), self._settings["metadata.log.dir"])
        self._format(FormatOptions(CLUSTER_ID, ignore_formatted=True, has_no_initial_controllers=True), f"format:{self.starts_count}")

    def _format(self, options: FormatOptions, stream: str) -> None:
        randbytes = random.Random(f"{self._seed}:{stream}").randbytes
        view = self.disk.boot()
        format_node(self._config(), options, random_bytes=randbytes, now_ms=self.clock.now_ms(), say=lambda _: None, disk=view)

    def start(self) -> None:
        """Start the broker, and start it again whenever it ends by itself."""
        self._is_wanted = True
        if self._life is not None:
            return
        self.starts_count += 1
        self.network.host_is_back(self.host)
        self.loop.note(self.host, "starts")
        self._life = life = Life(self.host)
        self._view = view = self.disk.boot(self._died_at_a_call)
        self.loop.start_in(life, self._run(life, view))

    def stop(self) -> None:
        """SIGTERM: it goes orderly, and stays away until it is started."""
        if self._life is not None and self._broker is not None:
            self._is_wanted, self._is_stopping = False, True
            self.loop.call_in(self._life, self._broker.request_stop, 0, "SIGTERM")

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs on, what it wrote stays."""
        self._end("is killed", is_silent=False)

    def kill_at_call(self, calls_count: int, awaited_suffix: str = "") -> None:
        """Kill the process inside one of its next calls of the disk, counted from one for a file whose name ends with `awaited_suffix`."""
        if self._view is not None:
            self._view.calls_left = calls_count
            self._view.awaited_suffix = awaited_suffix

    def cut_power(self) -> None:
        """The process ends, and what was not made durable may be gone."""
        self._end("loses power", is_silent=True)
        self.disk.cut_power()

    def pause(self) -> None:
        if self._life is not None:
            self.loop.note(self.host, "is paused")
            self.loop.pause(self._life)

    def resume(self) -> None:
        if self._life is not None and self._life.is_paused:
            self.loop.note(self.host, "goes on")
            self.loop.resume(self._life)

    @property
    def log_dirs(self) -> list[str]:
        return self._settings["log.dirs"].split(",")

    @property
    def offsets_partitions_count(self) -> int:
        return int(self._settings["offsets.topic.num.partitions"])

    def segment_starts(self, topic: str, partition: int) -> list[int]:
        """The base offsets of a partition's segments, looked up on the disk."""
        view = self.disk.boot()
        directories = [f"{log_dir}/{topic}-{partition}" for log_dir in self.log_dirs]
        names = [entry.name for directory in directories if view.exists(directory) for entry in view.scan(directory)]
        return sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))

    def find_partition(self, topic: str, partition: int) -> str | None:
        """The directory of a replica on this node's disk."""
        paths = [f"{log_dir}/{topic}-{partition}" for log_dir in self.log_dirs]
        return next((path for path in paths if self.disk.find(path) is not None), None)

    def wipe(self, path: str) -> None:
        """While no process runs: a directory is gone for good."""
        assert not self.is_up, "its files are open"
        self.loop.note(self.host, f"{path} is wiped")
        _remove(self.disk.boot(), path)
        self.disk.sync_all()

    def copy_files(self, path: str, files: Mapping[str, bytes]) -> None:
        """While no process runs: a directory with these files, by name, is put there, as a copy from another node is."""
        assert not self.is_up, "its process would not expect it"
        self.loop.note(self.host, f"{path} is copied: {', '.join(files)}")
        view = self.disk.boot()
        view.mkdir(path)
        for name, content in files.items():
            fd = view.open(f"{path}/{name}", os.O_CREAT | os.O_WRONLY)
            view.write(fd, content)
            view.close(fd)
        self.disk.sync_all()

    def files(self, path: str) -> dict[str, bytes]:
        """The files of a directory on its disk as they stand, by name."""
        return {entry.name: self.content(f"{path}/{entry.name}") for entry in self.disk.boot().scan(path) if not entry.is_directory}

    def content(self, path: str) -> bytes:
        """Of a file on its disk; nothing of one that is not there."""
        found = self.disk.find(path)
        return bytes(found.content) if isinstance(found, SimulatedFile) else b""

    def records(self, log_dir: str, topic: str, partition: int) -> Iterator[Record]:
        """The records of a partition as they stand on its disk."""
        view, directory = self.disk.boot(), f"{log_dir}/{topic}-{partition}"
        names = [entry.name for entry in view.scan(directory)] if view.exists(directory) else []
        for name in sorted(name for name in names if name.endswith(".log")):
            content = self.content(f"{directory}/{name}")
            for position, _ in iterate_headers(content):
                yield from iterate_records(content, position)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _died_at_a_call(self) -> None:
        self._end("is killed in a call of the disk", is_silent=False)

    def _end(self, how: str, *, is_silent: bool) -> None:
        self._is_wanted = False
        life, view = self._life, self._view
        self._life = self._view = self._broker = None
        if life is None or view is None:
            return
        self.loop.note(self.host, how)
        self.loop.kill(life)
        view.die()
        self.network.process_died(self.host, is_silent=is_silent)

    async def _run(self, life: Life, view: DiskView) -> None:
        seed = f"{self._seed}:{self.starts_count}"
        platform = Platform(
            loop=self.loop,
            clock=self.clock,
            entropy=random.Random(f"{seed}:entropy").randbytes,
            executor=SimulatedExecutor(self.loop, random.Random(f"{seed}:executor"), lambda: self.slowness),
            descriptors_max=DESCRIPTORS_MAX,
            disk=view,
            network=NodeNetwork(self.network, self.host, view),
            make_worker=lambda _, __: self._make_worker(random.Random(f"{seed}:worker")),
        )
        self._broker = broker = Broker(self._config(), new_cluster_id=CLUSTER_ID, platform=platform)
        self._is_stopping = False
        try:
            await broker.start()
        except StartError as error:
            self.loop.note(self.host, f"cannot start: {error}")
        else:
            exit_code = await broker.wait_stopped()
            self.loop.note(self.host, f"stops: {broker.stop_reason} ({exit_code})")
            await broker.stop()
        self.loop.call_in(None, self._ended, life)

    def _make_worker(self, draw: random.Random) -> InlineWorker:
        """A worker process's stand-in: a job's steps come a few at a time, and others get their turn in between."""

        def call_later(callback: Callable[..., Any]) -> None:
            self.loop.call_in_later(current_life(), draw.expovariate(1 / WORK_MEAN_S) * self.slowness, callback)

        time_of_a_step_ns = SLICE_NS // draw.choice(STEPS_IN_A_SLICE)
        return InlineWorker(call_later, Lines(count(0, time_of_a_step_ns).__next__))

    def _config(self) -> ServerConfig:
        return load_server_config(None, {}, [f"{name}={value}" for name, value in self._settings.items()])

    def _ended(self, life: Life) -> None:
        """The process exited."""
        if self._life is life:
            stays_away = self._is_stopping and not self._is_wanted
            self._end("exits", is_silent=False)
            if stays_away:
                return
            delay_s = min(RESTART_DELAY_S * 2**self._exits_count, RESTART_DELAY_MAX_S)
            self._exits_count += 1
            self.loop.call_in_later(None, delay_s, self.start)


def _remove(view: DiskView, directory: str) -> None:
    """The directory and all that is in it."""
    for entry in view.scan(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            _remove(view, path)
        else:
            view.unlink(path)
    view.rmdir(directory)
