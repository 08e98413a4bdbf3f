"""Facts in a log line that programs read too: `log.info("topic created %s", Fields(topic=name, partitions=3))`.

As text a line ends with `topic=orders partitions=3`; with `--log-format json` each fact is also a member of the line's object.
"""

from __future__ import annotations

import json
import re
from typing import Any

VALUE_CHARACTERS_MAX = 256  # of one value: a peer's client id may have 32,767

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # ASCII without blanks, quotes, `=` and backslashes


class Fields:
    """Names and values, in order; None means that there is no such fact. Made for a log call and not changed afterwards."""

    __slots__ = ("values",)

    def __init__(self, **values: Any) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        """`name=value …`; a value with blanks, quotes or anything beyond ASCII is quoted and escaped as in JSON."""
        return " ".join(f"{name}={_quoted(shortened(value))}" for name, value in self.values.items())


def shortened(value: Any) -> Any:
    """`value`, or its text's beginning where that is long."""
    if isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}…"


def _quoted(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
