"""Each word in code of docs/OPERATIONS.md is there to be found: a command, a setting, an error, a line.

That the command line takes its commands is checked in tests/test_docs.py. Commands are run in the trouble
that they are for, and metrics looked for at real nodes, in tests/chaos/test_operations_page.py.
"""

import re
from pathlib import Path

import pytest

from firnline.base.errors import Code
from firnline.base.log_lines.render import ALL_LINES
from firnline.protocol.versions import SERVED
from tests import pages
from tests.unit.cli.tree import ALL, options_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "OPERATIONS.md").read_text()
# Scripts of Apache Kafka 4.3.1, without their `.sh`.
KAFKA_SCRIPTS = {
    "kafka-cluster", "kafka-configs", "kafka-consumer-groups", "kafka-delete-records", "kafka-dump-log",
    "kafka-features", "kafka-leader-election", "kafka-log-dirs", "kafka-metadata-quorum",
    "kafka-reassign-partitions", "kafka-storage", "kafka-topics",
}  # fmt: skip
# Neither ours nor a script of Kafka's: of other tools, of clients, of the system; or it stands for something.
ELSEWHERE = {
    "--add-config", "--cancel", "--ulimit nofile", "--verify", "LimitNOFILE=", "SIGTERM", "df -h", "dmesg",
    "kill -9", "prlimit --nofile=N --pid P", "sched_autogroup_enabled", "ulimit -n",
    "auto.offset.reset", "client_id", "fetch.wait.max.ms", "max.poll.interval.ms", "request.timeout.ms",
    "0.0.0.0", "CONTROLLER://:9093", "Connection refused", "DIR", "DIR-data", "TOPIC-N", "WantShutDown",
    "[::]", "data/", "deploy/", "topic:0,2-4", "...checkpoint.damaged",
    "__cluster_metadata-0/quorum-state",
}  # fmt: skip
METRIC = re.compile(r"\b(?:firnline|kafka|python|process)_\w+|\b(?:uncleanable|max)_\w+")
_SETTING = re.compile(r"([a-z][\w-]*(?:\.[\w-]+)+)(?:\.\*)?(?:=[\w,.-]*)?")
_FILE = re.compile(r"(?:[\w*-]+/)+[\w.*-]+\.\w+")
_STEP = re.compile(r"request (\w+)|([A-Z]\w+)\.(\w+)")
# Where the example of a line has a value.
_VALUE = re.compile(
    r"\.\.\.|[0-9][0-9.]*|\b[A-Z]\b|\b__consumer_offsets(?=-N)|\bDIR\b|\borders\b|\bSIGKILL\b|\bwhich\b|\bno\b"
    r"|\bConnection refused\b|[():='\",\[\]]"
)


@pytest.fixture(scope="module")
def texts() -> str:
    """What the source can print, with the names of files that it reads and writes."""
    return pages.texts_of(ROOT / "src" / "firnline")


def is_printed(span: str, texts: str) -> bool:
    """Whether the source has the words of a line, but for the values in it."""
    pieces = [piece.strip(" ,;-") for piece in _VALUE.split(span)]
    patterns = [rf"(?<!\w){re.escape(piece)}(?!\w)" for piece in pieces if piece]
    return bool(patterns) and all(re.search(pattern, texts) for pattern in patterns)


def is_setting(span: str, settings: str) -> bool:
    """Whether docs/reference/config.md has it, or, for `KEY.*`, keys that begin so."""
    found = _SETTING.fullmatch(span)
    return found is not None and f"`{found[1]}{'.' if '.*' in span else '`'}" in settings


def is_step(span: str) -> bool:
    """Whether the loop may have a step of that name: a request, or a method of a class."""
    found = _STEP.fullmatch(span)
    if found is None:
        return False
    if found[1]:
        return found[1] in {row.name for row in SERVED}
    sources = [path.read_text() for path in (ROOT / "src" / "firnline").rglob("*.py")]
    return any(f"class {found[2]}" in each and f"def {found[3]}(" in each for each in sources)


def is_line(span: str) -> bool:
    """Whether a declared line begins so, and has the fields that are named."""
    for line in ALL_LINES:
        if span == line.message or span.startswith(f"{line.message} "):
            named = re.findall(r"([a-z_]+)=", span.removeprefix(line.message))
            return {*named} <= {*line.fields}
    return False


def test_every_word_in_code_is_there(texts: str) -> None:
    settings = (ROOT / "docs" / "reference" / "config.md").read_text()
    options = {name for command in ALL.values() for name in options_of(command)}
    unknown = [
        span
        for span in sorted({*pages.in_code(PAGE)} - ELSEWHERE)
        if not (
            pages.ours(span)
            or span.split()[0] in KAFKA_SCRIPTS | options
            or span.startswith(("grep ", "python -m bench."))
            or METRIC.search(span)
            or span in Code.__members__
            or is_setting(span, settings)
            or is_step(span)
            or is_line(span)
            or _FILE.fullmatch(span)  # tests/test_docs.py looks for it
            or is_printed(span, texts)
        )
    ]
    assert unknown == []


