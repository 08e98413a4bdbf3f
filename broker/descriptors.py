"""How many file descriptors this process may have, and how they are shared out.

A broker without descriptors cannot roll a segment or accept a client, so the limit is raised as far as the system lets us, and what
clients can make us hold is kept below it: connections by the listeners, partitions (one descriptor each, for the active segment) by
the controller, closed segments that were read by the log manager. Kafka leaves it to the operator and stops at the first EMFILE.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
from typing import NamedTuple

log = logging.getLogger("barnabas.descriptors")

RESERVED = 64  # listening sockets, locks, the metadata log, checkpoints being written
DESCRIPTORS_OF_SEGMENT = 3  # a closed segment's data and its two indexes
OPEN_SEGMENTS_MAX = 256
TABLE_MAX = 1 << 16
"""Descriptors that the kernel's table of this process has room for from the start: 8 bytes each, of the kernel's memory."""


class DescriptorShares(NamedTuple):
    """The largest number of each that the limit allows."""

    partitions: int
    connections: int
    open_segments: int


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as servers do; returns the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("descriptor limit stays at %d: %s", soft, error)
        return soft
    return hard


def make_table() -> None:
    """Let the kernel make room for as many descriptors as the limit allows, TABLE_MAX at most; before the process has a second thread.

    The table grows by doubling. In a process of several threads every thread that needs the larger one, or opens anything meanwhile, waits
    until every core has let go of the old one (synchronize_rcu): 7 to 20 ms on the loop, at the 256th connection, the 512th, and so on.
    """
    limit = raise_limit()
    last = TABLE_MAX - 1 if limit == resource.RLIM_INFINITY else min(limit, TABLE_MAX) - 1
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, last))
    except OSError:
        log.debug("no room for descriptor %d", last)  # it is taken, or there is no memory: the table grows as it must
    finally:
        os.close(descriptor)


def divide_descriptors(limit: int) -> DescriptorShares:
    """A half for partitions; the rest, less what closed segments and the broker itself need, for connections."""
    if limit == resource.RLIM_INFINITY:
        limit = 2**31 - 1
    open_segments = max(min(OPEN_SEGMENTS_MAX, limit // 16), 1)
    partitions = limit // 2
    connections = limit - partitions - open_segments * DESCRIPTORS_OF_SEGMENT - RESERVED
    return DescriptorShares(partitions, max(connections, 1), open_segments)
