"""Envelope (key 58): a broker forwards a client's request to the active controller (KIP-590)."""

from __future__ import annotations

from ..schema import Bytes, Int16, api, message


@api(key=58, versions=(0, 0), flexible=0)
class EnvelopeRequest:
    request_data: Bytes = b""
    request_principal: Bytes | None = b""
    client_host_address: Bytes = b""


@message(versions=(0, 0), flexible=0)
class EnvelopeResponse:
    response_data: Bytes | None = None
    error_code: Int16 = 0
