"""What `barnabas doctor` says of this machine: descriptors, memory, swap, kernel, sockets, clock. Where the system has no such file, as
elsewhere than on Linux, nothing is said of it."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.doctor_findings import ADVICE, FINE, PROBLEM, Finding

if TYPE_CHECKING:
    from config.server import ServerConfig

DESCRIPTORS_LOW = 16_384
MEMORY_MIN_BYTES, MEMORY_LOW_BYTES = 128 << 20, 512 << 20
"""A broker takes 30 to 150 MB; the rest is the page cache, from which consumers are served."""
SWAPPINESS_HIGH = 10
KERNEL_MIN = (4, 14)
"""preadv2 with RWF_NOWAIT: whether a read would wait for the disk."""
MAP_COUNT_OF_KAFKA = 262_144
TIME_ERROR = 5
"""What adjtimex returns while the clock is not synchronised."""
TIMEX_BYTES = 208


class Machine:
    """This machine's facts. `root` is where its /proc and /sys are, `/` but in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def text_of(self, path: str) -> str:
        """The file's text; empty if there is none."""
        try:
            return (self._root / path).read_text(errors="replace")
        except OSError:
            return ""

    def number_of(self, path: str) -> int | None:
        text = self.text_of(path).strip()
        return int(text) if text.isascii() and text.isdigit() else None

    def filesystem_of(self, path: Path) -> str:
        """The type of the filesystem that an absolute path is on, such as ext4; empty if that is not known."""
        best, kind = "", ""
        for line in self.text_of("proc/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            mount_point = before.split()[4].replace("\\040", " ") if len(before.split()) > 4 else ""
            is_above = str(path) == mount_point or str(path).startswith(mount_point.rstrip("/") + "/")
            if mount_point and is_above and len(mount_point) >= len(best):
                best, kind = mount_point, after.split()[0] if after else ""
        return kind

    def available_bytes(self) -> int | None:
        """Memory that a new process can have: the machine's, or what its control group has left, if that is less."""
        fields = dict(line.split(":", 1) for line in self.text_of("proc/meminfo").splitlines() if ":" in line)
        words = fields.get("MemAvailable", "").split()
        found = [int(words[0]) * 1024] if words else []
        limit, used = self.number_of("sys/fs/cgroup/memory.max"), self.number_of("sys/fs/cgroup/memory.current")
        if limit is not None:
            found.append(limit - (used or 0))
        return min(found, default=None)

    def has_swap(self) -> bool:
        return len(self.text_of("proc/swaps").splitlines()) > 1


def examine_machine(machine: Machine, config: ServerConfig | None, partitions_count: int) -> Iterator[Finding]:
    """`partitions_count` are those in the data folders."""
    yield _judge_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1], partitions_count)
    memory = machine.available_bytes()
    if memory is not None:
        yield _judge_memory(memory)
    yield from _examine_kernel(machine, config)
    is_synchronised = _clock_is_synchronised()
    if is_synchronised is not None:
        yield (
            Finding("clock", FINE, "it is synchronised")
            if is_synchronised
            else Finding("clock", ADVICE, "it is not synchronised", "run chrony or systemd-timesyncd: nodes and clients compare timestamps")
        )


def _judge_descriptors(limit: int, partitions_count: int) -> Finding:
    if limit == resource.RLIM_INFINITY:
        return Finding("file descriptors", FINE, "their number is not limited")
    found = f"a process may have {limit} (hard limit), of which half are for partitions; {partitions_count} are here"
    advice = "raise it: LimitNOFILE= in systemd, --ulimit nofile= in Docker"
    if partitions_count >= limit // 2:
        return Finding("file descriptors", PROBLEM, found, advice)
    level = ADVICE if limit < DESCRIPTORS_LOW or partitions_count >= limit // 4 else FINE
    return Finding("file descriptors", level, found, advice if level == ADVICE else "")


def _judge_memory(available_bytes: int) -> Finding:
    found = f"{available_bytes / 2**20:.0f} MB are available"
    advice = "give the machine or the container more, or lower barnabas.queued.max.request.bytes"
    if available_bytes < MEMORY_MIN_BYTES:
        return Finding("memory", PROBLEM, found, advice)
    return Finding("memory", ADVICE, found, advice) if available_bytes < MEMORY_LOW_BYTES else Finding("memory", FINE, found)


def _examine_kernel(machine: Machine, config: ServerConfig | None) -> Iterator[Finding]:
    swappiness = machine.number_of("proc/sys/vm/swappiness")
    if swappiness is not None:
        is_high = machine.has_swap() and swappiness > SWAPPINESS_HIGH
        found = f"vm.swappiness is {swappiness}" + ("" if machine.has_swap() else ", and there is no swap")
        advice = "set it to 1 (sysctl vm.swappiness=1): a broker that is swapped out answers late"
        yield Finding("swap", ADVICE if is_high else FINE, found, advice if is_high else "")
    maps = machine.number_of("proc/sys/vm/max_map_count")
    if maps is not None:
        words = "" if maps >= MAP_COUNT_OF_KAFKA else f"; Apache Kafka on the same folders would want {MAP_COUNT_OF_KAFKA}"
        yield Finding("memory maps", FINE, f"vm.max_map_count is {maps}, which does not matter: no file is mapped{words}")
    queue, backlog = machine.number_of("proc/sys/net/core/somaxconn"), 0 if config is None else config.socket_listen_backlog_size
    if queue is not None and config is not None:
        is_short = queue < backlog
        found = f"net.core.somaxconn is {queue}, socket.listen.backlog.size {backlog}"
        advice = f"sysctl net.core.somaxconn={backlog}: else fewer clients that connect at once are waited for"
        yield Finding("connections", ADVICE if is_short else FINE, found, advice if is_short else "")
    release = machine.text_of("proc/sys/kernel/osrelease").strip()
    if release:
        is_old = _version(release) < KERNEL_MIN
        advice = "update it: before 4.14 a read of old records may hold all clients"
        yield Finding("kernel", ADVICE if is_old else FINE, f"Linux {release}", advice if is_old else "")


def _version(release: str) -> tuple[int, int]:
    """Major and minor version; high if it cannot be read."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (999, 0)


def _clock_is_synchronised() -> bool | None:
    """What the kernel says; None where it does not."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != TIME_ERROR
