"""How what steps name is said to a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from protocol.uuids import ZERO_UUID

UNKNOWN_ID = bytes(range(16))
RAW_NAMES: Collection[str] = ("", ".", "..", "a/b", "n" * 250, "__cluster_metadata", "__consumer_offsets")
"""Names that are said as they are: no topic can have them, or the broker has it of its own."""


@dataclass(slots=True)
class Names:
    """How the names of steps are said to a broker. `by_id` has the full names of all topics that there were."""

    namespace: str
    by_id: dict[bytes, str] = field(default_factory=dict)

    def learn(self, topics: Iterable[Any]) -> None:
        """Topics as Metadata and CreateTopics answer them."""
        self.by_id.update((topic.topic_id, topic.name) for topic in topics if topic.topic_id != ZERO_UUID)

    def of(self, name: str) -> str:
        return name if name in RAW_NAMES else f"{self.namespace}-{name}"

    def topic_id(self, name: str) -> bytes:
        """Of the newest topic of that name, also when it is gone; one that nobody has where there was never any."""
        found = [topic_id for topic_id, known in self.by_id.items() if known == self.of(name)]
        return found[-1] if found else UNKNOWN_ID
