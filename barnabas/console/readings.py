"""Records of a topic for one page: read by a thread of its own until its end, until enough are found, or until the browser leaves."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.cli.connection import Connection
from barnabas.cli.consume.positions import Bounds, Position, Range, parse_range
from barnabas.cli.consume.reader import BATCH_COUNT, PartitionReader
from barnabas.cli.errors import CommandError, NotUnderstoodError, RefusedError
from barnabas.cli.settings import Settings
from barnabas.console.facts import Partition, Snapshot
from barnabas.console.values import Values

SHOWN_MAX = 200
"""Records of a tail on a page; the others are counted."""
FOUND_MAX = 500
"""Of a search; it ends there."""
VIEWED, VIEWED_READ = 100, 2_000
"""Records of a view on a page, and how many are read for it from all partitions together."""
WAITING_MAX = 20_000
"""Of a download: what waits for the browser. The reader waits then."""
WAIT_S = 0.02
READINGS_MAX = 12
"""At once, of all pages: each has a consumer with its threads."""
NEEDLE_MAX = 1_000

Matches = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the address asks for. `mode` is view, tail or search; without a `position` a view begins near the end, a search at the start."""

    mode: str
    partitions: tuple[Partition, ...]
    position: Range | None
    needle: str


def wish_of(snapshot: Snapshot, topic: str, query: Mapping[str, str]) -> Wish:
    """Raises NotUnderstoodError, RefusedError."""
    if topic not in snapshot.topics:
        raise RefusedError(f"there is no topic {topic}")
    known = [each.number for each in snapshot.topics[topic].partitions]
    chosen = query.get("partition", "")
    if chosen and chosen not in map(str, known):
        raise NotUnderstoodError(f"{topic} has no partition {chosen}")
    text = query.get("from", "").strip()
    if "T" not in text and len(text) > 10 and text[4:5] == "-":
        text = text.replace(" ", "T", 1)  # a time as the page itself writes it
    if text and text[0].isdigit() and "-" in text:
        text = f"@{text}"
    position = parse_range(text, time.time_ns() // 1_000_000) if text else None
    needle = query.get("q", "")[:NEEDLE_MAX]
    mode = query.get("mode", "view")
    return Wish(
        "search" if mode == "search" and needle else "tail" if mode == "tail" else "view",
        tuple((topic, number) for number in known if not chosen or chosen == str(number)),
        position,
        needle,
    )


def matcher(needle: str, values: Values, hear: Callable[[str], None]) -> Matches:
    """Whether the text is in key, value or a header; in whatever case, unless it has a capital letter. It is no pattern and no code.
    Of what has a schema both the bytes and the JSON are looked into; `hear` is told why that cannot be."""
    if not needle:
        return lambda message: True
    wanted = needle.encode()
    is_exact = any(letter.isupper() for letter in needle)

    def found(data: bytes | str | None) -> bool:
        raw = data.encode() if isinstance(data, str) else data
        return raw is not None and wanted in (raw if is_exact else raw.lower())

    def decoded(topic: str, part: str, data: bytes | None) -> bool:
        value = values.read(topic, part, data)
        if value.is_trouble:
            hear(value.why)
        return value.schema is not None and found(value.data)

    def matches(message: Any) -> bool:
        value, key = message.value(), message.key()
        if found(value) or found(key):
            return True
        if any(found(name) or found(data) for name, data in message.headers() or ()):
            return True
        topic = message.topic()
        return decoded(topic, "value", value) or decoded(topic, "key", key)

    return matches


class Reading:
    """A reader's thread and what it has brought. `take` gives what came since the last time; `stop` ends it."""

    def __init__(self, settings: Settings, wish: Wish, values: Values) -> None:
        self.read_count = 0
        """Of records that were read."""
        self.found_count = 0
        self.total: int | None = None
        """Of offsets to read; None before that is known, and in a tail."""
        self.error = ""
        self.trouble = ""
        """Why a search could not look into what is decoded elsewhere."""
        self._settings = settings
        self._wish = wish
        self._matches = matcher(wish.needle, values, self._hear)
        self._waiting: deque[Any] = deque(maxlen=SHOWN_MAX if wish.mode == "tail" else None)
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """For the reader: whether to end."""
        return self._is_stopped or (self._wish.mode == "search" and self.found_count >= FOUND_MAX)

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def batch_count(self) -> int:
        return BATCH_COUNT

    def write(self, messages: Sequence[Any]) -> None:
        """What the reader has read."""
        found = [message for message in messages if self._matches(message)] if self._wish.needle else messages
        while self._wish.mode == "download" and len(self._waiting) > WAITING_MAX and not self._is_stopped:
            time.sleep(WAIT_S)
        if self._wish.mode == "search":
            found = found[: FOUND_MAX - self.found_count]
        with self._lock:
            self.read_count += len(messages)
            self.found_count += len(found)
            self._waiting.extend(found)

    def take(self) -> list[Any]:
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def join(self, timeout_s: float) -> None:
        """Wait for its end; stop it if that does not come in time."""
        self._thread.join(timeout_s)
        self.stop()

    def stop(self) -> None:
        self._is_stopped = True

    def _hear(self, why: str) -> None:
        self.trouble = self.trouble or why

    def _run(self) -> None:
        try:
            with Connection(self._settings) as connection:
                starts, ends = self._range(connection)
                if ends is not None:
                    self.total = sum(max(end - starts[each], 0) for each, end in ends.items())
                with PartitionReader(connection, starts, ends) as reader:
                    reader.read(self)
        except (CommandError, OSError) as e:
            self.error = str(e)

    def _range(self, connection: Connection) -> tuple[dict[Partition, int], dict[Partition, int] | None]:
        wish = self._wish
        bounds = Bounds(connection, list(wish.partitions), read_committed=False)
        each_max = min(max(VIEWED_READ // max(len(wish.partitions), 1), 1), VIEWED)
        start = Position({"tail": "end", "search": "start", "download": "start"}.get(wish.mode, "before_end"), each_max)
        starts = bounds.resolve(wish.position.start if wish.position else start)
        if wish.mode == "tail":
            return starts, None
        limit = bounds.resolve(wish.position.end) if wish.position and wish.position.end else bounds.ends
        if wish.mode == "view":
            return starts, {each: min(limit[each], first + each_max) for each, first in starts.items()}
        return starts, {each: limit[each] for each in starts}
