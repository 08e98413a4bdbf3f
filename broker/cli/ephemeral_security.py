"""A secured broker for tests: TLS and SASL on its listener, an authority of its own, and an administrator.

What was made is kept in the broker's directory for its next start, in two files: SECRETS_FILE, for this user alone, tells the process that
started the broker how to log in as the administrator; AUTHORITY_FILE is what clients trust. Nothing secret is in a command line.

The nodes of a cluster have one identity: a key, whose certificate is for this machine, and the administrator, as whom they log in to each
other. The first that starts makes it, in a directory that all know, while the others wait for its lock. Each keeps a copy.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from broker.cli.private_files import write_private
from protocol.sasl.jaas import PLAIN_LOGIN_MODULE

ADMINISTRATOR = "admin"
PASSWORD_BYTES = 24
SECRETS_FILE = "barnabas-secure.json"
AUTHORITY_FILE = "barnabas-ca.pem"
LISTENER = "SASL_SSL"


class Identity(NamedTuple):
    """The broker's key and certificate, the authority that signed it, all in PEM; and the administrator's password."""

    authority: str
    key: str
    certificate: str
    password: str

    def __repr__(self) -> str:
        return "Identity()"  # the key and the password may be in no log and no traceback


def open_identity(directory: Path, shared: Path | None = None) -> Identity:
    """Of the broker's first start. It is copied from `shared`, the directory of its cluster, where the first node makes it; a broker by
    itself makes it. Both directories exist. OSError, ValueError, KeyError."""
    identity = _read(directory)
    if identity is None:
        identity = _open_or_make(shared or directory)
        if shared is not None:
            _write(directory, identity)
    return identity


def _open_or_make(directory: Path) -> Identity:
    """The first of the processes that come makes it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        identity = _read(directory)
        if identity is None:
            identity = _make()
            _write(directory, identity)
        return identity
    finally:
        os.close(descriptor)


def _read(directory: Path) -> Identity | None:
    try:
        found = json.loads((directory / SECRETS_FILE).read_text())
    except FileNotFoundError:
        return None
    return Identity(found["authority"], found["key"], found["certificate"], found["password"])


def _make() -> Identity:
    from broker.cli.authority import LOCAL_NAMES, Authority

    authority = Authority("Barnabas test CA", int(time.time() * 1000))
    pair = authority.sign("localhost", LOCAL_NAMES)
    return Identity(authority.pair.certificate, pair.key, pair.certificate, secrets.token_urlsafe(PASSWORD_BYTES))


def _write(directory: Path, identity: Identity) -> None:
    (directory / AUTHORITY_FILE).write_text(identity.authority)
    write_private(directory / SECRETS_FILE, json.dumps({**identity._asdict(), "user": ADMINISTRATOR}))


def settings(identity: Identity, host: str, port: int, controllers: Sequence[str]) -> list[str]:
    """Properties as `--override` takes them; `controllers` are the names of the controllers' listeners, for which the nodes use PLAIN too:
    SCRAM's credentials are in the log of the quorum that they elect. Everyone who has logged in may do everything that no ACL is about."""
    names = {"username": ADMINISTRATOR, "password": identity.password, f"user_{ADMINISTRATOR}": identity.password}
    login = " ".join((PLAIN_LOGIN_MODULE, "required", *(f'{name}="{value}"' for name, value in names.items()))) + ";"
    return [
        f"listeners={LISTENER}://{host}:{port}",
        f"inter.broker.listener.name={LISTENER}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.key={identity.key}",
        f"ssl.keystore.certificate.chain={identity.certificate}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.certificates={identity.authority}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "sasl.mechanism.controller.protocol=PLAIN",
        *(f"listener.name.{name.lower()}.sasl.enabled.mechanisms=PLAIN" for name in controllers),
        *(f"listener.name.{name.lower()}.plain.sasl.jaas.config={login}" for name in (LISTENER, *controllers)),
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
        f"super.users=User:{ADMINISTRATOR}",
    ]
