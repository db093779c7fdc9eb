"""A tier in memory, for the simulator and for tests: immediate, or with stale listings. PURE."""

from collections.abc import Iterable, Iterator, Sequence

from firnline.base.ports import Buffer
from firnline.stores.port import (
    NewObject,
    ObjectInfo,
    ObjectMissing,
    ObjectStat,
    RemoteStorageError,
    delete_each,
    in_pages,
)


class MemoryStore:
    """An object store as a dict. `list_prefix` shows `listed`, which is kept current unless `is_late`."""

    calls_at_once = 1
    is_distant = False
    has_uploads = False

    def __init__(self, *, is_late: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self.listed: dict[str, int] = {}
        self.is_late = is_late

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        data = b"".join(chunks)
        if len(data) != size_bytes:
            raise RemoteStorageError("length differs", key=key, expected=size_bytes, got=len(data))
        self.objects[key] = data
        if not self.is_late:
            self.listed[key] = size_bytes

    def put_together(self, objects: Sequence[NewObject]) -> None:
        for each in objects:
            self.put(each.key, each.chunks, size_bytes=each.size_bytes)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        data = self.objects.get(key)
        if data is None:
            raise ObjectMissing("no such object", key=key)
        return data[position:] if size_bytes is None else data[position : position + size_bytes]

    def stat(self, key: str) -> ObjectStat:
        return ObjectStat(len(self.get(key)), 0, None)

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        yield from in_pages(self.list_prefix(folder), after)

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        assert prefix.endswith("/"), "a prefix is a folder (ecosystem 1.2)"
        # Most have another prefix, so what is sorted is few. A thread may put one meanwhile: hence the tuple.
        found = [key for key in tuple(self.listed) if key.startswith(prefix)]
        return [ObjectInfo(key, self.listed[key]) for key in sorted(found)]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)
        if not self.is_late:
            self.listed.pop(key, None)

    def delete_many(self, keys: Sequence[str]) -> None:
        delete_each(self.delete, keys)

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        return 0

    def show(self) -> None:
        """Bring the listing up to date."""
        self.listed = {key: len(data) for key, data in self.objects.items()}

    def close(self) -> None:
        pass
