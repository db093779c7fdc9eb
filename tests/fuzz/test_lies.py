"""A follower whose leader and controller lie to it, in one field of every third answer, by seed.

It goes on, holds no more than before, comes back, and has all that was acknowledged. The long form is
`python -m tests.fuzz.lies --seed N --seconds 60`.
"""

import struct
import time
from collections import Counter
from pathlib import Path
from random import Random

from firnline.base.errors import FirnlineError
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k01_fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from tests.fuzz.lies import leaves, lie, play
from tests.fuzz.lies_soak import soak

SECONDS = 10.0
SEED = 1  # the same in each run; the soak goes on with others


def answer() -> bytes:
    part = FetchablePartitionResponse(partition_index=0, high_watermark=7, records=bytes(100))
    topic = FetchableTopicResponse(topic_id=bytes(15) + b"\1", partitions=[part])
    return bytes(FetchResponse(responses=[topic]).write(17))


def test_a_follower_that_is_lied_to_goes_on_and_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    seed = SEED
    found, reported, kept = play(tmp_path / "stage", seed, SECONDS)
    assert not found, f"{found} [python -m tests.fuzz.lies --seed {seed} --seconds {SECONDS}]"
    assert sum(reported.values()) > 10
    assert kept > 10


def test_a_lie_is_an_answer_that_can_be_read_in_most_cases_and_is_a_function_of_its_seed() -> None:
    body = answer()
    reported = [lie(Random(seed), 1, 17, body) for seed in range(300)]
    assert reported == [lie(Random(seed), 1, 17, body) for seed in range(300)]
    response = messages_of(1)[1]
    read = 0
    for data, what in reported:
        if what != "bytes":
            assert data != body, what
            response.read(data, 17, 0)
            read += 1
    assert read > 200
    fields = {what.partition(" ")[0] for _, what in reported}
    assert len(fields) > 15, fields  # those in tags, too


def test_no_epoch_is_said_to_be_newer_and_no_log_to_begin_later() -> None:
    """It would be believed: nothing shows that it is not so."""
    body = answer()
    for seed in range(3000):
        data, what = lie(Random(seed), 1, 17, body)
        try:
            found, _ = messages_of(1)[1].read(data, 17, 0)
        except (FirnlineError, struct.error, ValueError):
            assert what == "bytes"
            continue
        for leaf in leaves(found):
            if leaf.name in ("leader_epoch", "log_start_offset"):
                assert getattr(leaf.owner, leaf.name) <= -1, (seed, what)


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    seeds: list[int] = []

    def one(directory: Path, seed: int, seconds: float) -> tuple[str, Counter[int], int]:
        seeds.append(seed)
        return "lost" if len(seeds) == 2 else "", Counter({1: 5}), 7

    ledger, until_s = tmp_path / "soak.jsonl", time.monotonic() + 60
    expected = ["lost [python -m tests.fuzz.lies --seed 1000001 --seconds 20]"]
    assert soak(2, ledger=ledger, at="abc", until_s=until_s, one=one) == expected
    assert soak(2, ledger=ledger, at="abc", until_s=until_s, one=one) == expected
    assert soak(1, ledger=ledger, at="def", until_s=until_s, one=one) == []
    assert seeds == [1_000_000, 1_000_001, 1_000_000]