def test_a_word_that_is_not_there_is_found(texts: str) -> None:
    settings = (ROOT / "docs" / "reference" / "config.md").read_text()
    assert not is_printed("the store of the tier falters (read): ...", texts)
    assert not is_setting("log.cleaner.thread", settings)
    assert not is_setting("leader.imbalances.*", settings)
    assert not is_step("request metadatum")
    assert not is_line("ISR shrunk colour=T")


def test_the_lines_that_the_symptoms_look_for_are_declared(texts: str) -> None:
    """With the fields that stand behind `with`. Of a line that is a sentence, the words."""
    rows = [row for row in pages.rows_of(PAGE, "| you see |") if "log: " in "".join(row)]
    assert len(rows) > 8
    for row in rows:
        behind = next(cell for cell in row if "log: " in cell).partition("log: ")[2]
        lines = [span for span in re.findall(r"`([^`]+)`", behind) if not pages.ours(span)]
        fields = [line.fields for line in ALL_LINES if lines[0].startswith(line.message)]
        for span in lines:
            is_sentence = span.endswith("...") and is_printed(span, texts)
            is_field = bool(fields) and span in (*fields[0], "left_out=")
            assert is_line(span) or is_field or is_sentence, (row[0], span)


# What the points of "When a broker is lost" say is run there; the table of symptoms, in tests/chaos.
LOST_BROKER = {
    "It comes back with its disk": (
        "chaos/test_operations_page.py test_after_a_crash_the_node_cuts_what_was_lost"
    ),
    "It comes back with an empty disk": "chaos/test_new_disk.py test_a_broker_on_a_new_disk_leads_again",
    "One of its disks fails": (
        "unit/broker/test_failing_disks.py test_one_failed_directory_of_two_takes_down_its_partitions_alone"
    ),
    "Files of one replica are damaged": (
        "chaos/test_lost_replica.py test_a_damaged_replica_is_led_by_others_and_comes_back_repaired"
    ),
    "`not copied to the tier": (
        "unit/broker/test_tier_replicas.py"
        " test_a_leader_with_a_damaged_segment_copies_none_of_it_and_another_leads"
    ),
    "`the leader epochs of this replica": (
        "unit/tiered/test_tiered_lost_lineage.py test_lost_leader_epochs_are_taken_once_the_store_answers"
    ),
    "`segments below the log start": (
        "unit/tiered/test_tiered_lost_lineage.py"
        " test_a_log_start_that_only_a_file_has_deletes_nothing_until_it_is_decided_again"
    ),
    "`remote segment is damaged": "unit/tiered/test_tiered_read.py test_damaged_bytes_reach_nobody",
    "`an index was missing or damaged": (
        "unit/broker/test_damaged_indexes.py test_a_reader_shall_try_again_and_then_has_the_same_records"
    ),
    "`indexes rebuilt for the tier": (
        "unit/tiered/test_tiered_verified.py test_a_damaged_index_is_built_again_for_the_copy"
    ),
    "`a request to grow the ISR": (
        "unit/replica/test_replication.py"
        " test_the_operator_learns_once_of_a_request_that_holds_up_commits_and_of_each_new_one"
    ),
    "`this broker is registered by another": (
        "unit/broker/test_cluster.py"
        " test_a_broker_whose_place_was_taken_while_it_was_silent_says_so_and_stays_up"
    ),
    "It never comes back": (
        "compat/test_operations.py test_a_broker_that_is_gone_is_forgotten_and_a_live_one_is_not"
    ),
    "Partitions without a leader": (
        "chaos/test_operations_page.py"
        " test_a_partition_is_offline_and_an_unclean_election_costs_records"
    ),
}


def test_each_point_of_a_lost_broker_names_the_test_that_runs_it() -> None:
    section = PAGE.partition("\n## When a broker is lost\n")[2].partition("\n## ")[0]
    points = re.findall(r"^- \*\*(.+)", section, re.M)
    assert len(points) == len(LOST_BROKER)
    for point, (begins, where) in zip(points, LOST_BROKER.items(), strict=True):
        assert point.startswith(begins)
        path, words = where.split()
        assert words in (ROOT / "tests" / path).read_text(), where


def test_what_the_page_says_to_alert_on_is_in_our_alert_rules() -> None:
    """Three were on the page alone: a store that hangs, lost metadata of the tier, and what a node says."""
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    named = re.findall(r"[Aa]lert on `(\w+)", PAGE)
    assert len(named) >= 3
    assert [name for name in ("firnline_problems", *named) if name not in rules] == []
