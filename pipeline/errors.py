"""The expected errors of a job. The message is one line, and `barnabas pipeline` prints only that."""

from __future__ import annotations


class PipelineError(Exception):
    """The job cannot begin or continue. Exit code 1."""


class UsageError(PipelineError):
    """The command line is invalid. Exit code 2."""
