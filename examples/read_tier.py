"""Find and print the history of a topic in a tier, with nothing but a client of the store.

    python examples/read_tier.py URI                 the topics with their ids
    python examples/read_tier.py URI TOPIC           the segments of the newest topic of that name
    python examples/read_tier.py URI TOPIC TOPIC_ID  those of a former one

URI is a directory, or one that obstore knows: s3://bucket/prefix, gs://, az://. Needs obstore for those, and
nothing of Firnline: it is a pattern for readers in other languages. Format: docs/formats/catalog.md.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

VERSIONS = (1, 2)
ATTEMPTS = 4  # a leader deletes what it has replaced: then there is a newer head
BYTES_MAX, LEVELS_MAX = 16 << 20, 12


class Tier:
    """A flat store: `keys` lists a folder, `get` returns an object, or raises FileNotFoundError."""

    def __init__(self, uri: str) -> None:
        self.root = None if "://" in uri else Path(uri)
        if self.root is None:
            import obstore  # only for a store that is no directory

            self.client, self.store = obstore, obstore.store.from_url(uri)

    def keys(self, folder: str) -> list[str]:
        if self.root is not None:
            files = (p for p in (self.root / folder).rglob("*") if p.is_file())
            return sorted(p.relative_to(self.root).as_posix() for p in files)
        pages = self.client.list(self.store, prefix=folder)  # 1,000 keys a request
        return sorted(entry["path"] for page in pages for entry in page)

    def get(self, key: str) -> bytes:
        if self.root is not None:
            return (self.root / key).read_bytes()
        return bytes(self.client.get(self.store, key).bytes())


TABLE = list(range(256))
for _ in range(8):
    TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in TABLE]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def lines_of(data: bytes, key: str, kind: str) -> list[dict[str, Any]]:
    """Check a head or a part, and return its lines without the footer."""
    body, end = data[: data.rfind(b"\n", 0, -1) + 1], data[data.rfind(b"\n", 0, -1) + 1 :]
    footer, lines = json.loads(end), [json.loads(line) for line in body.splitlines()]
    if len(data) > BYTES_MAX or footer["lines"] != len(lines) or footer["crc32c"] != crc32c(body):
        raise ValueError(f"{key} is damaged")
    if lines[0]["kind"] != kind or lines[0]["version"] not in VERSIONS:
        raise ValueError(f"{key} is no {kind} of a version that this reader knows: {VERSIONS}")
    return lines


def topics(tier: Tier) -> Iterator[tuple[str, str, str]]:
    """Yield name, topic id and state of every topic: one listing."""
    known: dict[tuple[str, str], list[Any]] = {}
    for key in tier.keys("names/"):
        _, name, entry = key.split("/")
        since, topic_id = int(entry[:19]), entry[20:42]
        was = known.setdefault((name, topic_id), [since, False])
        was[:] = min(was[0], since), was[1] or entry.endswith(".deleted")
    newest: dict[str, str] = {}
    for (name, topic_id), (_, is_deleted) in sorted(known.items(), key=lambda e: e[1][0]):
        if not is_deleted:
            newest[name] = topic_id
    for (name, topic_id), (_, is_deleted) in sorted(known.items()):
        is_present = newest.get(name) == topic_id
        yield name, topic_id, "deleted" if is_deleted else "present" if is_present else "former"


def heads(tier: Tier, folder: str) -> dict[int, str]:
    """Return the newest head of each partition below the folder of a topic: one listing."""
    pieces = [key.split("/") for key in tier.keys(folder)]
    return {int(p[2]): "/".join(p) for p in pieces if p[3] == "heads"}  # keys sort by age


def partition(tier: Tier, topic_id: str, number: int, key: str) -> list[dict[str, Any]]:
    """Return the rows of the newest version, by offset; list the partition again if it is gone."""
    for _ in range(ATTEMPTS):
        try:
            head, *rows = lines_of(tier.get(key), key, "head")
            start, removed = head["logStartOffset"], head["removed"]
            folder = f"parts/{topic_id}/{number}/"
            if head["version"] == 1:
                folder = f"catalog/{topic_id}/{number}/parts/"
            else:
                removed = [segment_id for segment_id, _ in removed]
            for ref in head["parts"]:
                rows += below(tier, ref, folder, start)
            live = [r for r in rows if r["end"] >= start and r["id"] not in set(removed)]
            return sorted(live, key=lambda row: (row["base"], row["end"]))
        except FileNotFoundError:
            key = heads(tier, f"catalog/{topic_id}/{number}/heads/").get(number, key)
    raise FileNotFoundError(f"{key} is gone, and no listing shows a newer one")


def below(tier: Tier, ref: dict[str, Any], folder: str, start: int) -> list[dict[str, Any]]:
    """Return the segments below a reference; what ends below the log start may be gone."""
    key, level = ref["key"], ref["level"]
    if ref["end"] < start:
        return []
    data = tier.get(key) if key.startswith(folder) and 0 <= level <= LEVELS_MAX else b"\n"
    if (len(data), crc32c(data)) != (ref["bytes"], ref["crc32c"]):
        raise ValueError(f"{key} is not what the catalog refers to")
    lines = lines_of(data, key, "part")[1:]
    if level == 0:
        return lines
    if any(line["level"] != level - 1 for line in lines):
        raise ValueError(f"{key} refers to another level")
    return [row for line in lines for row in below(tier, line, folder, start)]


def main(uri: str, topic: str = "", topic_id: str = "") -> None:
    tier = Tier(uri)
    found = [entry for entry in topics(tier) if topic in ("", entry[0])]
    if not topic:
        print(*["\t".join(entry) for entry in found] or ["no topic is in this tier"], sep="\n")
        return
    ids = [entry[1] for entry in found if topic_id == entry[1] or entry[2] == "present"]
    topic_id = topic_id or (ids or [""])[0]
    if topic_id not in ids:
        sys.exit(f"there is no topic {topic} {topic_id}")
    newest = heads(tier, f"catalog/{topic_id}/")
    with ThreadPoolExecutor(16) as pool:
        tables = pool.map(lambda e: partition(tier, topic_id, *e), sorted(newest.items()))
        for number, rows in zip(sorted(newest), tables, strict=True):
            for row in rows:
                times = f"{row.get('minTimestampMs', '?')}..{row['maxTimestampMs']}"
                objects = " ".join(row["stem"] + suffix for suffix in row["objects"])
                print(number, row["base"], row["end"], times, row["bytes"], objects, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:]) if 2 <= len(sys.argv) <= 4 else sys.exit(__doc__)
