"""Makes the connecting side of a mechanism from its name and its sasl.jaas.config: for nodes, our own commands and Spark's processes."""

from __future__ import annotations

from collections.abc import Callable

from . import jaas, scram
from .exchange import SaslClient, SaslPropertyError
from .plain import PLAIN, PlainClient
from .scram_client import SaltedPassword, ScramClient

NONCE_SIZE = 18  # random bytes of a SCRAM nonce


def client_maker(
    name: str, mechanism_key: str, jaas_text: str | None, jaas_key: str, entropy: Callable[[int], bytes]
) -> Callable[[], SaslClient]:
    """Returns what makes the client of one exchange. Raises SaslPropertyError."""
    mechanism = scram.find_mechanism(name)
    if mechanism is None and name != PLAIN:
        raise SaslPropertyError(mechanism_key, f"is {name!r}: a login is by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    module = jaas.PLAIN_LOGIN_MODULE if mechanism is None else jaas.SCRAM_LOGIN_MODULE
    entry = None if jaas_text is None else jaas.parse(jaas_text, jaas_key)
    if entry is not None and entry.module != module:
        raise SaslPropertyError(jaas_key, f"the login module has to be {module}, not {entry.module}")
    options = {} if entry is None else entry.options
    if "username" not in options or "password" not in options:
        raise SaslPropertyError(jaas_key, "must name the user that logs in, with username and password")
    username, password = options["username"], options["password"]
    if mechanism is None:
        return lambda: PlainClient(username, password)
    is_token = options.get("tokenauth", "").lower() == "true"
    salted = SaltedPassword(mechanism, password)
    return lambda: ScramClient(mechanism, username, salted, entropy(NONCE_SIZE).hex(), is_token=is_token)
