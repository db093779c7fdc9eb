"""A disk that can lose its power: an ext4 file system inside a file, and copies of that file. WORLD.

What a program has written and not synced lies in the memory of the kernel, not in the file; a copy of the
file is the disk as it is when the power goes. Mounting the copy replays ext4's journal, as a boot would.
"""

import contextlib
import filecmp
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

IMAGE_BYTES = 64 << 20


def why_not() -> str | None:
    """Return why this machine cannot do it, or None when it can."""
    if os.geteuid() != 0:
        return "NOT RUN: mounting a file system image needs root"
    if not os.path.exists("/dev/loop-control"):
        return "NOT RUN: this kernel has no loop device"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return f"NOT RUN: {program} is not installed"
    return None


class CannotMount(Exception):
    """The kernel or its jailer refuses to mount the image; the text begins with NOT RUN."""


def make_image(path: Path, size_bytes: int = IMAGE_BYTES) -> None:
    """Make a file with an empty ext4 file system in it."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True, capture_output=True)


@contextlib.contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    """Mount the image at a directory, made if missing, and unmount it whatever happens."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-o", "loop,noatime", str(image), str(at)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotMount(f"NOT RUN: cannot mount an image: {done.stderr.strip()}")
    try:
        yield at
    finally:
        unmount(at)


@contextlib.contextmanager
def in_memory(at: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a small file system in memory at a directory, made if missing: a disk that is soon full."""
    at.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(at)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(f"NOT RUN: cannot mount a file system in memory: {done.stderr.strip()}")
    try:
        yield at
    finally:
        unmount(at)


def unmount(at: Path) -> None:
    """Unmount; a file that is still open there delays it and does not stop it."""
    for options in ([], ["-l"]):
        done = subprocess.run(["umount", *options, str(at)], capture_output=True, check=False)
        if done.returncode == 0:
            return


def copy_of_the_disk(image: Path, to: Path) -> None:
    """Copy a mounted image as it is at one instant.

    The kernel may write while we read. Two readings that agree were both right at the moment between
    them, so we read until they agree.
    """
    for _ in range(50):
        shutil.copyfile(image, to)
        if filecmp.cmp(image, to, shallow=False):
            return
    raise AssertionError("the image changes all the time: is its writer stopped?")
