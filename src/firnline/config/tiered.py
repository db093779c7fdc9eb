"""The remote tier. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

import re
from dataclasses import dataclass

from firnline.base.errors import ConfigError
from firnline.config.define import key
from firnline.config.topic import LONG_MAX

# Kafka's name of the metadata manager in the internal topic. It means the built-in one.
TOPIC_BASED = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
BUILT_IN_STORAGE = "firnline.tiered.objects.storage.ObjectStorage"


@dataclass(frozen=True, kw_only=True)
class TierKeys:
    """The switch, the two plug-ins, and the pace of the tier's tasks."""

    firnline_new_topics_remote_storage_enable: bool = key(
        "BOOLEAN",
        False,
        "Give each new topic remote.storage.enable=true, unless its creator states that setting, the topic is"
        " internal or compacted, or another rule of tiered topics forbids it. In Kafka the creator of a topic"
        " has to state it. The controllers read this key.",
        importance="LOW",
    )
    firnline_remote_log_metadata_given_up: tuple[str, ...] = key(
        "LIST",
        (),
        "Unreadable records of __remote_log_metadata that the operator gives up, as partition:offset or"
        " partition:first-last. Until then tiered partitions that they may concern are not copied"
        " or deleted. Segments that only these records completed are deleted afterwards.",
        importance="LOW",
        dynamic=True,
    )
    firnline_remote_log_roll_idle_ms: int = key(
        "LONG",
        0,
        "Close the active segment of a tiered partition, and so copy it, when nothing was appended for this"
        " time, or six times this time after it was begun. Both times grow by as much again for each 50"
        " segments that the partition has in the tier. The interval of the checks is"
        " remote.log.manager.task.interval.ms. 0: only log.roll.ms and log.segment.bytes close it, as in"
        " Kafka, which looks at log.roll.ms only when something is appended.",
        valid="[0,...]",
        importance="LOW",
    )
    remote_fetch_max_wait_ms: int = key(
        "INT",
        500,
        "How long a fetch waits for the remote tier.",
        valid="[1,...]",
        source="KIP-1018",
        dynamic=True,
    )
    remote_list_offsets_request_timeout_ms: int = key(
        "LONG",
        30000,
        "How long a search by timestamp waits for the remote tier.",
        valid="[1,...]",
        source="KIP-1075",
        dynamic=True,
    )
    remote_log_index_file_cache_total_size_bytes: int = key(
        "LONG",
        1073741824,
        "Bytes of remote indexes kept on the local disk.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-405 Configs",
        dynamic=True,
    )
    remote_log_manager_copier_thread_pool_size: int = key(
        "INT", 10, "Concurrent copies.", valid="[1,...]", source="KIP-950", dynamic=True
    )
    remote_log_manager_copy_max_bytes_per_second: int = key(
        "LONG",
        LONG_MAX,
        "Bytes per second that copying may use.",
        valid="[1,...]",
        source="KIP-956",
        dynamic=True,
    )
    remote_log_manager_expiration_thread_pool_size: int = key(
        "INT", 10, "Concurrent deletions.", valid="[1,...]", source="KIP-950", dynamic=True
    )
    remote_log_manager_fetch_max_bytes_per_second: int = key(
        "LONG",
        LONG_MAX,
        "Bytes per second that remote reads may use.",
        valid="[1,...]",
        source="KIP-956",
        dynamic=True,
    )
    remote_log_manager_follower_thread_pool_size: int = key(
        "INT",
        2,
        "Concurrent reads of indexes and auxiliary state, in addition to remote.log.reader.threads.",
        valid="[1,...]",
        source="KIP-950",
        dynamic=True,
    )
    remote_log_manager_task_interval_ms: int = key(
        "LONG",
        30000,
        "Time between two checks for segments to copy or to expire.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-405 Configs",
    )
    remote_log_manager_task_retry_backoff_max_ms: int = key(
        "LONG",
        30000,
        "Longest backoff after failed copies or deletes.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-405 Configs",
        internal=True,
    )
    remote_log_manager_task_retry_backoff_ms: int = key(
        "LONG",
        500,
        "First backoff after a failed copy or delete.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-405 Configs",
        internal=True,
    )
    remote_log_manager_task_retry_jitter: float = key(
        "DOUBLE",
        0.2,
        "Random part of these backoffs.",
        valid="[0,...,0.5]",
        importance="LOW",
        source="KIP-405 Configs",
        internal=True,
    )
    remote_log_metadata_custom_metadata_max_bytes: int = key(
        "INT",
        128,
        "Largest custom metadata a store may attach to a segment.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-405",
    )
    remote_log_metadata_manager_class_name: str = key(
        "STRING",
        TOPIC_BASED,
        "The store of remote log metadata: module.Class of a MetadataManager (`firnline.server.plugins`). The"
        " default is the internal topic.",
        valid="non-empty string",
        source="KIP-405 Configs",
    )
    remote_log_metadata_manager_class_path: str | None = key(
        "STRING",
        None,
        "Folders with modules for the metadata manager, separated by ':'.",
        source="KIP-405 Configs",
    )
    remote_log_metadata_manager_impl_prefix: str = key(
        "STRING",
        "rlmm.config.",
        "Prefix of keys for the metadata manager, which gets them without the prefix.",
        valid="non-empty string",
        source="KIP-405 Configs",
    )
    remote_log_metadata_manager_listener_name: str | None = key(
        "STRING",
        None,
        "Listener whose address your own metadata manager gets. The built-in one needs none.",
        valid="non-empty string",
        source="KIP-405 Configs",
    )
    remote_log_reader_max_pending_tasks: int = key(
        "INT",
        100,
        "Remote reads that may wait; one more gets a retriable error.",
        valid="[1,...]",
        source="KIP-405 Configs",
    )
    remote_log_reader_threads: int = key(
        "INT",
        10,
        "Concurrent remote reads.",
        valid="[1,...]",
        source="KIP-405 Configs",
        dynamic=True,
    )
    remote_log_storage_manager_class_name: str | None = key(
        "STRING",
        None,
        "The store: module.Class of a RemoteStorage (`firnline.tiered.spi`). The built-in one, which is for a"
        f" directory or an object store, is {BUILT_IN_STORAGE}.",
        valid="non-empty string",
        source="KIP-405 Configs",
    )
    remote_log_storage_manager_class_path: str | None = key(
        "STRING",
        None,
        "Folders with modules for the store, separated by ':'.",
        source="KIP-405 Configs",
    )
    remote_log_storage_manager_impl_prefix: str = key(
        "STRING",
        "rsm.config.",
        "Prefix of keys for the store, which gets them without the prefix.",
        valid="non-empty string",
        source="KIP-405 Configs",
    )
    remote_log_storage_system_enable: bool = key(
        "BOOLEAN", False, "Whether topics may have a remote tier.", source="KIP-405 Configs"
    )
    remote_log_manager_copy_quota_window_num: int = key(
        "INT",
        11,
        "Windows for the rate of copying.",
        valid="[1,...]",
        source="KIP-956",
    )
    remote_log_manager_copy_quota_window_size_seconds: int = key(
        "INT", 1, "Length of such a window.", valid="[1,...]", source="KIP-956"
    )
    remote_log_manager_fetch_quota_window_num: int = key(
        "INT",
        11,
        "Windows for the rate of remote reads.",
        valid="[1,...]",
        source="KIP-956",
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = key(
        "INT", 1, "Length of such a window.", valid="[1,...]", source="KIP-956"
    )

    @property
    def has_metadata_topic(self) -> bool:
        """Whether remote log metadata is in the internal topic, and not in a store of the user."""
        return self.remote_log_metadata_manager_class_name == TOPIC_BASED


_GIVEN_UP = re.compile(r"([0-9]{1,9}):([0-9]{1,18})(?:-([0-9]{1,18}))?")


def parse_given_up(text: str) -> tuple[int, int, int]:
    """Parse an entry of firnline.remote.log.metadata.given.up: partition, first and last offset.

    Raises ConfigError for another form.
    """
    found = _GIVEN_UP.fullmatch(text.strip())
    first, last = (int(found[2]), int(found[3] or found[2])) if found else (1, 0)
    if found is None or last < first:
        raise ConfigError(
            f"firnline.remote.log.metadata.given.up: {text!r} does not have the form partition:offset or"
            " partition:first-last"
        )
    return int(found[1]), first, last
