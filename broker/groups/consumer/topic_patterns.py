"""TopicPattern: a regular expression in RE2's syntax that topics' names are matched with as a whole, as Kafka's RE2J does.

RE2 never tries one way after another: a match takes no longer than its program times the text. Its programs are bounded here too, for
anybody may write one, and both compiling and matching run on the loop. A pattern of 800 KB takes RE2 20 s to compile by its own limits;
by these the worst that we found takes 4 ms, and 5 ms for each topic whose name is as long as a name can be.

The package is google-re2. It is imported with the first pattern.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PATTERN_CHARACTERS_MAX = 4_000
PROGRAM_MEMORY_BYTES = 128 * 1024
"""RE2 refuses a pattern whose program needs more, while it compiles it."""

PROGRAM_SIZE_MAX = 4_000
"""Instructions. A hundred alternatives of thirty characters are 2,000."""


class PatternError(Exception):
    """Not a regular expression, or one that is not served."""


class TopicPattern:
    """See the module's docstring. Raises PatternError."""

    __slots__ = ("_matches", "program_size")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError("the pattern is too long")
        try:
            re2: Any = import_module("re2")
        except ImportError as e:
            raise PatternError("the package google-re2 is not installed") from e
        options = re2.Options()
        # Names of topics are ASCII: as Latin-1 a class is one instruction where UTF-8 takes ten.
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = PROGRAM_MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        try:
            compiled = re2.compile(text.encode(), options)
        except re2.error as e:
            reason = e.args[0] if e.args else "it cannot be read"
            raise PatternError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from e
        self.program_size: int = compiled.programsize
        if self.program_size > PROGRAM_SIZE_MAX:
            raise PatternError("the pattern is too large")
        self._matches = compiled.fullmatch

    def matches(self, name: str) -> bool:
        """Whether the whole name is what the pattern describes."""
        return self._matches(name.encode()) is not None
