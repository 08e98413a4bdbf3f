"""kafka-configs of users, clients and addresses: quotas (KIP-546) and SCRAM credentials (KIP-554)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from confluent_kafka.admin import ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.kafka_tools.config_entities import DEFAULT, Entities
from barnabas.cli.quota import entities as quota
from barnabas.cli.user.credentials import ITERATIONS, MECHANISMS, credentials_of
from protocol.client_quotas import CLIENT_ID, CONNECTION_CREATION_RATE, IP, USER

PARTS = {"users": USER, "clients": CLIENT_ID, "ips": IP}
SHOWN_AS = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
"""In this order."""
CREDENTIAL = re.compile(r"(?:iterations=(-?\d*),)?password=(.*)", re.DOTALL)
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7
"""Between these Java writes a double without an exponent."""


def describe(connection: Connection, entities: Entities) -> None:
    """Raises CommandError."""
    whose = _entity(entities)
    without_name = [PARTS[kind] for kind in entities.types[len(entities.names) :]]
    for found, quotas in quota.find(connection, whose, strict=True, any_of=without_name):
        named = (
            f"the default {shown}" if found[part] is None else f"{shown} '{found[part]}'"
            for part, shown in SHOWN_AS.items()
            if part in found
        )
        print(f"Quota configs for {', '.join(named)} are {', '.join(f'{key}={java_double(value)}' for key, value in quotas.items())}")
    if "users" in entities.types and "clients" not in entities.types and DEFAULT not in entities.names:
        for user, infos in credentials_of(connection, *entities.names).items():
            told = (f"{info.mechanism.name.replace('_', '-')}=iterations={info.iterations}" for info in infos)
            print(f"SCRAM credential configs for user-principal '{user}' are {', '.join(told)}")


def alter(connection: Connection, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Raises CommandError, in the words of ConfigCommand.alterConfig."""
    names, is_user = [*added, *deleted], entities.types == ("users",)
    known = {CONNECTION_CREATION_RATE} if entities.types == ("ips",) else {*quota.KEYS} - {CONNECTION_CREATION_RATE}
    scram = [name for name in names if name in MECHANISMS]
    if unknown := [name for name in names if name not in known and not (is_user and name in MECHANISMS)]:
        kinds = "Only connection quota" if "ips" in entities.types else "Only quota and SCRAM credential" if is_user else "Only quota"
        raise CommandError(
            f"{kinds} configs can be added or deleted for '{entities.types[0]}' using --bootstrap-server. "
            f"Unexpected config names: {','.join(unknown)}"
        )
    if not scram:
        _alter_quotas(connection, _entity(entities), added, deleted)
        return
    if DEFAULT in entities.names:
        raise CommandError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using --bootstrap-server."
        )
    if len(scram) < len(names):
        raise CommandError("Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server.")
    _alter_credentials(connection, entities.names[0], added, deleted)


def java_double(value: float) -> str:
    """As Double.toString writes it: 1024.0, 1.0E7."""
    if value == 0 or PLAIN_FROM <= abs(value) < PLAIN_BELOW:
        return str(value)
    sign, digits, last = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or 0}E{int(last) + len(digits) - 1}"


def _entity(entities: Entities) -> quota.Entity:
    return {PARTS[kind]: name or None for kind, name in zip(entities.types, entities.names, strict=False)}


def _alter_quotas(connection: Connection, entity: quota.Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Raises CommandError."""
    found = quota.find(connection, entity, strict=True)
    if missing := [name for name in deleted if not found or name not in found[0][1]]:
        raise CommandError(f"Invalid config(s): {','.join(missing)}")
    changes: list[tuple[str, float | None]] = []
    for name, value in added.items():
        try:
            changes.append((name, float(value)))
        except ValueError as e:
            raise CommandError(f"Cannot parse quota configuration value for {name}: {value}") from e
    quota.alter(connection, entity, [*changes, *((name, None) for name in deleted)], dry_run=False)


def _alter_credentials(connection: Connection, user: str, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Raises CommandError."""
    changes: list[UserScramCredentialDeletion | UserScramCredentialUpsertion] = [
        UserScramCredentialDeletion(user, MECHANISMS[name]) for name in deleted
    ]
    for name, text in added.items():
        credential = CREDENTIAL.fullmatch(text)
        if credential is None:
            raise CommandError(f"Invalid credential property {name}: it is [iterations=N,password=…], or [password=…]")
        iterations = ITERATIONS if credential[1] in (None, "", "-1") else int(credential[1])
        if iterations < ITERATIONS:
            raise CommandError(f"Iterations {iterations} is less than the minimum {ITERATIONS} required for {name}")
        changes.append(UserScramCredentialUpsertion(user, ScramCredentialInfo(MECHANISMS[name], iterations), credential[2].encode()))
    for change in changes:  # confluent-kafka answers by user: a request may have one change of each
        connection.results(connection.admin.alter_user_scram_credentials([change], request_timeout=connection.timeout_s))
