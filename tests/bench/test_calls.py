"""`python -m bench calls`: what one request calls, followed in a broker of this process."""

from __future__ import annotations

import pytest

from bench.calls import SYSTEM_CALLS, run


@pytest.mark.parametrize(
    ("api", "handler", "system_calls"),
    [("produce", "ProduceHandler.handle", {"pwrite", "send"}), ("fetch", "FetchHandler.handle", {"pread", "send"})],
)
def test_the_calls_of_a_request_are_listed_from_its_read_to_its_answer(api: str, handler: str, system_calls: set[str]) -> None:
    *lines, summary = run(api).splitlines()
    names = [line.split()[0] for line in lines]

    assert (names[0], names[-1]) == ("Connection.get_buffer", "BusyPoll.read_answered")
    assert handler in names
    assert SYSTEM_CALLS & set(names) == system_calls
    assert summary.startswith(f"{len(lines) - len(system_calls)} calls of ")
