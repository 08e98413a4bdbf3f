"""What was committed is seen as it was, whatever writes in flight have done since."""

from __future__ import annotations

import random
from collections import deque

import pytest

from broker.coordination.timeline import Change, Timeline


def test_dict_without_uncommitted_changes_is_its_own_view():
    timeline = Timeline()
    mapping: dict[str, int] = {}

    timeline.put(mapping, "a", 1)

    assert timeline.committed(mapping) is mapping


def test_key_that_was_put_before_is_noted_as_new():
    timeline = Timeline()
    mapping = {"a": 1}
    timeline.record()
    mapping["b"] = 2
    timeline.record_added(mapping, "b")

    changes = timeline.stop_recording()

    assert timeline.committed_values(mapping) == [1]
    timeline.commit(changes)
    assert timeline.committed(mapping) is mapping


def test_inner_dict_that_was_replaced_is_seen_as_it_was():
    timeline = Timeline()
    outer: dict[str, dict[str, int]] = {"t": {"a": 1}}
    timeline.record()
    timeline.remove(outer["t"], "a")
    timeline.remove(outer, "t")
    timeline.put(outer, "t", {})
    timeline.put(outer["t"], "a", 2)
    changes = timeline.stop_recording()

    inner = timeline.committed(outer)["t"]
    assert dict(timeline.committed(inner)) == {"a": 1}
    timeline.commit(changes)

    assert dict(timeline.committed(timeline.committed(outer)["t"])) == {"a": 2}


@pytest.mark.parametrize("seed", range(10))
def test_random_writes_are_seen_when_they_are_committed(seed: int):
    source = random.Random(seed)
    timeline = Timeline()
    mapping: dict[int, int] = {}
    expected: dict[int, int] = {}
    in_flight: deque[tuple[list[Change], dict[int, int]]] = deque()

    for number in range(300):
        if in_flight and source.random() < 0.5:
            changes, expected = in_flight.popleft()
            timeline.commit(changes)
        else:
            timeline.record()
            for _ in range(source.randrange(4)):
                key = source.randrange(5)
                if source.random() < 0.3:
                    timeline.remove(mapping, key)
                else:
                    timeline.put(mapping, key, number)
            in_flight.append((timeline.stop_recording(), dict(mapping)))
        view = timeline.committed(mapping)
        assert {key: view.get(key) for key in range(5)} == {key: expected.get(key) for key in range(5)}
        assert dict(view) == expected and len(view) == len(expected)
        assert sorted(timeline.committed_values(mapping)) == sorted(expected.values())
