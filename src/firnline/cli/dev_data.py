"""The data directory of `firnline dev`: which one it is, whether it may be used, and its end. WORLD.

Decision 0052.
"""

import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from firnline.base.errors import ConfigError, FirnlineError, some_of
from firnline.config.load import read_properties
from firnline.formats.names import parse_partition_dir
from firnline.log.checkpoint import META_PROPERTIES
from firnline.log.directory import LOCK
from firnline.metadata.snapshot_file import BOOTSTRAP
from firnline.stores.port import CLUSTER_KEY, DEV_DATA_SUFFIX
from firnline.stores.registry import open_store, path_of

# What a run that was killed while it formatted may leave, and what a file system puts into an empty one.
_IN_A_NEW_ONE = (BOOTSTRAP, LOCK, META_PROPERTIES, "lost+found")
_HOME = re.compile(r"node-\d+")  # of a node of `dev --nodes`
_NAME_CHARS = 80


class DevData(NamedTuple):
    """Where the data of `dev` is.

    is_temporary  it is removed at the end
    of_tier       it was chosen for this tier; None if the user has named it, or there is no tier
    """

    path: Path
    is_temporary: bool = False
    of_tier: str | None = None


def choose(directory: Path | None, tier: str | None) -> DevData:
    """Return the directory that the user has named, else the tier's own, else a new temporary one.

    A tier belongs to one cluster, which is in the data directory: without it no later run could go on.
    """
    if directory is not None:
        return DevData(directory.absolute())
    if tier is None:
        return DevData(Path(tempfile.mkdtemp(prefix="firnline-dev-")), is_temporary=True)
    return DevData(data_directory_of(tier), of_tier=tier)


def data_directory_of(tier: str) -> Path:
    """Return the data directory of a tier: TIER-data; for an object store it is in the user's state."""
    path = _directory_of(tier)
    if path is not None:
        return path.parent / (path.name + DEV_DATA_SUFFIX)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    parts = urlsplit(tier)
    name = f"{parts.scheme}-{parts.hostname or ''}{parts.path}".rstrip("/")
    name = re.sub(r"[^A-Za-z0-9.]+", "-", name)[:_NAME_CHARS]
    digest = hashlib.sha256(tier.rstrip("/").encode()).hexdigest()[:8]
    return Path(state) / "firnline" / "dev" / f"{name}-{digest}"


def _directory_of(tier: str) -> Path | None:
    """Return the directory of a tier; None for an object store."""
    path = path_of(tier)
    return None if path is None else Path(os.path.abspath(path))


# ------------------------------------------------------------------------------ may it be used?


def refuse_foreign(path: Path) -> None:
    """Raise ConfigError if a directory has files, and no node of `dev` has put them there."""
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from None
    if META_PROPERTIES in names or any(_HOME.fullmatch(name) for name in names):
        return
    foreign = [name for name in names if name.removesuffix(".part") not in _IN_A_NEW_ONE]
    if any(parse_partition_dir(name) is not None for name in foreign):
        return  # logs without meta.properties: formatting refuses them, and says what to do
    if foreign:
        raise ConfigError(
            f"{path} has other files in it ({some_of(foreign)}), and no {META_PROPERTIES}: name an empty"
            " directory, a new one, or that of an earlier run"
        )


def refuse_lost_half(data: DevData) -> None:
    """Raise ConfigError if only one of a tier and its data directory is left of an earlier run.

    For a tier in a directory; the node itself refuses any other tier that is not its own.
    """
    path = None if data.of_tier is None else _directory_of(data.of_tier)
    if path is None:
        return
    owner, topics = _contents_of_tier(path)
    known = _cluster_of(data.path)
    if owner is not None and owner != known:
        raise ConfigError(
            f"{path} is the tier of an earlier run (cluster {owner}), with {_named(topics)}, and the data"
            f" directory of that run is not {data.path}. To go on with it, name its directory: --dir DIR."
            " Spark reads the tier without a broker. To begin anew, name another --tier"
        )
    if owner is None and known is not None and any(_uses_tier(log) for log in _log_dirs(data.path)):
        raise ConfigError(
            f"{data.path} has the data of an earlier run, and its tier {path} is empty. Put the tier back;"
            f" or, to begin anew, remove {data.path}, too"
        )


def _contents_of_tier(path: Path) -> tuple[str | None, list[str]]:
    """Return the cluster of a tier in a directory, and its topics; None for one that is not used yet."""
    if not (path / CLUSTER_KEY).exists():
        return None, []
    from firnline.tiered.objects.binding import read_owner
    from firnline.tiered.objects.catalog_reader import list_topics

    try:
        store = open_store(str(path), {}, is_writer=False)
        owner = read_owner(store)
        return owner, [] if owner is None else [topic.topic for topic in list_topics(store)]
    except FirnlineError:
        return None, []  # the node says what is wrong with it


def _named(topics: list[str]) -> str:
    if not topics:
        return "no topic"
    names = list(dict.fromkeys(topics))
    return f"{len(names)} topic{'s' if len(names) > 1 else ''}: {some_of(names)}"


def _cluster_of(path: Path) -> str | None:
    for each in _log_dirs(path):
        try:
            return read_properties((each / META_PROPERTIES).read_text()).get("cluster.id")
        except (OSError, ValueError, ConfigError):
            continue
    return None


def _uses_tier(log_dir: Path) -> bool:
    return any(log_dir.glob("__remote_log_metadata-*/*.log"))


def homes(directory: Path) -> list[Path]:
    """Return the directories of the nodes of `dev --nodes` in `directory`, in order."""
    return sorted(path for path in directory.glob("node-*") if (path / "data").is_dir())


def _log_dirs(path: Path) -> Iterator[Path]:
    """Yield the log directories of one node, or of the nodes of a cluster."""
    if (path / META_PROPERTIES).exists():
        yield path
    for home in homes(path):
        yield home / "data"


# ------------------------------------------------------------------------------------ its end


def remove(data: DevData) -> None:
    """Remove a temporary directory, unless another process holds a part of it: a node started by hand."""
    if not data.is_temporary:
        return
    with ExitStack() as held:
        for each in _log_dirs(data.path):
            try:
                # Of the two locks on it only this kind lets in the process that has it: us.
                fcntl.lockf(
                    held.enter_context((each / LOCK).open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB
                )
            except OSError:
                print(
                    f"firnline dev: {data.path} is kept, because another process uses {each}; remove it when"
                    " that one has stopped",
                    file=sys.stderr,
                    flush=True,
                )
                return
        shutil.rmtree(data.path, ignore_errors=True)
