"""The client that sends a request to the group coordinator."""

from __future__ import annotations

from typing import NamedTuple


class ClientInfo(NamedTuple):
    """`client_host` is the address, without Java's slash."""

    api_version: int
    client_id: str
    client_host: str
