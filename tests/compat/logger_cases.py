"""Questions about loggers, the resource BROKER_LOGGER (8) of Kafka's configuration APIs. WORLD.

`asked` asks them all of one broker, and returns what it answered: error codes and levels, with the broker's
own name of the logger replaced. The same questions go to Apache Kafka 4.3.1 and to Firnline. Source: KIP-412.
"""

from firnline.client.admin import Admin
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k33_alter_configs import (
    AlterableConfig as OldConfig,
)
from firnline.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
)
from firnline.protocol.messages.k33_alter_configs import (
    AlterConfigsResource as OldResource,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LOGGERS = 8
SET, DELETE, APPEND, SUBTRACT = range(4)
Outcome = int


def alter(
    admin: Admin, broker: str, *changes: tuple[str, int, str | None], dry: bool = False
) -> Outcome:
    """Change levels; return the error code."""
    configs = [
        AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in changes
    ]
    resource = AlterConfigsResource(resource_type=LOGGERS, resource_name=broker, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    (found,) = admin.first.ask(request).responses
    return int(found.error_code)


def describe(admin: Admin, broker: str, *names: str) -> tuple[Outcome, dict[str, str | None]]:
    """Return the error, and the levels of these loggers, or of all."""
    resource = DescribeConfigsResource(
        resource_type=LOGGERS, resource_name=broker, configuration_keys=list(names) or None
    )
    (found,) = admin.first.ask(DescribeConfigsRequest(resources=[resource])).results
    return int(found.error_code), {c.name: c.value for c in found.configs}


def shape(admin: Admin, broker: str, name: str) -> tuple[object, ...]:
    """Return all but the level of a described logger."""
    resource = DescribeConfigsResource(
        resource_type=LOGGERS, resource_name=broker, configuration_keys=[name]
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (found,) = admin.first.ask(request).results
    (row,) = found.configs
    return (
        row.read_only,
        row.config_source,
        row.is_sensitive,
        list(row.synonyms),
        row.config_type,
        row.documentation,
    )


def replace_all(admin: Admin, broker: str, name: str) -> Outcome:
    """Use AlterConfigs, which knows no loggers."""
    resource = OldResource(
        resource_type=LOGGERS,
        resource_name=broker,
        configs=[OldConfig(name=name, value="DEBUG")],
    )
    (found,) = admin.first.ask(AlterConfigsRequest(resources=[resource])).responses
    return int(found.error_code)


def _renamed(answer: object, name: str) -> object:
    if not isinstance(answer, tuple) or len(answer) != 2:
        return answer
    code, levels = answer
    return code, {("LOGGER" if each == name else each): level for each, level in levels.items()}


def asked(admin: Admin, broker: str, name: str) -> list[object]:
    """Ask everything about the broker, and its logger `name`; leave that as it was."""
    found: list[object] = []
    for op, level in [(SET, "DEBUG"), (SET, "WARN"), (SET, "TRACE"), (SET, "FATAL")]:
        found.append(alter(admin, broker, (name, op, level)))
        found.append(describe(admin, broker, name))
    found.append(alter(admin, broker, (name, SET, "DEBUG"), dry=True))
    found.append(describe(admin, broker, name))
    found.append(alter(admin, broker, ("root", SET, "ERROR")))
    found.append(describe(admin, broker, "root", name))
    found.append(alter(admin, broker, (name, DELETE, None)))
    found.append(describe(admin, broker, "root", name))
    found.append(alter(admin, broker, ("root", SET, "INFO")))
    found.append(describe(admin, broker, "root", name))
    wrong = [
        (name, SET, "debug"),
        (name, SET, "LOUD"),
        (name, SET, ""),
        (name, SET, None),
        (name, APPEND, "DEBUG"),
        (name, SUBTRACT, "DEBUG"),
        ("no.such.logger", SET, "DEBUG"),
        ("no.such.logger", DELETE, None),
        ("root", DELETE, None),
        ("", SET, "DEBUG"),
    ]
    found += [alter(admin, broker, each) for each in wrong]
    found.append(alter(admin, broker, (name, SET, "DEBUG"), ("no.such.logger", SET, "DEBUG")))
    found.append(alter(admin, broker, (name, SET, "DEBUG"), (name, SET, "INFO")))
    found.append(alter(admin, broker))
    for other in ["", "77", "x", "-1"]:
        found.append(alter(admin, other, (name, SET, "DEBUG")))
        found.append(describe(admin, other, name))
    found.append(describe(admin, broker, "no.such.logger"))
    found.append(replace_all(admin, broker, name))
    found.append(shape(admin, broker, name))
    return [_renamed(each, name) for each in found]
