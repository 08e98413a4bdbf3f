"""Rows of transactions on one broker, run small: the load proves itself by the offsets in the log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pytest

from bench import transaction_rows
from bench.rows import ROWS
from bench.servers import BARNABAS
from bench.session import MeasurementError, Session

SCALE = 0.02


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = Session(BARNABAS, tmp_path_factory.mktemp("session"), SCALE)
    try:
        yield session.open()
    finally:
        session.close()


@pytest.mark.parametrize("name", ["transactions-1", "transactions-10-of-100", "transactions-end-to-end"])
def test_row_has_all_its_figures(session: Session, name: str) -> None:
    outcome = ROWS[name].measure(session)

    assert {figure.key for figure in ROWS[name].figures} == outcome.values.keys()
    assert all(value > 0 for value in outcome.values.values())


def test_topic_with_more_than_the_committed_transactions_fails_the_row(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfAnother(Session):
        """Someone else writes to its topics as well."""

        @contextlib.contextmanager
        def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Iterator[str]:
            with session.topic(partitions, configs) as topic:
                session.librdkafka("produce", topic, 1, 100)
                yield topic

    monkeypatch.setattr(transaction_rows, "MARKERS_TIMEOUT_S", 0.2)
    shared = OfAnother(session.product, session.directory, SCALE, _server=session.server)

    with pytest.raises(MeasurementError, match="transactions make"):
        ROWS["transactions-1"].measure(shared)
