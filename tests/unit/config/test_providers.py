"""Variables become what the providers return, or an error that says what to do and shows no secret."""

import re
from collections.abc import Mapping

import pytest

from firnline.base.errors import ConfigError
from firnline.config.layers import describe_broker, describe_topic
from firnline.config.load import load, shown_settings
from firnline.config.providers import DIRECTORY, ENV, FILE, Redaction, resolve

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}
PROVIDERS = {
    "config.providers": "env, file,directory",
    "config.providers.env.class": ENV,
    "config.providers.file.class": FILE,
    "config.providers.directory.class": DIRECTORY,
}
SECRET = "hunter2-hunter2"


class Machine:
    """The environment and the files of a machine, in memory."""

    variables: Mapping[str, str] = {"PASSWORD": SECRET, "EMPTY": "", "NESTED": "${env:PASSWORD}"}
    files: Mapping[str, str] = {
        "/run/secrets/pw": SECRET + "\n",
        "/run/secrets/two": "one\ntwo\n\n",
        "/etc/p.properties": f"pw={SECRET}\nempty=\n",
        "/etc/broken": "a=\\u12\n",
    }

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def properties(self, path: str) -> Mapping[str, str]:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        if path == "/etc/broken":
            raise ValueError(self.files[path])
        return dict(line.split("=") for line in self.files[path].splitlines())

    def file(self, path: str) -> str | None:
        if not path.startswith("/run/secrets/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return path in ("/run/secrets", "/etc", "/")


def resolved(value: str, **more: str) -> str:
    stated = PROVIDERS | {"x": value} | {k.replace("__", "."): v for k, v in more.items()}
    return resolve(stated, Machine()).values["x"]


def refusal(value: str, **more: str) -> str:
    with pytest.raises(ConfigError) as problem:
        resolved(value, **more)
    assert SECRET not in str(problem.value)
    return str(problem.value)


# ------------------------------------------------------------------ as Kafka 4.3.1 answers (observed)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ("a${env:PASSWORD}b${env:PASSWORD}c", f"a{SECRET}b{SECRET}c"),
        ("${env::PASSWORD}", SECRET),
        ("a${env:EMPTY}b", "ab"),
        ("${file:/etc/p.properties:pw}", SECRET),
        ("a${file:/etc/p.properties:empty}b", "ab"),
        ("${file:/run/../etc/p.properties:pw}-${env:PASSWORD}", f"{SECRET}-{SECRET}"),
        ("${directory:/run/secrets:pw}", SECRET),
        ("${env:NESTED}", "${env:PASSWORD}"),
        ("${HOME} $env:PASSWORD plain", "${HOME} $env:PASSWORD plain"),
    ],
)
def test_a_variable_becomes_what_its_provider_returns(value: str, becomes: str) -> None:
    assert resolved(value) == becomes


def test_the_line_end_of_a_secrets_file_is_not_part_of_the_secret() -> None:
    """Kafka keeps it, and the password is wrong."""
    assert resolved("a${directory:/run/secrets:two}b") == "aone\ntwo\nb"


# ------------------------------------------------- where Kafka leaves the variable as if it were the value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("${env:NOPE}", "x: cannot resolve ${env:NOPE}: the environment has no variable NOPE"),
        ("${vault:a:b}", "does not name a provider vault; state config.providers=env,file,"),
        ("${env:p:PASSWORD}", "no path; write ${env:NAME}"),
        ("${file:pw}", "it has no path; write ${file:/FILE:pw}"),
        ("${file:/etc/p.properties:nope}", "/etc/p.properties has no key nope"),
        ("${file:/etc/p.properties:a:b}", "has no key a:b"),
        ("${file:/etc/nope:pw}", "cannot read /etc/nope: No such file or directory"),
        ("${file:/etc/broken:pw}", "cannot read /etc/broken: it cannot be decoded"),
        ("${directory:/run/secrets:nope}", "/run/secrets has no file nope"),
        ("${directory:/nope:pw}", "cannot read /nope: No such file or directory"),
        ("${directory:/run/secrets:../secrets/pw}", "must be the name of a file"),
        ("${file:${env:PASSWORD}:pw}", "a variable within a variable"),
        ("a${env:PASSWORD", "has no closing brace"),
    ],
)
def test_a_variable_is_never_left_in_place_as_a_password(value: str, says: str) -> None:
    assert says in refusal(value)
    assert refusal(value).startswith("x: ")


