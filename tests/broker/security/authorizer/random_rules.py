"""Random ACLs and questions over few names, so that they meet."""

from __future__ import annotations

import random
from typing import NamedTuple

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation
from tests.broker.security.authorizer.room import ALLOW, DENY, GROUP, LITERAL, PREFIXED, TOPIC

OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ANY]
NAMES = ["*", "a", "aa", "ab", "aba", "abc", "abcd", "b", "ba", "bab", "c-d", "+a", "ü", "hardcode"]
PRINCIPALS = ["User:a", "User:b", "User:*", "Group:a"]
HOSTS = ["*", "10.0.0.1", "0:0:0:0:0:0:0:1"]


class Question(NamedTuple):
    """What StandardAuthorizer.authorize is asked."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


def random_acl(chance: random.Random, denied: float = 0.3) -> Acl:
    return Acl(
        chance.choice((TOPIC, TOPIC, GROUP)),
        chance.choice(NAMES),
        chance.choice((LITERAL, PREFIXED)),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice(OPERATIONS[:7] if chance.random() < 0.7 else OPERATIONS),
        DENY if chance.random() < denied else ALLOW,
    )


def random_question(chance: random.Random) -> Question:
    name = chance.choice(NAMES)
    if name != "*" and chance.random() < 0.5:
        name += chance.choice(("a", "b", "*", "bc"))
    return Question(
        chance.choice(("User:a", "User:b", "User:c", "Group:a")),
        chance.choice(("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")),
        chance.choice(OPERATIONS[1:7] if chance.random() < 0.7 else OPERATIONS[1:]),
        chance.choice((TOPIC, TOPIC, GROUP)),
        name,
    )
