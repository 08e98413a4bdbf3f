"""Jobs for the tests of the worker's process, which imports them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from typing import Any

from broker.worker.jobs import Steps

NAME = __name__


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("no copy of this")
        self.function = lambda: None


def echo(arguments: Any, buffers: Sequence[memoryview]) -> Steps:
    """The arguments and the buffers, each with its bytes in reverse."""
    yield
    return arguments, [bytes(buffer)[::-1] for buffer in buffers]


def describe(arguments: Any, buffers: Sequence[memoryview]) -> Steps:
    """The process: its id, what its descriptors are, its group, its session, its niceness."""
    yield
    names = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names[int(descriptor)] = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            pass  # that of the listing itself
    return (os.getpid(), names, os.getpgrp(), os.getsid(0), os.getpriority(os.PRIO_PROCESS, 0)), []


def endless(arguments: Any, buffers: Sequence[memoryview]) -> Generator[None, None, Any]:
    while True:
        yield


def die(arguments: Any, buffers: Sequence[memoryview]) -> Steps:
    os.kill(os.getpid(), signal.SIGKILL)
    yield
    return None, []


def fail(arguments: Any, buffers: Sequence[memoryview]) -> Steps:
    yield
    raise UnpicklableError if arguments == "unpicklable" else ValueError(arguments)
