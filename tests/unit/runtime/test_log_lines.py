"""Which lines are logged: by level, and not too many of a kind."""

import logging
import threading
from collections.abc import Iterator

import pytest

from firnline.base.errors import ConfigError
from firnline.base.log_lines.cluster import ISR_SHRUNK, TOPIC_CREATED
from firnline.base.log_lines.line import LOGGERS, Fields
from firnline.base.log_lines.render import ALL_LINES
from firnline.base.log_lines.storage import LOG_BEGINS_EMPTY, LOG_CUT, RECORDS_LOST, STRAY_LOG
from firnline.base.log_lines.tier import SEGMENT_COPIED, STORE_FAILS, TIER_TASK_FAILS
from firnline.cli.server import log_to_stderr
from firnline.runtime.logs.levels import (
    ProcessLoggers,
    apply_levels,
    is_for_operators,
    parse_levels,
)
from firnline.runtime.logs.lines import (
    BOUNDS,
    BURST,
    FIRSTS,
    SUBJECT_QUIET_S,
    SUBJECTS_MAX,
    LineLogger,
)


class Lines(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, dict[str, object]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = getattr(record, "fields", {})
        self.found.append((record.levelname, record.getMessage(), fields))


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the loggers of this process say; their levels are put back."""
    handler, root = Lines(), logging.getLogger()
    before = {name: logging.getLogger(name).level for name in ["", *LOGGERS]}
    root.addHandler(handler)
    apply_levels({"": logging.INFO})
    yield handler
    root.removeHandler(handler)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_what_a_client_can_cause_has_a_bound_and_the_rest_is_counted(lines: Lines) -> None:
    now_s = [0.0]
    logger = LineLogger(lambda: now_s[0])
    for number in range(1_000):
        logger.log(TOPIC_CREATED(topic=f"t{number}"))
    logger.log(ISR_SHRUNK(topic="t"))  # of another kind
    assert len(lines.found) == BURST.at_once + 1
    now_s[0] = 1.0
    logger.log(TOPIC_CREATED(topic="last"))
    assert lines.found[-1][2] == {"topic": "last", "left_out": 1_000 - BURST.at_once}
    logger.log(TOPIC_CREATED(topic="too soon"))
    logger.sweep()
    assert lines.found[-1][2]["topic"] == "last", "not even the count has an allowance"
    now_s[0] = 5.0
    logger.sweep()
    logger.sweep()
    counted = {"logger": "firnline.controller", "message": "topic created", "count": 1}
    assert lines.found[-1] == ("INFO", "lines left out", counted)
    assert len(lines.found) == BURST.at_once + 3


def test_a_line_whose_level_is_off_costs_nothing(lines: Lines) -> None:
    def never() -> Fields:
        raise AssertionError("its fields are not made")

    LineLogger().log(ISR_SHRUNK.detail(never))
    assert lines.found == []


def test_details_have_a_wide_bound_of_their_own(lines: Lines) -> None:
    """Each partition of a large change has its line; a node at debug still has a bound for what it costs."""
    apply_levels(parse_levels("info,firnline.replica=debug"))
    now_s = [0.0]
    logger = LineLogger(lambda: now_s[0])
    for number in range(5_000):
        logger.log(ISR_SHRUNK.detail(lambda n=number: {"partition": n}))  # type: ignore[misc]
    (bound,) = BOUNDS[logging.DEBUG]
    assert len(lines.found) == bound.at_once == 2_000
    assert lines.found[7] == ("DEBUG", "ISR shrunk", {"partition": 7})
    logger.log(ISR_SHRUNK(topic="t"))
    assert lines.found[-1] == ("INFO", "ISR shrunk", {"topic": "t"}), (
        "it has an allowance of its own"
    )


def test_what_goes_on_for_a_month_is_a_few_hundred_lines_a_day(lines: Lines) -> None:
    """A broken store or a flapping client: the first lines at once, then a sum every five minutes."""
    now_s = [0.0]
    logger = LineLogger(lambda: now_s[0])
    per_day = []
    for _ in range(3):
        before = len(lines.found)
        for _ in range(24 * 3600 // 10):
            now_s[0] += 10.0
            logger.log(STORE_FAILS(operation="copy"))
        per_day.append(len(lines.found) - before)
    assert per_day == [200 + 288 - 1, 288, 288]
    assert lines.found[-1][2] == {"operation": "copy", "left_out": 29}
    now_s[0] += 300.0
    logger.sweep()
    *told, (_, message, counted) = lines.found
    assert message == "lines left out"
    left_out = sum(int(str(fields.get("left_out", 0))) for _, _, fields in told)
    assert len(told) + left_out + int(str(counted["count"])) == 3 * 8_640


def test_after_a_crash_every_log_that_lost_something_is_named(lines: Lines) -> None:
    """Fears a broker with 1,000 cut logs that names twenty of them."""
    logger = LineLogger(lambda: 0.0)
    assert {LOG_CUT, LOG_BEGINS_EMPTY, STRAY_LOG, RECORDS_LOST} == {
        line for line in ALL_LINES if line.is_loss
    }
    for partition in range(1_000):
        logger.log(LOG_CUT(topic="t", partition=partition, end_offset=1, bytes_cut=9))
    assert [fields["partition"] for _, _, fields in lines.found] == [*range(1_000)]


def test_a_noisy_subject_does_not_hide_the_first_warning_about_another(lines: Lines) -> None:
    now_s = [0.0]
    logger = LineLogger(lambda: now_s[0])

    def warn(topic: str, partition: int = 0) -> None:
        logger.log(TIER_TASK_FAILS(topic=topic, partition=partition, error="E"))

    def about() -> list[tuple[object, object]]:
        return [(fields["topic"], fields["partition"]) for _, _, fields in lines.found]

    for _ in range(1_000):
        warn("noisy")
    assert len(lines.found) == BURST.at_once
    for _ in range(10):
        warn("other")
        warn("noisy", 7)
    assert about()[BURST.at_once :] == [("other", 0), ("noisy", 7)]
    assert lines.found[-2][2]["left_out"] == 1_000 - BURST.at_once
    now_s[0] = SUBJECT_QUIET_S + 1
    for _ in range(1_000):
        warn("noisy")
    warn("other")
    assert about()[-1] == ("other", 0), "after an hour it is another trouble"


def test_many_subjects_have_a_bound_too_and_little_is_remembered(lines: Lines) -> None:
    now_s = [0.0]
    logger = LineLogger(lambda: now_s[0])
    for number in range(5_000):
        logger.log(TIER_TASK_FAILS(topic=f"t{number}", partition=0, error="E"))
    assert len(lines.found) == BURST.at_once + FIRSTS.at_once
    for number in range(5_000):
        now_s[0] += 300.0
        logger.log(TIER_TASK_FAILS(topic=f"u{number}", partition=0, error="E"))
    assert len(logger._logged_s) == SUBJECTS_MAX


def test_any_thread_may_log(lines: Lines) -> None:
    """Each line is logged or counted, whatever the order."""
    logger = LineLogger(lambda: 0.0)
    line = TOPIC_CREATED(topic="t")
    threads = [
        threading.Thread(target=lambda: [logger.log(line) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines.found) == BURST.at_once
    [allowance] = logger._allowances.values()
    assert allowance.left_out == 2_000 - BURST.at_once


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("warning", {"": logging.WARNING}),
        ("INFO", {"": logging.INFO}),
        ("firnline.tiered=debug", {"firnline.tiered": logging.DEBUG}),
        (
            "error, firnline.log=info",
            {"": logging.ERROR, "firnline.log": logging.INFO},
        ),
    ],
)
def test_levels_of_all_and_of_some(text: str, levels: dict[str, int]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("loud", "'loud' is no level: debug, info, warning, error"),
        ("", "'' is no level"),
        ("info,firnline.tierd=debug", "Did you mean firnline.tiered?"),
        ("info,debug", "two levels for all loggers"),
        ("firnline.log=info,firnline.log=debug", "two levels for firnline.log"),
        ("firnline.log=", "'' is no level"),
        ("=debug", "no logger ''"),
    ],
)
def test_what_is_no_level_is_refused_with_what_is(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("?", r"\?")):
        parse_levels(text)


def test_a_level_set_at_run_time_is_told_and_can_be_taken_back(lines: Lines) -> None:
    loggers = ProcessLoggers()
    loggers.set_level("firnline.tiered", "DEBUG")
    assert loggers.levels()["firnline.tiered"] == "DEBUG"
    assert loggers.levels()["firnline.log"] == loggers.levels()["root"] == "INFO"
    loggers.set_level("firnline.tiered", None)
    assert loggers.levels()["firnline.tiered"] == "INFO"
    assert [fields for _, _, fields in lines.found] == [
        {"logger": "firnline.tiered", "level": "DEBUG", "is_own": True},
        {"logger": "firnline.tiered", "level": "INFO", "is_own": False},
    ]


def test_root_at_debug_lets_no_other_library_write_its_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client may set it, and what the client of a store says at debug has its signatures."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log_to_stderr("info")
        ProcessLoggers().set_level("root", "DEBUG")
        logging.getLogger("botocore.auth").debug("Authorization: a signature")
        logging.getLogger("botocore.auth").warning("slow down")
        LineLogger().log(SEGMENT_COPIED(topic="t"))
        root.handlers[0].flush()
    finally:
        for each in root.handlers[:]:
            root.removeHandler(each)
        for each in before:
            root.addHandler(each)
        apply_levels({"": level})
    told = capsys.readouterr().err
    assert "segment copied topic=t" in told
    assert "slow down" in told
    assert "signature" not in told


def test_a_handler_that_is_set_up_keeps_records_of_others_out() -> None:
    made = logging.LogRecord("urllib3", logging.DEBUG, "", 0, "GET /", None, None)
    assert not is_for_operators(made)
