"""`firnline config`: settings of topics and brokers. WORLD."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from firnline.cli.show import (
    as_json,
    broker_options,
    connect,
    pairs,
    rows,
    set_option,
    unset_option,
)
from firnline.cli.terminal.completion import complete_topics
from firnline.client.admin import TOPIC_RESOURCE
from firnline.client.operations.configs import (
    BROKER_RESOURCE,
    DEFAULT,
    Changes,
    Resource,
    Setting,
    alter,
    describe,
    refuse_unknown,
)

# Where a value comes from, for people.
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "server.properties",
    DEFAULT: "default",
}
_HIDDEN = "(sensitive)"


def resource_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --topic, --broker and --broker-defaults."""
    options = (
        click.option(
            "--topic", "topics", multiple=True, metavar="NAME", shell_complete=complete_topics,
            help="This topic.",
        ),
        click.option(
            "--broker", "brokers", multiple=True, type=click.IntRange(0), metavar="ID",
            help="This broker.",
        ),
        click.option(
            "--broker-defaults", "is_default", is_flag=True, help="What is set for all brokers."
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Describe and alter the settings of topics and brokers."""


@command.command("describe")
@resource_options
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this setting.")
@click.option("--all", "is_all", is_flag=True, help="Also defaults, and where else a value is set.")
@broker_options
def describe_(
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    is_default: bool,
    keys: tuple[str, ...],
    is_all: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Show settings that are not at Kafka's default, and where each is set. Sensitive values are not shown.

    \b
    firnline config describe --topic orders
    firnline config describe --broker 1 --all --key log.retention.ms
    """
    resources = _resources(topics, brokers, is_default)
    with connect(bootstrap) as admin:
        found = []
        for resource in resources:
            if keys and resource.name:
                refuse_unknown(admin, resource, keys)
            found += [
                (resource, each)
                for each in describe(admin, resource)
                if (each.key in keys if keys else is_all or each.source != DEFAULT)
            ]
    if style == "json":
        as_json([_for_programs(resource, each) for resource, each in found])
        return
    shown = [_for_people(resource, each, is_all=is_all) for resource, each in found]
    rows(shown, style, empty="nothing is set", essential=("value",))


@command.command("alter")
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@resource_options
@set_option("Set a setting; KEY=VALUE alone does the same.", name="sets")
@unset_option("Return it to its default.", name="deletes", older=("--delete",))
@click.option(
    "--append", "appends", multiple=True, metavar="KEY=ITEM", help="Add an item to a list."
)
@click.option(
    "--subtract", "subtracts", multiple=True, metavar="KEY=ITEM", help="Remove an item from a list."
)
@click.option(
    "--validate-only", "is_trial", is_flag=True, help="Only check whether it could be done."
)
@click.option("--any-key", is_flag=True, help="Also keys that the broker does not describe.")
@broker_options
def alter_(
    changes: tuple[str, ...],
    sets: tuple[str, ...],
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    is_default: bool,
    deletes: tuple[str, ...],
    appends: tuple[str, ...],
    subtracts: tuple[str, ...],
    is_trial: bool,
    any_key: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Change settings while the cluster runs. Those of one topic or broker change together, or not at all.

    \b
    firnline config alter --topic orders --set retention.ms=86400000 --unset cleanup.policy
    firnline config alter --broker-defaults --set log.retention.ms=86400000 --validate-only
    """
    resources = _resources(topics, brokers, is_default)
    wanted = Changes(
        pairs((*changes, *sets), "--set"),
        deletes,
        pairs(appends, "--append"),
        pairs(subtracts, "--subtract"),
    )
    if not wanted.keys:
        raise click.UsageError("nothing to change: give --set, --unset, --append or --subtract")
    twice = sorted({key for key in wanted.keys if wanted.keys.count(key) > 1})
    if twice:
        raise click.UsageError(f"{', '.join(twice)}: a key can be changed in one way at a time")
    done = []
    with connect(bootstrap) as admin:
        if not any_key:
            for resource in resources:
                refuse_unknown(admin, resource, wanted.keys)
        for resource in resources:
            alter(admin, resource, wanted, validate_only=is_trial)
            done.append(resource)
            if style == "table":
                click.echo(f"{resource} could be altered" if is_trial else f"altered {resource}")
    if style == "json":
        as_json(
            [
                _named(resource) | {"keys": wanted.keys, "is_altered": not is_trial}
                for resource in done
            ]
        )


def _resources(topics: Sequence[str], brokers: Sequence[int], is_default: bool) -> list[Resource]:
    found = [Resource(TOPIC_RESOURCE, name) for name in dict.fromkeys(topics)]
    found += [Resource(BROKER_RESOURCE, str(number)) for number in dict.fromkeys(brokers)]
    found += [Resource(BROKER_RESOURCE, "")] * is_default
    if not found:
        raise click.UsageError(
            "whose settings? Give --topic NAME, --broker ID or --broker-defaults"
        )
    return found


def _named(resource: Resource) -> dict[str, Any]:
    kind = "topic" if resource.kind == TOPIC_RESOURCE else "broker"
    return {"type": kind, "name": resource.name or None}


def _for_programs(resource: Resource, each: Setting) -> dict[str, Any]:
    synonyms = [dict(zip(("source", "key", "value"), row, strict=True)) for row in each.synonyms]
    return _named(resource) | each._asdict() | {"synonyms": synonyms}


def _for_people(resource: Resource, each: Setting, *, is_all: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "of": str(resource),
        "key": each.key,
        "value": _HIDDEN if each.is_sensitive else each.value,
        "set_by": _SOURCES.get(each.source, each.source),
    }
    if is_all:
        # The first one is the value itself.
        shown["otherwise"] = [
            f"{'' if key == each.key else key + '='}{_HIDDEN if each.is_sensitive else value}"
            f" ({_SOURCES.get(source, source)})"
            for source, key, value in each.synonyms[1:]
        ]
        shown["read_only"] = each.is_read_only
    return shown
