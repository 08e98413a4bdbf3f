"""SaslHandshake (key 17): chooses the SASL mechanism of a connection.

Version notes: after 0 the tokens come as frames of their own, after 1 in SaslAuthenticate requests.
"""

from __future__ import annotations

from ..schema import Array, Int16, String, api, message


@api(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest:
    """Names the client's mechanism."""

    mechanism: String = ""


@message(versions=(0, 1), flexible=None)
class SaslHandshakeResponse:
    """Lists the mechanisms of the listener."""

    error_code: Int16 = 0
    mechanisms: Array[String] = []
