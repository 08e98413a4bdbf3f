"""The properties of a login as a node's own: what cannot be used is a ConfigError, as any other property's."""

from __future__ import annotations

from collections.abc import Callable

from config.properties import ConfigError
from protocol.sasl import clients, jaas
from protocol.sasl.exchange import SaslClient, SaslPropertyError
from protocol.sasl.jaas import JaasEntry


def parse_entry(text: str, key: str, module: str) -> JaasEntry:
    """The only entry of the property `key`, which has to be of this login module. Raises ConfigError."""
    try:
        entry = jaas.parse(text, key)
    except SaslPropertyError as e:
        raise _as_config_error(e) from None
    if entry.module != module:
        raise ConfigError(key, None, "", message=f"{key}: the login module has to be {module}, not {entry.module}")
    return entry


def client_maker(
    name: str, mechanism_key: str, jaas_text: str | None, jaas_key: str, entropy: Callable[[int], bytes]
) -> Callable[[], SaslClient]:
    """As `protocol.sasl.clients.client_maker`. Raises ConfigError."""
    try:
        return clients.client_maker(name, mechanism_key, jaas_text, jaas_key, entropy)
    except SaslPropertyError as e:
        raise _as_config_error(e) from None


def _as_config_error(error: SaslPropertyError) -> ConfigError:
    return ConfigError(error.key, None, "", message=str(error))
