"""The cut of a read, printed for the user, or in a file of the driver if it has many partitions. SPARK."""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from firnline.base.errors import ConfigError
from firnline.spark.planning.cut import Cut

AS_OF = "asOf"
# A cut of more partitions is written to a file: it would be longer than the log of the query.
SHOWN_PARTITIONS = 100
# Reads of many partitions, one after the other, would fill the disk.
FILES_KEPT = 100


def show_cut(cut: Cut) -> None:
    """Print what a read takes, so that `asOf` can give that table again: the cut, or the file that has it."""
    partitions = sum(len(topic.partitions) for topic in cut.topics.values())
    if not partitions:
        return
    text = cut.text()
    if partitions > SHOWN_PARTITIONS:
        try:
            text = str(_write(text))
        except OSError as problem:
            print(
                f"firnline: the cut of this read has {partitions} partitions, and could not be written to a"
                f" file: {problem}; firnline.spark.cuts.pin() gives a cut",
                file=sys.stderr,
            )
            return
    print(f"firnline: asOf={text}", file=sys.stderr)


def cut_text(given: str) -> str:
    """Return the JSON of a cut that is given as JSON, or as the file that has it.

    Raises ConfigError for a file that the driver cannot read.
    """
    name = given.strip()
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:").removeprefix("//"))
    if not name.startswith("/"):
        return given
    try:
        if not Path(name).is_file() and Path(name).exists():  # a pipe would be waited for
            raise OSError("it is no regular file")
        return Path(name).read_text()
    except (OSError, ValueError) as problem:  # ValueError: no text, or no name of a file
        raise ConfigError(
            "asOf names a file that the driver cannot read", file=name, problem=problem
        ) from None


def with_cut(options: Mapping[str, str]) -> dict[str, str]:
    """Return options in which `asOf` has the cut, and no file."""
    return {
        name: cut_text(value) if name.lower() == AS_OF.lower() else value
        for name, value in options.items()
    }


def _write(text: str) -> Path:
    """Write a cut to a file, whose name follows from its text, and remove the oldest of many."""
    folder = _folder()
    path = folder / f"cut-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    new, name = tempfile.mkstemp(dir=folder, suffix=".new")
    try:
        with open(new, "w") as file:
            file.write(text + "\n")
        os.replace(name, path)
    except OSError:  # a full disk
        os.unlink(name)
        raise
    there = sorted(folder.glob("cut-*.json"), key=_written_s, reverse=True)
    for old in there[FILES_KEPT:]:
        old.unlink(missing_ok=True)
    return path


def _folder() -> Path:
    """Return the folder of this user's cuts; a new one if somebody else has made one of that name."""
    user = os.geteuid()
    folder = Path(tempfile.gettempdir(), f"firnline-cuts-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == user:
        return folder
    return Path(tempfile.mkdtemp(prefix="firnline-cuts-"))


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0
