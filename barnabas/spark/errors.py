"""What a Spark query ends with: one sentence each, since Spark shows the last line of an exception first."""

from __future__ import annotations


class BarnabasError(Exception):
    """Base of all errors of the sink and the source."""


class OptionError(BarnabasError):
    """An option is missing, is not understood, or is out of its range."""


class BrokerError(BarnabasError):
    """The brokers refuse something, or none answers in time."""


class RefusedError(BrokerError):
    """The brokers refuse it, and would again: a right is missing, for one."""
