"""Every bound that has no configuration key, in one place. PURE. A test reaches each of them."""

from firnline.base.units import KIB, MIB

# A frame whose header cannot be complete is refused before anything is read of it.
FRAME_BYTES_MIN = 8
# Where answers have no room, a peer that takes fewer bytes a second of what waits for it reads too slowly.
READER_BYTES_PER_LOOK = 64 * KIB
# Where requests have no room, a peer of which fewer bytes a second come sends too slowly.
SENDER_BYTES_PER_LOOK = 64 * KIB
# A request is whole after this time, and a second more for each so many bytes that came of it: slower than
# any line that is in use, and too fast for whoever keeps a connection with a byte now and then.
SENDER_GRACE_MS = 30_000
SENDER_BYTES_PER_S = 4 * KIB
# What one slice of an answer is taken to hold, where its handler does not say more: 300 rows, as objects.
SLICE_HELD_BYTES = 256 * KIB
# What one element of an array of a large request is taken to hold, as an object.
ELEMENT_HELD_BYTES = 300
# Partitions of large Fetches that wait for records at once, some 250 bytes each: others do not wait.
WAITING_PARTITIONS_MAX = 2_000_000
TAGGED_FIELDS_MAX = 1024
# UTF-8 bytes of any string: what the int16 before it can say, and as many where the length is a varint.
STRING_BYTES_MAX = 32_767
# Of an error's words to a client.
WHY_CHARS_MAX = 2_000
# Elements over all arrays of one request; each element costs an object.
ARRAY_ELEMENTS_MAX = 500_000
# Partitions that one fetch session remembers, and all of them: some 300 bytes each, as long as the session.
SESSION_PARTITIONS_MAX = 50_000
ALL_SESSION_PARTITIONS_MAX = 1_000_000
# An answer waits no longer than this, whatever the request allows: the longest wait that librdkafka lets a
# consumer ask for, ten times the request.timeout.ms of Java's clients, and half of connections.max.idle.ms,
# after which nobody would be there to hear it. Kafka 4.3.1 has no bound of its own.
WAIT_MAX_MS = 300_000
# An answer up to this size is joined with its header; above it file slices are sent by sendfile.
JOIN_BYTES_MAX = 64 * KIB
# What the length before an answer can say.
ANSWER_BYTES_MAX = 2**31 - 1
METADATA_BATCH_BYTES_MAX = 8 * MIB
# What one answer to FetchSnapshot carries at most, whatever was asked for.
SNAPSHOT_SLICE_BYTES_MAX = 8 * MIB
# A batch of a snapshot that says it is longer is damage: it is not waited for.
SNAPSHOT_BATCH_BYTES_MAX = 128 * MIB
TOPIC_NAME_CHARS_MAX = 249
# Bytes that a batch for a compacted topic may open to: the leader looks for records without a key.
KEYED_BATCH_BYTES_MAX = 16 * MIB
# Decompressed bytes of one batch that the broker is willing to read records from.
DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
# Requests that one connection to another node may owe answers to.
LINK_REQUESTS_MAX = 10_000
