"""Fixed limits on what a client, a peer or damaged bytes can make a node use. PURE.

docs/LIMITS.md says what a client sees at each limit that it can reach. Three kinds of limits are elsewhere:

- how much a module does at a time (rows of a slice, bytes of a read): constants of that module,
- how much stored bytes may claim before a reader takes them for damage: `tiered/catalog/format.py`,
- what the metadata quorum accepts from its peers and remembers of them: `raft`, and docs/LIMITS.md.
"""

from firnline.base.units import KIB, MIB

# ------------------------------------------------------------------------------ one request
# A shorter frame cannot hold a header: it is refused before its content is read.
FRAME_BYTES_MIN = 8
# The buffer of a large frame grows by at most this: to clear and move more would hold up the loop.
FRAME_GROWTH_BYTES_MAX = 4 * MIB
TAGGED_FIELDS_MAX = 1024
# UTF-8 bytes of any string: the maximum of its int16 length; the same where the length is a varint.
STRING_BYTES_MAX = 32_767
# Elements over all arrays of one request; each element costs an object.
ARRAY_ELEMENTS_MAX = 500_000
# Estimated memory of one decoded array element of a large request.
ELEMENT_HELD_BYTES = 300
TOPIC_NAME_CHARS_MAX = 249
# Decompressed bytes of a batch for a compacted topic: the leader checks that every record has a key.
KEYED_BATCH_BYTES_MAX = 16 * MIB
# Decompressed bytes of any other batch whose records the broker reads.
DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
# Of one request: partitions that it creates, metadata records for partitions that it adds, and partitions
# that it elects leaders for or reassigns.
PARTITIONS_PER_REQUEST_MAX = 10_000
RECORDS_PER_REQUEST_MAX = 10_000
CHANGES_PER_REQUEST_MAX = 10_000
# A response waits no longer than this, whatever the request allows. It is the longest wait that librdkafka
# lets a consumer ask for, ten times the request.timeout.ms of Java's clients, and half of
# connections.max.idle.ms, after which the connection would be closed. Kafka 4.3.1 has no such limit.
WAIT_MAX_MS = 300_000

# ------------------------------------------------------------------------------ one response
# Estimated memory of one slice of a response, 300 rows as objects, unless its handler gives a larger one.
SLICE_HELD_BYTES = 256 * KIB
# A response up to this size is sent as one buffer; above it file slices are sent by sendfile.
JOIN_BYTES_MAX = 64 * KIB
# The maximum of the int32 length before a response.
ANSWER_BYTES_MAX = 2**31 - 1
# Characters of an error message to a client.
WHY_CHARS_MAX = 2_000
# Bytes of a snapshot in one FetchSnapshot response, whatever the request allows.
SNAPSHOT_SLICE_BYTES_MAX = 8 * MIB
METADATA_BATCH_BYTES_MAX = 8 * MIB
# A batch of a snapshot with a greater length is damaged: the reader does not wait for the rest of it.
SNAPSHOT_BATCH_BYTES_MAX = 128 * MIB

# ------------------------------------------------------------------------------ one connection
# Unanswered requests of a connection: the next one waits in the socket.
OPEN_REQUESTS_MAX = 64
# A connection that has not sent a complete request by then is closed (reliability d 8).
FIRST_REQUEST_MS = 30_000
# A peer that has shut down its sending side may still read. After this time it counts as gone.
HALF_CLOSED_MS = 30_000
# A request must be complete after this time plus a second for each SENDER_BYTES_PER_S bytes received of it.
# Any real network is faster; a peer that holds a connection by sending a byte now and then is not.
SENDER_GRACE_MS = 30_000
SENDER_BYTES_PER_S = 4 * KIB
# Where the memory for responses is used up, a peer that reads fewer bytes a second is too slow.
READER_BYTES_PER_CHECK = 64 * KIB
# Where the memory for requests is used up, a peer that sends fewer bytes a second is too slow.
SENDER_BYTES_PER_CHECK = 64 * KIB
# Unanswered requests on one connection to another node.
LINK_REQUESTS_MAX = 10_000

# ------------------------------------------------------------------------------ all connections
# Bytes of the requests that are handled in slices: one of socket.request.max.bytes, and some more.
SLICED_REQUESTS_BYTES_MAX = 128 * MIB
# A smaller request is not counted there: even all that clients send in a second need little memory.
LARGE_REQUEST_BYTES = 16 * KIB
# Partitions of large Fetch requests in the purgatory, some 250 bytes each; above it a large Fetch does not
# wait for records.
WAITING_PARTITIONS_MAX = 2_000_000
# Partitions of one fetch session, and of all sessions: some 300 bytes each, for the life of the session.
SESSION_PARTITIONS_MAX = 50_000
ALL_SESSION_PARTITIONS_MAX = 1_000_000
# Connections to the metrics endpoint. More are open only if their peers stall; then the next one is closed.
SCRAPES_MAX = 16
# How long a metrics client may neither send nor read a byte.
SCRAPE_SILENCE_S = 10.0

# ------------------------------------------------------------------------------ groups and producers
# Pending members over all groups of the node (rel d 55), the memory they hold, and those of one group: as
# many as can join in the same second. Groups that have no other members take at most a quarter of the groups.
PENDING_MEMBERS_MAX = 50_000
PENDING_MEMBERS_BYTES_MAX = 128 * MIB
PENDING_MEMBERS_OF_GROUP_MAX = 10_000
# Assignors that a member names; clients name one to three.
GROUP_PROTOCOLS_MAX = 1_000
# Memory of the members of all groups, with their subscriptions and assignments.
GROUP_MEMBERS_BYTES_MAX = 512 * MIB
# Producer ids that a partition remembers, even if clients invent ids; each snapshot contains all of them.
PARTITION_PRODUCERS_MAX = 20_000
