"""What a user fears of secrets: that output, an answer or an error shows one. And of own plug-ins."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from firnline.base.errors import FirnlineError
from firnline.client.admin import Admin
from firnline.config.providers import DIRECTORY, ENV, FILE
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.operators import RECORDS, numbers, produce, running
from tests.chaos.test_operator_errors import refused
from tests.chaos.workload import PATIENCE_S, SILENT
from tests.peers.nodes import files_below

PLUGINS = Path(__file__).parents[1] / "data" / "plugins"
# One per provider, and one that stands in the settings themselves.
FROM_ENV, FROM_FILE, FROM_FOLDER, PLAIN = "env-Zq81!", "file-Zq82!", "folder-Zq83!", "plain-Zq84!"
SECRETS = re.compile("|".join(map(re.escape, (FROM_ENV, FROM_FILE, FROM_FOLDER, PLAIN))))


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings of a node with own plug-ins, and secrets of each kind for them."""
    monkeypatch.setenv("TIER_PASSWORD", FROM_ENV)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "rack").write_text(FROM_FOLDER + "\n")
    (tmp_path / "tier.properties").write_text(f"key={FROM_FILE}\n")
    return settings(
        {
            "config.providers": "env,file,folder",
            "config.providers.env.class": ENV,
            "config.providers.env.param.allowlist.pattern": "TIER_.*",
            "config.providers.file.class": FILE,
            "config.providers.file.param.allowed.paths": str(tmp_path),
            "config.providers.folder.class": DIRECTORY,
            "broker.rack": f"${{folder:{tmp_path}/secrets:rack}}",
            "ssl.keystore.password": PLAIN,
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "own_tier.Talkative",
            "remote.log.storage.manager.class.path": str(PLUGINS),
            "remote.log.manager.task.interval.ms": "300",
            "log.segment.delete.delay.ms": "0",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rsm.config.uri": str(tmp_path / "tier"),
            "rsm.config.password": "${env:TIER_PASSWORD}",
            "rsm.config.url": f"https://me:${{file:{tmp_path}/tier.properties:key}}@host",
            "rsm.config.secret.access.key": PLAIN,
        }
    )


def settings(stated: dict[str, str]) -> list[str]:
    return [word for pair in stated.items() for word in ("-X", "=".join(pair))]


def everything_said(broker: Broker) -> str:
    said = broker.log_text()
    assert len(said) > 500, "the log is not here"
    return said


def described(
    broker: Broker, kind: ConfigResource.Type, name: str
) -> dict[str, tuple[object, bool]]:
    """What a client is answered: the value of each key, and whether it is sensitive."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap, **SILENT})
    (answer,) = client.describe_configs([ConfigResource(kind, name)]).values()
    found = answer.result(PATIENCE_S)
    assert SECRETS.search(repr([(e.value, e.synonyms) for e in found.values()])) is None
    for each in found.values():
        assert all(SECRETS.search(str(s.value)) is None for s in each.synonyms.values())
    return {name: (each.value, each.is_sensitive) for name, each in found.items()}


def test_no_secret_is_in_what_a_node_says_or_answers(tmp_path: Path, options: list[str]) -> None:
    """The plug-in logs its password with a traceback, and puts it into its error."""
    more = ["--log-level", "debug", *settings({"rsm.config.fail": "copy"})]
    broker = Broker(tmp_path / "data", options=[*options, *more])
    broker.start()
    with contextlib.ExitStack() as stack:
        stack.callback(broker.stop)
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("kept", partitions=1, replication_factor=1, configs=TIERED_TOPIC)
            produce(broker, "kept", 0, 40)
            with pytest.raises(FirnlineError) as problem:
                admin.tier_flush("kept", (), timeout_s=PATIENCE_S)
            assert SECRETS.search(str(problem.value)) is None
            problem_of_tier = until_refused(admin)
            assert "[hidden]" in problem_of_tier
        of_broker = described(broker, ConfigResource.Type.BROKER, "1")
        hidden = ("broker.rack", "ssl.keystore.password", "rsm.config.password", "rsm.config.uri")
        for name in (*hidden, "rsm.config.secret.access.key", "config.providers.env.class"):
            assert of_broker[name] in ((None, True), ("", True)), name
        assert of_broker["node.id"] == ("1", False)
        described(broker, ConfigResource.Type.TOPIC, "kept")
    said = everything_said(broker)
    assert SECRETS.search(said) is None
    assert "the store does not like [hidden]" in said
    assert "store configured with" in said
    assert "key=broker.rack value=[hidden]" in said
    assert "key=rsm.config.password value=[hidden]" in said
    assert "key=node.id value=1" in said


def until_refused(admin: Admin) -> str:
    """The problem of the partition, once it is the store's."""
    found: list[str] = []

    def is_refused() -> bool:
        rows = admin.tier_status(["kept"])[0].partitions
        assert SECRETS.search(repr(rows)) is None
        found[:] = [row["problem"] for row in rows if "the store refused" in (row["problem"] or "")]
        return bool(found)

    until(is_refused)
    return found[0]


