"""Who may change something, by the console's token or as a user of a cluster: sessions by a cookie, a second secret in every form (CSRF).

The cookie is HttpOnly and SameSite=Strict: no script reads it, and no other site's page sends it. Its name has the port, since a browser
sends the cookies of one port of localhost to all of them. Each sign-in makes a new session id, so that an id that somebody has put into a
browser is worth nothing (fixation). Sessions live in memory and end with the console.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cli.errors import NotUnderstoodError
from barnabas.console.logins import Login
from barnabas.console.tries import Tries

LASTS_S = 12 * 3_600.0
"""After the first sign-in."""
IDLE_S = 30 * 60.0
"""Without a page that a person has asked for: that an open page renews itself does not count."""
SESSIONS_MAX = 100
"""The oldest ends when another begins."""
EACH_MAX = 10
"""Of one user, or of the token: nobody ends the sessions of others by signing in again and again."""
TOKEN_MIN = 16
"""Characters: nobody guesses such a token by asking."""
BY_TOKEN = "token"
_log = logging.getLogger("barnabas.console.audit")


@dataclass(slots=True)
class Session:
    """`name` is what the audit calls it; it tells nothing of the secrets. `logins` are by the cluster's part of the address."""

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    name: str
    of: str
    """Who has signed in last: BY_TOKEN, or as `who_of` says it."""
    began_s: float
    used_s: float
    has_token: bool = False
    logins: dict[str, Login] = field(default_factory=dict)


class Sessions:
    """Owns the token, if there is one, and the sessions of one console."""

    def __init__(self, token: str, port: int, *, allows_login: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Without a `token` ("") nobody signs in by one."""
        self._token = hashlib.sha256(token.encode()).digest() if token else None
        self._clock = clock
        self.allows_login = allows_login
        self.tries = Tries(clock)
        self.cookie = f"barnabas_console_{port}"
        self.mark_cookie = f"{self.cookie}_known"
        self._by_id: dict[str, Session] = {}
        self._lock = threading.Lock()

    @property
    def has_token(self) -> bool:
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """Whether that is the token."""
        return self._token is not None and hmac.compare_digest(hashlib.sha256(given.strip().encode()).digest(), self._token)

    def sign_in(self, before: Session | None, cluster: str = "", login: Login | None = None) -> Session:
        """A new session of whom the caller has let in: by the token, or with a login to the cluster. It takes over what the same browser's
        session `before` has been let into, and ends that. In one cluster the last sign-in counts."""
        now_s = self._clock()
        of = BY_TOKEN if login is None else who_of(cluster, login.user)
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_hex(4), of, now_s, now_s)
        with self._lock:
            if before is not None and self._by_id.pop(before.id, None) is not None:
                session.began_s, session.has_token, session.logins = before.began_s, before.has_token, dict(before.logins)
            if login is None:
                session.has_token = True
                session.logins.pop(cluster, None)
            else:
                session.logins[cluster] = login
            self._make_room(session.of)
            self._by_id[session.id] = session
        return session

    def find(self, session_id: str, *, is_used: bool = True) -> Session | None:
        """`is_used` if a person asks, and no script."""
        with self._lock:
            self._end_old()
            session = self._by_id.get(session_id)
            if session is not None and is_used:
                session.used_s = self._clock()
            return session

    def sign_out(self, session: Session) -> None:
        with self._lock:
            self._by_id.pop(session.id, None)
            session.logins.clear()

    def forget(self, session: Session, cluster: str) -> None:
        """The cluster does not let this login in any more."""
        with self._lock:
            session.logins.pop(cluster, None)

    def _end_old(self) -> None:
        """With their passwords. The lock is held."""
        now_s = self._clock()
        for each in list(self._by_id.values()):
            if now_s - each.began_s > LASTS_S or now_s - each.used_s > IDLE_S:
                del self._by_id[each.id]

    def _make_room(self, of: str) -> None:
        """The lock is held."""
        own = [each.id for each in self._by_id.values() if each.of == of]
        for session_id in own[: max(len(own) - EACH_MAX + 1, 0)]:
            del self._by_id[session_id]
        while len(self._by_id) >= SESSIONS_MAX:
            del self._by_id[next(iter(self._by_id))]


def who_of(cluster: str, user: str) -> str:
    """A user of a cluster, among all who sign in."""
    return f"{cluster}/{user}"


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
