"""What a job ends with when a person can mend it: the message is one line, and `barnabas pipeline` prints it alone."""

from __future__ import annotations


class PipelineError(Exception):
    """The job cannot begin or continue. Exit code 1."""


class UsageError(PipelineError):
    """The command line asks for what cannot be. Exit code 2."""
