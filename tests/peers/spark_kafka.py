"""Spark's own Kafka connector, by Maven: what our source is compared with. WORLD.

    python -m tests.peers.spark_kafka fetch        bring the jars (once, 13 MB); prints where they are

From tests: `fetch()` returns the folder; `jars()` what Spark's setting `spark.jars` takes. PySpark does not
ship the connector. Needs Maven; without it `PeerMissing` says so.
"""

import shutil
from pathlib import Path

from tests.peers.kafka import PeerMissing
from tests.peers.servers import cached, main, run_or_missing

# The newest release of the connector. It also runs on PySpark 4.3.
VERSION = "4.2.0"
_GROUP = "org.apache.spark"
_CONNECTOR = "spark-sql-kafka-0-10_2.13"  # PySpark 4 is built for Scala 2.13
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# The connector depends on them, and every PySpark has them in its jars: two versions would clash.
_SHIPPED = (
    *("at.yawk.lz4:*", "com.github.luben:zstd-jni", "com.google.code.findbugs:jsr305"),
    *("org.apache.hadoop:*", "org.apache.spark:spark-tags_2.13", "org.lz4:*", "org.scala-lang:*"),
    *("org.scala-lang.modules:*", "org.slf4j:*", "org.xerial.snappy:*"),
)
# Spark's parent pom puts a repository of its own before the configured ones. One of the same id in this pom
# replaces it, and an empty folder lets Maven go on with the next.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
<repositories><repository><id>gcs-maven-central-mirror</id><url>{empty}</url></repository></repositories>
<dependencies><dependency><groupId>{group}</groupId><artifactId>{connector}</artifactId>
<version>{version}</version><exclusions>{exclusions}</exclusions></dependency></dependencies></project>
"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


def fetch() -> Path:
    """Return the folder of the jars; bring them first where it is missing. Raises PeerMissing."""
    return cached(f"spark-kafka-{VERSION}", _resolve)


def jars() -> str:
    """Return the paths of the jars, separated by commas. Raises PeerMissing."""
    return ",".join(str(jar) for jar in sorted(fetch().glob("*.jar")))


def _resolve(work: Path) -> Path:
    if shutil.which("mvn") is None:
        raise PeerMissing("mvn is not on the PATH")
    empty = work / "empty"
    empty.mkdir()
    exclusions = "".join(_EXCLUSION.format(*name.split(":")) for name in _SHIPPED)
    (work / "pom.xml").write_text(
        _POM.format(
            empty=empty.as_uri(),
            group=_GROUP,
            connector=_CONNECTOR,
            version=VERSION,
            exclusions=exclusions,
        )
    )
    options = ["-DoutputDirectory=jars", "-DincludeScope=runtime"]
    run_or_missing(["mvn", "-q", "-B", "-C", _COPY, *options], f"Spark's {_CONNECTOR}", work)
    return work / "jars"


if __name__ == "__main__":
    main("spark_kafka", fetch)
