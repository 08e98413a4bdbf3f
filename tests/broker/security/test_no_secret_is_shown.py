"""What holds a secret shows nothing of it where somebody logs it or a traceback has it."""

from __future__ import annotations

import pytest

from broker.cli.authority import KeyPair
from broker.cli.ephemeral_security import Identity
from broker.cli.formatter import FormatOptions
from broker.cli.serve_arguments import parse_arguments
from broker.security.tls.settings import TlsSettings
from config.loading import load_server_config
from protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.sasl import jaas
from protocol.sasl.scram import ScramCredential

SECRET = "Pssst"
JAAS = f'{jaas.PLAIN_LOGIN_MODULE} required username="a" password="{SECRET}" user_a="{SECRET}";'


@pytest.mark.parametrize(
    "holder",
    [
        FormatOptions("id", scram_users=(f"SCRAM-SHA-256=[name=a,password={SECRET}]",)),
        Identity("", SECRET, "", SECRET),
        KeyPair(SECRET, ""),
        ScramCredential(b"", SECRET.encode(), SECRET.encode(), 4096),
        ScramCredentialUpsertion(salted_password=SECRET.encode()),
        SaslAuthenticateRequest(auth_bytes=SECRET.encode()),
        TlsSettings(keystore_key=SECRET, key_password=SECRET),
        jaas.parse(JAAS),
        load_server_config(None, {}, [f"sasl.jaas.config={JAAS}"]),
        parse_arguments(["--override", f"sasl.jaas.config={JAAS}"]),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_a_repr_shows_no_secret(holder: object) -> None:
    """CVE-2023-24619 of Redpanda."""
    assert SECRET not in f"{holder!r} {holder}"
