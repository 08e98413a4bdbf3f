"""Answers as dicts and lists, which two servers can be compared by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from protocol.schema import Message

OURS_ALONE = "barnabas."


def plain(value: Any, left_out: Collection[str]) -> Any:
    """`left_out` are names of fields that say nothing, such as ids and times."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name), left_out) for name in value.__slots__ if name not in left_out}
    if isinstance(value, list):
        elements = [plain(each, left_out) for each in value if not _is_ours_alone(each)]
        # Kafka's order is that of its hash maps.
        return sorted(elements, key=repr) if elements and isinstance(elements[0], dict) else elements
    return bytes(value) if isinstance(value, memoryview) else value


def _is_ours_alone(value: Any) -> bool:
    """Our own configs, and the one that ELR (KIP-966) sets for Kafka's brokers, which this metadata version has not."""
    name = getattr(value, "name", None)
    return isinstance(name, str) and (name.startswith(OURS_ALONE) or name == "min.insync.replicas")
