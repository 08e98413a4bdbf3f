"""What the fuzzer sends: every place of every API, the same for the same seed, and orders only where they may be obeyed."""

from __future__ import annotations

import struct
from collections import defaultdict

import pytest

from protocol import codec
from protocol.apis import DECLARED, Api, ListenerKind
from protocol.messages.vote import VoteRequest
from tests.fuzz.inputs import ORDERS, Density, Input, Inputs, Known, Stage, Strike, apis_for, is_order
from tests.support.wire import frame

BROKER = Known([bytes(16)], "cluster", now_ms=1_750_000_000_000)
FEW = Density(versions_max=1, number_share=0.1, wide_share=0.0, mutated=5)


def inputs_of(listener: ListenerKind, stage: Stage = Stage.ALL, *, part: int = 0, parts: int = 1, seed: int = 7) -> list[Input]:
    return list(Inputs(seed, listener, stage, BROKER).round(0, FEW, part=part, parts=parts))


@pytest.mark.parametrize("listener", ListenerKind)
def test_each_api_is_cut_at_each_byte(listener: ListenerKind) -> None:
    cuts: dict[Api, list[int]] = defaultdict(list)
    for found in inputs_of(listener):
        if found.strike is Strike.CUT:
            cuts[found.api].append(struct.unpack_from(">i", found.data)[0])

    assert set(cuts) == set(apis_for(listener, Stage.ALL))
    assert all(sizes == list(range(len(sizes))) for sizes in cuts.values())


@pytest.mark.parametrize("stage", Stage)
def test_the_same_seed_makes_the_same_inputs_and_another_does_not(stage: Stage) -> None:
    first, second, other = (inputs_of(ListenerKind.CONTROLLER, stage, seed=seed) for seed in (7, 7, 8))

    assert first == second != other


def test_the_parts_of_a_round_are_the_round() -> None:
    whole = inputs_of(ListenerKind.CONTROLLER)

    parts = [found for part in range(3) for found in inputs_of(ListenerKind.CONTROLLER, part=part, parts=3)]

    assert sorted(found.data for found in parts) == sorted(found.data for found in whole)


def test_well_formed_orders_are_sent_only_to_the_broker_for_them() -> None:
    def orders(stage: Stage) -> set[str]:
        return {found.api.name for found in inputs_of(ListenerKind.CONTROLLER, stage) if is_order(found.data)}

    assert orders(Stage.ALL) == set()
    assert orders(Stage.ORDERS) == {DECLARED[key].name for key in ORDERS}


def test_an_order_is_told_from_what_only_looks_like_one() -> None:
    request = frame(52, 2, codec.encode(VoteRequest(), 2))
    whole = struct.pack(">i", len(request)) + request

    assert is_order(whole)
    assert not is_order(whole[:-1])
    assert not is_order(struct.pack(">i", 10) + frame(18, 0, b""))
