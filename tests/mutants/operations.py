"""Guards of what operators see: status, log lines, deadlines, settings, and `firnline dev`."""

from tests.mutants.patch import Mutant

_COMMANDS = "tests/unit/cli/test_commands.py::"
_DESCRIBED = "tests/unit/raft/test_described.py::"
_HEALTH = "tests/unit/api/test_health.py::"
_CLUSTER = "tests/unit/cli/test_cluster.py::"
_DEADLINES = "tests/unit/cli/test_deadlines.py::"
_DEV = "tests/unit/cli/test_dev_data.py::"
_LINES = "tests/unit/runtime/test_log_lines.py::"
_FORMATS = "tests/unit/runtime/test_log_formats.py::"
_HANDLER = "tests/unit/runtime/test_log_handler.py::"
_REFUSED = "tests/unit/runtime/test_refused_requests.py::"
_CHANGES = "tests/unit/broker/test_change_log.py::"
_UNBUILT = "tests/unit/coordinator/test_group_handlers.py::"
_REST = "tests/unit/spark/test_rest.py::"
_PARSE = "tests/unit/config/test_parse.py::"
_LOAD = "tests/unit/config/test_load.py::"
_LAYERS = "tests/unit/config/test_layers.py::"

_FEW = _UNBUILT + "test_the_log_names_a_refused_client_once_in_ten_minutes_and_few_in_a_minute"
_CONTROLLER = (
    _HEALTH + "test_a_node_that_is_only_a_controller_reports_disk_loop_quorum_and_snapshots"
)

