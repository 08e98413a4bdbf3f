"""The client that sends a request to the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class ClientInfo(NamedTuple):
    """`client_host` is the address, without Java's slash. `may_describe` says whether a topic may be described by the client; None: all
    may."""

    api_version: int
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool] | None = None
