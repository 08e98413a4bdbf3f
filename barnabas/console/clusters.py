"""The clusters that the console shows: the one that its options name, or all contexts, with the chosen one first."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import re

from barnabas.cli.contexts import read_contexts
from barnabas.cli.schemas.registry import LOGIN, check_url
from barnabas.cli.schemas.topic_files import files_of
from barnabas.cli.settings import SchemaSettings, Settings, resolve
from barnabas.console.history import SERIES_MAX
from barnabas.console.watcher import Watcher

NOT_OF_PATHS = re.compile(r"[^A-Za-z0-9._-]+")


def watchers(options: argparse.Namespace) -> dict[str, Watcher]:
    """By the part of the address that means each. Raises CommandError, ConfigError."""
    first = _with_schemas(resolve(options), options)
    found: dict[str, tuple[str, Settings]] = {}
    found[_slug(first.context_name or first.address, found)] = (first.context_name or first.address, first)
    if first.context_name and not options.context:
        for name in read_contexts().by_name:
            if name != first.context_name:
                other = copy.copy(options)
                other.context = name
                found[_slug(name, found)] = (name, resolve(other))
    series_max = SERIES_MAX // len(found)
    return {slug: Watcher(name, settings, always=options.always, series_max=series_max) for slug, (name, settings) in found.items()}


def _with_schemas(settings: Settings, options: argparse.Namespace) -> Settings:
    """Of the first cluster, with what the options say. The login of the environment is for its registry and no other context's.
    Raises NotUnderstoodError."""
    if options.schema_registry:
        check_url(options.schema_registry)
    own = settings.schemas
    registry = options.schema_registry or own.registry
    login = (own.login if registry == own.registry else "") or os.environ.get(LOGIN, "")
    files = {**own.value_files, **files_of(options.value_schema)}, {**own.key_files, **files_of(options.key_schema)}
    return dataclasses.replace(settings, schemas=SchemaSettings(registry, login, *files))


def _slug(name: str, taken: object) -> str:
    """Context names may have slashes and whatever else."""
    slug = base = NOT_OF_PATHS.sub("-", name).strip(".-") or "cluster"
    number = 2
    while isinstance(taken, dict) and slug in taken:
        slug, number = f"{base}-{number}", number + 1
    return slug
