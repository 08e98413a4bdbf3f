"""TlsSettings: the ssl.* properties of one listener, or of this node's connections to others, resolved and parsed.

Which value holds for a listener (`listener.name.<listener>.ssl.…` before `ssl.…`, dynamic before static) is decided by the caller; `prefix`
is what it found them under, for the lines of errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from config.properties import ConfigError


class ClientAuth(Enum):
    """ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, repr=False)
class TlsSettings:
    """The fields are the properties without `ssl.`; None where a property is not set. Passwords and keys are among them: a repr would show
    them, so there is none."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    key_password: str | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    enabled_protocols: tuple[str, ...] = ()
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    endpoint_identification_algorithm: str = "https"
    prefix: str = ""

    def key(self, name: str) -> str:
        """The whole name of a property, such as `listener.name.x.ssl.keystore.location`."""
        return f"{self.prefix}ssl.{name}"

    def refusal(self, name: str, why: str) -> ConfigError:
        """The error of a property, in one line. `why` repeats nothing of a file, a key or a password."""
        return ConfigError(self.key(name), None, why, message=f"{self.key(name)}: {why}")
