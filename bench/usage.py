"""CPU time and memory of processes, by their CPU clock and /proc. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_KIB = 1024


def cpu_seconds(*pids: int) -> float:
    """User and system time of all threads of these processes so far, ended threads included; 0 for no process.

    By the process's CPU clock, in nanoseconds: /proc/PID/stat has the same in steps of 10 ms, which is 5 % of a short run.
    """
    return sum(
        time.clock_gettime(~pid << 3 | 2) for pid in pids
    )  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED), as clock_getcpuclockid(3) makes it


def tree_cpu_seconds(pid: int) -> float:
    """User and system time so far of a process and of all that it has started, ended ones included if somebody has waited for them."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()  # of proc(5), from the third on: the name before may have blanks
        except OSError:
            continue  # it has just ended
        number = int(path.parent.name)
        parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(spent for number, spent in ticks.items() if _is_under(number, pid, parents)) / os.sysconf("SC_CLK_TCK")


def _is_under(number: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while number > 1 and number != ancestor:
        number = parents.get(number, 0)
    return number == ancestor


def resident_megabytes(pid: int) -> float:
    """VmRSS in MB of 10^6 bytes."""
    return _status_megabytes(pid, "status", "VmRSS:")


def peak_resident_megabytes(pid: int) -> float:
    """VmHWM in MB of 10^6 bytes: the most that was resident since the process started."""
    return _status_megabytes(pid, "status", "VmHWM:")


def proportional_megabytes(pid: int) -> float:
    """PSS in MB of 10^6 bytes: shared pages counted by their share."""
    return _status_megabytes(pid, "smaps_rollup", "Pss:")


def _status_megabytes(pid: int, file: str, key: str) -> float:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * _KIB / 1e6
    raise KeyError(key)
