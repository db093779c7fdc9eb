"""Counts records by key with quixstreams. Arguments: bootstrap, topics, state directory."""

import sys
import time

from quixstreams import Application, State

bootstrap, source, target, state_dir = sys.argv[1:]
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


def count(value: str, state: State) -> dict[str, object]:
    seen = int(state.get("seen", 0)) + 1
    state.set("seen", seen)
    time.sleep(0.001)  # so that it can be killed in the middle
    return {"value": value, "seen": seen}


frame = app.dataframe(app.topic(source, value_deserializer="str"))
frame = frame.apply(count, stateful=True)
frame.to_topic(app.topic(target, value_serializer="json"))
app.run()
