"""A disk whose process is killed after so many calls that change something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.disk import Disk

CHANGING_CALLS = ("ftruncate", "mkdir", "pwrite", "replace", "rmdir", "truncate", "unlink", "write")


class KilledError(Exception):
    """The process ended here; what is not on the disk is gone."""


class DyingDisk:
    """`disk`, and after `die_after` for as many changing calls only: every later call, of whatever kind, ends in KilledError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._calls_left = -1
        self._is_dead = False

    def die_after(self, changing_calls: int) -> None:
        self._calls_left = changing_calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._disk, name)
        is_changing = name in CHANGING_CALLS

        def called(*arguments: Any, **named: Any) -> Any:
            if self._is_dead or (is_changing and self._calls_left == 0):
                self._is_dead = True
                raise KilledError
            self._calls_left -= is_changing
            return call(*arguments, **named)

        return called
