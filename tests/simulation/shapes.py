"""Which nodes a simulated cluster has, and what each of them is: broker, controller, or both."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

CONTROLLER_PORT = 9093
COMBINED, BROKER_ONLY, CONTROLLER_ONLY = "broker,controller", "broker", "controller"


class Shape(NamedTuple):
    """`roles`: process.roles by node id."""

    name: str
    roles: Mapping[int, str]

    @property
    def broker_ids(self) -> list[int]:
        return [node_id for node_id, roles in self.roles.items() if roles != CONTROLLER_ONLY]

    @property
    def controller_ids(self) -> list[int]:
        return [node_id for node_id, roles in self.roles.items() if roles != BROKER_ONLY]


def combined(count: int) -> Shape:
    """So many nodes, each broker and voter."""
    return Shape(f"{count} nodes", dict.fromkeys(range(1, count + 1), COMBINED))


def apart(controllers_count: int) -> Shape:
    """Three brokers, and controllers that are no brokers."""
    brokers = dict.fromkeys((1, 2, 3), BROKER_ONLY)
    controllers = dict.fromkeys(range(4, 4 + controllers_count), CONTROLLER_ONLY)
    return Shape(f"controllers apart: {controllers_count}", {**brokers, **controllers})


ONE_VOTER_OF_TWO = Shape("two nodes, one votes", {1: COMBINED, 2: BROKER_ONLY})
ONE_CONTROLLER_APART = apart(1)

SHAPES = (combined(3), ONE_CONTROLLER_APART, apart(3), ONE_VOTER_OF_TWO, combined(2))
_WEIGHTS = (14, 2, 2, 1, 1)


def draw_shape(draw: random.Random) -> Shape:
    """Most clusters have three nodes, each broker and controller."""
    return draw.choices(SHAPES, _WEIGHTS)[0]
