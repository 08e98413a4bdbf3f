"""Contexts: clusters by name, in ~/.config/barnabas/config.toml (XDG_CONFIG_HOME), for this user alone.

current = "local"

[contexts.local]
bootstrap_servers = "localhost:9092"
command_config = "/home/me/client.properties"   # a Java client's file or librdkafka's; passwords are there
read_only = true                                # commands that change anything are refused
schema_registry = "http://localhost:8081"       # its login is in the file of command_config

[contexts.local.properties]                     # librdkafka's
"client.id" = "me"

[contexts.local.value_schemas]                  # of topics that have no registry; key_schemas as well
"orders" = "/home/me/order.avsc"
"payments" = "/home/me/shop.desc#shop.Payment"
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.cli.errors import NotUnderstoodError, RefusedError

TEXTS = ("bootstrap_servers", "command_config", "schema_registry")
TABLES = ("properties", "value_schemas", "key_schemas")
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster. `bootstrap_servers` is "" if the file of `command_config` has them."""

    bootstrap_servers: str = ""
    command_config: str = ""
    read_only: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    schema_registry: str = ""
    value_schemas: Mapping[str, str] = field(default_factory=dict)
    key_schemas: Mapping[str, str] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "command_config": self.command_config,
            "read_only": self.read_only,
            "properties": dict(self.properties),
            "schema_registry": self.schema_registry,
            "value_schemas": dict(self.value_schemas),
            "key_schemas": dict(self.key_schemas),
        }


@dataclass(slots=True)
class Contexts:
    """What the file has. `current` is "" if none is chosen."""

    path: Path
    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises RefusedError."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise RefusedError(f"there is no context {name!r} in {self.path} (there: {known}); barnabas context add makes one")
        return self.by_name[name]

    def save(self) -> None:
        """Write the file anew, and put it in place at once, so that no reader sees half of it. OSError."""
        self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(self._to_toml())
        new.replace(self.path)

    def _to_toml(self) -> str:
        lines = [f"current = {_string(self.current)}"] if self.current else []
        for name, context in self.by_name.items():
            lines += ["", f"[contexts.{_string(name)}]"]
            lines += [f"{key} = {_string(text)}" for key in TEXTS if (text := getattr(context, key))]
            lines += ["read_only = true"] if context.read_only else []
            for table in TABLES:
                if pairs := getattr(context, table):
                    lines += ["", f"[contexts.{_string(name)}.{table}]"]
                    lines += [f"{_string(key)} = {_string(value)}" for key, value in pairs.items()]
        return "\n".join(lines).lstrip("\n") + "\n"


def read_contexts(environ: Mapping[str, str] = os.environ) -> Contexts:
    """The file's contexts; none if there is no file. Raises NotUnderstoodError."""
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config"
    path = Path(home) / "barnabas" / "config.toml"
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError:
        return Contexts(path)
    except tomllib.TOMLDecodeError as e:
        raise NotUnderstoodError(f"{path}: {e}") from e
    try:
        by_name = {str(name): _context(table) for name, table in found.get("contexts", {}).items()}
    except (TypeError, AttributeError, ValueError) as e:
        raise NotUnderstoodError(f"{path}: {e}; a context has {', '.join((*TEXTS, 'read_only', *TABLES))}") from e
    return Contexts(path, str(found.get("current", "")), by_name)


def _context(table: dict[str, Any]) -> Context:
    context = Context(**table)
    if not isinstance(context.read_only, bool):
        raise ValueError("read_only is true or false")  # a text would look like true
    texts = [getattr(context, key) for key in TEXTS] + [text for key in TABLES for text in getattr(context, key).values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("values are texts, in quotes")
    return context


def _string(text: str) -> str:
    """A basic string of TOML: JSON's, but for DEL, which has to be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
