"""Records of a coordinator's log, and what an operation on its state comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.errors import ErrorCode


@dataclass(slots=True)
class CoordinatorRecord:
    """One change of durable state: a key and a value of one RecordType. The value None is the tombstone that ends what the key names."""

    key: Any
    value: Any | None


@dataclass(slots=True)
class CoordinatorResult:
    """What an operation on a coordinator's state came to: records to append, and what to do once they are committed or refused."""

    records: list[CoordinatorRecord]
    on_committed: Callable[[ErrorCode], None]
