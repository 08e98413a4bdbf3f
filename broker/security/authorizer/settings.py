"""The authorizer's own properties, which Kafka gives to its class as text: super.users, allow.everyone.if.no.acl.found.

Source: StandardAuthorizer.configure, SecurityUtils.parseKafkaPrincipal.
"""

from __future__ import annotations

_BLANK = "".join(map(chr, range(0x21)))
"""What Java's String.trim removes."""


def parse_principal(text: str) -> str:
    """Returns `text`, a principal as `Type:name`, whose name may hold ':'; raises ValueError for anything else."""
    if ":" not in text:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return text


def super_users(value: str | None) -> frozenset[str]:
    """Returns the principals of super.users, which are split at ';', since names may hold ',' and '='. Raises ValueError for one without
    a type."""
    stripped = (each.strip(_BLANK) for each in (value or "").split(";"))
    return frozenset(parse_principal(each) for each in stripped if each)


def is_allowed_without_acls(value: str | None) -> bool:
    """Whether allow.everyone.if.no.acl.found is set to true; whatever else it is set to means false, as in Kafka."""
    return (value or "").strip(_BLANK).lower() == "true"
