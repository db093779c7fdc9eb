"""Settings of brokers that are altered at run time, and what they are to topics."""

from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.worlds.harness import Harness


def test_a_default_that_is_altered_at_run_time_acts_on_topics_without_a_setting_of_their_own() -> (
    None
):
    node = Harness()
    node.create_topic("own", max_message_bytes="5000")
    node.create_topic("usual", partitions=2)

    def alter(name: str, value: str | None) -> None:
        change = AlterableConfig(
            name="message.max.bytes", config_operation=0 if value else 1, value=value
        )
        resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
        [said] = node.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert said.error_code == 0, said
        node.pass_time(10)

    def limits() -> list[int]:
        found = node.node.hosted.by_name
        keys = (("own", 0), ("usual", 0), ("usual", 1))
        return [found[key].log.config.max_message_bytes for key in keys]

    alter("", "7000")
    assert limits() == [5000, 7000, 7000]
    alter("1", "8000")
    assert limits() == [5000, 8000, 8000]
    node.create_topic("new")
    assert node.node.hosted.by_name["new", 0].log.config.max_message_bytes == 8000
    alter("1", None)
    assert limits() == [5000, 7000, 7000]
