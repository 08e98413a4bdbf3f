"""The machine's own limits: the bound for every row of bytes, and for the latency of one small request."""

from __future__ import annotations

from bench.session import Outcome, Session

MEGABYTES = 2_000
ECHO_REQUESTS = 30_000


def raw_limit(session: Session) -> Outcome:
    """The same bytes, and the same small requests, without a broker, on the file system of the broker's data."""
    path = session.directory / "raw-limit.bin"
    moved = session.client("raw_limit", "--megabytes", str(session.scaled(MEGABYTES)), "--file", str(path))
    echoed = session.client("raw_echo", "--requests", str(session.scaled(ECHO_REQUESTS)), "--file", str(path))
    return Outcome({**moved, **echoed})
