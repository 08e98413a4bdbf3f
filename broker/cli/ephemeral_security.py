"""A secured broker for tests: TLS and SASL on its listener, an authority of its own, and an administrator.

What was made is kept in the broker's directory for its next start, in two files: SECRETS_FILE, for this user alone, tells the process that
started the broker how to log in as the administrator; AUTHORITY_FILE is what clients trust. Nothing secret is in a command line.
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from broker.cli.private_files import make_private_directory, write_private
from broker.security.sasl.jaas import PLAIN_LOGIN_MODULE

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


def open_identity(directory: Path) -> Identity:
    """Of the broker's first start, which makes it. OSError."""
    try:
        found = json.loads((directory / SECRETS_FILE).read_text())
        return Identity(found["authority"], found["key"], found["certificate"], found["password"])
    except FileNotFoundError:
        pass
    from broker.cli.authority import LOCAL_NAMES, Authority

    authority = Authority("Barnabas test CA", int(time.time() * 1000))
    pair = authority.sign("localhost", LOCAL_NAMES)
    identity = Identity(authority.pair.certificate, pair.key, pair.certificate, secrets.token_urlsafe(PASSWORD_BYTES))
    make_private_directory(directory)
    (directory / AUTHORITY_FILE).write_text(identity.authority)
    write_private(directory / SECRETS_FILE, json.dumps({**identity._asdict(), "user": ADMINISTRATOR}))
    return identity


def settings(identity: Identity, host: str, port: int) -> list[str]:
    """Properties as `--override` takes them. Everyone who has logged in may do everything that no ACL is about."""
    login = f'{PLAIN_LOGIN_MODULE} required username="{ADMINISTRATOR}" password="{identity.password}"'
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
        f'listener.name.{LISTENER.lower()}.plain.sasl.jaas.config={login} user_{ADMINISTRATOR}="{identity.password}";',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
        f"super.users=User:{ADMINISTRATOR}",
    ]
