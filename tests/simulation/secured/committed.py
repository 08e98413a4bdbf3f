"""What the metadata log says about rights and secrets, by its offsets: the judge's own replay, which nothing of the brokers changes.

It reads the committed records as the first broker applies them. What is committed once is committed for ever, so one history is that of
all nodes; a broker that applies another record at an offset contradicts it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from broker.security.authorizer.acl import Acl, acl_of_record
from broker.security.authorizer.acl_index import AclIndex
from broker.security.authorizer.decision import DEFAULT_ALLOW, DEFAULT_DENY, Decision, decide, decide_by_type
from broker.security.authorizer.standard_authorizer import ANY_NAME
from protocol.messages.stored.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tests.simulation.secured.accounts import SCRAM

Question = tuple[str, str, int, int, str | None]
"""Principal, host, operation, resource type, and the name of the resource; None asks about any of the type."""


class SecurityState:
    """At some offsets. Never changes. `stored_keys`: SCRAM credentials by user."""

    def __init__(
        self, acls: dict[bytes, Acl], stored_keys: dict[str, bytes], tokens: dict[str, DelegationTokenRecord], without_acls: Decision
    ) -> None:
        self.acls = acls
        self.stored_keys = stored_keys
        self.tokens = tokens
        self._without_acls = without_acls
        self._decided: dict[Question, bool] = {}

    def allows(self, question: Question) -> bool:
        """By the ACLs. The rules are the authorizer's own (decision.py), which others compare with Kafka's; what it keeps is not used."""
        if question not in self._decided:
            principal, host, operation, resource_type, name = question
            decision = decide(self._index, principal, host, operation, resource_type, name or ANY_NAME, without_acls=self._without_acls)
            if name is None and not decision.is_allowed:
                decision = decide_by_type(self._index, principal, host, operation, resource_type)
            self._decided[question] = decision.is_allowed
        return self._decided[question]

    def after(self, records: Iterable[Any]) -> SecurityState:
        """The state after these records: this one if they change nothing of it."""
        acls, stored_keys, tokens = dict(self.acls), dict(self.stored_keys), dict(self.tokens)
        is_changed = False
        for record in records:
            is_changed = True
            if isinstance(record, AccessControlEntryRecord):
                acls[record.id] = acl_of_record(record)
            elif isinstance(record, RemoveAccessControlEntryRecord):
                del acls[record.id]
            elif isinstance(record, UserScramCredentialRecord) and record.mechanism == SCRAM.value:
                stored_keys[record.name] = record.stored_key
            elif isinstance(record, RemoveUserScramCredentialRecord) and record.mechanism == SCRAM.value:
                stored_keys.pop(record.name, None)
            elif isinstance(record, DelegationTokenRecord):
                tokens[record.token_id] = record
            elif isinstance(record, RemoveDelegationTokenRecord):
                tokens.pop(record.token_id, None)
            else:
                is_changed = False
        return SecurityState(acls, stored_keys, tokens, self._without_acls) if is_changed else self

    @cached_property
    def _index(self) -> AclIndex:
        index = AclIndex()
        for acl_id, acl in self.acls.items():
            index.add(acl_id, acl)
        return index


class CommittedSecurity:
    """The states by offset. `end_offset` is where the history ends."""

    def __init__(self, *, is_allowed_without_acls: bool) -> None:
        self.end_offset = 0
        self._offsets = [0]
        """From each of them on the state of the same place counts."""
        self._states = [SecurityState({}, {}, {}, DEFAULT_ALLOW if is_allowed_without_acls else DEFAULT_DENY)]
        self._epochs: dict[int, int] = {}

    def applied(self, end_offset: int, epoch: int, records: Sequence[Any]) -> bool:
        """A broker has applied `records`, which end before `end_offset`. Returns whether they fit to what others have applied."""
        if end_offset <= self.end_offset:
            return self._epochs.get(end_offset, epoch) == epoch
        self.end_offset = end_offset
        self._epochs[end_offset] = epoch
        state = self._states[-1].after(records)
        if state is not self._states[-1]:
            self._offsets.append(end_offset)
            self._states.append(state)
        return True

    def between(self, first: int, last: int) -> Iterator[SecurityState]:
        """The states that a broker had that had applied the log up to `first` at first, and up to `last` at last."""
        begin = bisect_right(self._offsets, first) - 1
        yield from self._states[begin : max(bisect_right(self._offsets, last), begin + 1)]
