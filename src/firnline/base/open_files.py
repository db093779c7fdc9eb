"""Files that stay open until somebody else needs the descriptor. PURE.

A log keeps the file open that it appends to, and there may be as many logs as descriptors. So the files of
all logs share a number of them: whoever opens one too many has the one let go that was opened first, and its
log opens it again when it is used. It is a queue and not the order of use: an append costs nothing more, and
to open a file again some microseconds. Source: docs/decisions/0032.
"""

from collections.abc import Callable
from weakref import ReferenceType, WeakMethod, ref

from firnline.base.ports import File
from firnline.base.units import INT32_MAX

LetGo = Callable[[], None]


class OpenFiles:
    """Those of one file system, oldest first. Nobody has to say that one is closed: all is held weakly.

    files_max   so many stay open at most
    """

    def __init__(self, files_max: int = INT32_MAX) -> None:
        self.files_max = files_max
        self._keepers: dict[ReferenceType[File], WeakMethod[LetGo]] = {}

    def __len__(self) -> int:
        return len(self._keepers)

    def keep(self, file: File, let_go: LetGo) -> None:
        """Note that `file` stays open until the method `let_go` is called. Any thread."""
        self._keepers[ref(file, self._forget)] = WeakMethod(let_go)

    def trim(self) -> None:
        """Have let go what is too much. On the loop: whoever keeps a file is of one thread."""
        if len(self._keepers) > self.files_max:
            self.give_back(len(self._keepers) - self.files_max)

    def give_back(self, count: int) -> int:
        """Have `count` files let go, those that were opened first; return how many there were."""
        given = 0
        while given < count and (oldest := self._oldest()) is not None:
            keeper = self._keepers.pop(oldest, None)
            let_go = keeper and keeper()
            if let_go is not None and oldest() is not None:
                let_go()
                given += 1
        return given

    def _oldest(self) -> ReferenceType[File] | None:
        while True:
            try:
                return next(iter(self._keepers), None)
            except RuntimeError:  # a thread opened or closed one in this moment
                continue

    def _forget(self, gone: ReferenceType[File]) -> None:
        self._keepers.pop(gone, None)
