"""The doors to the outside world, as protocols: production and simulator supply them. PURE."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from firnline.base.units import INT32_MAX

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time in milliseconds. Machines never read it; the runtime passes `now_ms` with each event."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never jumps, never goes back."""
        ...


class Rng(Protocol):
    """Randomness of one node; seeded in the simulator."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...

    def uuid(self) -> bytes:
        """16 random bytes in the shape of a version 4 UUID that does not begin with a dash as text."""
        ...


class File(Protocol):
    """One open file. Positions and sizes are bytes. Errors: StorageError with the path.

    What was written is in the page cache; only `sync` makes it survive a power cut.
    """

    path: str

    def size(self) -> int: ...

    def append(self, data: Buffer) -> int:
        """Write `data` whole at the end; return the position it begins at."""
        ...

    def append_all(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` one after another with one call; return the position of the first."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        ...

    def read_ready(self, position: int, size: int) -> Buffer | None:
        """As `read`, but None where that would wait for the disk. Where nobody can tell it waits."""
        ...

    def read_into(self, position: int, room: memoryview) -> int:
        """Fill `room`; return how many bytes there were: fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fdatasync. A failure means the file is lost: never retry and trust (rel-P9)."""
        ...

    def fileno(self) -> int:
        """The descriptor for `sendfile`, or -1 where there is none (simulator, or after `cut_off`)."""
        ...

    def cut_off(self, size: int) -> None:
        """Let nobody read beyond `size` by this handle any more: the file is about to be cut there.

        Such a read raises RecordsCut from now on, one that is under way in a thread, too. On the loop.
        """
        ...

    def close(self) -> None: ...


class Fs(Protocol):
    """A file system. Paths are absolute strings with '/'. A name change is durable after `sync_dir`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; with `create` a missing file is made empty."""
        ...

    def keep(self, file: File, let_go: Callable[[], None]) -> None:
        """Say that `file` stays open to be used again, until `let_go()` is called: too many do.

        It is a method of whoever keeps the file, and drops it. It is called on the loop, when another file is
        opened.
        """
        ...

    def open_to_read(self, path: str) -> File:
        """Open for reading alone, which is all that a read-only file allows."""
        ...

    def make_read_only(self, path: str) -> None:
        """Nobody may open the file for writing from now on; it can be renamed and removed."""
        ...

    def exists(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def names(self, path: str) -> Iterator[str]:
        """Names in the directory, in no order, read as they are taken: those of now, or of a moment ago."""
        ...

    def make_dir(self, path: str) -> None:
        """Make the directory and its parents; an existing one is fine."""
        ...

    def rename(self, old_path: str, new_path: str) -> None:
        """Move, replacing the target in one step."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove a directory with everything in it; a missing one is fine."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, time_ms: int) -> None: ...

    def volume_bytes(self, path: str) -> tuple[int, int]:
        """(size, what we may still use) of the volume that a directory is on."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on the file `path`, made if missing; return the release.

        Raises StorageError at once when another process holds it."""
        ...


class LogFiles(Protocol):
    """How many files the process may still open for logs."""

    def has_room(self) -> bool:
        """Whether the files of one more log can be opened now."""
        ...

    def logs_left(self, logs: int) -> int:
        """How many more logs there may be, where there are `logs`."""
        ...


class EnoughFiles:
    """`LogFiles` of a process that has no limit to think of."""

    def has_room(self) -> bool:
        return True

    def logs_left(self, logs: int) -> int:
        return INT32_MAX
