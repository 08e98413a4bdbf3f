"""What both brokers said to the same step, and where it differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Part(Enum):
    """What is compared."""

    ANSWER = "the answer"
    DESCRIPTION = "the description"
    LOG = "the log"


_MISSING = "nothing"


@dataclass(frozen=True, slots=True)
class Exchange:
    """`theirs` is Apache Kafka's, `ours` Barnabas's. Of the log, `step` is the last one."""

    step: Any
    part: Part
    theirs: Any
    ours: Any

    @property
    def is_same(self) -> bool:
        return bool(self.theirs == self.ours)

    def differing(self) -> dict[str, tuple[Any, Any]]:
        """What differs, theirs and ours, by where it stands: "members[0].member_epoch"."""
        return dict(_differing("", self.theirs, self.ours))


def _differing(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if theirs == ours:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            yield from _differing(f"{path}.{key}".lstrip("."), theirs.get(key, _MISSING), ours.get(key, _MISSING))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (their_element, our_element) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differing(f"{path}[{index}]", their_element, our_element)
    else:
        yield path, (theirs, ours)
