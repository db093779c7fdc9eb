"""Requests of every API with what the node knows, and with what nobody would send.

Seeds that found something, and some seconds of those that nobody has seen.

The long form is `python -m tests.fuzz.soak`. A failure prints the command that plays it again.
"""

import time
from pathlib import Path
from random import Random

import pytest

from firnline.protocol.messages import messages_of
from firnline.protocol.versions import CONTROLLER_PRIVATE, CONTROLLER_SERVED
from tests.chaos.soak import append
from tests.fuzz.drawer import Drawer
from tests.fuzz.grammar import CONTROLLER_ROWS, ROWS, burst, is_controllers
from tests.fuzz.known import Known
from tests.fuzz.play import Outcome, Tally, command, numbers_of, play, shrink, spans
from tests.fuzz.soak import FORM, soak, total

SEEDS = Path(__file__).with_name("seeds.txt")
FIRST_BURSTS = 3000
_METADATA = 3


def known_seeds() -> list[tuple[int, str, str]]:
    """Rows of seeds.txt: seed, which bursts, what it was."""
    rows = []
    for line in SEEDS.read_text().splitlines():
        words, _, what = line.partition("#")
        if words.strip():
            seed, bursts = words.split()
            rows.append((int(seed), bursts, what.strip()))
    return rows


def passes(directory: Path, seed: int, numbers: list[int]) -> Tally:
    outcome = play(directory, seed, numbers)
    if outcome.is_slow:  # of a busy machine the second time is asked, too
        outcome = play(directory / "again", seed, numbers)
    if not outcome.found:
        return outcome.tally
    print(f"seed {seed}: {outcome.found}")  # to make it smaller may take longer than a test may
    fewer = shrink(seed, numbers, outcome.recent) if outcome.recent else numbers
    pytest.fail(f"{outcome.found}\nagain: {command(seed, fewer)}")


@pytest.mark.parametrize(("seed", "bursts", "what"), known_seeds())
def test_what_was_found_once_is_not_found_again(
    tmp_path: Path, seed: int, bursts: str, what: str
) -> None:
    passes(tmp_path / "node", seed, numbers_of(bursts))


def test_requests_of_every_kind(tmp_path: Path) -> None:
    """The first seed, in each run; the soak goes on with those that nobody has seen."""
    began = time.monotonic()
    tally = passes(tmp_path / "node", 1, list(range(FIRST_BURSTS)))
    assert tally.answered > tally.requests // 2, tally
    print(f"{tally.requests} requests in {time.monotonic() - began:.1f} s")


def test_every_api_of_both_listeners_is_asked_at_every_version() -> None:
    asked = {
        (is_controllers(number), one.key, one.version)
        for number in range(7000)
        for one in burst(1, number, Known()).asked
    }
    served = {
        (kind, row.key, version)
        for kind, rows in ((False, ROWS), (True, CONTROLLER_ROWS))
        for row in rows
        for version in range(row.advertised_min, row.advertised_max + 1)
        if version in messages_of(row.key)[0].valid
    }
    assert asked == served


def test_all_that_the_controllers_listener_serves_is_asked_or_said_to_be_spared() -> None:
    asked = {row.key for row in CONTROLLER_ROWS}
    assert asked == {row.key for row in (*CONTROLLER_SERVED, *CONTROLLER_PRIVATE)}


def test_siblings_differ_from_a_request_in_a_few_fields_and_are_frames() -> None:
    drawer = Drawer(Random(3), Known(), _METADATA, 12)
    body = drawer.body()
    siblings = {body.sibling(Random(number)) for number in range(50)}
    assert body.joined() not in siblings or len(siblings) > 1
    assert all(abs(len(one) - len(body.joined())) < 2_000 for one in siblings)


def test_requests_for_controllers_pass_the_first_check(tmp_path: Path) -> None:
    """Most of them; otherwise the fuzzer sees refusals, and nothing of what is behind them."""
    tally = passes(tmp_path / "node", 5, [n for n in range(2400) if is_controllers(n)])
    taken = {key for (is_theirs, key, code) in tally.codes if is_theirs and code == 0}
    assert taken >= {1, 18, 32, 46, 52, 55, 58, 59, 60, 67, 70, 82, 32011, 32012}, taken
    # The epochs of broker and partition are known: what is refused is refused for what it says.
    assert taken & {56, 62}, taken


def test_a_burst_is_a_function_of_its_seed() -> None:
    once = [burst(5, number, Known()) for number in range(200)]
    assert once == [burst(5, number, Known()) for number in range(200)]
    assert once != [burst(6, number, Known()) for number in range(200)]


def test_the_numbers_of_bursts_are_read_as_they_were_written() -> None:
    assert spans([7, 1, 2, 3]) == "1-3,7"
    assert numbers_of("1-3,7") == [1, 2, 3, 7]


def test_the_ledger_adds_up_and_keeps_what_was_found(tmp_path: Path) -> None:
    ledger = tmp_path / "soak.jsonl"
    seeds: list[int] = []

    def one(directory: Path, seed: int, numbers: range) -> Outcome:
        seeds.append(seed)
        found = "it ended with 1" if len(seeds) == 2 else ""
        return Outcome(Tally(requests=100), found, is_slow=len(seeds) == 3)

    def fewer(seed: int, numbers: range, recent: object) -> list[int]:
        return [3, 4]

    def run(requests: int, at: str) -> list[str]:
        until_s = time.monotonic() + 60
        return soak(requests, ledger=ledger, at=at, until_s=until_s, one=one, fewer=fewer)

    expected = ["it ended with 1 [python -m tests.fuzz.play --seed 1000001 --only 3-4]"]
    assert run(200, "abc") == expected
    assert run(200, "abc") == expected
    assert run(300, "abc") == expected
    assert seeds == [1_000_000, 1_000_001, 1_000_002, 1_000_002]  # what was slow is played twice
    assert run(100, "def") == []
    append(ledger, {"commit": "def", "form": "kill", "violations": []})
    assert total(ledger, lambda at: at == "def") == (400, 100)
    assert FORM in ledger.read_text()
