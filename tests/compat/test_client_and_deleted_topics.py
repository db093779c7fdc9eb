"""`firnline consume` follows a topic that is deleted, at a real broker."""

import subprocess
import sys

import pytest

from firnline.testing.plugin import Broker

PATIENCE_S = 60.0


@pytest.mark.parametrize("group", [(), ("-g", "g-of-deleted")], ids=["alone", "group"])
def test_a_topic_that_is_deleted_while_it_is_followed_ends_that(
    firnline_session_broker: Broker, group: tuple[str, ...]
) -> None:
    """It followed nothing, for ever, and said nothing."""
    topic = firnline_session_broker.create_topic(f"deleted-{len(group)}")
    topic.put("one")
    words = ("consume", topic, *group, "-b", firnline_session_broker.bootstrap)
    following = subprocess.Popen(
        [sys.executable, "-m", "firnline", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    firnline_session_broker.delete_topic(topic)
    _, said = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 1
    assert f"topic {topic} is not there any more: it was deleted; until then 1 record" in said
