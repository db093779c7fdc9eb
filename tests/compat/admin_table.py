"""What Apache Kafka 4.3.1 answers to each request of `admin_cases`, asked on 2026-11-21. PURE.

One row a case: its name, and the error codes of the answer in order, with how often where not once.
"""

_TABLE = """
a topic name with a slash | INVALID_TOPIC_EXCEPTION
a topic name of two dots | INVALID_TOPIC_EXCEPTION
a topic name of a dot | INVALID_TOPIC_EXCEPTION
a topic name of nothing | INVALID_TOPIC_EXCEPTION
a topic name that climbs | INVALID_TOPIC_EXCEPTION
a topic name with a space | INVALID_TOPIC_EXCEPTION
a topic name with a zero byte | INVALID_TOPIC_EXCEPTION
a topic name with a backslash | INVALID_TOPIC_EXCEPTION
a topic name with an umlaut | INVALID_TOPIC_EXCEPTION
a topic name of 250 letters | INVALID_TOPIC_EXCEPTION
a topic name of the metadata log | INVALID_REQUEST
more replicas than brokers | INVALID_REPLICATION_FACTOR
replicas above int16's middle | INVALID_REPLICATION_FACTOR
no replicas | INVALID_REPLICATION_FACTOR
fewer replicas than none | INVALID_REPLICATION_FACTOR
no partitions | INVALID_PARTITIONS
fewer partitions than none | INVALID_PARTITIONS
2^31-1 partitions | POLICY_VIOLATION
10,001 partitions | POLICY_VIOLATION
twice the same | INVALID_REQUEST
one that is there | TOPIC_ALREADY_EXISTS
100,000 topics | POLICY_VIOLATION*100000
on a broker that is not there | INVALID_REPLICA_ASSIGNMENT
on a broker below zero | INVALID_REPLICA_ASSIGNMENT
twice on a broker | INVALID_REPLICA_ASSIGNMENT
on no broker | INVALID_REPLICA_ASSIGNMENT
on a fenced broker alone | INVALID_REPLICA_ASSIGNMENT
partitions from 1 on | INVALID_REPLICA_ASSIGNMENT
partitions from -1 on | INVALID_REPLICA_ASSIGNMENT
unequal replicas | INVALID_REPLICA_ASSIGNMENT
counts beside replicas | INVALID_REQUEST
an unknown setting | INVALID_CONFIG
a setting of null | INVALID_CONFIG
a setting out of range | INVALID_CONFIG
delete what is not there | UNKNOWN_TOPIC_OR_PARTITION
delete a name that climbs | UNKNOWN_TOPIC_OR_PARTITION
delete an unknown id | UNKNOWN_TOPIC_ID
delete no name and no id | INVALID_REQUEST
delete twice the same | INVALID_REQUEST
delete by name and id | INVALID_REQUEST
grow to nothing | INVALID_PARTITIONS
grow below nothing | INVALID_PARTITIONS
grow to fewer | INVALID_PARTITIONS
grow to as many | INVALID_PARTITIONS
grow to 10,003 | UNKNOWN_SERVER_ERROR
grow to 2^31-1 | UNKNOWN_SERVER_ERROR
grow what is not there | UNKNOWN_TOPIC_OR_PARTITION
grow what climbs | UNKNOWN_TOPIC_OR_PARTITION
grow onto nobody | INVALID_REPLICA_ASSIGNMENT
grow by fewer than assigned | INVALID_REPLICA_ASSIGNMENT
grow with other factors | INVALID_REPLICA_ASSIGNMENT
grow onto a fenced broker | INVALID_REPLICA_ASSIGNMENT
grow twice | INVALID_REQUEST
move to nobody | NONE INVALID_REPLICA_ASSIGNMENT
move to one below zero | NONE INVALID_REPLICA_ASSIGNMENT
move twice to one | NONE INVALID_REPLICA_ASSIGNMENT
move nowhere | NONE INVALID_REPLICA_ASSIGNMENT
move an unknown topic | NONE UNKNOWN_TOPIC_OR_PARTITION
move an unknown partition | NONE UNKNOWN_TOPIC_OR_PARTITION
move partition 2^31-1 | NONE UNKNOWN_TOPIC_OR_PARTITION
move partition -1 | NONE UNKNOWN_TOPIC_OR_PARTITION
call off no move | NONE NO_REASSIGNMENT_IN_PROGRESS
call off an unknown topic | NONE UNKNOWN_TOPIC_OR_PARTITION
list an unknown topic | NONE
list an unknown partition | NONE
elect for an unknown topic | NONE UNKNOWN_TOPIC_OR_PARTITION
elect for an unknown partition | NONE UNKNOWN_TOPIC_OR_PARTITION
elect for partition -1 | NONE UNKNOWN_TOPIC_OR_PARTITION
elect where it is not needed | NONE ELECTION_NOT_NEEDED
elect uncleanly where it is not needed | NONE ELECTION_NOT_NEEDED
elect uncleanly for an unknown topic | NONE UNKNOWN_TOPIC_OR_PARTITION
elect in no known way | INVALID_REQUEST*2
delete records of an unknown topic | UNKNOWN_TOPIC_OR_PARTITION
delete records of an unknown partition | UNKNOWN_TOPIC_OR_PARTITION
delete records beyond the end | OFFSET_OUT_OF_RANGE
delete records below zero | OFFSET_OUT_OF_RANGE
delete records of the metadata log | UNKNOWN_TOPIC_OR_PARTITION
configure an unknown topic | UNKNOWN_TOPIC_OR_PARTITION
configure a name that climbs | INVALID_TOPIC_EXCEPTION
configure no topic | INVALID_REQUEST
configure by null | INVALID_REQUEST
configure out of range | INVALID_CONFIG
configure an unknown key | INVALID_CONFIG
configure another broker | INVALID_REQUEST
configure a broker of letters | INVALID_REQUEST
configure a kind unknown | INVALID_REQUEST
put an unknown topic | LOG_DIR_NOT_FOUND
put into no directory of ours | LOG_DIR_NOT_FOUND
raise an unknown feature | INVALID_UPDATE_VERSION
raise a level too far | INVALID_UPDATE_VERSION
raise to below zero | INVALID_UPDATE_VERSION
raise to where it stands | NONE
lower without leave | INVALID_UPDATE_VERSION
lower a level too far | INVALID_UPDATE_VERSION
change in no known way | INVALID_UPDATE_VERSION
propose as nobody | STALE_BROKER_EPOCH
propose in a later epoch | STALE_BROKER_EPOCH
propose in an earlier epoch | STALE_BROKER_EPOCH
propose in no epoch | STALE_BROKER_EPOCH
propose for an unknown id | NONE UNKNOWN_TOPIC_ID
propose for an unknown id, v2 | NONE UNKNOWN_TOPIC_ID
propose for an unknown partition | NONE UNKNOWN_TOPIC_OR_PARTITION
propose for partition -1 | NONE UNKNOWN_TOPIC_OR_PARTITION
propose for a later leader | NONE NOT_CONTROLLER
propose for an earlier leader | NONE FENCED_LEADER_EPOCH
propose for a later state | NONE NOT_CONTROLLER
propose without leading | NONE INVALID_REQUEST
propose without leading, v2 | NONE INVALID_REQUEST
propose nobody | NONE INVALID_REQUEST
beat as nobody | STALE_BROKER_EPOCH
beat in a later epoch | STALE_BROKER_EPOCH
beat in an earlier epoch | STALE_BROKER_EPOCH
beat in no epoch | STALE_BROKER_EPOCH
beat rightly | NONE
beat from the future | NONE
beat with a strange directory failed | NONE
beat to shut down | NONE
place as nobody | STALE_BROKER_EPOCH
place in a later epoch | STALE_BROKER_EPOCH
place in an earlier epoch | STALE_BROKER_EPOCH
place an unknown id | NONE UNKNOWN_TOPIC_ID
place an unknown partition | NONE UNKNOWN_TOPIC_OR_PARTITION
place what others have | NONE NOT_LEADER_OR_FOLLOWER
place in a strange directory | NONE NOT_LEADER_OR_FOLLOWER
forget nobody | BROKER_ID_NOT_REGISTERED
forget one below zero | BROKER_ID_NOT_REGISTERED
"""
REPORTED: dict[str, str] = {
    name.strip(): codes.strip()
    for name, codes in (row.rsplit("|", 1) for row in _TABLE.strip().splitlines())
}
# What we tell where that differs.
OURS: dict[str, str] = {
    # Q52, rel-Q18: a snapshot alone makes the metadata log shorter, and that is what is said.
    "delete records of the metadata log": "POLICY_VIOLATION",
    "grow to 10,003": "POLICY_VIOLATION",
    "grow to 2^31-1": "POLICY_VIOLATION",
}
# What is not asked of Kafka each time. By more than 10,000 a topic grows all the same, though the controller
# fails; 100,000 topics in one request take it minutes, and what it says is the rule of "10,001 partitions".
NOT_ASKED = frozenset({"grow to 10,003", "grow to 2^31-1", "100,000 topics"})
