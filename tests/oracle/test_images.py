"""What records mean: our replay of random lives of a cluster, against the image that Kafka makes of them.

Both write their image down again at the same metadata.version; the records must be the same.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from firnline.metadata import records as r
from firnline.metadata.features import record_version
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader
from firnline.protocol.primitives import read_uvarint
from firnline.protocol.schema import Struct
from firnline.records.build import NewRecord, build_batch
from tests.metadata_stories import LEVELS, Life
from tests.oracle.kafka_oracle import KafkaOracle
from tests.worlds.decoded import image_records

pytestmark = pytest.mark.peer


def replayed(batches: Sequence[Sequence[bytes]]) -> ClusterImage:
    loader = Loader()
    for values in batches:
        rows = [NewRecord(None, value, 1) for value in values]
        loader.apply(bytes(build_batch(rows, base_offset=loader.next_offset, leader_epoch=1)))
    return loader.image()


def written(image: ClusterImage) -> list[bytes]:
    level = image.metadata_version
    return [r.encode(record, record_version(record, level)) for record in image_records(image)]


def facts(values: Sequence[bytes]) -> list[str]:
    """Records as text with their versions, in an order of their own; maps have none in Kafka."""
    return sorted(json.dumps(fact(value), sort_keys=True) for value in values)


def fact(value: bytes) -> Any:
    _, position = read_uvarint(value, 0)
    _, position = read_uvarint(value, position)
    version, _ = read_uvarint(value, position)
    record = r.decode(value)
    said = plain(record)
    for name in ("log_dirs", "cordoned_log_dirs"):
        if said.get(name):
            said[name] = sorted(said[name])
    return [type(record).__name__, version, said]


def plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.fields}
    if isinstance(value, list | tuple):
        rows = [plain(item) for item in value]
        return sorted(rows, key=json.dumps) if rows and isinstance(rows[0], dict) else rows
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


@pytest.mark.parametrize("level", LEVELS)
def test_our_image_of_every_record_type_is_kafkas(oracle: KafkaOracle, level: int) -> None:
    for seed in range(12):
        life = Life(1000 * level + seed, level).write(150)
        batches = life.encoded()
        theirs, losses = oracle.image_records(batches)
        ours = written(replayed(batches))
        assert facts(ours) == facts(theirs), seed
        assert losses == 0, seed
        # And a snapshot of either is the same state for the other.
        assert facts(oracle.image_records([ours])[0]) == facts(theirs)
        assert facts(written(replayed([theirs]))) == facts(theirs)


def test_a_snapshot_has_eligible_leaders_only_while_the_feature_is_on(oracle: KafkaOracle) -> None:
    life = Life(5).write(150)
    off = r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    life.batches.append([off])
    batches = life.encoded()
    image = replayed(batches)
    assert any(p.elr for topic in image.topics_by_id.values() for p in topic.partitions.values())
    assert facts(written(image)) == facts(oracle.image_records(batches)[0])


def test_the_lives_have_every_type_in_them() -> None:
    seen = {type(x) for seed in range(40) for batch in Life(seed).write(150).batches for x in batch}
    assert seen == set(r.TYPES.values())
