"""A pytest plugin: what an event loop could only log, because nobody was there to catch it, fails the test that ran it.

An exception in a callback of a future or a timer, in a protocol's method, or in a task that nobody awaits goes to the loop's exception
handler, which logs it to `asyncio`. So for every loop, whoever made it: pytest-asyncio's, `asyncio.run`'s and uvloop's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(self.format(record))


@pytest.fixture(autouse=True)
def _no_unhandled_error_of_a_loop() -> Iterator[None]:
    """Autouse fixtures end last: after the test's own loop, whose closing may be what tells."""
    collector = _Collector()
    logger = logging.getLogger("asyncio")
    logger.addHandler(collector)
    yield
    logger.removeHandler(collector)
    if collector.errors:
        pytest.fail("an event loop met errors that nobody handled:\n" + "\n".join(collector.errors), pytrace=False)
