"""Who sends a request to the group coordinator, as far as groups care."""

from __future__ import annotations

from typing import NamedTuple


class Requester(NamedTuple):
    """`client_host` is the address, without Java's slash."""

    api_version: int
    client_id: str
    client_host: str
