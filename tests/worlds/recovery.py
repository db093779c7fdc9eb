"""What tests of a log's recovery share: a log that was written, its files, and what was found of it."""

from firnline.log.log import Log
from firnline.log.recovery import RecoveryReport
from firnline.sim.disk import CrashableFs
from tests.worlds.log import NOW, PATH, append, batch, opened


def report(log: Log) -> RecoveryReport:
    assert isinstance(log.recovery, RecoveryReport)
    return log.recovery


def filled(fs: CrashableFs, count: int = 40) -> Log:
    log = opened(fs)
    for number in range(count):
        append(log, batch("x" * 40, pid=7, seq=number, time_ms=NOW + number), epoch=number // 10)
    return log


def read_file(fs: CrashableFs, path: str) -> bytes:
    file = fs.open(path)
    return file.read(0, file.size())


def overwrite(fs: CrashableFs, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    file.truncate(0)
    file.append(data)


def segment_files(fs: CrashableFs, suffix: str) -> list[str]:
    return [f"{PATH}/{name}" for name in fs.list_dir(PATH) if name.endswith(suffix)]
