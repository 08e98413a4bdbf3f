"""The authorizer decides as the rules say when they are written down in the plainest way, also while the ACLs change."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation
from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.standard_authorizer import ANY_NAME, StandardAuthorizer
from protocol.messages.stored.metadata_records import RemoveAccessControlEntryRecord
from tests.broker.security.authorizer.random_rules import Question, random_acl, random_question
from tests.broker.security.authorizer.room import ALLOW, DENY, LITERAL, PREFIXED

STEPS = 200
QUESTIONS_PER_STEP = 8

DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
IMPLYING = {
    DESCRIBE: (DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}


def is_allowed(acls: Collection[Acl], question: Question, without_acls: bool) -> bool:
    about = [acl for acl in acls if covers(acl, question)]
    concerned = [acl for acl in about if concerns(acl, question)]
    if any(acl.permission_type == DENY and acl.operation in (question.operation, AclOperation.ALL) for acl in concerned):
        return False
    allowing = (AclOperation.ALL, *IMPLYING.get(AclOperation(question.operation), (question.operation,)))
    if any(acl.permission_type == ALLOW and acl.operation in allowing for acl in concerned):
        return True
    return without_acls and not about


def covers(acl: Acl, question: Question) -> bool:
    if acl.resource_type != question.resource_type:
        return False
    if acl.pattern_type == PREFIXED:
        return question.name.startswith(acl.resource_name)
    return acl.resource_name in ("*", question.name)


def concerns(acl: Acl, question: Question) -> bool:
    return acl.principal in ("User:*", question.principal) and acl.host in ("*", question.host)


def is_any_allowed(acls: Collection[Acl], question: Question, without_acls: bool) -> bool:
    if is_allowed(acls, question._replace(name=ANY_NAME), without_acls):
        return True
    of_type = [acl for acl in acls if acl.resource_type == question.resource_type and concerns(acl, question)]
    counting = [acl for acl in of_type if acl.operation in (question.operation, AclOperation.ALL)]
    denials = [acl for acl in counting if acl.permission_type == DENY]
    allowing = [acl for acl in counting if acl.permission_type == ALLOW]
    wildcard = ("*", LITERAL)
    if any((acl.resource_name, acl.pattern_type) == wildcard for acl in denials):
        return False
    if any((acl.resource_name, acl.pattern_type) == wildcard for acl in allowing):
        return True
    return any(not any(dominates(denial, acl) for denial in denials) for acl in allowing)


def dominates(denial: Acl, acl: Acl) -> bool:
    if denial.pattern_type == PREFIXED:
        return acl.resource_name.startswith(denial.resource_name)
    return acl.pattern_type == LITERAL and denial.resource_name == acl.resource_name


@pytest.mark.parametrize("without_acls", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_decisions_equal_those_of_the_rules_written_down(seed: int, without_acls: bool) -> None:
    """CVE-2024-27309: after ACLs were removed others were not heeded."""
    chance = random.Random(seed)
    store = AclStore()
    authorizer = StandardAuthorizer(store, is_allowed_without_acls=without_acls)
    authorizer.is_loaded = True
    acls: dict[bytes, Acl] = {}
    counts = {True: 0, False: 0}
    for number in range(STEPS):
        if acls and chance.random() < 0.3:
            acl_id = chance.choice(list(acls))
            del acls[acl_id]
            store.replay_removal(RemoveAccessControlEntryRecord(id=acl_id))
        else:
            acl_id = number.to_bytes(16, "big")
            acls[acl_id] = random_acl(chance)
            store.replay(acls[acl_id].to_record(acl_id))
        asked = [random_question(chance) for _ in range(QUESTIONS_PER_STEP)]
        for question in asked + asked:  # the second time the answer was kept
            decision = authorizer.authorize(*question)
            by_type = authorizer.authorize_by_type(*question[:4])
            counts[decision.is_allowed] += 1

            assert decision.is_allowed == is_allowed(acls.values(), question, without_acls), (question, decision)
            assert by_type.is_allowed == is_any_allowed(acls.values(), question, without_acls), (question, by_type)
            assert not isinstance(decision.rule, Acl) or decision.rule in acls.values()

    assert min(counts.values()) > 50, "the rules decide nothing"
