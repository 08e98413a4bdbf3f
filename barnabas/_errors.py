"""The errors of a broker in a test."""

from __future__ import annotations


class BrokerError(Exception):
    """The broker did not start, is not running, or refused something; the message says which and why."""
