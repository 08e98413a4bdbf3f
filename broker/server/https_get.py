"""One GET or POST by HTTPS: for the keys and tokens of an OAuth provider. Blocks; called in a thread.

The host's certificate is checked. A GET's redirect to anything but https is refused, a POST's always: it has a secret. An answer beyond the
limit is refused, too.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO

TIMEOUT_S = 10
"""For the connection, and for each part of the answer."""


FINAL_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""After which another try has the same end (HttpJwtRetriever.UNRETRYABLE_HTTP_CODES)."""


class GetError(Exception):
    """`str()` says why there is no answer."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage | Message, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith("https://"):
            raise GetError("it redirects to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def https_get(url: str, context: ssl.SSLContext, size_max: int) -> bytes:
    """Returns the answer's body. Raises GetError."""
    return _exchange(urllib.request.Request(url), context, size_max, TIMEOUT_S, _HttpsRedirects())


def https_post(url: str, context: ssl.SSLContext, headers: Mapping[str, str], body: bytes, size_max: int, timeout_s: float) -> bytes:
    """Returns the answer's body. Raises GetError."""
    return _exchange(urllib.request.Request(url, body, dict(headers), method="POST"), context, size_max, timeout_s)


def _exchange(
    request: urllib.request.Request, context: ssl.SSLContext, size_max: int, timeout_s: float, *more: urllib.request.BaseHandler
) -> bytes:
    assert request.full_url.lower().startswith("https://"), "the settings were checked"
    request.add_header("Accept", "application/json")
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        *more,
    ):
        opener.add_handler(handler)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read(size_max + 1)
    except urllib.error.HTTPError as e:
        raise GetError(f"it answers with status {e.code}", is_final=e.code in FINAL_STATUSES) from e
    except (OSError, http.client.HTTPException, ValueError) as e:
        reason = getattr(e, "reason", None) or e
        raise GetError(f"it cannot be reached: {reason}") from e
    if len(body) > size_max:
        raise GetError(f"its answer has more than {size_max} bytes")
    return body
