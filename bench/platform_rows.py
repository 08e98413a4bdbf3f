"""What the machine itself gives: the bound for every row of bytes."""

from __future__ import annotations

from bench.session import Outcome, Session

MEGABYTES = 2_000


def raw_limit(session: Session) -> Outcome:
    """The same bytes without a broker, on the file system of the broker's data."""
    path = session.directory / "raw-limit.bin"
    return Outcome(session.client("raw_limit", "--megabytes", str(session.scaled(MEGABYTES)), "--file", str(path)))
