"""Checks what a store must do to hold a tier, on the store itself. WORLD.

`firnline tier check` runs it on a user's store, and the tests on each built-in one. All objects lie below one
folder of their own, and are deleted at the end.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import NamedTuple

from firnline.base.errors import StorageError
from firnline.base.units import MIB
from firnline.stores.port import (
    PAGE_OBJECTS,
    NewObject,
    ObjectMissing,
    ObjectStore,
    RemoteStorageError,
    StoreRefused,
    view,
)

# More than one page of a listing, and more than one request deletes.
_MANY = PAGE_OBJECTS + 50
_LARGE_BYTES = 20 * MIB  # three parts
_THREADS = 8
# Amazon refuses requests of a clock that differs by 15 minutes.
_SKEW_MAX_S = 300
# What a check is about; and the check, which returns its note.
Check = tuple[str, Callable[[], str | None]]


class Outcome(NamedTuple):
    """One check. `problem` is None if the store does what it must; `note` is what the operator may know."""

    name: str
    took_ms: int
    problem: str | None
    note: str


class Broken(Exception):
    """The store does not do what it must; the text says what it did."""


class StoreCheck:
    """The checks of one store.

    wrong  opens the same store with wrong credentials; None for a store that has none
    """

    def __init__(self, store: ObjectStore, wrong: Callable[[], ObjectStore] | None = None) -> None:
        self._store = store
        self._wrong = wrong
        self._folder = f"check-{uuid.uuid4().hex}/"

    def run(self) -> Iterator[Outcome]:
        """Yield an outcome for each check, and clean up. If the first fails, skip the others."""
        checks: list[Check] = [
            ("a put is visible at once, complete", self._visible),
            ("a put that fails leaves nothing", self._failed_put),
            ("objects that are put together", self._together),
            ("ranges end where the object ends", self._ranges),
            ("an empty object", self._empty),
            ("a repeated put", self._repeated),
            ("an object that does not exist", self._missing),
            ("a delete of what does not exist", self._deletes),
            (f"{_MANY} small objects, in pages", self._many),
            (f"an object of {_LARGE_BYTES // MIB} MiB", self._large),
            ("puts of several threads", self._threads),
            ("wrong credentials are refused", self._credentials),
            ("the store's clock", self._clock),
            ("unfinished puts can be removed", self._unfinished),
        ]
        yield from outcomes(checks, ("all that was put can be deleted", self._clean))

    def _key(self, name: str) -> str:
        return f"{self._folder}{name}"

    def _put(self, name: str, data: bytes) -> str:
        key = self._key(name)
        self._store.put(key, (data,), size_bytes=len(data))
        return key

    def _visible(self) -> str | None:
        key = self._put("one/a", b"0123456789")
        expect(self._store.get(key), b"0123456789", "the object's bytes")
        expect(self._store.stat(key).size_bytes, 10, "its length")
        listed = [info.key for info in self._store.list_prefix(self._key("one/"))]
        return None if listed == [key] else "listings are late; Firnline does not depend on them"

    def _failed_put(self) -> str | None:
        key = self._key("failed/short")
        try:
            self._store.put(key, (b"abc",), size_bytes=5)
        except RemoteStorageError:
            pass
        else:
            raise Broken("a put of 3 bytes that were announced as 5 succeeded")
        self._absent(key)
        key = self._key("failed/long")
        part = bytes(MIB)
        try:
            self._store.put(key, (part for _ in range(9)), size_bytes=10 * MIB)
        except RemoteStorageError:
            pass
        else:
            raise Broken("a put of 9 MiB that were announced as 10 succeeded")
        self._absent(key)
        return None

    def _together(self) -> str | None:
        def some(folder: str, size_bytes: int) -> list[NewObject]:
            sizes = {"a": 1, "b": size_bytes, "last": 4}
            return [
                NewObject(self._key(f"{folder}/{name}"), (name.encode(),), size)
                for name, size in sizes.items()
            ]

        self._store.put_together(some("together", 1))
        for name in ("a", "b", "last"):
            found = self._store.get(self._key(f"together/{name}"))
            expect(found, name.encode(), "an object's bytes")
        try:
            self._store.put_together(some("apart", 2))
        except RemoteStorageError:
            self._absent(self._key("apart/last"))
            return None
        raise Broken("one of three objects had another length than announced, and all were stored")

    def _ranges(self) -> str | None:
        key = self._put("ranges", b"0123456789")
        for position, size_bytes, expected in (
            (0, 4, b"0123"),
            (3, 4, b"3456"),
            (8, 100, b"89"),
            (9, 1, b"9"),
            (10, 1, b""),
            (11, 5, b""),
            (3, 0, b""),
        ):
            found = self._store.get(key, position, size_bytes)
            expect(found, expected, f"{size_bytes} bytes from {position} of 10")
            seen = bytes(view(self._store, key, position, size_bytes))
            expect(seen, expected, f"{size_bytes} bytes from {position} of 10, in place")
        expect(self._store.get(key, 7), b"789", "the rest from 7 of 10")
        return None

    def _empty(self) -> str | None:
        key = self._put("empty", b"")
        expect(self._store.get(key), b"", "an empty object")
        expect(self._store.stat(key).size_bytes, 0, "its length")
        return None

    def _repeated(self) -> str | None:
        for data in (b"first", b"first", b"second time"):
            key = self._put("repeated", data)
            expect(self._store.get(key), data, "the bytes of the last put")
        return None

    def _missing(self) -> str | None:
        self._absent(self._key("missing/nothing"))
        expect(list(self._store.pages(self._key("missing/"))), [], "a folder without objects")
        return None

    def _absent(self, key: str) -> None:
        for what, call in (
            ("reading it", lambda: self._store.get(key)),
            ("reading a range of it", lambda: self._store.get(key, 0, 5)),
            ("asking for its length", lambda: self._store.stat(key)),
        ):
            try:
                call()
            except ObjectMissing:
                continue
            except StorageError as problem:
                raise Broken(f"{what} says: {problem}; expected: it does not exist") from None
            raise Broken(f"{what} succeeded, though it must not exist")

    def _deletes(self) -> str | None:
        self._store.delete(self._key("deleted/nothing"))
        key = self._put("deleted/one", b"x")
        self._store.delete(key)
        self._store.delete(key)
        self._absent(key)
        keys = [self._put(f"deleted/{number}", b"x") for number in range(3)]
        self._store.delete_many([keys[0], self._key("deleted/nothing"), *keys[1:]])
        for key in keys:
            self._absent(key)
        return None

    def _many(self) -> str | None:
        names = [f"many/{number:05d}" for number in range(_MANY)]
        began_s = time.monotonic()
        with ThreadPoolExecutor(_THREADS) as pool:
            keys = list(pool.map(lambda name: self._put(name, name.encode()), names))
        took_s = time.monotonic() - began_s
        pages = list(self._store.pages(self._key("many/")))
        expect([info.key for page in pages for info in page], keys, "the keys of all pages")
        if any(len(page) > PAGE_OBJECTS for page in pages):
            raise Broken(f"a page has more than {PAGE_OBJECTS} objects")
        after = [
            info.key for page in self._store.pages(self._key("many/"), keys[700]) for info in page
        ]
        expect(after, keys[701:], "the keys behind one of them")
        self._store.delete_many(keys)
        self._absent(keys[0])
        self._absent(keys[-1])
        return f"{_MANY / took_s:.0f} puts a second, {_THREADS} at the same time"

    def _large(self) -> str | None:
        piece = blake2b(self._folder.encode(), digest_size=64).digest() * (MIB // 64)
        pieces = [bytes([number]) + piece[1:] for number in range(_LARGE_BYTES // MIB)]
        key = self._key("large")
        began_s = time.monotonic()
        self._store.put(key, iter(pieces), size_bytes=_LARGE_BYTES)
        put_s = time.monotonic() - began_s
        began_s = time.monotonic()
        found = self._store.get(key)
        get_s = time.monotonic() - began_s
        if found != b"".join(pieces):
            raise Broken("the bytes that come back are not those that were put")
        expect(self._store.get(key, 8 * MIB - 3, 6), found[8 * MIB - 3 : 8 * MIB + 3], "a range")
        size = _LARGE_BYTES / 1e6
        return f"put {size / put_s:.0f} MB/s, get {size / get_s:.0f} MB/s"

    def _threads(self) -> str | None:
        def both(number: int) -> bool:
            data = f"{number}".encode() * 1000
            return self._store.get(self._put(f"threads/{number}", data)) == data

        with ThreadPoolExecutor(_THREADS) as pool:
            if not all(pool.map(both, range(64))):
                raise Broken("an object of one thread has the bytes of another")
        return None

    def _credentials(self) -> str | None:
        if self._wrong is None:
            return (
                "not checked: no setting or environment variable has a secret that could be wrong"
            )
        try:
            self._wrong().get(self._key("one/a"))
        except StoreRefused:
            return None
        except StorageError as problem:
            raise Broken(f"wrong credentials look like another failure: {problem}") from None
        raise Broken("the store let in a wrong secret")

    def _clock(self) -> str | None:
        before_ms = time.time() * 1000
        modified_ms = self._store.stat(self._put("clock", b"x")).modified_ms
        if not modified_ms:
            return "not checked: the store tells no times"
        differs_s = (modified_ms - before_ms) / 1000
        if abs(differs_s) > _SKEW_MAX_S:
            raise Broken(f"it differs by {differs_s:.0f} s from this machine's")
        return f"{abs(differs_s):.1f} s from this machine's"

    def _unfinished(self) -> str | None:
        self._store.abort_unfinished(24 * 3600)
        return None

    def _clean(self) -> str | None:
        for page in list(self._store.pages(self._folder)):
            self._store.delete_many([info.key for info in page])
        expect(self._store.list_prefix(self._folder), [], "a listing at the end")
        return None


def outcomes(checks: Sequence[Check], clean_up: Check) -> Iterator[Outcome]:
    """Run the checks, and clean up. If the first fails the store is not there: skip the others."""
    for number, each in enumerate(checks):
        outcome = _outcome_of(*each)
        yield outcome
        if outcome.problem is not None and number == 0:
            break
    yield _outcome_of(*clean_up)


def _outcome_of(name: str, check: Callable[[], str | None]) -> Outcome:
    """Run a check and return its outcome; the check returns its note, and raises what is wrong."""
    began_s = time.monotonic()
    problem, note = None, ""
    try:
        note = check() or ""
    except Broken as found:
        problem = str(found)
    except Exception as found:  # noqa: BLE001 - a user's own class may raise anything
        problem = f"{type(found).__name__}: {found}"
    return Outcome(name, round((time.monotonic() - began_s) * 1000), problem, note)


def expect(found: object, expected: object, what: str) -> None:
    """Raise Broken if the store returned something else."""
    if found != expected:
        raise Broken(f"{what}: {_short(found)}, expected {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
