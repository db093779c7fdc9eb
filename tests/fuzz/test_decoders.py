"""Bytes that others wrote: what is kept of coverage-guided fuzzing, and some mutants of it by seed.

`python -m tests.fuzz.cover` looks for more.
"""

from pathlib import Path
from random import Random

import pytest

from firnline.base.errors import FirnlineError
from tests.fuzz import cover, decoders
from tests.fuzz.cover import read_corpus, write_corpus
from tests.fuzz.decoders import DECODERS, Decoder, Found, check, mutants

MUTANTS = 1500


@pytest.mark.parametrize("name", list(DECODERS))
def test_a_decoder_takes_any_bytes_or_refuses_them_as_it_says(name: str) -> None:
    decoder = DECODERS[name]
    seeds = [*decoder.seeds(), *read_corpus(name)]
    assert sum(check(decoder, data) for data in seeds) > 0, "nothing of it is ever decoded"
    some = mutants(Random(name), seeds)
    for _ in range(MUTANTS):
        check(decoder, next(some))


def test_what_is_kept_is_small() -> None:
    files = list(cover.CORPUS.iterdir())
    assert {path.stem for path in files} <= DECODERS.keys()
    for path in files:
        inputs = read_corpus(path.stem)
        assert len(inputs) <= cover.KEPT_MAX
        assert all(len(one) <= cover.KEPT_BYTES_MAX for one in inputs)


def test_the_corpus_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cover, "CORPUS", tmp_path / "corpus")
    write_corpus("one", [b"b" * 300, b"", b"\0\xff", b"x" * 301])
    assert read_corpus("one") == [b"", b"\0\xff", b"b" * 300]
    assert read_corpus("other") == []


def test_an_error_that_no_caller_expects_is_found() -> None:
    def fails(data: bytes) -> None:
        if data == b"refused":
            raise FirnlineError("as it says")
        raise IndexError(data)

    assert not check(Decoder(fails, list), b"refused")
    assert not check(Decoder(fails, list, (IndexError,)), b"x")
    with pytest.raises(Found, match="IndexError"):
        check(Decoder(fails, list), b"x")


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "SLOW_S", 0.0)
    with pytest.raises(Found, match=" s for 78"):
        check(Decoder(lambda data: sum(range(100_000)), list), b"x")
