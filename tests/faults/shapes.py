"""Which nodes a chaos campaign's cluster has: `--shape`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.cluster import BROKER_ONLY, COMBINED, CONTROLLER_ONLY

SHAPES: Mapping[str, tuple[str, ...]] = {
    "combined": (COMBINED,) * 4,
    "controllers-apart": (BROKER_ONLY,) * 4 + (CONTROLLER_ONLY,) * 3,
    "one-controller-apart": (BROKER_ONLY,) * 4 + (CONTROLLER_ONLY,),
    "two": (COMBINED, BROKER_ONLY),
}
"""process.roles of the nodes, from node 1 on."""