def test_a_variable_without_any_provider_is_not_the_password() -> None:
    with pytest.raises(
        ConfigError, match=r"state config.providers=env and config\.providers\.env\.class"
    ):
        resolve({"rsm.config.password": "${env:PASSWORD}"}, Machine())


# -------------------------------------------------------------------------------- the providers


def test_only_variables_that_the_allowlist_matches_as_a_whole_are_read() -> None:
    allow = {"config__providers__env__param__allowlist.pattern": "PASS|.*WORD"}
    assert resolved("${env:PASSWORD}", **allow) == SECRET
    says = refusal("${env:EMPTY}", **allow)
    assert "EMPTY does not match config.providers.env.param.allowlist.pattern" in says
    allow = {"config__providers__env__param__allowlist.pattern": "PASS"}
    assert "PASSWORD does not match" in refusal("${env:PASSWORD}", **allow)
    allow = {"config__providers__env__param__allowlist.pattern": "("}
    assert "allowlist.pattern is not a regular expression" in refusal("", **allow)


@pytest.mark.parametrize("provider", ["file", "directory"])
def test_a_path_outside_of_those_that_are_allowed_is_not_read(provider: str) -> None:
    values = {
        "file": "${file:/etc/p.properties:pw}",
        "directory": "${directory:/run/secrets:pw}",
    }
    key = f"config__providers__{provider}__param__allowed.paths"
    assert resolved(values[provider], **{key: "/etc,/run/secrets"}) == SECRET
    assert resolved(values[provider], **{key: ""}) == SECRET  # as in Kafka: no limit
    assert resolved(values[provider], **{key: "/"}) == SECRET
    other = "/run/secrets" if provider == "file" else "/etc"
    around = values[provider].replace(":/", f":{other}/../../", 1)
    for value in (values[provider], around):
        assert f"is not in config.providers.{provider}.param.allowed.paths" in refusal(
            value, **{key: other}
        )
    assert "/nope does not exist" in refusal("", **{key: "/nope"})
    assert "etc is not absolute" in refusal("", **{key: "etc"})


