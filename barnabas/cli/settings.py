"""Settings: which cluster a command talks to and how, by its options, the environment and the contexts.

An address comes from --bootstrap-server, -X bootstrap.servers, the file of --command-config, BARNABAS_BOOTSTRAP_SERVER, the context, in
this order; else it is localhost:9092. A context counts if it is named, by --context or BARNABAS_CONTEXT; the current one only if nothing
else says an address: its login is sent to no other cluster than its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cli.client_properties import JAAS, SECRETS, ClientProperties, jaas_text, of_librdkafka, read_client_properties
from barnabas.cli.contexts import Context, read_contexts
from barnabas.cli.errors import NotUnderstoodError, RefusedError

DEFAULT_ADDRESS = "localhost:9092"
ADDRESS = "bootstrap.servers"
ADDRESS_VARIABLES = ("BARNABAS_BOOTSTRAP_SERVER", "BARNABAS_BOOTSTRAP_SERVERS")  # as the option is known by both names


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """Of what a cluster's records are. `registry` is "" without one; `login` is user:password for it; the files are by topic."""

    registry: str = ""
    login: str = field(default="", repr=False)
    value_files: Mapping[str, str] = field(default_factory=dict)
    key_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """`librdkafka` and `java` both have bootstrap.servers. `context_name` is "" without a context."""

    librdkafka: Mapping[str, str]
    java: Mapping[str, str]
    context_name: str = ""
    is_read_only: bool = False
    unread: tuple[str, ...] = ()
    """Properties of the file that have no meaning here."""
    timeout_s: float = 10.0
    schemas: SchemaSettings = SchemaSettings()

    @property
    def address(self) -> str:
        return self.librdkafka[ADDRESS]

    @property
    def mechanism(self) -> str:
        """Of the login; "" without one."""
        if not self.librdkafka.get("security.protocol", "").upper().startswith("SASL_"):
            return ""
        return self.librdkafka.get("sasl.mechanism", self.librdkafka.get("sasl.mechanisms", ""))

    def of_user(self, user: str, password: str) -> Settings:
        """The same cluster in the same way, by PLAIN or SCRAM as another user."""
        login = {"sasl.username": user, "sasl.password": password}
        jaas = {JAAS: jaas_text(self.mechanism, user, password)}
        return dataclasses.replace(self, librdkafka={**self.librdkafka, **login}, java={**self.java, **jaas}, unread=())

    def check_writable(self) -> None:
        """Raises RefusedError if the context is for reading only."""
        if self.is_read_only:
            raise RefusedError(f"the context {self.context_name!r} is read-only (read_only = true in config.toml)")


def resolve(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a command. Raises CommandError, ConfigError."""
    given = parse_properties(options.properties)
    own = read_client_properties(Path(options.command_config)) if options.command_config else ClientProperties({}, {})
    from_outside = next((environ[name] for name in ADDRESS_VARIABLES if environ.get(name)), "")
    address = options.bootstrap_server or given.get(ADDRESS) or own.librdkafka.get(ADDRESS) or from_outside
    name, context = _context(options.context or environ.get("BARNABAS_CONTEXT", ""), has_address=bool(address))
    base = ClientProperties({}, {})
    if context.command_config and not options.command_config:
        base = read_client_properties(Path(context.command_config))
    address = address or context.bootstrap_servers or base.librdkafka.get(ADDRESS) or DEFAULT_ADDRESS
    librdkafka, java = dict(base.librdkafka), dict(base.java)
    for layer in (of_librdkafka(context.properties), own, of_librdkafka(given)):
        librdkafka |= layer.librdkafka
        java |= {key: value for key, value in layer.java.items() if layer.librdkafka}
    return Settings(
        librdkafka | {ADDRESS: address},
        java | {ADDRESS: address},
        context_name=name,
        is_read_only=context.read_only,
        unread=(*base.unread, *own.unread),
        timeout_s=options.timeout,
        schemas=_schemas(context, base, own),
    )


def resolve_for_change(options: argparse.Namespace) -> Settings:
    """As `resolve`, of a command that changes something unless --dry-run is given. Raises RefusedError in a context for reading only."""
    settings = resolve(options)
    if not options.dry_run:
        settings.check_writable()
    return settings


def parse_properties(words: list[str]) -> dict[str, str]:
    """`key=value` of -X. Raises NotUnderstoodError for what has no value, and for passwords, which everybody on the machine would see."""
    properties = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise NotUnderstoodError(f"-X {word}: it is -X key=value, with librdkafka's names")
        if key in SECRETS:
            raise NotUnderstoodError(f"-X {key}: others on this machine can read arguments; give it by a file, --command-config")
        properties[key] = value
    return properties


def _schemas(context: Context, base: ClientProperties, own: ClientProperties) -> SchemaSettings:
    """The file of --command-config is read in the place of the context's: at most one of them has something."""
    registry = own.registry or context.schema_registry or base.registry
    return SchemaSettings(registry, own.registry_login or base.registry_login, context.value_schemas, context.key_schemas)


def _context(name: str, *, has_address: bool) -> tuple[str, Context]:
    if not name and has_address:
        return "", Context()
    contexts = read_contexts()
    chosen = name or contexts.current
    return (chosen, contexts.get(chosen)) if chosen else ("", Context())
