"""Files and directories of a simulated disk: what is read of them, and what a power cut leaves of them."""

from __future__ import annotations

import random
from typing import NamedTuple

PAGE_BYTES = 512  # smaller than a real page: more torn shapes for the same bytes
KEEP_SHARES = (0.0, 0.5, 0.9, 1.0)  # of a file's dirty pages that a power cut keeps


class SimulatedFile:
    """An inode. `content` is what is read; `durable` what a power cut leaves at least."""

    def __init__(self, now_s: float) -> None:
        self.content = bytearray()
        self.durable = b""
        self.dirty_pages: dict[int, None] = {}
        self.least_size = 0  # the smallest size since the last sync: what was beyond may or may not be gone
        self.links = 1
        self.modified_s = now_s
        self.lock_owner: object | None = None

    def write(self, data: bytes, position: int, now_s: float) -> None:
        end = position + len(data)
        if position > len(self.content):
            self.content += bytes(position - len(self.content))
        self.content[position:end] = data
        for page in range(position // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            self.dirty_pages[page] = None
        self.modified_s = now_s

    def truncate(self, size: int) -> None:
        if size < len(self.content):
            del self.content[size:]
            self.least_size = min(self.least_size, size)
            for page in [page for page in self.dirty_pages if page * PAGE_BYTES >= size]:
                del self.dirty_pages[page]
        elif size > len(self.content):
            self.write(bytes(size - len(self.content)), len(self.content), self.modified_s)

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.dirty_pages.clear()
        self.least_size = len(self.durable)

    def lose_power(self, draw: random.Random) -> None:
        left = bytearray(self.durable)
        if self.least_size < len(left) and draw.random() < 0.5:
            del left[self.least_size :]
        share = draw.choice(KEEP_SHARES)
        for page in sorted(self.dirty_pages):
            if draw.random() < share:
                start = page * PAGE_BYTES
                data = self.content[start : start + PAGE_BYTES]
                if start > len(left):
                    left += bytes(start - len(left))
                left[start : start + len(data)] = data
        self.content = left
        self.sync()


class SimulatedDirectory:
    """Names and what they stand for. `pending` are changes that a power cut may undo, oldest first:."""

    def __init__(self) -> None:
        self.entries: dict[str, SimulatedFile | SimulatedDirectory] = {}
        self.durable: dict[str, SimulatedFile | SimulatedDirectory] = {}
        self.pending: list[dict[str, SimulatedFile | SimulatedDirectory]] = []  # the entries after each change

    def changed(self) -> None:
        self.pending.append(dict(self.entries))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def lose_power(self, draw: random.Random) -> None:
        states = [self.durable, *self.pending]
        self.entries = dict(draw.choice(states))
        self.sync()


class Move(NamedTuple):
    """A rename from one directory into another: a power cut leaves one of the two names, as journals do."""

    moved: SimulatedFile | SimulatedDirectory
    source: SimulatedDirectory
    source_name: str
    target: SimulatedDirectory
    target_name: str
