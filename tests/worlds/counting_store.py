"""A store in memory that counts what is asked of it. WORLD."""

from typing import Any

from firnline.stores.memory import MemoryStore


class CountingStore(MemoryStore):
    """Counts requests, and bytes put; `before` is called with each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.put_bytes = 0
        self.before: Any = lambda call, key: None

    def put(self, key: str, chunks: Any, *, size_bytes: int) -> None:
        self.before("put", key)
        self.asked.append(("put", key))
        self.put_bytes += size_bytes
        super().put(key, chunks, size_bytes=size_bytes)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        self.before("get", key)
        self.asked.append(("get", key))
        return super().get(key, position, size_bytes)

    def list_prefix(self, prefix: str) -> list[Any]:
        self.before("list", prefix)
        self.asked.append(("list", prefix))
        return super().list_prefix(prefix)

    def delete(self, key: str) -> None:
        self.before("delete", key)
        super().delete(key)
