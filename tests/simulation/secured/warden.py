"""Warden: an administrator who gives rights and secrets to users, takes them away, and gives them back.

It does not know what came of a request that was not answered, and need not: the judge reads the metadata. At the end it gives everything
back, so that all clients can end what they have begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.sasl.scram import ITERATIONS_MIN
from tests.simulation.clients import Client
from tests.simulation.connection import LostError
from tests.simulation.network import numeric
from tests.simulation.secured.accounts import SCRAM, Account, ScramPassword, Token

CREATE_ACLS_VERSION = DELETE_ACLS_VERSION = 3
ALTER_SCRAM_VERSION = 0
CREATE_TOKEN_VERSION, RENEW_TOKEN_VERSION, EXPIRE_TOKEN_VERSION = 3, 2, 2
PAUSE_S = (0.02, 0.25)
WITHDRAWAL_SHARE = 0.55  # of the steps while something is withdrawn: the others give the oldest back
TOKEN_LIVES_MS = (400, 1_500, 60_000)
SALT_SIZE = 16
ANY_HOST, EVERYBODY = "*", "User:*"

Step = Callable[[], Awaitable[None]]
Pattern = tuple[ResourceType, str, PatternType]


class Warden(Client):
    """`needed` are the resources that users need, by their type; `made` is the prefix of topics that they may make. `hosts` are those of
    clients."""

    def __init__(self, *arguments: Any, needed: Mapping[ResourceType, Sequence[str]], made: str, hosts: list[str]) -> None:
        super().__init__(*arguments)
        self._accounts: dict[str, Account] = {}
        self._has_tokens: dict[str, bool] = {}
        self._hosts = hosts
        self._needed: list[Pattern] = [
            *((kind, name, PatternType.LITERAL) for kind, names in needed.items() for name in names),
            (ResourceType.TOPIC, made, PatternType.PREFIXED),
            (ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
        ]
        """That give a user everything."""
        self._patterns: list[Pattern] = [
            *self._needed,
            *((ResourceType.TOPIC, name[:2], PatternType.PREFIXED) for name in needed[ResourceType.TOPIC]),
            *((kind, "*", PatternType.LITERAL) for kind in needed),
        ]
        """What denials are made of."""
        self._withdrawn: list[Step] = []
        """How to give it back, the oldest first."""
        self._passwords_count = 0

    def add_account(self, account: Account, *, has_password: bool, has_tokens: bool) -> None:
        """A user who may be given SCRAM passwords, or tokens. One of PLAIN has neither."""
        self._accounts[account.user] = account
        self._has_tokens[account.user] = has_tokens
        if has_password:
            account.secrets.append(self._new_password(account.user))

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._step()
            except LostError:
                await self.back_off()
            await asyncio.sleep(self.draw.uniform(*PAUSE_S))
        await self.give_all()

    async def give_all(self) -> None:
        """Everything that users need, however often it takes."""
        users = list(self._accounts.values())
        await self._until_done(lambda: self._allow(users, self._needed))
        await self._until_done(lambda: self._delete([DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY, resource_name_filter=None, pattern_type_filter=PatternType.ANY, principal_filter=None,
            host_filter=None, operation=AclOperation.ANY, permission_type=AclPermissionType.DENY,
        )]))  # fmt: skip
        for account in users:
            if self._has_tokens[account.user]:
                await self._until_done(lambda account=account: self._give_token(account, -1))  # type: ignore[misc]
            elif any(isinstance(secret, ScramPassword) for secret in account.secrets):
                await self._until_done(lambda account=account: self._give_password(account))  # type: ignore[misc]
        self.note("has given everything back")

    async def _until_done(self, step: Step) -> None:
        while True:
            try:
                return await step()
            except LostError:
                await self.back_off()

    async def _step(self) -> None:
        self.operations_count += 1
        if self._withdrawn and self.draw.random() >= WITHDRAWAL_SHARE:
            await self._withdrawn[0]()
            del self._withdrawn[0]
            return
        account = self._accounts[self.draw.choice(sorted(self._accounts))]
        what = self.draw.random()
        if what < 0.45 and self._has_tokens[account.user]:
            await self._change_token(account)
        elif what < 0.45 and any(isinstance(secret, ScramPassword) for secret in account.secrets):
            await self._change_password(account)
        elif what < 0.75:
            await self._take_rights(account)
        else:
            await self._deny(account)

    # -- rights --------------------------------------------------------------------------------------------------------

    async def _take_rights(self, account: Account) -> None:
        """All rules that give the user something on a resource."""
        kind, name, pattern_type = self.draw.choice(self._needed)
        match = PatternType.MATCH if pattern_type is PatternType.LITERAL else PatternType.PREFIXED
        self._withdrawn.append(lambda: self._allow([account], [self._another_pattern(kind, name, pattern_type)]))
        await self._delete([_filter(kind, name, match, account.principal, AclPermissionType.ALLOW)])

    async def _deny(self, account: Account) -> None:
        kind, name, pattern_type = self.draw.choice(self._patterns)
        host = self.draw.choice((ANY_HOST, ANY_HOST, numeric(self.draw.choice(self._hosts))))
        principal = self.draw.choice((account.principal, account.principal, EVERYBODY))
        operation = self.draw.choice(_OPERATIONS[kind])
        filters = [_filter(kind, name, pattern_type, principal, AclPermissionType.DENY)]
        self._withdrawn.append(lambda: self._delete(filters))
        await self._create([_acl((kind, name, pattern_type), principal, host, operation, AclPermissionType.DENY)])

    def _another_pattern(self, kind: ResourceType, name: str, pattern_type: PatternType) -> Pattern:
        """One that covers the resource."""
        if kind is ResourceType.CLUSTER or pattern_type is PatternType.PREFIXED:
            return kind, name, pattern_type
        patterns = (kind, name, pattern_type), (kind, name[:2], PatternType.PREFIXED), (kind, "*", PatternType.LITERAL)
        return self.draw.choice(patterns)

    async def _allow(self, accounts: list[Account], patterns: list[Pattern]) -> None:
        await self._create([
            _acl(pattern, account.principal, ANY_HOST, AclOperation.ALL if pattern[0] is not ResourceType.CLUSTER else operation,
                 AclPermissionType.ALLOW)
            for account in accounts for pattern in patterns
            for operation in (_OPERATIONS[ResourceType.CLUSTER] if pattern[0] is ResourceType.CLUSTER else (AclOperation.ALL,))
        ])  # fmt: skip

    async def _create(self, acls: list[AclCreation]) -> None:
        response = await self.ask(CreateAclsRequest(creations=acls), CREATE_ACLS_VERSION)
        self._told(f"created {len(acls)} ACLs, first {_shown(acls[0])}", [each.error_code for each in response.results])

    async def _delete(self, filters: list[DeleteAclsFilter]) -> None:
        response = await self.ask(DeleteAclsRequest(filters=filters), DELETE_ACLS_VERSION)
        counts = [len(each.matching_acls) for each in response.filter_results]
        self._told(f"deleted {counts} ACLs", [each.error_code for each in response.filter_results])

    # -- secrets -------------------------------------------------------------------------------------------------------

    def _new_password(self, user: str) -> ScramPassword:
        self._passwords_count += 1
        return ScramPassword(user, f"{user} {self._passwords_count}", self.draw.randbytes(SALT_SIZE).hex().encode())

    async def _change_password(self, account: Account) -> None:
        self._withdrawn.append(lambda: self._give_password(account))
        if self.draw.random() < 0.5:
            await self._give_password(account)
            return
        deletion = ScramCredentialDeletion(name=account.user, mechanism=SCRAM.value)
        response = await self.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), ALTER_SCRAM_VERSION)
        self._told(f"deleted the password of {account.user}", [each.error_code for each in response.results])

    async def _give_password(self, account: Account) -> None:
        secret = self._new_password(account.user)
        account.secrets.append(secret)
        upsertion = ScramCredentialUpsertion(
            name=account.user, mechanism=SCRAM.value, iterations=ITERATIONS_MIN, salt=secret.salt, salted_password=secret.salted
        )
        response = await self.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), ALTER_SCRAM_VERSION)
        self._told(f"gave {account.user} a password", [each.error_code for each in response.results])

    async def _change_token(self, account: Account) -> None:
        """A new one, the end of one, or a later or earlier end."""
        tokens = [secret for secret in account.secrets if isinstance(secret, Token)]
        what = self.draw.random()
        if not tokens or what < 0.35:
            await self._give_token(account, self.draw.choice(TOKEN_LIVES_MS))
            return
        token = self.draw.choice(tokens[-3:])
        self._withdrawn.append(lambda: self._give_token(account, self.draw.choice(TOKEN_LIVES_MS)))
        if what < 0.5:
            renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=self.draw.choice(TOKEN_LIVES_MS))
            error = (await self.ask(renewal, RENEW_TOKEN_VERSION)).error_code
        else:
            period_ms = self.draw.choice((-1, -1, 0, 200))
            expiry = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
            error = (await self.ask(expiry, EXPIRE_TOKEN_VERSION)).error_code
        self._told(f"changed the end of a token of {account.user}", [error])

    async def _give_token(self, account: Account, max_lifetime_ms: int) -> None:
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=account.user, renewers=[], max_lifetime_ms=max_lifetime_ms
        )
        response = await self.ask(request, CREATE_TOKEN_VERSION)
        self._told(f"gave {account.user} a token", [response.error_code])
        account.secrets.append(Token(account.user, response.token_id, bytes(response.hmac)))

    def _told(self, what: str, errors: list[int]) -> None:
        """Raises LostError for what has to be tried again."""
        self.note(f"{what}: {errors}")
        failed = [error for error in errors if error not in _ANSWERS]
        for error in failed:
            if error not in self.retried:
                self.unexpected(what, error)
        if failed:
            raise LostError(what)


_ANSWERS = frozenset(
    {ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, ErrorCode.DELEGATION_TOKEN_EXPIRED,
     ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH}
)  # fmt: skip

_OPERATIONS = {
    ResourceType.TOPIC: (AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.ALL, AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.ALL, AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE, AclOperation.DESCRIBE),
}
"""What is given or denied. On the cluster nobody is given more: who may ALTER it makes rules of his own."""


def _acl(pattern: Pattern, principal: str, host: str, operation: AclOperation, permission: AclPermissionType) -> AclCreation:
    kind, name, pattern_type = pattern
    return AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern_type, principal=principal, host=host, operation=operation,
        permission_type=permission,
    )  # fmt: skip


def _filter(kind: ResourceType, name: str, match: PatternType, principal: str, permission: AclPermissionType) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=match, principal_filter=principal, host_filter=None,
        operation=AclOperation.ANY, permission_type=permission,
    )  # fmt: skip


def _shown(acl: AclCreation) -> str:
    permission, operation = AclPermissionType(acl.permission_type).name, AclOperation(acl.operation).name
    return f"{permission} {acl.principal} {operation} {acl.resource_name} ({acl.resource_pattern_type}) at {acl.host}"
