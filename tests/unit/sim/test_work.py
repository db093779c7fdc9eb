"""Work for threads in the simulator: it takes simulated time, has limits, and can be cancelled."""

from typing import Any

from firnline.base.effects import CancelSubmit, Effects, Submit
from firnline.base.errors import WorkTimedOut
from firnline.sim.world import MS, SECOND
from tests.unit.sim.test_net import Rig


class Threads:
    """A machine that submits work; `told` is what its continuations get."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.host = self.rig.hosts[1]
        self.told: list[tuple[str, Any]] = []
        self.done: list[str] = []

    def submit(self, name: str, **more: Any) -> Submit[None]:
        def then(result: Any, now_ms: int) -> Effects:
            self.told.append((name, type(result)))
            return []

        return Submit(
            name=name, pool="read", work=lambda: self.done.append(name), then=then, **more
        )

    def run(self, *effects: Any, for_us: int = SECOND) -> None:
        process = self.host.process
        assert process is not None
        process.step("works", lambda now_ms: list(effects))
        self.rig.run(for_us)


def test_work_that_takes_longer_than_its_limit_times_out_once_and_ends_later() -> None:
    threads = Threads()
    ended: list[int] = []

    def end(now_ms: int) -> Effects:
        ended.append(now_ms)
        return []

    threads.host.slow_work_us = 5 * SECOND
    limited = threads.submit("limited", run_timeout_ms=1_000, ended=end)
    threads.run(limited, threads.submit("not"), for_us=2 * SECOND)
    assert threads.told == [("limited", WorkTimedOut)]
    assert (sorted(threads.done), ended) == (["limited", "not"], [])
    threads.rig.run(10 * SECOND)
    assert threads.told[1:] == [("not", type(None))]
    assert len(ended) == 1
    threads.host.slow_work_us = 0
    threads.run(threads.submit("quick", run_timeout_ms=1_000, ended=end))
    assert threads.told[2:] == [("quick", type(None))]
    assert len(ended) == 1


def test_work_is_slow_each_time_it_has_run_for_so_much_longer() -> None:
    threads = Threads()
    slow: list[int] = []

    def is_slow(now_ms: int) -> Effects:
        slow.append(now_ms)
        return []

    watched = {"run_timeout_ms": 3_500, "slow_ms": 1_000, "slow": is_slow}
    threads.run(threads.submit("quick", **watched), for_us=5 * SECOND)
    assert slow == []
    threads.host.slow_work_us = 60 * SECOND
    threads.run(threads.submit("slow", **watched), for_us=2 * SECOND + SECOND // 2)
    assert len(slow) == 2
    threads.rig.run(10 * SECOND)
    assert len(slow) == 3
    assert [kind for _, kind in threads.told] == [type(None), WorkTimedOut]


def test_work_that_waits_longer_than_it_may_is_not_begun() -> None:
    threads = Threads()
    for number in range(20):  # each waits for 0.2 ms to 20 ms
        threads.run(threads.submit(str(number), queue_timeout_ms=1))
    assert len(threads.told) == 20
    assert 0 < len(threads.done) < 20
    assert [kind for _, kind in threads.told].count(WorkTimedOut) == 20 - len(threads.done)


def test_work_of_a_key_is_done_once_and_can_be_cancelled() -> None:
    threads = Threads()
    cancel = CancelSubmit(pool="read", key="k")
    threads.run(threads.submit("one", key="k"), threads.submit("two", key="k"))
    assert (threads.told, threads.done) == ([("one", type(None))], ["one"])
    threads.run(threads.submit("waits", key="k"), cancel)
    assert threads.done == ["one"]
    threads.host.slow_work_us = SECOND
    threads.run(threads.submit("runs", key="k"), for_us=100 * MS)
    threads.run(CancelSubmit(pool="read", key="k", only_waiting=True), for_us=1)
    threads.run(cancel, threads.submit("anew", key="k"), for_us=3 * SECOND)
    assert threads.done == ["one", "runs", "anew"]
    assert threads.told == [("one", type(None)), ("anew", type(None))]
