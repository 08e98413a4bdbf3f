"""The gauges of a node's process and its machine: the loop's idle share, what the process read and wrote on disks, its log directories.

server.py calls `add_node_gauges` once. Values that ask the machine are read where a scrape is rendered, in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.observability.metrics import GaugeSample, Metrics

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from storage.disk import Disk
    from storage.log_directory import LogDirectory

PROCESS_IO = "/proc/self/io"
PROCESS_IO_MAX_BYTES = 4_096
RATE_INTERVAL_MIN_MS = 1_000
"""Several scrapers within this time get the same value."""

DIRECTORY_LABELS = ("logdirectory",)


class SinceLastScrape:
    """The growth of a counter per millisecond, between the last two scrapes that are at least RATE_INTERVAL_MIN_MS apart."""

    def __init__(self, clock: Clock, read: Callable[[], float]) -> None:
        self._clock = clock
        self._read = read
        self._start_ms = clock.monotonic_ms()
        self._start = read()
        self._growth = 0.0

    def per_ms(self) -> float:
        """Returns 0 at a first scrape that follows the start within RATE_INTERVAL_MIN_MS."""
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - self._start_ms
        if elapsed_ms >= RATE_INTERVAL_MIN_MS:
            now = self._read()
            self._growth = (now - self._start) / elapsed_ms
            self._start_ms, self._start = now_ms, now
        return self._growth


def add_node_gauges(metrics: Metrics, *, clock: Clock, disk: Disk, directories: Sequence[LogDirectory]) -> None:
    """Register the gauges that every node has, whatever its roles. Called on the loop, whose thread's CPU time counts."""
    _add_idle_gauges(metrics, clock)
    metrics.add_gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "log directories that have failed",
        lambda: sum(directory.is_offline for directory in directories),
    )
    metrics.add_gauge(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 for a log directory that has failed",
        lambda: [((str(directory.path),), directory.is_offline) for directory in directories],
        DIRECTORY_LABELS,
    )
    metrics.add_collector(lambda: _disk_samples(disk, [str(each.path) for each in directories if not each.is_offline]))


def _add_idle_gauges(metrics: Metrics, clock: Clock) -> None:
    """One loop is Kafka's network threads and its request handlers. It is idle while its thread takes no CPU time. Waits without sleep
    (barnabas.busy.poll.us) count as busy."""
    busy = SinceLastScrape(clock, lambda: clock.cpu_ns() / 1e6)

    def idle_share() -> float:
        return min(max(1 - busy.per_ms(), 0.0), 1.0)

    for name in ("kafka_network_socketserver_networkprocessoravgidle", "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"):
        metrics.add_gauge(f"{name}_percent", "the loop's idle share since the last scrape, from 0 to 1", idle_share)


def _disk_samples(disk: Disk, directories: list[str]) -> Iterator[GaugeSample]:
    """A generator: the thread that renders asks the machine, because a disk may keep its caller waiting."""
    io = _process_io(disk)
    for name, key in (("read", "read_bytes"), ("write", "write_bytes")):
        if key in io:
            values: Iterable[tuple[tuple[str, ...], float]] = (((), io[key]),)
            yield GaugeSample(f"kafka_server_kafkaserver_linux_disk_{name}_bytes", f"bytes of disk {name}s", (), tuple(values))
    spaces = [(path, space) for path in directories if (space := _space(disk, path)) is not None]
    for index, (name, documentation) in enumerate((("total", "size of the volume"), ("usable", "bytes that the volume can still take"))):
        rows = tuple(((path,), space[index]) for path, space in spaces)
        yield GaugeSample(f"barnabas_log_directory_{name}_bytes", f"{documentation} of a log directory", DIRECTORY_LABELS, rows)


def _process_io(disk: Disk) -> dict[str, int]:
    """What Linux counts of this process's disk reads and writes; empty where there is no such count."""
    try:
        file = disk.open(PROCESS_IO, os.O_RDONLY)
        try:
            text = disk.pread(file, PROCESS_IO_MAX_BYTES, 0).decode("ascii")
        finally:
            disk.close(file)
        return {key: int(value) for key, _, value in (line.partition(":") for line in text.splitlines())}
    except (OSError, ValueError):
        return {}


def _space(disk: Disk, path: str) -> tuple[int, int] | None:
    """Total and usable bytes of the volume, as DescribeLogDirs has them; None if the disk fails."""
    try:
        status = disk.statvfs(path)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