def test_no_secret_is_in_the_error_of_a_start(tmp_path: Path, options: list[str]) -> None:
    at = ["--dir", str(tmp_path / "data"), "--port", "0"]
    for stated, says in (
        ({"rsm.config.fail": "configure"}, "cannot sign in with [hidden]"),
        ({"num.io.threads": "${env:TIER_PASSWORD}"}, "num.io.threads=[hidden]"),
        ({"advertised.listeners": "${env:TIER_PASSWORD}"}, "'[hidden]' does not have the form"),
        ({"broker.rack": "${env:TIER_NOPE}"}, "the environment has no variable TIER_NOPE"),
        ({"broker.rack": "${env:HOME}"}, "HOME does not match"),
        ({"broker.rack": "${file:/etc/passwd:root}"}, "/etc/passwd is not in"),
        ({"broker.rack": "${vault:a:b}"}, "does not name a provider vault"),
    ):
        line = refused(*at, *options, *settings(stated))
        assert says in line
        assert SECRETS.search(line) is None


def test_the_tools_that_read_the_file_resolve_it_too(tmp_path: Path, options: list[str]) -> None:
    """A directory that a variable names is formatted, and started."""
    (tmp_path / "secrets" / "data").write_text(str(tmp_path / "made"))
    stated = dict(pair.split("=", 1) for pair in options[1::2])
    stated |= {
        "log.dirs": f"${{folder:{tmp_path}/secrets:data}}",
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in stated.items()))
    command = [sys.executable, "-m", "firnline"]
    form = [*command, "storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAg", "-c", str(file)]
    done = subprocess.run(form, capture_output=True, text=True, timeout=60, check=True)
    assert f"formatted {tmp_path / 'made'}" in done.stdout
    node = subprocess.Popen(
        [*command, "server", "-c", str(file), "--log-level", "debug"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert node.stderr is not None
    said = ""
    for line in node.stderr:
        said += line
        if "ready at" in line:
            break
    node.terminate()
    said += node.communicate(timeout=60)[1]
    assert node.returncode == 0, said
    assert "ready at" in said
    assert "setting key=" in said
    assert SECRETS.search(said) is None


def test_an_own_metadata_manager_and_an_own_store_carry_a_tier(
    tmp_path: Path, options: list[str]
) -> None:
    """Copies, reads of what only the tier has, and a deletion go through them; there is no internal topic."""
    more = settings(
        {
            "remote.log.metadata.manager.class.name": "own_tier.OwnMetadata",
            "remote.log.metadata.manager.class.path": str(PLUGINS),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "log.retention.check.interval.ms": "300",
            "rlmm.config.url": "db://x",
        }
    )
    with (
        running(
            Broker(tmp_path / "data", options=[*options, *more, "--log-level", "info"])
        ) as broker,
        Admin(broker.bootstrap) as admin,
    ):
        configs = {**TIERED_TOPIC, "local.retention.ms": "1"}
        admin.create_topic("kept", partitions=1, replication_factor=1, configs=configs)
        produce(broker, "kept", 0, 3 * RECORDS)
        admin.tier_flush("kept", (), timeout_s=PATIENCE_S)
        first = broker.directory / "kept-0" / f"{0:020d}.log"
        until(lambda: not first.exists())
        assert numbers(broker, "kept") == list(range(3 * RECORDS))
        names = [topic.name for topic in admin.metadata(None).topics]
        assert "__remote_log_metadata" not in names
        objects = tmp_path / "tier"
        assert files_below(objects, "*.log")
        admin.delete_topic("kept")
        until(lambda: not files_below(objects, "*.log"))
    said = everything_said(broker)
    assert re.search(r"metadata configured with .*'broker.id': '1', 'cluster.id': '\S{22}'", said)
    assert f"client.bootstrap.servers': '{broker.bootstrap}'" in said
    assert "client.security.protocol': 'PLAINTEXT'" in said
    assert f"'log.dir': '{broker.directory}'" in said
    assert re.search(r"metadata closed after \d\d* changes", said)
    assert SECRETS.search(said) is None


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own_tier.Halfway", "own_tier.Halfway: it has no method look, close"),
        ("own_tier.Unmakeable", "it cannot be made: ZeroDivisionError: no module of the driver"),
        ("com.example.Manager", "a Java class cannot be loaded by a broker in Python"),
    ],
)
def test_a_plug_in_that_cannot_work_ends_the_start_in_one_line(
    tmp_path: Path, options: list[str], name: str, says: str
) -> None:
    more = {"remote.log.metadata.manager.class.name": name}
    line = refused("--dir", tmp_path / "data", "--port", "0", *options, *settings(more))
    assert says in line
    assert "remote.log.metadata.manager.class.name=" in line
