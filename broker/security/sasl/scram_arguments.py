"""The arguments of `format --add-scram`, such as `SCRAM-SHA-256=[name=alice,password=alice-secret]`.

No error repeats a part of a value: it could be one of a password. Kafka's do.

Source: org.apache.kafka.metadata.storage.ScramParser.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

from protocol.sasl import scram
from protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism

INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
RANDOM_SALT_SIZE = 17


class ScramArgumentError(Exception):
    """An argument of --add-scram that cannot be used: `str()` is the one line a person needs."""


class ScramUser(NamedTuple):
    """What becomes a UserScramCredentialRecord."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential


def parse(argument: str, random_bytes: Callable[[int], bytes]) -> ScramUser:
    """Raises ScramArgumentError. Computes a salted password: milliseconds. `random_bytes` gives the salt where none is given."""
    mechanism, components = _split(argument.strip())
    name = components.pop("name", None)
    if name is None:
        raise ScramArgumentError("You must supply 'name' to add-scram")
    salt = _decode(components.pop("salt", None), "salt")
    iterations = _iterations(components.pop("iterations", None))
    password, salted_text = components.pop("password", None), components.pop("saltedpassword", None)
    if password is None and salted_text is None:
        raise ScramArgumentError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if password is not None and salted_text is not None:
        raise ScramArgumentError("Unknown SCRAM configurations: saltedpassword")
    if components:
        raise ScramArgumentError(f"Unknown SCRAM configurations: {', '.join(sorted(components))}")
    _check(iterations, mechanism)
    if salt is None:
        salt = scram.salt_text(random_bytes(RANDOM_SALT_SIZE))
    salted = _decode(salted_text, "saltedPassword")
    if salted is None:
        salted = scram.salted_password(mechanism, password or "", salt, iterations)
    return ScramUser(name, mechanism, scram.credential_of(mechanism, salted, salt, iterations))


def _split(argument: str) -> tuple[ScramMechanism, dict[str, str]]:
    mechanism_name, equals, config = argument.partition("=")
    if not equals:
        raise ScramArgumentError("Failed to find equals sign in SCRAM argument: it begins like SCRAM-SHA-256=[name=")
    mechanism = scram.find_mechanism(mechanism_name)
    if mechanism is None:
        raise ScramArgumentError(f"The add-scram mechanism {mechanism_name} is not supported.")
    if not config.startswith("["):
        raise ScramArgumentError("Expected configuration string to start with [")
    if not config.endswith("]"):
        raise ScramArgumentError("Expected configuration string to end with ]")
    return mechanism, dict(_component(text) for text in config[1:-1].rstrip(",").split(","))


def _component(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ScramArgumentError("No equals sign found in a SCRAM component: a value has no comma")
    is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
    return key, value[1:-1] if is_quoted else value


def _decode(text: str | None, name: str) -> bytes | None:
    """From base64, whose padding may be left out, as in Java."""
    if text is None:
        return None
    try:
        return base64.b64decode(text if text.endswith("=") else text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as e:
        raise ScramArgumentError(f"Failed to decode given {name}: it is not base64") from e


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not INTEGER.fullmatch(text):
        raise ScramArgumentError("Failed to parse iterations count: it is not a number")
    return int(text)


def _check(iterations: int, mechanism: ScramMechanism) -> None:
    if iterations < ITERATIONS_MIN:
        raise ScramArgumentError(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {mechanism.name}")
    if iterations > ITERATIONS_MAX:
        raise ScramArgumentError(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {mechanism.name}")
