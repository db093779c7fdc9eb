"""Ports: interfaces to randomness and disk. Production and the simulator implement them. PURE."""

from collections.abc import Callable, Iterator
from typing import Protocol

from firnline.base.units import INT32_MAX

Buffer = bytes | bytearray | memoryview


class Rng(Protocol):
    """Randomness of one node; seeded in the simulator."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...

    def uuid(self) -> bytes:
        """A random version 4 UUID, 16 bytes, whose text form does not begin with a dash."""
        ...


# Kafka's names of levels, and of the logger above all others. Source: KIP-412.
KAFKA_LOG_LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
ROOT_LOGGER = "root"


class Loggers(Protocol):
    """The loggers of the process, whose levels clients may read and set."""

    def levels(self) -> dict[str, str]:
        """Return the level in force of each logger by name, one of KAFKA_LOG_LEVELS; the root is one."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """Set the level of a known logger; None: it follows the logger above it again."""
        ...


class NoLoggers:
    """The loggers of a node in the simulator or in a test: none."""

    def levels(self) -> dict[str, str]:
        return {}

    def set_level(self, name: str, level: str | None) -> None:
        """Do nothing."""


class File(Protocol):
    """One open file. Positions and sizes are in bytes. Every failure is a StorageError with the path.

    A write reaches only the page cache; after `sync` it survives a power cut.
    """

    path: str

    def size(self) -> int: ...

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end; return the position where it begins."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        ...

    def read_ready(self, position: int, size: int) -> Buffer | None:
        """Like `read`, but None where that would wait for the disk.

        On a file system that cannot tell whether it would, the read waits.
        """
        ...

    def read_into(self, position: int, room: memoryview) -> int:
        """Fill `room`; return how many bytes were read: fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fdatasync. After a failure the file is lost: a later success proves nothing (rel-P9)."""
        ...

    def fileno(self) -> int:
        """The descriptor for `sendfile`, or -1 where there is none (simulator, or after `cut_off`)."""
        ...

    def cut_off(self, size: int) -> None:
        """Forbid reads beyond `size` through this handle: the file is about to be truncated there.

        From now on such a read raises RecordsTruncated, also one that a thread has begun. Called on the event
        loop.
        """
        ...

    def close(self) -> None: ...


class Fs(Protocol):
    """A file system. Paths are absolute strings with '/'. A rename is durable after `sync_dir`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; with `create` a missing file is created empty."""
        ...

    def keep(self, file: File, let_go: Callable[[], None]) -> None:
        """Register a file that its owner keeps open for reuse.

        Where too many files are open, the file system calls `let_go()`, a method of the owner that drops the
        file. It does so on the event loop, when another file is opened.
        """
        ...

    def open_to_read(self, path: str) -> File:
        """Open for reading only; for files that may be read-only."""
        ...

    def make_read_only(self, path: str) -> None:
        """Make the file read-only. It can still be renamed and removed."""
        ...

    def exists(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def names(self, path: str) -> Iterator[str]:
        """Names in the directory, unsorted and lazily read: changes meanwhile may or may not show."""
        ...

    def make_dir(self, path: str) -> None:
        """Create the directory and its parents; an existing one is fine."""
        ...

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename, replacing the target atomically."""
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
        """(size, usable free bytes) of the volume that holds a directory."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock the file `path` exclusively, creating it if missing; return the function that unlocks it.

        Raises StorageError at once when another process holds the lock."""
        ...


class LogFiles(Protocol):
    """How many files the process may still open for logs."""

    def has_room(self) -> bool:
        """Whether there are descriptors for the files of one more log."""
        ...

    def logs_left(self, logs: int) -> int:
        """How many more logs can be opened when `logs` logs are open."""
        ...


class EnoughFiles:
    """`LogFiles` of a process without a limit."""

    def has_room(self) -> bool:
        return True

    def logs_left(self, logs: int) -> int:
        return INT32_MAX
