"""What a process costs, read from /proc: CPU time and resident memory. Linux only.

CPU time counts in ticks of 10 ms, so a measured span should last a second or more.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME_FIELD = 11  # of /proc/PID/stat, counted after the command's closing parenthesis
_KIB = 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of `pid` so far."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[_UTIME_FIELD]) + int(fields[_UTIME_FIELD + 1])) / _TICKS_PER_SECOND


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
