"""A bounded set of files that stay open for reuse. PURE.

Each log keeps open the file that it appends to, and there may be more logs than descriptors. So the files of
all logs share `files_max` descriptors. When one more is opened, the file that was opened first is closed; its
log opens it again on the next use. The order is that of opening, not of use: so an append has nothing to
note, and to open a file again costs some microseconds. Source: docs/decisions/0032.
"""

from collections.abc import Callable
from weakref import ReferenceType, WeakMethod, ref

from firnline.base.effects import Effects, Submit
from firnline.base.ports import File
from firnline.base.units import INT32_MAX

LetGo = Callable[[], None]


class OpenFiles:
    """The open files of one file system, oldest first. References are weak: a closed file leaves by itself.

    files_max   how many stay open at most
    """

    def __init__(self, files_max: int = INT32_MAX) -> None:
        self.files_max = files_max
        self._keepers: dict[ReferenceType[File], WeakMethod[LetGo]] = {}

    def __len__(self) -> int:
        return len(self._keepers)

    def keep(self, file: File, let_go: LetGo) -> None:
        """Note that `file` stays open until the method `let_go` is called. May be called on any thread."""
        self._keepers[ref(file, self._forget)] = WeakMethod(let_go)

    def trim(self) -> None:
        """Close the files above `files_max`. Call it on the event loop, where the keepers of files run."""
        if len(self._keepers) > self.files_max:
            self.give_back(len(self._keepers) - self.files_max)

    def give_back(self, count: int) -> int:
        """Close the `count` files that were opened first; return how many were closed."""
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
            except RuntimeError:  # a thread opened or closed a file during the iteration
                continue

    def _forget(self, gone: ReferenceType[File]) -> None:
        self._keepers.pop(gone, None)


def closing(path: str, files: list[File]) -> Effects:
    """Return the effect that closes, off the loop, files of a log that is not served any more.

    A descriptor is closed when its last user drops it, so its number cannot pass to another file before.
    """
    if not files:
        return []
    work = files.clear  # the last reference to most of them
    name = f"close {path}"
    return [Submit(name=name, pool="disk", path=path, work=work, then=lambda result, now_ms: [])]
