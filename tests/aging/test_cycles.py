"""Topics, segments, groups, members, sessions and connections come and go; nothing of them is kept.

The long form is `python -m tests.aging.cycles`, ten minutes of it.
"""

import time
from pathlib import Path

from tests.aging.cycles import BOUNDS, Held, Life, grown, middle

WARM_CYCLES = 6
CYCLES_MIN, CYCLES_MAX = 6, 60
CYCLES_S = 45.0  # a minute, with what comes before and after


def test_what_comes_and_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    with Life(tmp_path) as life:
        for _ in range(WARM_CYCLES):
            life.cycle()
        before = life.settled(None)
        began, cycles = time.monotonic(), 0
        while cycles < CYCLES_MIN or (time.monotonic() - began < CYCLES_S and cycles < CYCLES_MAX):
            life.cycle()
            cycles += 1
        after = life.settled(before)
        assert grown(before, after) == [], (cycles, before, after)
        assert "Traceback" not in life.broker.log_text()
        assert life.broker.stop() == 0


def test_what_grows_is_named() -> None:
    before = Held(100, 10, 4, 3, 1000)
    assert grown(before, before) == []
    assert grown(before, Held(*(a + b for a, b in zip(before, BOUNDS, strict=True)))) == []
    more = grown(before, Held(*(a + b + 1 for a, b in zip(before, BOUNDS, strict=True))))
    assert [line.partition(":")[0] for line in more] == list(Held._fields)
    assert middle([before, before._replace(files=99), before]) == before
