"""One GET by HTTPS: for the keys of an OAuth provider. Blocks; called in a thread.

The host's certificate is checked. A redirect to anything but https is refused, and so is an answer beyond the limit.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from email.message import Message
from typing import IO

TIMEOUT_S = 10
"""For the connection, and for each part of the answer."""


class GetError(Exception):
    """`str()` says why there is no answer."""


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage | Message, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith("https://"):
            raise GetError("it redirects to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def https_get(url: str, context: ssl.SSLContext, size_max: int) -> bytes:
    """Returns the answer's body. Raises GetError."""
    assert url.lower().startswith("https://"), "the settings were checked"
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _HttpsRedirects(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(size_max + 1)
    except urllib.error.HTTPError as e:
        raise GetError(f"it answers with status {e.code}") from e
    except (OSError, http.client.HTTPException, ValueError) as e:
        reason = getattr(e, "reason", None) or e
        raise GetError(f"it cannot be reached: {reason}") from e
    if len(body) > size_max:
        raise GetError(f"its answer has more than {size_max} bytes")
    return body
