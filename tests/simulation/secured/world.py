"""Simulated runs of secured brokers: everybody logs in, rights and secrets come and go while brokers fail.

Clients log in by PLAIN, SCRAM and delegation tokens, all over SASL_PLAINTEXT. A warden withdraws what its users need and gives it back
(warden.py); clients take every refusal for something that passes. What was withdrawn must not be served any more, and what is given must
not be refused (judge.py); what the other worlds check holds as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from broker.security.authorizer.acl_codes import ResourceType
from protocol.errors import ErrorCode
from protocol.sasl import scram
from tests.simulation.admin import Admin
from tests.simulation.clients import RETRIED, Client
from tests.simulation.cluster_world import SMALL_METADATA_LOG
from tests.simulation.node import Node
from tests.simulation.secured.accounts import Account, Door, PlainPassword
from tests.simulation.secured.committed import CommittedSecurity
from tests.simulation.secured.judge import AccessJudge
from tests.simulation.secured.users import MADE, Maker, Scout, Visitor
from tests.simulation.secured.warden import Warden
from tests.simulation.world import BROKER, FLUSHED, PLAIN, PORT, World

LISTENER = "CLIENT"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, NODE, SCOUT = "admin", "node", "scout"
PLAIN_USERS, SCRAM_USERS, TOKEN_USERS = ("bruno",), ("alice", "clara"), ("tina",)
USERS = (*SCRAM_USERS, *PLAIN_USERS, *TOKEN_USERS)
VISITORS_COUNT = 2
MAX_REAUTH_MS = (0, 700, 2_500)
REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,  # before the ACLs are loaded; what fails otherwise is in the log, and found there
    }
)  # fmt: skip


class SecuredWorld(World):
    """One broker."""

    OPTIONS = " --security"
    COMPACTED_SHARE = 0.0
    NEEDED: Mapping[ResourceType, Sequence[str]] = {ResourceType.TOPIC: (FLUSHED, PLAIN), ResourceType.GROUP: ("g", "k", "m")}
    """What clients use. The groups: of classic members, of KIP-848's, of both."""
    ADMINISTRATORS: tuple[type[Client], ...] = (Admin, Warden)
    LAST_READERS = frozenset({"reader"})
    """Clients that read everything when the run is over."""
    OPEN_SHARE = 0.2  # of the seeds allow everything that no ACL has to do with

    # -- what it is made of --------------------------------------------------------------------------------------------

    def _draw_settings(self) -> dict[str, str]:
        draw = self._stream("security")
        is_open = draw.random() < self.OPEN_SHARE
        max_reauth_ms = draw.choice(MAX_REAUTH_MS)
        self._accounts = self._make_accounts()
        self.judge = AccessJudge(self.loop, self.history, CommittedSecurity(is_allowed_without_acls=is_open), max_reauth_ms)
        users = " ".join(f'user_{user}="{password_of(user)}"' for user in (ADMIN, NODE, *PLAIN_USERS))
        prefix = f"listener.name.{LISTENER.lower()}"
        return {
            **super()._draw_settings(),
            **draw.choice(({}, SMALL_METADATA_LOG)),
            "listeners": f"{LISTENER}://{BROKER}:{PORT}",
            "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="{NODE}" password="{password_of(NODE)}" {users};',
            "connections.max.reauth.ms": str(max_reauth_ms),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{NODE}",
            "allow.everyone.if.no.acl.found": str(is_open).lower(),
            "delegation.token.secret.key": "of this world",
            "delegation.token.expiry.check.interval.ms": str(draw.choice((200, 2_000))),
        }

    def _make_accounts(self) -> dict[str, Account]:
        accounts = {user: Account(user, is_super=user == ADMIN) for user in (ADMIN, SCOUT, *USERS)}
        for user in (ADMIN, SCOUT, *PLAIN_USERS):
            accounts[user].secrets.append(PlainPassword(user, password_of(user)))
        for user in PLAIN_USERS:
            accounts[user].secrets.insert(0, PlainPassword(user, "a guess", is_right=False))
        return accounts

    def _make_nodes(self) -> list[Node]:
        nodes = super()._make_nodes()
        self.judge.clocks.update((node.host, node.clock) for node in nodes)
        return nodes

    def _client(self, kind: type[Any], name: str, **arguments: Any) -> Any:
        """Clients of the run are users, who may be refused; who prepares and who reads it all at the end is the administrator. The scout
        has no right at all."""
        client = super()._client(kind, name, **arguments)
        is_user = not isinstance(client, self.ADMINISTRATORS) and name not in self.LAST_READERS
        who = SCRAM_USERS + TOKEN_USERS if isinstance(client, Visitor) else USERS
        user = SCOUT if isinstance(client, Scout) else self._stream(f"account of {client.host}").choice(who) if is_user else ADMIN
        client.open_connection = Door(self._accounts[user], self.judge, self._stream(f"logins of {name}")).open
        client.retried = RETRIED | REFUSALS
        if isinstance(client, Maker):
            client.principal = self._accounts[user].principal
        return client

    def _make_clients(self) -> list[Client]:
        visitors = [self._client(Visitor, f"visitor{index}") for index in range(VISITORS_COUNT)]
        clients = [*super()._make_clients(), self._client(Maker, "maker"), *visitors]
        self.warden = self._client(Warden, "warden", needed=self.NEEDED, made=MADE, hosts=[client.host for client in clients])
        for user in USERS:
            self.warden.add_account(self._accounts[user], has_password=user in SCRAM_USERS, has_tokens=user in TOKEN_USERS)
        return [*clients, self.warden]

    # -- the run -------------------------------------------------------------------------------------------------------

    async def _create_topics(self) -> None:
        await super()._create_topics()
        await self.warden.give_all()

    def _run(self) -> dict[str, list[Any]]:
        with self.judge.watching(), patch.object(scram, "salted_password", lru_cache(maxsize=None)(scram.salted_password)):
            return super()._run()


def password_of(user: str) -> str:
    return f"of {user}"
