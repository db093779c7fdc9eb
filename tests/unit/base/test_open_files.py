"""Files that stay open until others need the descriptor: who gives way, and that nothing is kept alive."""

import gc
import weakref

from firnline.base.open_files import OpenFiles


class File:
    path = "f"


class Keeper:
    """Holds a file as a segment does."""

    def __init__(self, files: OpenFiles) -> None:
        self.files = files
        self.file: File | None = None

    def open(self) -> None:
        self.file = File()
        self.files.keep(self.file, self.let_go)  # type: ignore[arg-type]
        self.files.trim()

    def let_go(self) -> None:
        self.file = None


def opened(files: OpenFiles, count: int) -> list[Keeper]:
    keepers = [Keeper(files) for _ in range(count)]
    for keeper in keepers:
        keeper.open()
    return keepers


def are_open(keepers: list[Keeper]) -> list[bool]:
    return [keeper.file is not None for keeper in keepers]


def test_the_file_that_was_opened_first_gives_way() -> None:
    keepers = opened(OpenFiles(2), 3)
    assert are_open(keepers) == [False, True, True]
    keepers[0].open()
    assert are_open(keepers) == [True, False, True]
    assert len(keepers[0].files) == 2


def test_one_that_was_closed_takes_no_place() -> None:
    files = OpenFiles(2)
    first, second = opened(files, 2)
    second.let_go()
    third = opened(files, 1)[0]
    assert are_open([first, second, third]) == [True, False, True]


def test_as_many_as_are_asked_for_are_given_back_and_no_more_than_there_are() -> None:
    files = OpenFiles()
    keepers = opened(files, 3)
    assert files.give_back(2) == 2
    assert are_open(keepers) == [False, False, True]
    assert files.give_back(2) == 1
    assert files.give_back(2) == 0


def test_nothing_is_kept_alive() -> None:
    """A deleted log would keep its file, and the room of it on the disk."""
    files = OpenFiles()
    [keeper] = opened(files, 1)
    gone = weakref.ref(keeper)
    gc.disable()
    try:
        del keeper
        assert gone() is None
    finally:
        gc.enable()
    assert len(files) == 0
