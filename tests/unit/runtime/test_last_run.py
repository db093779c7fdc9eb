"""The file that says when a node last ran: fears a clock that is believed for it, or a failed start."""

from pathlib import Path

import pytest

from firnline.base.counting.aging import Aging, aging_since
from firnline.base.counting.machine import MachineFacts
from firnline.base.units import DAY_MS
from firnline.log.checkpoint import META_PROPERTIES
from firnline.runtime.clock import KEPT_EVERY_MS, LAST_RUN, date_of, keep_last_run, last_run_ms
from firnline.runtime.machine import MachineWatch
from firnline.runtime.poll import PollLoop
from tests.unit.runtime.test_machine import until

NOW_MS = 1_700_000_000_000


def directory(at: Path) -> Path:
    """A log directory."""
    at.mkdir(exist_ok=True)
    (at / META_PROPERTIES).touch()
    return at


def test_the_latest_of_all_directories_counts(tmp_path: Path) -> None:
    """One is from an old backup, one is gone, and one is new."""
    for name in ("old", "late", "new"):
        directory(tmp_path / name)
    keep_last_run(str(tmp_path / "old"), NOW_MS - DAY_MS)
    keep_last_run(str(tmp_path / "late"), NOW_MS)
    assert last_run_ms([str(tmp_path / name) for name in ("old", "gone", "late", "new")]) == NOW_MS
    assert (tmp_path / "late" / LAST_RUN).read_text() == f"0\n{NOW_MS}\n"
    assert {path.name for path in (tmp_path / "late").iterdir()} == {LAST_RUN, META_PROPERTIES}


def test_the_mount_point_of_a_disk_that_is_gone_stays_empty(tmp_path: Path) -> None:
    keep_last_run(str(tmp_path), NOW_MS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        *("", "0", "0\n", "0\n17", "1\n17\n", "0\n-17\n", "0\n17\n8\n", "0\n17\nx", "0\nx\n"),
        *("0\n\u0663\n", "0\n" + "9" * 60 + "\n", "0\n" + "9" * 10_000 + "\n", "0\n1e3\n", "\xff"),
    ],
)
def test_what_is_no_such_file_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / LAST_RUN).write_text(content)
    assert last_run_ms([str(tmp_path)]) is None


def test_a_directory_of_that_name_or_a_disk_that_refuses_is_nothing(tmp_path: Path) -> None:
    (directory(tmp_path) / LAST_RUN).mkdir()
    keep_last_run(str(tmp_path), NOW_MS)
    keep_last_run(str(tmp_path / "gone"), NOW_MS)
    assert last_run_ms([str(tmp_path), str(tmp_path / "gone")]) is None
    assert {path.name for path in tmp_path.iterdir()} == {LAST_RUN, META_PROPERTIES}


def watched(path: Path, aging: Aging | None, clock: list[int]) -> MachineFacts:
    """Let a watch ask its disk once."""
    loop, facts = PollLoop(), MachineFacts()
    watch = MachineWatch(loop, facts, [str(path)], lambda: clock[0], aging=aging)
    until(lambda: facts.disks and not facts.silent_disk)
    watch.close()
    loop.close()
    return facts


def test_a_node_keeps_when_it_runs_while_its_clock_is_believed(tmp_path: Path) -> None:
    doubted = aging_since(NOW_MS, NOW_MS + 10 * DAY_MS)
    keep_last_run(str(directory(tmp_path)), NOW_MS)
    for aging, kept_ms in ((None, NOW_MS), (doubted, NOW_MS), (Aging(), NOW_MS + 10 * DAY_MS)):
        watched(tmp_path, aging, [NOW_MS + 10 * DAY_MS])
        assert last_run_ms([str(tmp_path)]) == kept_ms


def test_a_second_start_doubts_the_clock_again(tmp_path: Path) -> None:
    """Fears the operator who starts it once more to see whether that helps."""
    keep_last_run(str(directory(tmp_path)), NOW_MS)
    ahead_ms = NOW_MS + 3_652 * DAY_MS
    for start in range(3):
        now_ms = ahead_ms + start * KEPT_EVERY_MS
        aging = aging_since(last_run_ms([str(tmp_path)]), now_ms)
        assert aging.time_ms(now_ms) == NOW_MS
        watched(tmp_path, aging, [now_ms])


def test_it_is_kept_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(
        "firnline.runtime.machine.keep_last_run", lambda path, now_ms: kept.append(now_ms)
    )
    loop, facts, clock = PollLoop(), MachineFacts(), [NOW_MS]
    watch = MachineWatch(loop, facts, [str(tmp_path)], lambda: clock[0], aging=Aging())
    until(lambda: facts.disks and not facts.silent_disk)
    for later_ms, count in ((0, 1), (KEPT_EVERY_MS - 1, 1), (KEPT_EVERY_MS, 2)):
        clock[0] = NOW_MS + later_ms
        watch._keep_last_run(str(tmp_path))
        assert len(kept) == count
    watch.close()
    loop.close()


def test_dates_are_in_utc() -> None:
    assert date_of(NOW_MS) == "2023-11-14T22:13:20Z"
