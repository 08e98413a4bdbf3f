"""What a node takes from its machine, in one object: time, randomness, threads, disk. Given to `Broker(config, platform=…)`.

Nothing else in broker/ asks the machine for them, so the broker runs unchanged where they are simulated (tests/simulation): there one
seed draws everything that could differ between two runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

from broker.descriptors import raise_limit
from broker.loop.clock import Clock, SystemClock
from broker.network.sockets import Network, SystemNetwork
from broker.worker.jobs import Worker
from broker.worker.on_demand import WorkerOnDemand
from storage.disk import SYSTEM_DISK, Disk

THREADS_MAX = 4  # for fsync, cold reads and deletions: calls that wait for the disk without the GIL


class Platform(NamedTuple):
    """One node's machine. The broker owns `executor` and shuts it down; everything else outlives it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    entropy: Callable[[int], bytes]
    """That many random bytes: for ids, and once for the seed of the broker's own random numbers."""
    executor: Executor
    """Runs what waits for the disk, off the loop."""
    descriptors_max: int
    """How many files and sockets the process may have open."""
    disk: Disk
    network: Network
    make_worker: Callable[[Callable[..., asyncio.Future[Any]], int], Worker]
    """What computes for the broker; given what runs a function on `executor`, and how much nicer than the broker it is to be."""


def system_platform(loop: asyncio.AbstractEventLoop) -> Platform:
    """The machine that this process runs on."""
    clock = SystemClock(loop)

    def make_worker(run_blocking: Callable[..., asyncio.Future[Any]], niceness: int) -> Worker:
        from broker.worker.process import WorkerProcess

        return WorkerProcess(loop, clock, run_blocking, niceness)

    return Platform(
        loop=loop,
        clock=clock,
        entropy=os.urandom,
        executor=ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="barnabas-disk"),
        descriptors_max=raise_limit(),
        disk=SYSTEM_DISK,
        network=SystemNetwork(loop),
        make_worker=lambda run_blocking, niceness: WorkerOnDemand(lambda: make_worker(run_blocking, niceness)),
    )
