"""The built-in stores that need no server do what a tier needs, and the check finds what does not."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from firnline.base.ports import Buffer
from firnline.cli.show import SOMETHING_IS_WRONG
from firnline.cli.tier.check import check
from firnline.stores.conformance import Outcome, StoreCheck
from firnline.stores.directory import DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.stores.port import (
    NewObject,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    RemoteStorageError,
)


def problems(store: ObjectStore) -> dict[str, str]:
    return {each.name: each.problem for each in StoreCheck(store).run() if each.problem}


def test_memory_and_a_directory_do_what_a_tier_needs(tmp_path: Path) -> None:
    assert problems(MemoryStore()) == {}
    assert problems(DirectoryStore(str(tmp_path / "tier"))) == {}
    left = [path.name for path in (tmp_path / "tier").rglob("*") if not path.name.startswith(".")]
    assert left == []


class Past(MemoryStore):
    """Refuses ranges that begin at the end."""

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        data = super().get(key, position, size_bytes)
        if position and not data:
            raise RemoteStorageError("416")
        return data


class Empty(MemoryStore):
    """Calls an object that is not there an outage."""

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        try:
            return super().get(key, position, size_bytes)
        except ObjectMissing:
            raise RemoteStorageError("no answer") from None


class Torn(MemoryStore):
    """Shows what a failed put has stored so far."""

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        data = b"".join(chunks)
        self.objects[key] = data
        if len(data) != size_bytes:
            raise RemoteStorageError("length differs")
        self.listed[key] = size_bytes


class Hasty(MemoryStore):
    """Puts the last of several objects first."""

    def put_together(self, objects: Sequence[NewObject]) -> None:
        super().put_together(objects[::-1])


class Keeps(MemoryStore):
    """Says that it deleted, and did not."""

    def delete(self, key: str) -> None:
        pass


class Flips(MemoryStore):
    """Gives back one other byte of a large object."""

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        data = super().get(key, position, size_bytes)
        if len(data) > 1_000_000:
            return data[:500_000] + bytes([data[500_000] ^ 1]) + data[500_001:]
        return data


class Forgets(MemoryStore):
    """Leaves the last object out of a listing of many."""

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in super().pages(folder, after):
            yield page[:-1] if len(page) > 5 else page


class Raises(MemoryStore):
    """A user's class with a bug."""

    def delete(self, key: str) -> None:
        raise ZeroDivisionError(key)


@pytest.mark.parametrize(
    ("store", "name", "says"),
    [
        (Past(), "ranges end where the object ends", "416"),
        (Empty(), "an object that does not exist", "it does not exist"),
        (Torn(), "a put that fails leaves nothing", "must not exist"),
        (Hasty(), "objects that are put together", "must not exist"),
        (Keeps(), "a delete of what does not exist", "must not exist"),
        (Flips(), "an object of 20 MiB", "not those that were put"),
        (Forgets(), "1050 small objects, in pages", "keys of all pages"),
        (Raises(), "a delete of what does not exist", "ZeroDivisionError"),
    ],
)
def test_a_store_that_would_lose_something_is_found_out(
    store: ObjectStore, name: str, says: str
) -> None:
    assert says in problems(store)[name]


def test_the_command_prints_a_table_and_fails_for_a_store_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CliRunner().invoke(check, [str(tmp_path / "tier")])
    assert done.exit_code == 0, done.output
    assert "1050 small objects" in done.output
    assert "FAILED" not in done.output

    def broken(self: StoreCheck) -> Iterator[Outcome]:
        yield Outcome("ranges", 1, "too long", "")

    monkeypatch.setattr(StoreCheck, "run", broken)
    done = CliRunner().invoke(check, [str(tmp_path / "tier")])
    assert done.exit_code == SOMETHING_IS_WRONG
    assert "FAILED" in done.output
    assert "too long" in done.output


class Down(MemoryStore):
    """Does not answer."""

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        raise RemoteStorageError("no answer")


def test_a_store_that_does_not_answer_is_not_asked_for_all_the_rest() -> None:
    first, clean = StoreCheck(Down()).run()
    assert first.problem is not None
    assert "no answer" in first.problem
    assert clean.problem is None
