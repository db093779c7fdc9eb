"""Prints docs/reference/logs.md from the declarations: `python -m firnline.base.log_lines.render`. PURE."""

import sys

from firnline.base.log_lines import broker, cluster, process, quorum, storage, tier
from firnline.base.log_lines.line import LEVEL_NAMES, LOGGERS, LogLine

ALL_LINES: tuple[LogLine, ...] = tuple(
    line for place in (process, cluster, quorum, broker, storage, tier) for line in place.LINES
)

_HEAD = """# Log lines

This page is printed from the declarations in `src/firnline/base/log_lines`; `make docs` writes it again.

A node writes its log to stderr, one line for each event:

    2026-11-29 09:13:24,474 INFO firnline.replica: ISR shrunk topic=orders partition=2 isr=2,3 removed=1 \\
        reason="broker fenced" leader_epoch=1 partition_epoch=1 metadata_offset=121

After the logger comes a message of few words that never changes, then fields as `key=value`; a value that
is no plain word is in quotes. Where the operator can do something, `advice` says what. What cannot be
printed is escaped (`\\n`, `\\x1b`): whatever a client calls itself or a topic, it writes no line of its
own. Lines of a traceback begin with two spaces and a bar. Secrets of the settings are hidden.

With `--log-format json` or `firnline.log.format=json` each line is an object: `ts` (UTC), `level`,
`logger`, `message`, `fields`, and `error` with the traceback of a failure.

## Which node says what

All nodes say what changed in the cluster's metadata: brokers, topics and settings. Of a partition those
nodes say it that have a replica, and the active controller. So one `grep` over the logs of all nodes finds
the same change:

| field | names |
|---|---|
| `topic`, `partition`, `partition_epoch` | one change of a partition, on every node |
| `leader_epoch` | one leadership of a partition |
| `broker`, `broker_epoch` | one start of a broker |
| `topic_id` | a topic, and no former one of its name |
| `metadata_offset` | where a node was in the metadata when it saw the change: the same, or a little more |
| `epoch` | one leadership of the quorum, that is of the active controller |

For instance, `grep -h "topic=orders partition=2 .*partition_epoch=1 " node-*/server.log` shows when each
node learnt of one ISR change, and `grep -h "broker=1 broker_epoch=6" ...` one broker from its registration
to its fencing.

A node tells changes from the moment its own registration is in the metadata: `metadata caught up`. What
came before it has read again, and does not tell.

## How many lines

- A cluster where nothing changes logs nothing.
- Of a change of thousands of partitions, topics or settings the first ten of a second have their own lines.
  One line with `more` sums up the others by reason, with `count` and some `examples`; at debug each has its
  line.
- Of each line below, 20 are logged at once, and then one a second. What goes on gets fewer: after 200
  warnings of a kind one in five minutes, which makes 288 a day; after 1,000 other lines one in ten
  seconds; at debug 200 a second. The next one has `left_out`, the number of those that were not logged; or
  `lines left out` says so. None is left out that names a log with a loss. The first warning within an hour
  about another partition, node, host or directory is logged also beyond that: of each kind 100 at once, and
  then one in five minutes.
- A reader of stderr that stops delays no request. 10,000 lines or 4 MiB wait for it; more are dropped, and
  `log lines were dropped` says how many. Lines that wait when a process is killed are lost.

## Levels

`--log-level info,firnline.tiered=debug` sets levels at the start. While a node runs, Kafka's tool does it
for one broker, until that stops; any client may, as there is no authorization:

    kafka-configs.sh --bootstrap-server ... --entity-type broker-loggers --entity-name 1 --alter \\
        --add-config firnline.tiered=DEBUG

Any client that reaches a broker may do that, as in Kafka without an authorizer. Levels are named as Kafka
names them there. `root` is the level of all loggers that have none of their own.
FATAL is CRITICAL in the log, and TRACE the same as DEBUG. Other libraries in the process, such as the client
of a store, log nothing below INFO whatever the level of `root`: they would write every request, and secrets.

| logger | what it reports |
|---|---|
"""

_LINES = """
## Lines

| message | logger | level | fields | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """Return docs/reference/logs.md."""
    loggers = [f"| `{name}` | {content} |\n" for name, content in LOGGERS.items()]
    return "".join([_HEAD, *loggers, _LINES, *map(_row, ALL_LINES)])


def _row(line: LogLine) -> str:
    fields = ", ".join(f"`{name}`" for name in line.fields)
    level = LEVEL_NAMES[line.level]
    advice = f" Ends with `advice`: {line.advice}." if line.advice else ""
    loss = " None of these is left out." if line.is_loss else ""
    meaning = f"{line.meaning}{loss}{advice}"
    return f"| {line.message} | `{line.logger}` | {level} | {fields} | {meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
