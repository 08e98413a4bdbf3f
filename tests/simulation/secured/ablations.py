"""Safeguards of logins and rights that can be switched off, one at a time, as in tests/simulation/ablations.py. Some seed has to notice
each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from broker.controller.authorized_controller import AuthorizedController
from broker.network.login import Login
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.decision import DEFAULT_ALLOW
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from broker.security.credentials.credentials import Credentials
from broker.security.credentials.token_credentials import TokenCredentials
from broker.security.sasl.scram_server import ScramServer
from tests.simulation.ablation_set import AblationSet
from tests.simulation.secured.cluster import SecuredClusterWorld
from tests.simulation.secured.world import SecuredWorld
from tests.simulation.world import World


@contextmanager
def keep_decisions() -> Iterator[None]:
    """What the authorizer has decided counts after the ACLs have changed."""

    def keep_all(self: StandardAuthorizer) -> None:
        self._version = self._acls.version

    with patch.object(StandardAuthorizer, "_forget", keep_all):
        yield


@contextmanager
def keep_what_a_connection_was_allowed() -> Iterator[None]:
    """As long as the connection asks for the same, in requests of one API."""
    allows = Access.allows
    allowed: dict[Access, set[Any]] = {}

    def allows_once_and_for_all(self: Access, operation: Any, resource_type: Any, name: str, **named: Any) -> bool:
        kept = allowed.setdefault(self, set())
        question = operation, resource_type, name
        if question not in kept and allows(self, operation, resource_type, name, **named):
            kept.add(question)
        return question in kept

    with patch.object(Access, "allows", allows_once_and_for_all):
        yield


@contextmanager
def check_nothing_for_the_controller_in_the_process() -> Iterator[None]:
    """What a client asks of a broker that is the active controller itself goes by no check."""
    create_topics = AuthorizedController.create_topics

    async def create_unchecked(self: AuthorizedController, request: Any, client: Any, *, is_automatic: bool = False) -> Any:
        if client is None or client.connection.is_forwarded:
            return await create_topics(self, request, client, is_automatic=is_automatic)
        return await self._local.create_topics(request, client, is_automatic=is_automatic)

    with patch.object(AuthorizedController, "create_topics", create_unchecked):
        yield


@contextmanager
def accept_expired_tokens() -> Iterator[None]:
    """A session by a token lasts as long as any other, and a login by one whose time is over too."""
    find = TokenCredentials.find

    def find_without_end(self: TokenCredentials, mechanism: Any, token_id: str) -> Any:
        found = find(self, mechanism, token_id)
        return None if found is None else found._replace(end_ms=found.end_ms + 3_600_000)

    with patch.object(TokenCredentials, "find", find_without_end):
        yield


@contextmanager
def accept_removed_passwords() -> Iterator[None]:
    """A listener remembers the credentials that it has seen."""
    find_user = Credentials.find_user
    seen: dict[tuple[Credentials, str], Any] = {}

    def find_or_remember(self: Credentials, mechanism: Any, username: str) -> Any:
        found = find_user(self, mechanism, username)
        if found is not None:
            seen[self, username] = found
        return seen.get((self, username))

    with patch.object(Credentials, "find_user", find_or_remember):
        yield


@contextmanager
def trust_the_credential_of_the_first_message() -> Iterator[None]:
    """As Kafka 4.3.1."""
    find = ScramServer._find

    def find_once(self: ScramServer, first: Any) -> Any:
        return self._found or find(self, first)

    with patch.object(ScramServer, "_find", find_once):
        yield


@contextmanager
def end_no_session() -> Iterator[None]:
    """Clients are told of an end, and may go on after it."""
    begin_session = Login._begin_session

    def begin_endless_session(self: Login, action: Any) -> None:
        begin_session(self, action)
        self._session_end_ms = None

    with patch.object(Login, "_begin_session", begin_endless_session):
        yield


@contextmanager
def load_snapshots_without_acls() -> Iterator[None]:
    def become_empty(self: AclStore, other: AclStore) -> None:
        self._by_id, self._index = {}, None
        self.version += 1

    def forgive(self: AclStore, record: Any) -> None:
        self._remove(record.id)
        self.version += 1

    with patch.object(AclStore, "become", become_empty), patch.object(AclStore, "replay_removal", forgive):
        yield


@contextmanager
def let_everyone_in_before_the_acls_are_loaded() -> Iterator[None]:
    decide = StandardAuthorizer._decide

    def decide_at_once(self: StandardAuthorizer, *question: Any) -> Any:
        return decide(self, *question) if self.is_loaded else DEFAULT_ALLOW

    with patch.object(StandardAuthorizer, "_decide", decide_at_once):
        yield


Ablation = Callable[[], AbstractContextManager[None]]

ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        keep_decisions,
        keep_what_a_connection_was_allowed,
        check_nothing_for_the_controller_in_the_process,
        accept_expired_tokens,
        accept_removed_passwords,
        trust_the_credential_of_the_first_message,
        end_no_session,
        load_snapshots_without_acls,
        let_everyone_in_before_the_acls_are_loaded,
    )
}

_SERVED = frozenset({"served-though-withdrawn"})

BROKEN_BY: dict[str, frozenset[str]] = {
    "keep_decisions": _SERVED,
    "keep_what_a_connection_was_allowed": _SERVED,
    "check_nothing_for_the_controller_in_the_process": _SERVED,
    "accept_expired_tokens": frozenset({"served-after-the-session", "session-too-long"}),
    "accept_removed_passwords": frozenset({"withdrawn-secret-accepted"}),
    "trust_the_credential_of_the_first_message": frozenset({"withdrawn-secret-accepted"}),
    "end_no_session": frozenset({"served-after-the-session"}),
    "load_snapshots_without_acls": _SERVED | {"refused-though-allowed"},
    "let_everyone_in_before_the_acls_are_loaded": _SERVED,
}
"""What each ablation breaks: a seed counts when it finds one of these."""

KEPT_SEEDS = {
    "keep_decisions": 0,
    "keep_what_a_connection_was_allowed": 1,
    "check_nothing_for_the_controller_in_the_process": 0,
    "accept_expired_tokens": 0,
    "accept_removed_passwords": 5,
    "trust_the_credential_of_the_first_message": 5,
    "end_no_session": 4,
    "load_snapshots_without_acls": 0,
    "let_everyone_in_before_the_acls_are_loaded": 0,
}

WORLDS: dict[str, type[World]] = {"let_everyone_in_before_the_acls_are_loaded": SecuredClusterWorld}
"""Of those that one broker does not show: clients reach it only when the ACLs are loaded."""

ABLATION_SET = AblationSet(ABLATIONS, BROKEN_BY, SecuredWorld, WORLDS)
