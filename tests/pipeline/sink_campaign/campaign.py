"""Kills at named points of the sink's protocol, one after another, with a real Spark; then the copy has to have each row once.

A query copies a topic by `format("barnabas")`. Its values have `rand()` in them: a batch that is written again has other rows. So the sink
can complete a decided batch only by committing what was written, which it promises as long as no transaction times out.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.pipeline.sink_campaign.driver_process import DriverProcess, kill_process
from tests.pipeline.sink_campaign.faults import SPECULATION, Fault
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper, Hold, Visitor
from tests.pipeline.sink_campaign.world import SOURCE, World

ROWS_PER_BATCH = 300
STEADY_PLAN = "cast(value as string)"
AWAY_OPTIONS = {"kafka.transaction.timeout.ms": "5000"}
AWAY_TRIES = 5
TOO_SLOW = "its transaction ends by kafka.transaction.timeout.ms"
UNBORN = "Python worker failed to connect back"
"""Spark gives a new Python process 10 s, which a busy machine may take: the query is started again."""
CHANGED = re.compile(r"ChangedBatchError: batch \d+ of the sink \w+ was decided, .* because the query's plan is not deterministic")
PLAN = "concat(cast(value as string), ':', cast(rand() as string))"
ARRIVAL_TIMEOUT_S = 600.0
MORE_ROWS_S = 2.0
MORE_ROWS = 40
END_TIMEOUT_S = 600.0
STOP_PATIENCE_S = 3.0
"""query.stop() does not wait for a task that is held, but for a plan or commit: there it is let go after STOP_WAITS_S."""
STOP_WAITS_S = 0.5
ZOMBIE_S = 10.0
PROGRESS_TIMEOUT_S = 600.0
POLL_S = 0.2
OUR_ERROR = re.compile(r"barnabas\.spark\.[\w.]*?(\w+Error: [^\n]*)")


class Anomaly(AssertionError):  # noqa: N818 (what it is)
    """Something that the sink must not do."""


class MakesDriver(Protocol):
    """Starts a driver, and says how often it lets Spark run a task: more than once if `repeats`."""

    def __call__(self, *, repeats: bool = False) -> tuple[DriverProcess, int]: ...


class Campaign:
    """Runs rounds of faults."""

    def __init__(self, world: World, keeper: GateKeeper, make_driver: MakesDriver) -> None:
        self._world = world
        self._keeper = keeper
        self._make_driver = make_driver
        self._driver: DriverProcess | None = None
        self._task_attempts_max = 1
        self._plan = PLAN
        self._options: dict[str, str] = {}
        self._is_started = False
        self._partitions = 0
        self._zombies: list[Visitor] = []
        self.killed: Counter[str] = Counter()
        self.drivers_count = 0
        self.drivers_cpu_s = 0.0

    def run_round(self, faults: list[Fault]) -> None:
        """Raises Anomaly, or what the harness itself fails with."""
        for number, fault in enumerate(faults):
            hold = self._keeper.hold(fault.point, skipped_count=fault.skipped_count)
            try:
                self._start_unless_active(fault.partitions, repeats=fault.kind == SPECULATION)
                if not number:
                    self._world.write(fault.rows)
                visitor = self._await_visitor(hold, fault)
                self._keeper.note(f"fault: {fault}")
                getattr(self, f"_fault_{fault.kind}")(visitor, fault)
            finally:
                self._keeper.cancel(hold)
            self.killed[fault.kind] += 1

    def settle(self) -> None:
        """Raises Anomaly unless all rows are copied now, and nothing is left open."""
        self._let_zombies_go()
        self._start_unless_active(0)
        self._world.write(MORE_ROWS)
        ends = self._world.source_ends()
        committed, since_s = None, time.monotonic()
        while committed is None or committed[SOURCE]["offsets"] != ends:
            state = self._state_of_running("without a fault")
            if state["committed"] != committed:
                committed, since_s = state["committed"], time.monotonic()
            elif time.monotonic() - since_s > PROGRESS_TIMEOUT_S:
                raise Anomaly(f"no batch ends for {PROGRESS_TIMEOUT_S:.0f} s: {committed}, and the ends are {ends}")
            time.sleep(POLL_S)
        self._world.await_progress(ends)
        if found := self._world.anomalies():
            raise Anomaly("; ".join(found))

    def be_away(self) -> None:
        """The driver is away after its decision until its transactions have timed out. Raises Anomaly unless a plan that gives the same
        rows again ends exact, and one with rand() ends by the error that says so. No query can go on after it."""
        for self._plan in (STEADY_PLAN, PLAN):
            self._stop_query()
            self._options = AWAY_OPTIONS
            self._time_out_decided()
            if self._plan == STEADY_PLAN:
                self.settle()
        error = UNBORN
        for _ in range(AWAY_TRIES):
            if UNBORN in error:
                self._start_unless_active(0)
                error = self._end_of_query()
        if not CHANGED.search(error):
            raise Anomaly(f"a plan with rand() does not end by ChangedBatchError when decided transactions have timed out: {error}")

    def _time_out_decided(self) -> None:
        for _ in range(AWAY_TRIES):
            hold = self._keeper.hold("commit:decided")
            try:
                self._start_unless_active(0)
                self._world.write(MORE_ROWS)
                while (visitor := hold.wait(POLL_S)) is None and self._state()["active"]:
                    pass
                if visitor is not None:
                    self._fault_twice(visitor)
                    self._world.await_no_open_transaction()
                    return
                error = self._end_of_query()
                if TOO_SLOW not in error and UNBORN not in error:
                    raise Anomaly(f"the query ended without a fault: {error}")
            finally:
                self._keeper.cancel(hold)
        raise Anomaly("the machine is too slow to decide a batch before its transactions time out")

    def _stop_query(self) -> None:
        if self._is_started and self._driver is not None:
            self._driver.ask("stop")
            self._is_started = False

    def close(self) -> None:
        for visitor in self._zombies:
            kill_process(visitor.pid)
        if self._driver is not None:
            self._kill_driver()

    # -- the query -----------------------------------------------------------------------------------------------------

    def _start_unless_active(self, partitions: int, *, repeats: bool = False) -> None:
        if repeats and self._driver is not None and self._task_attempts_max == 1:
            self._kill_driver()
        if self._driver is None:
            self._driver, self._task_attempts_max = self._make_driver(repeats=repeats)
            self.drivers_count += 1
            self._driver.wait_ready()
            self._is_started = False
        if self._is_started:
            self._state_of_running("without a fault")
            return
        self._partitions = partitions
        self._driver.ask("start", partitions=partitions, per_trigger=ROWS_PER_BATCH, plan=self._plan, options=self._options)
        self._is_started = True

    def _state(self) -> Any:
        assert self._driver is not None
        return self._driver.ask("state")

    def _state_of_running(self, when: str) -> Any:
        """Raises Anomaly if the query has ended, unless Spark could not start a process: then it is started again."""
        state = self._state()
        if not state["active"]:
            self._is_started = False
            if UNBORN not in (state["error"] or ""):
                raise Anomaly(f"the query ended {when}: {state['error']}")
            self._start_unless_active(self._partitions)
        return state

    def _await_visitor(self, hold: Hold, fault: Fault) -> Visitor:
        """More rows come from time to time: the point may be that of a later task or batch."""
        deadline_s = time.monotonic() + ARRIVAL_TIMEOUT_S
        while True:
            visitor = hold.wait(MORE_ROWS_S)
            if visitor is not None:
                return visitor
            self._state_of_running(f"before {fault}")
            if time.monotonic() > deadline_s:
                raise Anomaly(f"{fault.point} is not reached in {ARRIVAL_TIMEOUT_S:.0f} s")
            self._world.write(MORE_ROWS)

    def _end_of_query(self) -> str:
        """It ends; returns why."""
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while (state := self._state())["active"]:
            if time.monotonic() > deadline_s:
                raise Anomaly(f"the query goes on for {END_TIMEOUT_S:.0f} s although it has to end")
            time.sleep(POLL_S)
        self._is_started = False
        return state["error"] or ""

    def _await_end(self) -> None:
        """The query ends, and not by an error of the sink's own."""
        if found := OUR_ERROR.search(self._end_of_query()):
            raise Anomaly(f"the query ended by an error of the sink: {found[1]}")

    def _await_commit(self, why: str) -> None:
        """A batch more is committed, and the query runs."""
        self._await_point("commit:end", why)

    def _await_point(self, point: str, why: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """A commit comes to `point`, where it is held until `meanwhile` has returned; and the query runs."""
        hold = self._keeper.hold(point)
        deadline_s = time.monotonic() + ARRIVAL_TIMEOUT_S
        try:
            while (visitor := hold.wait(MORE_ROWS_S)) is None:
                self._state_of_running(why)
                if time.monotonic() > deadline_s:
                    raise Anomaly(f"no batch is committed for {ARRIVAL_TIMEOUT_S:.0f} s {why}")
                self._world.write(MORE_ROWS)
            meanwhile()
            visitor.let_go()
        finally:
            self._keeper.cancel(hold)

    # -- the faults ----------------------------------------------------------------------------------------------------

    def _fault_python(self, visitor: Visitor, fault: Fault) -> None:
        kill_process(visitor.pid)
        if fault.point.startswith("task:") and self._task_attempts_max > 1:
            self._await_commit("although Spark repeats a task")
        else:
            self._await_end()

    def _fault_executor(self, visitor: Visitor, _: Fault) -> None:
        assert self._driver is not None
        self._driver.kill_executors()
        visitor.let_go()
        if self._task_attempts_max > 1:
            self._await_commit("although Spark repeats a task")
        else:
            self._await_end()

    def _fault_twice(self, visitor: Visitor, fault: Fault | None = None) -> None:
        hold = self._keeper.hold("abort:begin")
        try:
            kill_process(visitor.pid)
            aborting = hold.wait(END_TIMEOUT_S)
            if aborting is None:
                raise Anomaly("Spark does not abort a batch whose commit has failed")
            kill_process(aborting.pid)
        finally:
            self._keeper.cancel(hold)
        self._await_end()
        if fault is not None:
            time.sleep(fault.down_s)

    def _kill_driver(self, spared: tuple[int, ...] = ()) -> None:
        assert self._driver is not None
        self._driver.kill(spared)
        self.drivers_cpu_s += self._driver.cpu_s
        self._driver = None
        self._is_started = False

    def _fault_driver(self, _: Visitor, __: Fault) -> None:
        self._kill_driver()

    def _fault_zombie(self, visitor: Visitor, fault: Fault) -> None:
        self._kill_driver((visitor.pid,))
        self._zombies.append(visitor)
        self._start_unless_active(fault.partitions)
        self._await_commit("beside a process of a driver that was killed")
        self._let_zombies_go()

    def _fault_twin(self, visitor: Visitor, fault: Fault) -> None:
        assert self._driver is not None
        self._driver.ask("kill_task", attempt=visitor.told["attempt"])
        self._go_on_beside_a_twin(visitor, fault, "beside an attempt that Spark had killed")

    def _fault_speculation(self, visitor: Visitor, fault: Fault) -> None:
        self._go_on_beside_a_twin(visitor, fault, "beside an attempt that has a twin")

    def _go_on_beside_a_twin(self, visitor: Visitor, fault: Fault, why: str) -> None:
        """It goes on when a batch is committed, or earlier: when a batch is decided and its transactions are still open."""
        self._zombies.append(visitor)
        if fault.down_s:
            self._await_point("commit:decided", why, self._let_zombies_go)
        self._await_commit(why)
        self._let_zombies_go()

    def _fault_stop(self, visitor: Visitor, fault: Fault) -> None:
        assert self._driver is not None
        number = self._driver.send("stop")
        if not self._driver.find_answer(number, STOP_PATIENCE_S if fault.point.startswith("task:") else STOP_WAITS_S):
            visitor.let_go()
        self._driver.answer(number)
        self._is_started = False
        self._start_unless_active(fault.partitions)
        if fault.down_s:
            self._await_commit("after a stop")
        visitor.let_go()

    def _fault_broker(self, visitor: Visitor, fault: Fault) -> None:
        server = self._world.server
        self._world.kill_server()
        if fault.down_s:
            visitor.let_go()
            time.sleep(fault.down_s)
        server.start()
        visitor.let_go()
        self._await_commit("when the broker was killed and started again")

    def _fault_hang(self, visitor: Visitor, fault: Fault) -> None:
        with self._stopped_broker():
            visitor.let_go()
            time.sleep(max(fault.down_s, 0.3))
        self._await_commit("when the broker had hung")

    @contextlib.contextmanager
    def _stopped_broker(self) -> Iterator[None]:
        pid = self._world.server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _let_zombies_go(self) -> None:
        """They go on, and have ended when this returns."""
        for visitor in self._zombies:
            visitor.let_go()
        deadline_s = time.monotonic() + ZOMBIE_S
        for visitor in self._zombies:
            while Path(f"/proc/{visitor.pid}").exists() and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
            kill_process(visitor.pid)
        self._zombies.clear()


def run(
    world: World,
    keeper: GateKeeper,
    make_driver: MakesDriver,
    rounds: list[list[Fault]],
    *,
    settle_every: int = 10,
    is_away: bool = False,
    limit_s: float = math.inf,
) -> tuple[Campaign, str | None]:
    """All rounds, or those that begin in `limit_s`, judged every few and at the end; then with `is_away` what Campaign.be_away does.
    Returns the campaign, and the anomaly that ended it."""
    campaign = Campaign(world, keeper, make_driver)
    begun_s = time.monotonic()
    done = 0
    try:
        for number, faults in enumerate(rounds, 1):
            campaign.run_round(faults)
            done += len(faults)
            is_last = number == len(rounds) or time.monotonic() - begun_s > limit_s
            if number % settle_every == 0 or is_last:
                campaign.settle()
            print(f"{time.monotonic() - begun_s:6.0f} s  {done:3} {', then '.join(map(str, faults))}", flush=True)
            if is_last:
                break
        if is_away:
            campaign.be_away()
            print("a driver that is away for too long: exact, or the error that names the plan", flush=True)
    except AssertionError as anomaly:
        return campaign, f"{anomaly}"
    finally:
        campaign.close()
    return campaign, None
