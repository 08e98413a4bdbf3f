"""Who may change something: sign-in by the console's token, sessions by a cookie, and a second secret in every form (CSRF).

The cookie is HttpOnly and SameSite=Strict: no script reads it, and no other site's page sends it. Its name has the port, since a browser
sends the cookies of one port of localhost to all of them. Sessions live in memory and end with the console.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from barnabas.cli.errors import NotUnderstoodError

LASTS_S = 12 * 3_600.0
SESSIONS_MAX = 100
"""The oldest ends when another begins."""
TOKEN_MIN = 16
"""Characters: nobody guesses such a token by asking."""
_log = logging.getLogger("barnabas.console.audit")


@dataclass(frozen=True, slots=True)
class Session:
    """`name` is what the audit calls it; it tells nothing of the secrets."""

    id: str
    csrf: str
    name: str
    began_s: float


class Sessions:
    """Owns the token and the sessions of one console."""

    def __init__(self, token: str, port: int) -> None:
        self._token = hashlib.sha256(token.encode()).digest()
        self.cookie = f"barnabas_console_{port}"
        self._by_id: dict[str, Session] = {}
        self._lock = threading.Lock()

    def sign_in(self, token: str) -> Session | None:
        """None if that is not the token."""
        if not hmac.compare_digest(hashlib.sha256(token.strip().encode()).digest(), self._token):
            return None
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_hex(4), time.monotonic())
        with self._lock:
            while len(self._by_id) >= SESSIONS_MAX:
                del self._by_id[next(iter(self._by_id))]
            self._by_id[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        with self._lock:
            session = self._by_id.get(session_id)
            if session is not None and time.monotonic() - session.began_s > LASTS_S:
                del self._by_id[session_id]
                return None
            return session

    def sign_out(self, session: Session) -> None:
        with self._lock:
            self._by_id.pop(session.id, None)


def is_csrf(session: Session, given: str) -> bool:
    """Whether a form came from a page that this session was shown."""
    return hmac.compare_digest(session.csrf.encode(), given.encode())


def audit(who: str, cluster: str, what: str) -> None:
    """A line of the log; names come from whoever may write them, so that line ends and control characters are escaped."""
    line = f"{who} on {cluster}: {what}"
    _log.info("%s", line.encode("unicode_escape").decode())


def read_token(path: Path) -> str:
    """The first line of a file. Raises NotUnderstoodError for one that could be guessed."""
    try:
        token = path.read_text(encoding="utf-8").strip().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as e:
        raise NotUnderstoodError(f"--token-file {path}: {e}") from e
    if len(token) < TOKEN_MIN:
        raise NotUnderstoodError(f"--token-file {path}: a token has at least {TOKEN_MIN} characters")
    return token


def make_token() -> str:
    return secrets.token_urlsafe(24)
