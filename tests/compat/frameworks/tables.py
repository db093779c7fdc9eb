# mypy: disable-error-code="untyped-decorator"
"""Counts words in a table of faust. Arguments: bootstrap, topics, data directory."""

import sys

import faust

bootstrap, source, target, datadir = sys.argv[1:]
app = faust.App(
    f"{source}-words",
    broker=f"kafka://{bootstrap}",
    datadir=datadir,
    store="memory://",
    topic_partitions=1,
    topic_replication_factor=1,
    web_enabled=False,
    stream_wait_empty=False,
    broker_commit_interval=0.2,
    table_cleanup_interval=1.0,
    value_serializer="raw",
    key_serializer="raw",
)
words = app.topic(source, value_type=bytes, value_serializer="raw")
counts = app.Table("counts", default=int, partitions=1)
results = app.topic(target, value_serializer="raw")


@app.agent(words)
async def count(stream: "faust.StreamT[bytes]") -> None:
    async for word in stream:
        name = word.decode()
        counts[name] += 1
        await results.send(value=f"{name}={counts[name]}".encode())


faust.Worker(app, loglevel="info").execute_from_commandline()
