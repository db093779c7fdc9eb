"""A file of a stopped node is damaged, of any kind: it starts and serves what it can, or says what to do.

The long form is `python -m tests.fuzz.stored_soak`; `python -m tests.fuzz.stored --seed N` plays one again.
"""

import time
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.stored import Intact, Wrong, build, damage, kind_of, run
from tests.fuzz.stored_soak import soak

# A file of each of these is chosen as often as of any other.
KINDS = {
    "data  .log",
    "data  .index",
    "data  .timeindex",
    "data  .snapshot",
    "data __cluster_metadata .log",
    "data __cluster_metadata .checkpoint",
    "data __cluster_metadata quorum-state",
    "data __consumer_offsets .log",
    "data __consumer_offsets .metadata",
    "data __remote_log_metadata .log",
    "data  leader-epoch-checkpoint",
    "data  .properties",
    "data  recovery-point-offset-checkpoint",
    "tier  .log",
    "tier  .jsonl",
}
SEEDS = range(1, 6)  # the soak goes on with those that nobody has seen


@pytest.fixture(scope="module", params=["stopped", "killed"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Intact:
    base = tmp_path_factory.mktemp("stored") / "whole"
    return build(base, is_clean=request.param == "stopped")


def test_a_node_with_a_damaged_file_serves_what_it_can_or_says_what_to_do(
    intact: Intact, tmp_path: Path
) -> None:
    for seed in SEEDS:
        run(intact, tmp_path / str(seed), seed)


def test_files_of_every_kind_are_damaged(intact: Intact) -> None:
    files = [path for path in intact.base.rglob("*") if path.is_file()]
    assert {kind_of(path, intact.base) for path in files} >= KINDS


def test_a_damage_is_a_function_of_its_seed(tmp_path: Path) -> None:
    said = []
    for name in ("one", "other"):
        folder = tmp_path / name / "data" / "t-0"
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(bytes(range(256)))
        said.append([(damage(Random(7), tmp_path / name), (folder / "0.log").read_bytes())])
    assert said[0] == said[1]


def test_a_record_that_nobody_wrote_is_found(intact: Intact, tmp_path: Path) -> None:
    """The check itself: what was written is said to be something else."""
    key, _ = intact.written["plain", 3]
    other = intact._replace(written=intact.written | {("plain", 3): (key, b"other")})
    with pytest.raises(Wrong, match="plain at 3"):
        _run_some(other, tmp_path)


def _run_some(intact: Intact, base: Path) -> None:
    """Most seeds damage nothing of the one batch that is looked at."""
    for seed in range(5):
        run(intact, base / str(seed), seed)


def test_the_ledger_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def piece(seeds: range, until_s: float, *, is_clean: bool) -> dict[str, object]:
        asked.append((seeds[0], is_clean))
        row = {"form": "stored", "seeds": [seeds[0], seeds[-1]], "cases": len(seeds)}
        return row | {"violations": ["lost"] if len(asked) == 2 else []}

    monkeypatch.setattr("tests.fuzz.stored_soak.run_piece", piece)
    ledger, until_s = tmp_path / "soak.jsonl", time.monotonic() + 60
    assert soak(20, ledger=ledger, at="abc", until_s=until_s, piece=10) == ["lost"]
    assert soak(20, ledger=ledger, at="abc", until_s=until_s, piece=10) == ["lost"]
    assert soak(10, ledger=ledger, at="def", until_s=until_s, piece=10) == []
    assert asked == [(1_000_000, True), (1_000_010, False), (1_000_000, True)]
