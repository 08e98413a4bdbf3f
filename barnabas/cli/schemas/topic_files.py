"""Files of schemas by topic, `TOPIC=FILE`, as `context add` and the console take them: records of these topics are without a registry."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.errors import NotUnderstoodError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for part in ("value", "key"):
        text = "NAME.avsc, or of `protoc --include_imports --descriptor_set_out` FILE#MESSAGE; again for another topic"
        parser.add_argument(f"--{part}-schema", action="append", default=[], metavar="TOPIC=FILE", help=text)


def files_of(words: Sequence[str]) -> dict[str, str]:
    """With absolute paths: the files are read elsewhere. Raises NotUnderstoodError."""
    found = {}
    for word in words:
        topic, equals, text = word.partition("=")
        name, number_sign, message = text.partition("#")
        if not topic or not equals or not name:
            raise NotUnderstoodError(f"{word!r}: a schema is TOPIC=FILE")
        found[topic] = f"{Path(name).expanduser().absolute()}{number_sign}{message}"
    return found