OPERATIONS = (
    # ---------------------------------------------------------------------------------- problems
    Mutant(
        "O1: a failed append counts for a while only",
        "api.health:_appends",
        "now_ms - APPEND_FAILED_MS",
        "0",
        tests=(_HEALTH + "test_appends_that_fail_are_reported_for_as_long_as_producers_try_again",),
    ),
    Mutant(
        "O1: a large disk is full by what is left",
        "api.health:_machine",
        "min(space.total_bytes // DISK_PART, DISK_LEFT_BYTES)",
        "space.total_bytes // DISK_PART",
        tests=(_HEALTH + "test_a_disk_is_nearly_full_by_its_size_and_a_large_one_by_what_is_left",),
    ),
    Mutant(
        "O1: a disk is silent after a while",
        "api.health:_machine",
        "silent_ms > DISK_SILENT_MS",
        "silent_ms >= 0",
        tests=(_HEALTH + "test_a_disk_that_does_not_answer_is_reported_after_a_while",),
    ),
    Mutant(
        "O1: a loop that was held up is old news after a minute",
        "api.health:_loop",
        " or ago_ms >= HELD_UP_REPORTED_MS",
        "",
        tests=(_HEALTH + "test_a_loop_that_was_held_up_is_reported_for_a_minute",),
    ),
    Mutant(
        "O2: a controller without a leader says so",
        "api.health:_leader",
        "node.quorum.raft.answering_leader_id >= 0",
        "True",
        tests=(_CONTROLLER,),
    ),
    Mutant(
        "O2: snapshots that fail are a problem until one is taken",
        "metadata.snapshotter:Snapshotter._failed",
        "self.problem = str(problem)",
        "pass",
        tests=(_HEALTH + "test_snapshots_that_fail_are_a_problem_of_a_broker_until_one_is_taken",),
    ),
    # ------------------------------------------------------------------------- who is the controller
    Mutant(
        "O12: a broker that is no controller has lost its leader after two timeouts",
        "raft.follower:FollowerState._on_timeout",
        "quorum.has_lost_leader, self._is_leader_silent = self._is_leader_silent, True",
        "self._is_leader_silent = True",
        tests=(_DESCRIBED + "test_a_broker_names_no_dead_controller_either",),
    ),
    Mutant(
        "O12: one timeout is not enough for that",
        "raft.follower:FollowerState._on_timeout",
        "= self._is_leader_silent, True",
        "= True, True",
        tests=(_DESCRIBED + "test_a_broker_that_misses_one_timeout_says_nothing",),
    ),
    Mutant(
        "O12: a majority that has lost its leader has none",
        "raft.election:Election._on_timeout",
        "ballot.is_leaderless or ",
        "",
        tests=(_DESCRIBED + "test_a_dead_leader_is_nobody_for_a_majority_that_elects_none",),
    ),
    Mutant(
        "O12: who has lost its leader names none to a voter",
        "raft.election:Election.on_vote",
        "quorum.answering_leader, is_granted",
        "quorum.leader_and_epoch, is_granted",
        tests=(_DESCRIBED + "test_a_dead_leader_is_nobody_for_a_majority_that_elects_none",),
    ),
    Mutant(
        "O12: the only voter is described where it listens",
        "api.handlers.k55_describe_quorum:handle",
        "node.quorum.raft.voters.is_sole(node.node_id)",
        "False",
        tests=(
            "tests/unit/api/test_controller_handlers.py::"
            "test_the_only_voter_is_described_where_it_listens",
        ),
    ),
    Mutant(
        "O1: both halves of a combined node tell of one machine",
        "broker.node:BrokerNode.__init__",
        "MachineFacts() if own is None else own.machine",
        "MachineFacts()",
        tests=(_HEALTH + "test_both_halves_of_a_combined_node_tell_of_one_machine",),
    ),
    Mutant(
        "O3: a controller that hangs is named as a broker is",
        "client.probes:why_not",
        "NoAnswer | NoController",
        "NoAnswer",
        tests=(_CLUSTER + "test_a_controller_that_hangs_is_named_in_the_words_for_brokers",),
    ),
    # ------------------------------------------------------------------------------ what is printed
    Mutant(
        "O13: wide characters take two columns of a line",
        "cli.terminal.table:folded",
        "width_of(indent + line + part.rstrip())",
        "len(indent + line + part.rstrip())",
        tests=(
            "tests/unit/cli/test_tables.py::test_lines_of_wide_characters_stay_within_the_terminal",
        ),
    ),
    Mutant(
        "O13: a lease that has ended can be unset",
        "client.operations.configs:refuse_unknown",
        "known.add(LEASES)",
        "pass",
        tests=(_COMMANDS + "test_a_lease_that_has_ended_meanwhile_is_unset_like_one_that_runs",),
    ),
    Mutant(
        "O13: the reason why no topic can have a name is said",
        "client.wire:refuse_topic",
        "code == Code.INVALID_TOPIC_EXCEPTION",
        "False",
        tests=(_COMMANDS + "test_a_name_that_no_topic_can_have_is_refused_with_the_reason",),
    ),
    Mutant(
        "O13: replicas with the same damage are not in order",
        "client.replica_diff:first_difference",
        "a != b or not (a and a.is_intact)",
        "a != b",
        tests=(
            "tests/unit/cli/test_replica_diff.py::"
            "test_a_byte_that_the_disk_has_changed_is_found_though_the_checksum_is_as_before",
        ),
    ),
    Mutant(
        "O13: produce counts no record below zero",
        "cli.client.sending:Sender.delivered",
        "max(0, self.accepted - sum(self._failures.values()) - self.queued)",
        "self.accepted - sum(self._failures.values()) - self.queued",
        tests=("tests/unit/cli/test_sending.py::test_no_record_is_counted_below_zero",),
    ),
    # ------------------------------------------------------------------------------------ status
    Mutant(
        "O3: a broker that does not answer is not alive",
        "client.status:_brokers",
        "NO_ANSWER if is_silent else last_known",
        "last_known",
        tests=(
            _CLUSTER
            + "test_a_broker_that_does_not_answer_is_not_alive_and_what_it_leads_is_unknown",
        ),
    ),
    Mutant(
        "O3: of several addresses the one that knows most is asked",
        "client.status:_look",
        "key=lambda key: -known[key]",
        "key=lambda key: known[key]",
        tests=(_CLUSTER + "test_of_several_addresses_the_one_that_knows_most_is_asked",),
    ),
    Mutant(
        "O3: brokers that never came are missed",
        "client.status:survey",
        "alive >= brokers_min",
        "True",
        tests=(_CLUSTER + "test_brokers_that_never_came_are_missed_by_who_counts_them",),
    ),
    Mutant(
        "O2: controllers are asked what is wrong with them",
        "client.status:_of_controllers",
        "probe_brokers(rows, probe_s)",
        "{}",
        tests=(_CLUSTER + "test_a_node_that_is_only_a_controller_is_asked_what_is_wrong_with_it",),
    ),
    Mutant(
        "O4: a share leaves time for others",
        "client.deadline:Deadline.share",
        "self.left_s() * _SHARE",
        "self.left_s()",
        tests=(_DEADLINES + "test_a_share_leaves_half_and_pauses_end_at_the_deadline",),
    ),
    Mutant(
        "O4: a pause ends at the deadline",
        "client.deadline:Deadline.pause",
        "min(pause_s, self.left_s())",
        "pause_s",
        tests=(_DEADLINES + "test_a_share_leaves_half_and_pauses_end_at_the_deadline",),
    ),
    Mutant(
        "O4: nodes are asked at the same time",
        "client.deadline:at_once",
        "len(them) < 2",
        "True",
        tests=(_DEADLINES + "test_nodes_are_asked_at_the_same_time_and_answers_keep_their_order",),
    ),
    # --------------------------------------------------------------------------------- log lines
    Mutant(
        "O5: lines that come too fast are counted",
        "runtime.logs.lines:LineLogger._allowed",
        "not allowance.take(now_s)",
        "False",
        tests=(_LINES + "test_what_a_client_can_cause_has_a_bound_and_the_rest_is_counted",),
    ),
    Mutant(
        "O5: the first warning about a subject passes where others are too many",
        "runtime.logs.lines:LineLogger._allowed",
        " and not self._is_first(line, subject, now_s)",
        "",
        tests=(_LINES + "test_a_noisy_subject_does_not_hide_the_first_warning_about_another",),
    ),
    Mutant(
        "O5: first warnings have a bound, too",
        "runtime.logs.lines:LineLogger._is_first",
        "return self._firsts[line.message].take(now_s)",
        "return True",
        tests=(_LINES + "test_many_subjects_have_a_bound_too_and_little_is_remembered",),
    ),
    Mutant(
        "O5: of logs with a loss every one is named",
        "runtime.logs.lines:LineLogger.log",
        "0 if line.is_loss else ",
        "",
        tests=(_LINES + "test_after_a_crash_every_log_that_lost_something_is_named",),
    ),
    Mutant(
        "O5: what goes on has a bound of its own",
        "runtime.logs.lines:_Allowance.take",
        "min(self.left) < 1",
        "self.left[0] < 1",
        tests=(_LINES + "test_what_goes_on_for_a_month_is_a_few_hundred_lines_a_day",),
    ),
    Mutant(
        "O5: fields of a level that is off are not made",
        "runtime.logs.lines:LineLogger.log",
        "not logger.isEnabledFor(level)",
        "False",
        tests=(_LINES + "test_a_line_whose_level_is_off_costs_nothing",),
    ),
    Mutant(
        "O5: a reader that stops holds a bounded number of lines",
        "runtime.logs.handler:BackgroundHandler.emit",
        "len(self._lines) >= self._lines_max",
        "False",
        tests=(_HANDLER + "test_a_reader_that_stops_delays_nobody_and_learns_what_it_missed",),
    ),
    Mutant(
        "O5: other libraries write nothing below INFO",
        "runtime.logs.levels:is_for_operators",
        "record.levelno >= logging.INFO",
        "True",
        tests=(_LINES + "test_root_at_debug_lets_no_other_library_write_its_requests",),
    ),
    Mutant(
        "O6: quotes within a value are escaped",
        "base.log_lines.text:value_text",
        """.replace('"', '\\\\"')""",
        "",
        tests=(_REFUSED + "test_no_client_id_breaks_a_line_or_forges_a_field",),
    ),
    Mutant(
        "O6: what cannot be printed is escaped",
        "base.log_lines.text:escaped",
        "text.isprintable()",
        "True",
        tests=(_FORMATS + "test_nobody_forges_a_line_or_writes_to_a_terminal",),
    ),
    Mutant(
        "O6: a client id is cut",
        "base.log_lines.process:shown_client_id",
        "len(client_id) <= CLIENT_ID_CHARS_MAX",
        "True",
        tests=(_REFUSED + "test_no_client_id_breaks_a_line_or_forges_a_field",),
    ),
    Mutant(
        "O6: a refused request names its client",
        "runtime.net:Connection._on_frame",
        "problem.asked = asked_of(data[SIZE_BYTES:end])",
        "pass",
        tests=(_REFUSED + "test_it_names_client_address_api_version_and_reason",),
    ),
    Mutant(
        "O7: a large change is ten lines and a sum",
        "broker.change_log.bundles:Bundles.add",
        "count < SINGLES_MAX",
        "True",
        tests=(_CHANGES + "test_five_thousand_partitions_are_ten_lines_and_a_sum",),
    ),
    Mutant(
        "O7: the past is no news",
        "broker.change_log.change_log:ChangeLog.published",
        "not self._is_part()",
        "False",
        tests=(_CHANGES + "test_a_node_does_not_tell_the_past_as_news",),
    ),
    Mutant(
        "O7: secrets among changed settings are hidden",
        "broker.change_log.change_log:config_changes",
        "is_broker and _is_secret(key)",
        "False",
        tests=(_CHANGES + "test_a_secret_of_a_broker_is_hidden_and_so_is_what_nobody_knows",),
    ),
    Mutant(
        "O8: the same refused client is named once",
        "api.unbuilt:_Named.note",
        "now_ms - named_ms < SAME_CLIENT_MS",
        "False",
        tests=(_FEW,),
    ),
    Mutant(
        "O8: refused clients have few lines a minute",
        "api.unbuilt:_Named.note",
        "len(lines) == LINES_PER_MINUTE",
        "False",
        tests=(_FEW,),
    ),
    # ------------------------------------------------------------------------------ firnline dev
    Mutant(
        "O9: dev refuses a directory with other files",
        "cli.dev_data:refuse_foreign",
        "if foreign:",
        "if False:",
        tests=(_DEV + "test_a_directory_with_anything_else_in_it_is_refused",),
    ),
    Mutant(
        "O9: dev refuses a tier without its data",
        "cli.dev_data:refuse_lost_half",
        "owner is not None and owner != known",
        "False",
        tests=(
            _DEV + "test_a_tier_whose_data_directory_is_gone_is_refused_and_its_topics_are_named",
        ),
    ),
    Mutant(
        "O9: dev refuses data without its tier",
        "cli.dev_data:refuse_lost_half",
        "owner is None and known is not None and",
        "False and",
        tests=(_DEV + "test_data_whose_tier_is_gone_is_refused",),
    ),
    Mutant(
        "O10: the rest on the disk is that of this topic id",
        "spark.planning.rest:end_on_disk",
        'uuid_text(topic_id) in (log / "partition.metadata").read_text()',
        "True",
        tests=(_REST + "test_the_files_of_dev_beside_the_tier_say_what_is_not_in_it",),
    ),
    # ---------------------------------------------------------------------------------- settings
    Mutant(
        "O11: a whole number has the bits of its type",
        "config.parse:_parse_type",
        " or not -bound <= int(text) < bound",
        "",
        tests=(_PARSE + "test_text_that_kafka_refuses_is_refused_by_name",),
    ),
    Mutant(
        "O11: a slip in the environment is refused",
        "config.load:read_environment",
        "if close and",
        "if False and",
        tests=(_LOAD + "test_a_slip_in_the_environment_is_not_ignored",),
    ),
    Mutant(
        "O11: a setting that would have no effect is refused",
        "config.broker:check_rules",
        'each.kind == "promise"',
        "False",
        tests=(_LOAD + "test_a_promise_that_would_not_hold_is_refused_by_name",),
    ),
    Mutant(
        "O11: an error shows no password",
        "config.parse:parse",
        "is_hidden or key.is_sensitive",
        "is_hidden",
        tests=(_PARSE + "test_an_error_about_a_secret_shows_no_part_of_it",),
    ),
    Mutant(
        "O11: an unknown setting of a topic names the nearest",
        "config.layers:_check_override",
        "if close else",
        "if False else",
        tests=(_LAYERS + "test_an_unknown_topic_key_names_the_nearest",),
    ),
)
