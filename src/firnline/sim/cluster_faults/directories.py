"""Log directories that fail alone, and the operator who repairs them. SIM.

Every access to the directory fails until the broker restarts; the broker goes on with its other directories.
Then the operator restarts it: with the content of the directory, with what a failed sync may have left of it,
or with an empty one, as far as the budget of lossy crashes allows. The directory of the metadata is left to
`bad-disk`: if it fails, the node stops. Source: rel-P9; KIP-858.
"""

from firnline.sim.cluster_faults.rot import RotFaults
from firnline.sim.faults import Fault
from firnline.sim.host import Host, Process
from firnline.sim.quorum_node import DATA
from firnline.sim.world import MS, SECOND, Chance

_LOOK_US = 2 * SECOND
_TIMES = 1 << 30
_KEPT, _TORN, _REPLACED = "as it is", "without some of what was not synced", "by an empty one"


class DirectoryFaults(RotFaults):
    """`RotFaults`, and directories that fail."""

    def _bad_directory(self, fault: Fault, chance: Chance) -> None:
        hosts = [
            host
            for host in self._brokers()
            if host.process is not None
            and host.process.is_ready
            and not host.has_bad_disk
            and self.dirty.may_stop(host.node_id)
        ]
        others = [each for each in self.dirty.directories if each != DATA]
        if not hosts or not others:
            return
        host, directory = chance.pick(hosts), chance.pick(others)
        assert host.process is not None
        self._note(fault, f"{directory} of {host.node_id} fails")
        for operation in ("append", "sync", "rename", "sync_dir", "truncate", "read", "open"):
            host.fs.fail(operation, f"{directory}/", "EIO", times=_TIMES)
        host.has_bad_disk = True
        delay_us = chance.spread(1 * SECOND, 30 * SECOND)
        way = chance.pick((_KEPT, _TORN, _REPLACED))
        self._world.after(delay_us, self._put_right, host, host.process, directory, way, chance)

    def _put_right(
        self, host: Host, process: Process, directory: str, way: str, chance: Chance
    ) -> None:
        """Restart the broker, unless something else did."""
        if self._is_over or host.process is not process:
            return
        if self._wipe is not None or not self.dirty.may_stop(host.node_id):
            self._world.after(_LOOK_US, self._put_right, host, process, directory, way, chance)
            return
        keys = self.dirty.within(host.node_id, directory)
        if not all(self.dirty.may_lose_one(host.node_id, key) for key in keys):
            way = _KEPT
        host.kill()
        if way != _KEPT:
            self.dirty.loses_some(host.node_id, keys)
        if way == _TORN:
            host.fs.lose(directory, chance)
        elif way == _REPLACED:
            host.fs.remove_dir(directory)
        self._world.note(-1, f"{host.node_id} starts again, {directory} {way}")
        self._keep_down(host, chance.spread(1 * MS, 2 * SECOND))
