"""Every API of controller listeners has an entry in their table, and only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers.controller.table import CONTROLLER, OWN_MODULES, QUORUM, SAME_AS_CLIENTS, WITH_THE_RESPONSE_OF_CLIENTS, build
from protocol.apis import Api, ListenerKind, apis_of
from tests.broker.handlers.test_large_answers import services_of_controller
from tests.broker.metadata.room import open_room

APIS = list(apis_of(ListenerKind.CONTROLLER).values())
KINDS = (QUORUM, CONTROLLER, SAME_AS_CLIENTS, OWN_MODULES)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.stem)
async def test_an_api_is_built(api: Api, tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    handler, error_response = build(services_of_controller(room, room.local), api)

    assert callable(handler)
    assert (error_response is not None) == (api.stem in WITH_THE_RESPONSE_OF_CLIENTS)


def test_each_stands_in_the_table_once() -> None:
    assert sorted(stem for kind in KINDS for stem in kind) == sorted(api.stem for api in APIS)
