"""Which names a topic may have. PURE. Source: Kafka's rules, observed on 4.3.1; reliability d 46-47.

A name is part of directory names and metric names: hence the alphabet. Metric names write both '.' and '_' as
'_', so two topics whose names differ only there collide.
"""

import re

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC
from firnline.base.limits import TOPIC_NAME_CHARS_MAX

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> KafkaError | None:
    """Say why no topic may have this name, or return None."""
    if not name:
        why = "the empty string is not a topic name"
    elif name in (".", ".."):
        why = f"{name!r} is not a topic name"
    elif len(name) > TOPIC_NAME_CHARS_MAX:
        why = f"a topic name has at most {TOPIC_NAME_CHARS_MAX} characters, this one {len(name)}"
    elif not _LEGAL.fullmatch(name):
        why = f"{name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    else:
        return None
    return KafkaError(Code.INVALID_TOPIC_EXCEPTION, why)


def creation_problem(name: str) -> KafkaError | None:
    """Say why nobody may create a topic of this name, or return None."""
    if name == METADATA_TOPIC:
        return KafkaError(Code.INVALID_REQUEST, f"{name} belongs to the metadata quorum")
    return name_problem(name)
