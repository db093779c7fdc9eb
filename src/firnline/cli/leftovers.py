"""What a tier that was turned off has left in the directories of a broker. WORLD. Source: spec T61."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firnline.base.errors import FirnlineError
from firnline.cli.server import read_file, with_absolute_paths
from firnline.config.load import read_environment
from firnline.log.directory import LOCK
from firnline.runtime.disk import RealFs
from firnline.server.config_sources import load_settings
from firnline.tiered.reads.index_cache import FOLDER


class Leftover(NamedTuple):
    """A folder that the broker has no use for. `problem`: why it was not removed, though that was asked."""

    path: Path
    files: int
    size_bytes: int
    is_removed: bool
    problem: str | None = None

    @property
    def what(self) -> str:
        """Describe it."""
        size = f"indexes of a tier that is off: {self.size_bytes} bytes in {self.files} files"
        if self.is_removed:
            return f"{size}; removed"
        return size if self.problem is None else f"{size}; not removed: {self.problem}"


def leftovers(properties: Path, *, is_to_be_removed: bool) -> Iterator[Leftover]:
    """Yield the index caches in the directories of a broker whose settings turn the tier off.

    A broker with a tier uses them, so that they are no leftovers. They are removed only while no process
    holds their directory. Raises ConfigError for settings that no broker could start with.
    """
    config = with_absolute_paths(
        load_settings(read_file(properties) | read_environment(os.environ))
    )
    if config.remote_log_storage_system_enable:
        return
    for directory in config.directories:
        path = Path(directory) / FOLDER
        if path.is_symlink() or not path.is_dir():
            continue
        sizes = [each.lstat().st_size for each in path.rglob("*") if not each.is_dir()]
        found = Leftover(path, len(sizes), sum(sizes), is_removed=False)
        yield _removed(found) if is_to_be_removed else found


def _removed(found: Leftover) -> Leftover:
    try:
        release = RealFs().lock(str(found.path.parent / LOCK))
    except FirnlineError as problem:
        return found._replace(problem=str(problem))
    try:
        shutil.rmtree(found.path)
    except OSError as problem:
        return found._replace(problem=problem.strerror or str(problem))
    finally:
        release()
    return found._replace(is_removed=True)