def test_a_folder_whose_name_only_begins_alike_is_not_allowed() -> None:
    key = "config__providers__file__param__allowed.paths"
    assert "is not in" in refusal("${file:/etcetera/p.properties:pw}", **{key: "/etc"})


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"config.providers": "vault"}, "config.providers.vault.class: it must be set; there are"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.example.Vault"},
            "config.providers.v.class: com.example.Vault is not supported",
        ),
        ({"config.providers.env.class": ENV}, "does not name this provider; there are: none"),
        (
            PROVIDERS | {"config.providers.file.param.allowed.path": "/etc"},
            "is not a known setting of this provider; it has config.providers.file.param.allowed.paths",
        ),
        (
            PROVIDERS | {"config.providers.file.param.allowed.paths": "${env:DIR}"},
            "${env:DIR} is not absolute",
        ),
        (
            PROVIDERS | {"config.providers.env.param.allowlist.pattern": "${env:A}"},
            "the settings of providers cannot contain variables",
        ),
    ],
)
def test_a_provider_that_is_stated_wrongly_is_refused(stated: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        resolve(stated, Machine())


def test_settings_without_variables_need_no_provider() -> None:
    assert resolve({"a": "b"}, Machine()) == ({"a": "b"}, {})


# ------------------------------------------------------------------------------------- secrets


def loaded(**stated: str) -> object:
    found = resolve(
        NODE | PROVIDERS | {key.replace("__", "."): value for key, value in stated.items()},
        Machine(),
    )
    return load(found.values, found.texts)


@pytest.mark.parametrize(
    "stated",
    [
        {"num__io__threads": "${env:PASSWORD}"},
        {"log__retention__ms": "${env:PASSWORD}"},
        {"remote__log__manager__task__retry__jitter": "${env:PASSWORD}"},
        {"remote__log__storage__system__enable": "${env:PASSWORD}"},
        {"compression__type": "${env:PASSWORD}"},
        {"listeners": "${env:PASSWORD}"},
        {"process__roles": "broker,${env:PASSWORD}"},
        {"max__connections__per__ip__overrides": "${env:PASSWORD}"},
        {"firnline__remote__log__metadata__given__up": "${env:PASSWORD}"},
        {"advertised__listeners": "PLAINTEXT://${env:PASSWORD}"},
        {"cordoned__log__dirs": "${env:PASSWORD}"},
        {"delegation__token__secret__key": "${env:PASSWORD}"},
    ],
)
def test_a_value_that_cannot_be_used_is_not_shown(stated: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as problem:
        loaded(**stated)
    key = next(iter(stated)).replace("__", ".")
    assert key.removeprefix("advertised.") in str(problem.value)
    assert SECRET not in str(problem.value)
    assert problem.value.__suppress_context__


def test_what_a_provider_returned_is_sensitive_whatever_its_key() -> None:
    config = load(
        *resolve(
            NODE
            | PROVIDERS
            | {
                "broker.rack": "${env:PASSWORD}",
                "log.retention.hours": "1${env:EMPTY}",
                "rsm.config.password": "${env:PASSWORD}",
                "rsm.config.bucket": "plain",
                "ssl.keystore.password": SECRET,
            },
            Machine(),
        )
    )
    assert config.broker_rack == SECRET
    shown = dict(shown_settings(config))
    assert SECRET not in repr(shown)
    assert (shown["broker.rack"], shown["rsm.config.bucket"]) == ("[hidden]", "[hidden]")
    assert shown["node.id"] == "1"
    entries = {each.name: each for each in describe_broker(config)}
    for name in (
        "broker.rack",
        "rsm.config.password",
        "rsm.config.bucket",
        "ssl.keystore.password",
    ):
        assert (entries[name].value, entries[name].is_sensitive) == (None, True)
    assert (entries["node.id"].value, entries["node.id"].is_sensitive) == ("1", False)
    assert SECRET not in repr(entries)
    of_topic = {each.name: each for each in describe_topic(config, {})}
    assert (of_topic["retention.ms"].value, of_topic["retention.ms"].is_sensitive) == (None, True)
    # A value that stands elsewhere is no secret.
    of_topic = {each.name: each for each in describe_topic(config, {"retention.ms": "5"})}
    assert (of_topic["retention.ms"].value, of_topic["retention.ms"].is_sensitive) == ("5", False)
    of_topic = {
        each.name: each for each in describe_topic(config, {}, cluster={"log.retention.ms": "7"})
    }
    assert (of_topic["retention.ms"].value, of_topic["retention.ms"].is_sensitive) == ("7", False)


def test_texts_for_logs_lose_secrets_and_keep_addresses() -> None:
    config = load(
        *resolve(
            NODE
            | PROVIDERS
            | {
                "broker.rack": "${file:/etc/p.properties:pw}",
                "rsm.config.url": "https://me:${env:PASSWORD}@store",
                "rsm.config.secret.access.key": "stated-in-the-file",
                "rsm.config.bucket": "my-bucket",
            },
            Machine(),
        )
    )
    said = config.redact(f"https://me:{SECRET}@store stated-in-the-file my-bucket")
    assert said == "https://me:[hidden]@store [hidden] my-bucket"
    assert SECRET not in repr(config.redact)


@pytest.mark.parametrize(
    "form",
    [
        "p@ss 'word'\n",
        "p@ss 'word'",
        "p%40ss%20%27word%27",
        repr("p@ss 'word'\n"),
        "cEBzcyAnd29yZCc=",
    ],
)
def test_a_secret_is_found_in_the_forms_that_messages_give_it(form: str) -> None:
    said = Redaction(["p@ss 'word'\n"])(f"the store said {form}.")
    assert "[hidden]" in said
    assert "word" not in said
    assert "cEBz" not in said


def test_a_text_of_three_letters_is_no_secret() -> None:
    assert Redaction(["abc", ""])("abc") == "abc"
    assert Redaction(["abcd", "abcdef"])("abcdef") == "[hidden]"
