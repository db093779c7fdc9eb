"""`firnline tier metadata`: print `__remote_log_metadata`, from brokers or from files. WORLD."""

import mmap
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click

from firnline.base.errors import Code, ConfigError, FirnlineError, KafkaError, ProtocolError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.base.ports import Buffer
from firnline.cli.show import SOMETHING_IS_WRONG, broker_server_option, connect, pairs
from firnline.client.replica_diff import Replica
from firnline.formats import names
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.record import records
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.formatter import Event, KipFields, kafka_text, kip_text
from firnline.tiered.metadata.records import decode

# The properties of KIP-405's formatter that are true or false, in the order of KipFields.
_PROPERTIES = (
    "print.partition",
    "print.message.offset",
    "print.version",
    "print.all.event.value.fields",
)
_SEPARATOR = "separator"


class Found(NamedTuple):
    """One record, or why it, or all records from it on, cannot be read. `event` None: a kind to ignore."""

    partition: int
    offset: int
    event: Event | None
    problem: str | None = None


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--of", "only", metavar="TOPIC[-P]", help="Only records about this topic or partition."
)
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE",
    help="Print KIP-405's format: print.partition, print.message.offset, print.version,"
    " print.all.event.value.fields (true or false), separator.",
)  # fmt: skip
@broker_server_option
def metadata(
    files: tuple[Path, ...], only: str | None, properties: tuple[str, ...], bootstrap: str
) -> None:
    """Print the records of __remote_log_metadata as text: what was copied to the tier and deleted there.

    From brokers, or from FILES: segments of the topic, or its partition directories, whether the node runs or
    not. A line per record, as Kafka's own formatter prints it. Records that cannot be read are named on
    standard error; then the exit code is 3.
    """
    fields = _fields(pairs(properties, "--property")) if properties else None
    is_complete = True
    for found in _in_files(files) if files else _at_brokers(bootstrap):
        if found.problem is not None:
            is_complete = False
            where = f"{REMOTE_LOG_METADATA_TOPIC}-{found.partition}, offset {found.offset}"
            click.echo(f"{where}: {found.problem}", err=True)
        elif found.event is not None and _is_of(found.event, only):
            line = (
                kafka_text(found.partition, found.offset, found.event)
                if fields is None
                else kip_text(found.partition, found.offset, found.event, fields)
            )
            click.echo(line)
    if not is_complete:
        sys.exit(SOMETHING_IS_WRONG)


def _fields(given: dict[str, str]) -> KipFields:
    separator = given.pop(_SEPARATOR, ",")
    for key, value in given.items():
        if key not in _PROPERTIES:
            known = ", ".join((*_PROPERTIES, _SEPARATOR))
            raise click.BadParameter(f"{key}: not one of {known}", param_hint="--property")
        if value not in ("true", "false"):
            raise click.BadParameter(f"{key}={value}: true or false", param_hint="--property")
    shown = [given.get(key) == "true" for key in _PROPERTIES]
    return KipFields(separator, *shown)


def _is_of(event: Event, only: str | None) -> bool:
    return only is None or only in (event.topic, f"{event.topic}-{event.partition}")


# ------------------------------------------------------------------------------------- from brokers


def _at_brokers(bootstrap: str) -> Iterator[Found]:
    """Iterate over the committed records, by partition. A partition that nobody leads is a problem."""
    with connect(bootstrap) as admin:
        answer = admin.metadata([REMOTE_LOG_METADATA_TOPIC])
        if answer.topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise ConfigError(
                f"the cluster has no {REMOTE_LOG_METADATA_TOPIC}: none of its brokers has had a tier"
            )
        brokers = {
            each.node_id: admin.node(each.node_id, each.host, each.port) for each in answer.brokers
        }
        _, parts = admin.topic(REMOTE_LOG_METADATA_TOPIC)
        for part in parts:
            leader = brokers.get(part.leader)
            if leader is None:
                yield Found(part.partition, 0, None, "nobody leads the partition")
                continue
            replica = Replica(leader, answer.topics[0].topic_id, part.partition)
            at = part.log_start_offset
            try:
                for data, header in replica.batches(at, part.log_end_offset):
                    yield from _in_batch(part.partition, data, header)
                    at = header.next_offset
            except FirnlineError as problem:
                yield Found(part.partition, at, None, f"records from here on: {problem}")


# --------------------------------------------------------------------------------------- from files


def _in_files(paths: tuple[Path, ...]) -> Iterator[Found]:
    for path in paths:
        found = sorted(path.glob(f"*{names.LOG}")) if path.is_dir() else [path]
        if not found:
            raise ConfigError(f"{path}: no segment ({names.LOG}) lies there")
        for segment in found:
            owner = names.parse_partition_dir(segment.absolute().parent.name)
            if owner is None or owner.topic != REMOTE_LOG_METADATA_TOPIC:
                raise ConfigError(
                    f"{segment} does not lie in a directory of {REMOTE_LOG_METADATA_TOPIC}"
                )
            yield from _in_segment(owner.partition, segment)


def _in_segment(partition: int, path: Path) -> Iterator[Found]:
    if not path.stat().st_size:
        return
    with (
        path.open("rb") as file,
        closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        memoryview(mapped) as data,
    ):
        at, end = int(path.stem) if path.stem.isdecimal() else 0, 0
        try:
            for header in headers(data):
                end = header.position + header.size_bytes
                batch = bytes(data[header.position : end])
                yield from _in_batch(partition, batch, header._replace(position=0))
                at = header.next_offset
        except (KafkaError, ProtocolError) as problem:
            yield Found(partition, at, None, f"records from here on in {path}: {problem}")
            return
        if end < len(data):  # cut, or its length is damaged; or a broker is writing it
            left = f"{len(data) - end} bytes of {path} are no complete batch"
            yield Found(partition, at, None, f"records from here on: {left}")


def _in_batch(partition: int, data: Buffer, header: BatchHeader) -> Iterator[Found]:
    at = header.base_offset
    if not crc_is_right(data, header):
        yield Found(partition, at, None, "the CRC of this batch is wrong")
        return
    if header.is_control:
        return
    try:
        for record in records(data, header):
            at = record.offset
            yield _decoded(partition, at, record.value)
            at += 1
    except (KafkaError, ProtocolError) as problem:
        yield Found(partition, at, None, str(problem))


def _decoded(partition: int, offset: int, value: bytes | None) -> Found:
    try:
        return Found(partition, offset, from_record(decode(value or b"")))
    except (ProtocolError, ValueError) as problem:
        return Found(partition, offset, None, f"it cannot be decoded: {problem}")
