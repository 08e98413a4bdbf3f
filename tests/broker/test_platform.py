"""What a node takes from its machine."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from broker.platform import start_threads


def test_all_threads_of_the_executor_can_be_started_ahead_of_their_work() -> None:
    """One that is started among the objects of a large request keeps megabytes of Python's allocator for ever."""
    with ThreadPoolExecutor(4, thread_name_prefix="ahead") as executor:
        assert executor.submit(int).result() == 0

        start_threads(executor, 4)

        assert sum(thread.name.startswith("ahead") for thread in threading.enumerate()) == 4


def test_an_executor_of_fewer_threads_works_on() -> None:
    with ThreadPoolExecutor(1) as executor:
        start_threads(executor, 2)

        assert executor.submit(int).result() == 0
