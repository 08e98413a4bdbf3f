"""The arguments of format --add-scram: the cases of Kafka's ScramParserTest, with its messages where they show no secret."""

from __future__ import annotations

import base64

import pytest

from broker.security.sasl.scram_arguments import ScramArgumentError, parse
from protocol.sasl import scram
from protocol.sasl.scram import ScramMechanism

SALT_TEXT = "MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E="
SALT = base64.b64decode(SALT_TEXT)
SALTED_TEXT = "mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="
SALTED = base64.b64decode(SALTED_TEXT)


def fixed_bytes(count: int) -> bytes:
    return b"\x42" * count


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_password_makes_a_credential_with_a_new_salt(mechanism: ScramMechanism) -> None:
    user = parse(f" {mechanism.mechanism_name}=[name=bob,password=my pass,iterations=8192] ", fixed_bytes)

    salt = scram.salt_text(fixed_bytes(17))
    expected = scram.credential_of(mechanism, scram.salted_password(mechanism, "my pass", salt, 8192), salt, 8192)
    assert user == ("bob", mechanism, expected)


@pytest.mark.parametrize("salt", [SALT_TEXT, f'"{SALT_TEXT}"', SALT_TEXT.rstrip("=")])
def test_salt_and_default_iterations(salt: str) -> None:
    credential = parse(f"SCRAM-SHA-512=[name=bob,password=mypass,salt={salt}]", fixed_bytes).credential

    assert (credential.salt, credential.iterations) == (SALT, 4096)


def test_salted_password() -> None:
    user = parse(f'SCRAM-SHA-256=[name=alice,salt="{SALT_TEXT}",saltedpassword="{SALTED_TEXT}"]', fixed_bytes)

    assert user.credential == scram.credential_of(ScramMechanism.SCRAM_SHA_256, SALTED, SALT, 4096)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("SCRAM-SHA-512", "Failed to find equals sign in SCRAM argument"),
        ("SCRAM-SHA-UNSUPPORTED=[name=a,password=b]", "The add-scram mechanism SCRAM-SHA-UNSUPPORTED is not supported."),
        ("SCRAM-SHA-256=name=a,password=b", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[name=a,password=b", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[password=b]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=b,unknown=c,unknown2=d]", "Unknown SCRAM configurations: unknown, unknown2"),
        ("SCRAM-SHA-256=[name=a,password=b,saltedpassword=AAAA]", "Unknown SCRAM configurations: saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", "must be >= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=b,iterations=16385]", "must be <= 16384 for add-scram using SCRAM_SHA_512"),
        ("SCRAM-SHA-512=[name=a,password=b,iterations=many]", "Failed to parse iterations count"),
        ("SCRAM-SHA-512=[name=a,password=b,salt=?]", "Failed to decode given salt"),
        ("SCRAM-SHA-512=[]", "No equals sign found in a SCRAM component"),
    ],
)
def test_argument_that_cannot_be_used_is_refused(argument: str, message: str) -> None:
    with pytest.raises(ScramArgumentError) as caught:
        parse(argument, fixed_bytes)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "argument",
    [
        "SCRAM-SHA-256=[name=a,password=hush,hush]",
        "SCRAM-SHA-256=[name=a,salt=AAAA,saltedpassword=hush!]",
        "SCRAM-SHA-256=[name=a,password=hush,iterations=1]",
        "SCRAM-SHA-256 [name=a,password hush]",
    ],
)
def test_error_shows_no_password(argument: str) -> None:
    with pytest.raises(ScramArgumentError) as caught:
        parse(argument, fixed_bytes)

    assert "hush" not in str(caught.value)
