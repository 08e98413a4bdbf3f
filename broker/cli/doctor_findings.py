"""Finding: one thing that `barnabas doctor` has looked at."""

from __future__ import annotations

from typing import NamedTuple

PROBLEM = "problem"
"""A start fails, data are in danger, or clients will be refused."""
ADVICE = "advice"
FINE = "fine"


class Finding(NamedTuple):
    """`check` is what was looked at, `found` the facts, `advice` what to change; empty if it is in order."""

    check: str
    level: str
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """The fields of --output json, which docs/operations.md lists."""
        return dict(self._asdict())
