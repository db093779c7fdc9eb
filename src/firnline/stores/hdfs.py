"""HDFS, through hdfs-native: a client in Rust, without Java. WORLD.

A file is written below the folder of unfinished puts, closed, and renamed to its key: until then nobody sees
it. Ranges are clamped to the length of the file, because the client panics at ranges past the end. Source:
ecosystem 1.1; decision 0036.
"""

import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ports import Buffer
from firnline.config.providers import Redaction
from firnline.stores.port import (
    NewObject,
    ObjectInfo,
    ObjectMissing,
    ObjectStat,
    RemoteStorageError,
    StoreRefused,
    delete_each,
    in_pages,
)
from firnline.stores.side_by_side import put_last_alone

PUTTING = ".firnline-putting"
# Without these a NameNode that is down is noticed after 178 s, and a DataNode that dies fails every write.
_DEFAULTS = {
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
}
# Of the NameNode: no right, no account, or a file where the path needs a directory.
_REFUSALS = ("AccessControlException", "ParentNotDirectoryException", "SaslException")
_READ_BYTES = 8 << 20
_serial = count()


class HdfsStore:
    """An `ObjectStore` in a directory of HDFS."""

    calls_at_once = 6
    is_distant = True
    has_uploads = False

    def __init__(self, uri: str, settings: Mapping[str, str], hidden: Collection[str] = ()) -> None:
        """Open `hdfs://host:port/path`. Raises ConfigError.

        settings  Hadoop's client settings
        hidden    texts that no error may repeat
        """
        parts = urlsplit(uri)
        if not parts.netloc or "@" in parts.netloc or not parts.path.strip("/"):
            raise ConfigError("a tier on HDFS is written hdfs://host:port/path", uri=uri)
        try:
            from hdfs_native import Client, WriteOptions
        except ImportError:
            raise ConfigError(
                "a tier on hdfs:// needs the package hdfs-native",
                remedy="pip install 'firnline[hdfs]'",
            ) from None
        self.uri = uri
        self._without_secrets = Redaction(hidden)
        self._root = "/" + parts.path.strip("/")
        self._options = WriteOptions(overwrite=True, create_parent=True)
        try:
            self._client: Any = Client(
                f"hdfs://{parts.netloc}", config={**_DEFAULTS, **dict(settings)}
            )
        except BaseException as problem:  # noqa: BLE001 - a panic in Rust is not an Exception
            said = self._without_secrets(_first_line(problem))
            raise ConfigError(f"rsm.config.store.*: {said}", uri=uri) from None

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """See `ObjectStore`."""
        temporary = f"{self._root}/{PUTTING}/{socket.gethostname()}-{os.getpid()}-{next(_serial)}"
        with self._calls("write to", key):
            try:
                self._write(temporary, chunks, key, size_bytes)
                path = self._path(key)
                self._client.mkdirs(path.rpartition("/")[0], create_parent=True)
                self._client.rename(temporary, path, overwrite=True)
            except BaseException:
                self._forget(temporary)
                raise

    def _write(self, path: str, chunks: Iterable[Buffer], key: str, size_bytes: int) -> None:
        done = 0
        with self._client.create(path, self._options) as file:
            for chunk in chunks:
                done += len(chunk)
                file.write(bytes(chunk))
        if done != size_bytes:
            raise RemoteStorageError(
                "the object has another length than announced",
                key=key,
                announced=size_bytes,
                got=done,
            )

    def _forget(self, temporary: str) -> None:
        try:
            self._client.delete(temporary, False)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - `abort_unfinished` deletes it later
            return

    def put_together(self, objects: Sequence[NewObject]) -> None:
        """See `ObjectStore`."""
        put_last_alone(self, objects)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        with self._calls("read from", key), self._client.read(self._path(key)) as file:
            left = max(len(file) - position, 0)
            if size_bytes is not None:
                left = min(left, size_bytes)
            parts = []
            while left > 0:
                part = bytes(file.read_range(position, min(left, _READ_BYTES)))
                if not part:
                    break
                parts.append(part)
                position, left = position + len(part), left - len(part)
            return b"".join(parts)

    def stat(self, key: str) -> ObjectStat:
        """See `ObjectStore`."""
        with self._calls("read from", key):
            found = self._client.get_file_info(self._path(key))
            if found.isdir:
                raise ObjectMissing("no such object in the tier", key=key)
            return ObjectStat(int(found.length), int(found.modification_time), None)

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `ObjectStore`."""
        yield from in_pages(self.list_prefix(folder), after)

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore`."""
        assert prefix.endswith("/"), "a prefix is a folder"
        top = self._path(prefix.rstrip("/"))
        try:
            with self._calls("list", prefix):
                return sorted(
                    ObjectInfo(_path_of(each).removeprefix(f"{self._root}/"), each.length)
                    for each in self._client.list_status(top, True)
                    if not each.isdir
                )
        except ObjectMissing:
            return []

    def delete(self, key: str) -> None:
        """See `ObjectStore`. Folders stay: an empty one costs the NameNode 150 bytes."""
        try:
            with self._calls("delete from", key):
                self._client.delete(self._path(key), False)
        except ObjectMissing:
            return

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        delete_each(self.delete, keys)

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        """See `ObjectStore`."""
        if prefix:
            return 0
        removed = 0
        before_ms = (time.time() - older_than_s) * 1000
        try:
            with self._calls("list", PUTTING):
                for each in list(self._client.list_status(f"{self._root}/{PUTTING}", False)):
                    if not each.isdir and each.modification_time <= before_ms:
                        self._client.delete(_path_of(each), False)
                        removed += 1
        except ObjectMissing:
            return 0
        return removed

    def close(self) -> None:
        """Do nothing: connections end with the process."""

    def _path(self, key: str) -> str:
        pieces = key.split("/")
        if any(piece in ("", ".", "..") for piece in pieces):
            raise RemoteStorageError("not the name of an object", key=key)
        return f"{self._root}/{key}"

    @contextmanager
    def _calls(self, action: str, key: str) -> Iterator[None]:
        """Turn what the client raises into our errors."""
        try:
            yield
        except (StorageError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - a panic in Rust is not an Exception
            raise self._problem(problem, action, key) from None

    def _problem(self, problem: BaseException, action: str, key: str) -> StorageError:
        said = self._without_secrets(_first_line(problem))
        where = {"tier": self.uri, "key": key, "store": said}
        if isinstance(problem, FileNotFoundError) and action != "write to":
            return ObjectMissing("no such object in the tier", key=key)
        if isinstance(problem, PermissionError) or any(each in str(problem) for each in _REFUSALS):
            return StoreRefused(f"cannot {action} the tier: HDFS refuses it", **where)
        return RemoteStorageError(f"cannot {action} the tier", **where)


def _path_of(status: Any) -> str:  # of hdfs-native, which has no types at run time
    """Return the path of a listed file, without scheme and host."""
    return urlsplit(str(status.path)).path


def _first_line(problem: BaseException) -> str:
    text = re.split(r"\n|\\n\\tat", str(problem))[0]  # Java's stack trace follows
    return f"{type(problem).__name__}: {text[:300]}"
