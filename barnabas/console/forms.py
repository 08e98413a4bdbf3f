"""Forms that come by POST: their fields, and who sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.sessions import Session
from barnabas.console.shell import View

Form = Mapping[str, str]


async def read_form(request: Request, size_max: int) -> Form | None:
    """URL-encoded fields of a POST, as the console's own forms send them; of a field that comes twice, the last. None of a GET. Raises
    HTTPException for more than `size_max` bytes."""
    if request.method != "POST":
        return None
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_max:
            raise HTTPException(413, "the form is too large\n")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        return {}


def form_page(view: View, template: str, title: str, *, status: int = 200, **context: Any) -> Response:
    """A page that needs no figures of the cluster."""
    return view.page(template, title=title, section="", status=status, is_for_figures=False, **context)


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def name_of(view: View, session: Session) -> str:
    """Who it is, for the audit; a user's name is quoted, since it may have spaces."""
    user = f" of {json.dumps(view.login.user, ensure_ascii=False)}" if view.login else ""
    return f"session {session.name}{user} from {address_of(view.request)}"
