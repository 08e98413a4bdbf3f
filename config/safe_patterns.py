"""SafePattern: a regular expression in RE2's syntax, which a stranger may have written.

RE2 never backtracks: a match takes its program's size times the text's at most. Programs are bounded here too, since both compiling and
matching run on the loop. By RE2's own limits a pattern of 800 KB takes 20 s to compile; by these the worst that we found takes 4 ms, and
5 ms for a text of TEXT_MAX characters.
"""

from __future__ import annotations

PATTERN_CHARACTERS_MAX = 4_000

PROGRAM_MEMORY_BYTES = 128 * 1024
"""RE2 refuses a pattern whose program needs more, while it compiles it."""

PROGRAM_SIZE_MAX = 4_000
"""Instructions. A hundred alternatives of thirty characters are 2,000."""

TEXT_MAX = 255
"""Characters; a longer text matches nothing. Names of topics have 249 at most."""


class PatternError(Exception):
    """Not a regular expression of RE2's, or one that is too large."""


class SafePattern:
    """See the module's docstring. `is_ascii` says that all texts are. Raises PatternError."""

    __slots__ = ("_fullmatch", "program_size")

    def __init__(self, text: str, *, is_ascii: bool = False) -> None:
        import re2  # with the first pattern: 7 ms and 2.5 MB

        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError("the pattern is too long")
        options = re2.Options()
        if is_ascii:
            options.encoding = re2.Options.Encoding.LATIN1  # a class is one instruction, where UTF-8 takes up to 1,500
        options.max_mem = PROGRAM_MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        try:
            compiled = re2.compile(text.encode(), options)
        except re2.error as e:
            raise PatternError(str(e.args[0], "utf-8", "replace")) from e
        self.program_size: int = compiled.programsize
        if self.program_size > PROGRAM_SIZE_MAX:
            raise PatternError("the pattern is too large")
        self._fullmatch = compiled.fullmatch

    def matches(self, text: str) -> bool:
        """Whether the whole text is what the pattern describes."""
        return len(text) <= TEXT_MAX and self._fullmatch(text.encode()) is not None
