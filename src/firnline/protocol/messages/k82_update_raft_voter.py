"""UpdateRaftVoter: a voter says where it listens and what it can run. PURE.

Source: KIP-853.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class VoterListener(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")


class KRaftVersionFeature(Struct):
    min_supported_version = f("int16", "0+", "Lowest level of kraft.version.")
    max_supported_version = f("int16", "0+", "Highest level of kraft.version.")


class UpdateRaftVoterRequest(
    Message, Request["UpdateRaftVoterResponse"], key=82, valid="0", flexible="0+"
):
    cluster_id = f("string", "0+", "Refused if it is not ours.", nullable="0+")
    current_leader_epoch = f("int32", "0+", "The voter's epoch; -1 when unknown.")
    voter_id = f("int32", "0+", "Node id of the voter.")
    voter_directory_id = f("uuid", "0+", "Directory of the voter's metadata log.")
    listeners = f([VoterListener], "0+", "Where it listens.")
    k_raft_version_feature = f(KRaftVersionFeature, "0+", "Levels it can run.")


class CurrentLeader(Struct):
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.", default=-1)
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.", default=-1)
    host = f("string", "0+", "Host name or address.")
    port = f("int32", "0+", "TCP port.")


class UpdateRaftVoterResponse(Message, key=82, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    current_leader = f(CurrentLeader, "0+", "The current leader.", tag=0)
