"""Counts records by key with quixstreams. Arguments: bootstrap, topics, state directory.

A fifth one is a number of records: behind them it hangs, so that it can be killed in the middle.
"""

import sys
import time

from quixstreams import Application, State

bootstrap, source, target, state_dir, *most = sys.argv[1:]
COUNTED_MOST = int(most[0]) if most else None
app = Application(
    broker_address=bootstrap,
    consumer_group=f"{source}-counters",
    auto_offset_reset="earliest",
    commit_interval=0.2,
    consumer_poll_timeout=0.1,
    state_dir=state_dir,
    # The group waits so long for a member that was killed.
    consumer_extra_config={"session.timeout.ms": 6000},
)


counted: list[str] = []


def count(value: str, state: State) -> dict[str, object]:
    seen = int(state.get("seen", 0)) + 1
    state.set("seen", seen)
    counted.append(value)
    while len(counted) == COUNTED_MOST:
        time.sleep(1)
    return {"value": value, "seen": seen}


frame = app.dataframe(app.topic(source, value_deserializer="str"))
frame = frame.apply(count, stateful=True)
frame.to_topic(app.topic(target, value_serializer="json"))
app.run()
