"""What a client, a peer or damaged bytes can have of a node at most, where no setting says so. PURE.

docs/LIMITS.md says what a client sees at each bound that it can reach. Not here are

- what one module does at a time (rows of a slice, bytes of a read): these are constants of that module,
- what stored bytes may claim before a reader calls them damage (`tiered/catalog.py`),
- what the metadata quorum believes or remembers of its peers: rules of `raft`, and in docs/LIMITS.md.
"""

from firnline.base.units import KIB, MIB

# ------------------------------------------------------------------------------ one request
# A frame whose header cannot be complete is refused before anything is read of it.
FRAME_BYTES_MIN = 8
# By which the memory of a large frame grows at most: to clear and move more takes the loop too long.
FRAME_GROWTH_BYTES_MAX = 4 * MIB
TAGGED_FIELDS_MAX = 1024
# UTF-8 bytes of any string: what the int16 before it can say, and as many where the length is a varint.
STRING_BYTES_MAX = 32_767
# Elements over all arrays of one request; each element costs an object.
ARRAY_ELEMENTS_MAX = 500_000
# What one element of an array of a large request is taken to hold, as an object.
ELEMENT_HELD_BYTES = 300
TOPIC_NAME_CHARS_MAX = 249
# Bytes that a batch for a compacted topic may open to: the leader looks for records without a key.
KEYED_BATCH_BYTES_MAX = 16 * MIB
# Decompressed bytes of one batch that the broker is willing to read records from.
DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
# Partitions that one request may create, the metadata records of one that adds partitions, and the partitions
# that one may elect leaders for or reassign.
PARTITIONS_PER_REQUEST_MAX = 10_000
RECORDS_PER_REQUEST_MAX = 10_000
CHANGES_PER_REQUEST_MAX = 10_000
# An answer waits no longer than this, whatever the request allows: the longest wait that librdkafka lets a
# consumer ask for, ten times the request.timeout.ms of Java's clients, and half of connections.max.idle.ms,
# after which nobody would be there to hear it. Kafka 4.3.1 has no bound of its own.
WAIT_MAX_MS = 300_000

# ------------------------------------------------------------------------------ one answer
# What one slice of an answer is taken to hold, where its handler does not say more: 300 rows, as objects.
SLICE_HELD_BYTES = 256 * KIB
# An answer up to this size is joined with its header; above it file slices are sent by sendfile.
JOIN_BYTES_MAX = 64 * KIB
# What the length before an answer can say.
ANSWER_BYTES_MAX = 2**31 - 1
# Of an error's words to a client.
WHY_CHARS_MAX = 2_000
# What one answer to FetchSnapshot carries at most, whatever was asked for.
SNAPSHOT_SLICE_BYTES_MAX = 8 * MIB
METADATA_BATCH_BYTES_MAX = 8 * MIB
# A batch of a snapshot that says it is longer is damage: it is not waited for.
SNAPSHOT_BATCH_BYTES_MAX = 128 * MIB

# ------------------------------------------------------------------------------ one connection
# Requests of a connection that are not answered: beyond these the next one waits in the socket.
OPEN_REQUESTS_MAX = 64
# A connection that has not sent one whole request by then is closed (reliability d 8).
FIRST_REQUEST_MS = 30_000
# A peer that has ended its side may still read. Where its request has no answer by then, nobody waits for it.
HALF_CLOSED_MS = 30_000
# A request is whole after this time, and a second more for each so many bytes that came of it: slower than
# any line that is in use, and too fast for whoever keeps a connection with a byte now and then.
SENDER_GRACE_MS = 30_000
SENDER_BYTES_PER_S = 4 * KIB
# Where answers have no room, a peer that takes fewer bytes a second of what waits for it reads too slowly.
READER_BYTES_PER_LOOK = 64 * KIB
# Where requests have no room, a peer of which fewer bytes a second come sends too slowly.
SENDER_BYTES_PER_LOOK = 64 * KIB
# Requests that one connection to another node may owe answers to.
LINK_REQUESTS_MAX = 10_000

# ------------------------------------------------------------------------------ all connections
# Bytes of requests that are done in slices: as of one request, socket.request.max.bytes, and some.
SLICED_REQUESTS_BYTES_MAX = 128 * MIB
# A request that is smaller does not wait for that room: as many as clients can send in a second are little.
LARGE_REQUEST_BYTES = 16 * KIB
# Partitions of large Fetches that wait for records at once, some 250 bytes each: others do not wait.
WAITING_PARTITIONS_MAX = 2_000_000
# Partitions that one fetch session remembers, and all of them: some 300 bytes each, as long as the session.
SESSION_PARTITIONS_MAX = 50_000
ALL_SESSION_PARTITIONS_MAX = 1_000_000
# Who asks for metrics at the same time; more do so only where they do not go on, and the next is closed.
SCRAPES_MAX = 16
# Without a byte from who asks for metrics, or room for one of the answer.
SCRAPE_SILENCE_S = 10.0

# ------------------------------------------------------------------------------ groups and producers
# Ids handed out for which no member has come yet, over all groups of the node (rel d 55), what they hold, and
# those of one group: as many as can join in the same second. They may be alone in their groups, of which they
# take no more than a quarter.
PENDING_MEMBERS_MAX = 50_000
PENDING_MEMBERS_BYTES_MAX = 128 * MIB
PENDING_MEMBERS_OF_GROUP_MAX = 10_000
# Assignors that a member names; clients name one to three.
GROUP_PROTOCOLS_MAX = 1_000
# What members of all groups hold: subscriptions, assignments, themselves.
GROUP_MEMBERS_BYTES_MAX = 512 * MIB
# Producers that a partition remembers, whatever ids clients make up; all of them are in each snapshot.
PARTITION_PRODUCERS_MAX = 20_000
