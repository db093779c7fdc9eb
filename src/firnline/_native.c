/* The parts of a small request that take longest in Python: receiving, decoding a common request, checking its CRC,
 * and sending the response.
 *
 * Nothing is decided here. A function that meets any other case returns None, or the bytes, and the general code
 * in Python handles it. Each function has a reference implementation in Python that returns the same for the same
 * bytes, and is its oracle in tests/unit/native: `turn` in runtime/turn.py, `common_request` in api/fast_path.py,
 * `common_batch`, `common_records`, `survey` and `renumber` in records/fast_path.py. No state is kept between calls.
 * The functions of compaction are in _compaction.h, their reference implementations in log/compaction/cleaner.py;
 * those of a scan in _decode.h, their reference implementations in spark; that of a plan in _catalog.h, its reference
 * implementation in tiered/catalog/format.py.
 */
#define _GNU_SOURCE  /* preadv2 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define API_VERSIONS 18
#define READY_MAX 64
#define TOGETHER_MAX 16
#define JOIN_BYTES_MAX (64 * 1024)  /* base/limits.py: larger answers are not copied */
#define TOPIC_CHARS_MAX 249
#define STRING_BYTES_MAX 32767
#define OWN_CRC_BYTES_MAX 2048
/* runtime/steps.py */
#define SLOW_S 0.005
#define MARK_EVERY_S 0.001

static PyObject *fileno_name;
static PyObject *crc32c;  /* of the package of that name: long runs are faster there */

/* ---- CRC-32C ---------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_OWN_CRC __builtin_cpu_supports("sse4.2")
/* The instruction takes three cycles, and one may begin in each: a long run is three lanes that are put together. */
#define LANE_BYTES 512
static uint32_t crc_lane[4][256];  /* what a lane of zeros makes of a CRC, for each byte of it */

__attribute__((target("sse4.2")))
static uint64_t crc_word(uint64_t crc, const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return __builtin_ia32_crc32di(crc, word);
}
static uint32_t past_lane(uint32_t crc) {
    return crc_lane[0][crc & 255] ^ crc_lane[1][crc >> 8 & 255] ^ crc_lane[2][crc >> 16 & 255] ^ crc_lane[3][crc >> 24];
}
__attribute__((target("sse4.2")))
static uint32_t crc_on(uint32_t before, const uint8_t *at, size_t size) {
    uint64_t crc = before ^ 0xFFFFFFFFu;
    for (; size >= 3 * LANE_BYTES; size -= 3 * LANE_BYTES, at += 3 * LANE_BYTES) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < LANE_BYTES; i += 8) {
            crc = crc_word(crc, at + i);
            second = crc_word(second, at + LANE_BYTES + i);
            third = crc_word(third, at + 2 * LANE_BYTES + i);
        }
        crc = past_lane(past_lane((uint32_t)crc) ^ (uint32_t)second) ^ third;
    }
    for (; size >= 8; size -= 8, at += 8) crc = crc_word(crc, at);
    for (; size; size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return (uint32_t)crc ^ 0xFFFFFFFFu;
}
/* A CRC is linear in its bits: those of a byte are put together. */
static void fill_crc_lane(void) {
    static const uint8_t zeros[LANE_BYTES];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t moved = crc_on(1u << bit ^ 0xFFFFFFFFu, zeros, LANE_BYTES) ^ 0xFFFFFFFFu;
        for (int i = 0; i < 256; i++)
            if (i >> bit % 8 & 1) crc_lane[bit / 8][i] ^= moved;
    }
}
#else
#define HAS_OWN_CRC 0
static uint32_t crc_on(uint32_t before, const uint8_t *at, size_t size) { (void)at; (void)size; return before; }
static void fill_crc_lane(void) {}
#endif

/* The same on any machine, a byte at a time: for a walk, which calls nothing of Python's. */
static uint32_t crc_table[256];

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0 - (crc & 1)));
        crc_table[i] = crc;
    }
}
static uint32_t any_crc_on(uint32_t before, const uint8_t *at, size_t size) {
    if (HAS_OWN_CRC) return crc_on(before, at, size);
    uint32_t crc = before ^ 0xFFFFFFFFu;
    for (; size; size--) crc = crc >> 8 ^ crc_table[(crc ^ *at++) & 255];
    return crc ^ 0xFFFFFFFFu;
}

/* Whether owner[start:end], which are the bytes at `at`, have the CRC; -1 with an exception. */
static int has_crc(PyObject *owner, Py_ssize_t start, Py_ssize_t end, const uint8_t *at, uint32_t wanted) {
    if (HAS_OWN_CRC && end - start <= OWN_CRC_BYTES_MAX) return crc_on(0, at, (size_t)(end - start)) == wanted;
    PyObject *view = PyMemoryView_FromObject(owner);
    PyObject *part = view ? PySequence_GetSlice(view, start, end) : NULL;
    PyObject *found = part ? PyObject_CallOneArg(crc32c, part) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(part);
    if (!found) return -1;
    unsigned long crc = PyLong_AsUnsignedLong(found);
    Py_DECREF(found);
    if (crc == (unsigned long)-1 && PyErr_Occurred()) return -1;
    return crc == wanted;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Bytes not yet read. What is read past the end is 0 and sets `failed`, which is asked at the end. */
struct reader { const uint8_t *at, *end; int failed; };

static const uint8_t *take(struct reader *r, Py_ssize_t size) {
    if (size < 0 || size > r->end - r->at) { r->failed = 1; r->at = r->end; return NULL; }
    r->at += size;
    return r->at - size;
}
static uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
static int16_t be16(const uint8_t *at) { return (int16_t)((uint16_t)at[0] << 8 | at[1]); }
static int64_t be64(const uint8_t *at) { return (int64_t)((uint64_t)be32(at) << 32 | be32(at + 4)); }
static int int8(struct reader *r) { const uint8_t *at = take(r, 1); return at ? (int8_t)*at : 0; }
static int int16(struct reader *r) { const uint8_t *at = take(r, 2); return at ? be16(at) : 0; }
static int32_t int32(struct reader *r) { const uint8_t *at = take(r, 4); return at ? (int32_t)be32(at) : 0; }
static int64_t int64(struct reader *r) { const uint8_t *at = take(r, 8); return at ? be64(at) : 0; }

/* A length or count: fixed width, or a varint one too large; -1 is null. Width 2 is a string's, however written. */
static int32_t length(struct reader *r, int is_compact, int width) {
    if (!is_compact) return width == 2 ? int16(r) : int32(r);
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *at = take(r, 1);
        if (!at) return 0;
        if (shift == 28 && *at > 7) break;
        value |= (uint32_t)(*at & 0x7F) << shift;
        if (*at & 0x80) continue;
        if (width == 2 && value > STRING_BYTES_MAX + 1) break;
        return (int32_t)value - 1;
    }
    r->failed = 1;
    return 0;
}
static void expect(struct reader *r, int is_true) { if (!is_true) r->failed = 1; }
/* An empty tagged section, where there is one. */
static void no_tags(struct reader *r, int is_flexible) { if (is_flexible) expect(r, int8(r) == 0); }

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    for (Py_ssize_t i = 0; i < size; i++) all |= at[i];
    return all < 0x80;
}

/* Name of a topic, plain ASCII, or its id; the caller makes an object of it. */
struct topic { const uint8_t *at; Py_ssize_t size; int is_id; };

static struct topic read_topic(struct reader *r, int is_compact, int is_id) {
    struct topic t = {NULL, 16, is_id};
    if (!is_id) t.size = length(r, is_compact, 2);
    expect(r, t.size > 0 && t.size <= TOPIC_CHARS_MAX);
    t.at = r->failed ? NULL : take(r, t.size);
    if (t.at && !is_id) expect(r, is_ascii(t.at, t.size));
    return t;
}
static PyObject *topic_object(struct topic t) {
    if (!t.at) Py_RETURN_NONE;
    if (t.is_id) return PyBytes_FromStringAndSize((const char *)t.at, t.size);
    PyObject *name = PyUnicode_New(t.size, 127);
    if (name) memcpy(PyUnicode_1BYTE_DATA(name), t.at, (size_t)t.size);
    return name;
}

/* ---- a record batch --------------------------------------------------------------------------- */

#define HEADER_BYTES 61
#define CRC_START 21
#define RECORD_BYTES_MIN 7
#define COMMON_BATCH_BYTES_MAX 1048588  /* api/fast_path.py */
static const int64_t RATIO_MAX[8] = {1, 448, 32, 256, 448, 1, 1, 1};  /* records/fast_path.py */

/* A zigzag varint of at most `bytes_max` bytes; bits above its width are dropped, as Kafka does. */
static int64_t varint(struct reader *r, int bytes_max) {
    uint64_t value = 0;
    for (int i = 0; i < bytes_max; i++) {
        const uint8_t *at = take(r, 1);
        if (!at) return 0;
        value |= (uint64_t)(*at & 0x7F) << 7 * i;
        if (*at & 0x80) continue;
        if (bytes_max == 5) value = (uint32_t)value;
        return (int64_t)(value >> 1 ^ (0 - (value & 1)));
    }
    r->failed = 1;
    return 0;
}
static int32_t varint32(struct reader *r) { return (int32_t)varint(r, 5); }
/* Bytes behind their length; a negative one is null. */
static void skip_bytes(struct reader *r) {
    int32_t size = varint32(r);
    if (size > 0) take(r, size);
}

/* Whether `size` bytes are `count` records, each as long as it says, and no more. */
static int is_body(const uint8_t *at, Py_ssize_t size, int32_t count) {
    struct reader all = {at, at + size, 0};
    for (int32_t i = 0; i < count; i++) {
        int32_t length = varint32(&all);
        const uint8_t *start = take(&all, length);
        if (all.failed) return 0;
        struct reader r = {start, start + length, 0};
        take(&r, 1);  /* attributes: unused */
        varint(&r, 10);  /* timestamp and offset: Kafka does not compare them either */
        varint32(&r);
        skip_bytes(&r);
        skip_bytes(&r);
        int32_t headers = varint32(&r);
        expect(&r, headers >= 0);
        for (; headers > 0 && !r.failed; headers--) {
            int32_t name = varint32(&r);
            take(&r, name);
            skip_bytes(&r);
        }
        if (r.failed || r.at != r.end) return 0;
    }
    return all.at == all.end;
}

/* right_body(data, count) */
static PyObject *right_body(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "right_body(data, count)");
    long records = PyLong_AsLong(args[1]);
    Py_buffer view;
    if ((records == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    int is_right = records >= 0 && records <= INT32_MAX && is_body(view.buf, view.len, (int32_t)records);
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_right);
}

/* The fields of records.batch.BatchHeader if owner[start:end], the bytes at `at`, is one whole v2 batch in
 * the shape that producers send, with the right CRC, and, if not compressed, a right body. None if not, NULL with an exception. */
static PyObject *batch_header(PyObject *owner, Py_ssize_t start, Py_ssize_t end, const uint8_t *at) {
    Py_ssize_t size = end - start;
    if (size < HEADER_BYTES) Py_RETURN_NONE;
    int64_t base_offset = be64(at);
    int32_t batch_length = (int32_t)be32(at + 8), delta = (int32_t)be32(at + 23);
    int32_t count = (int32_t)be32(at + 57);
    int attributes = be16(at + 21);
    if (base_offset || (int64_t)batch_length + 12 != size || at[16] != 2 || delta < 0
        || (int64_t)count != (int64_t)delta + 1
        || (int64_t)count * RECORD_BYTES_MIN > (size - HEADER_BYTES) * RATIO_MAX[attributes & 7])
        Py_RETURN_NONE;
    int is_right = has_crc(owner, start + CRC_START, end, at + CRC_START, be32(at + 17));
    if (is_right < 0) return NULL;
    if (!is_right) Py_RETURN_NONE;
    if (!(attributes & 7) && !is_body(at + HEADER_BYTES, size - HEADER_BYTES, count)) Py_RETURN_NONE;
    int64_t fields[14] = {
        0, batch_length, (int32_t)be32(at + 12), 2, be32(at + 17), attributes, delta, be64(at + 27),
        be64(at + 35), be64(at + 43), be16(at + 51), (int32_t)be32(at + 53), count, 0,
    };
    PyObject *header = PyTuple_New(14);
    for (int i = 0; header && i < 14; i++) {
        PyObject *number = PyLong_FromLongLong(fields[i]);
        if (!number) { Py_DECREF(header); return NULL; }
        PyTuple_SET_ITEM(header, i, number);
    }
    return header;
}

static PyObject *common_batch(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    PyObject *found = batch_header(data, 0, view.len, view.buf);
    PyBuffer_Release(&view);
    return found;
}

/* ---- records, for who replays a log ------------------------------------------------------------ */

#define WALK_RECORDS_MAX 4096  /* of one batch: records/fast_path.py */
#define UNUSUAL_ATTRIBUTES 0x37  /* compressed, transactional, control */

static PyObject *bytes_or_none(struct reader *r) {
    int32_t size = varint32(r);
    expect(r, size >= -1);
    const uint8_t *at = size > 0 ? take(r, size) : NULL;
    if (r->failed || size < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)at, size);
}

/* Append (offset, key, value) of each record to `rows`; 1, or 0 for anything unusual, -1 with an exception. */
static int add_rows(PyObject *rows, const uint8_t *at, Py_ssize_t size, int64_t base_offset, int32_t count) {
    struct reader all = {at, at + size, 0};
    for (int32_t i = 0; i < count; i++) {
        int32_t length = varint32(&all);
        const uint8_t *start = take(&all, length);
        if (all.failed) return 0;
        struct reader r = {start, start + length, 0};
        take(&r, 1);
        varint(&r, 10);
        int64_t offset = base_offset + varint32(&r);
        PyObject *number = PyLong_FromLongLong(offset), *key = bytes_or_none(&r), *value = bytes_or_none(&r);
        expect(&r, varint32(&r) == 0 && r.at == r.end);
        PyObject *row = number && key && value && !r.failed ? PyTuple_Pack(3, number, key, value) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(key);
        Py_XDECREF(value);
        int is_bad = row ? PyList_Append(rows, row) : PyErr_Occurred() != NULL;
        Py_XDECREF(row);
        if (is_bad) return -1;
        if (r.failed) return 0;
    }
    return all.at == all.end;
}

/* common_records(data, position, at_most): ([(offset, key, value)], position after) */
static PyObject *common_records(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "common_records(data, position, at_most)");
    Py_ssize_t position = PyLong_AsSsize_t(args[1]), at_most = PyLong_AsSsize_t(args[2]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    PyObject *rows = PyList_New(0);
    int is_common = rows ? position >= 0 : -1;
    while (is_common > 0 && PyList_GET_SIZE(rows) < at_most && view.len - position >= HEADER_BYTES) {
        const uint8_t *at = (const uint8_t *)view.buf + position;
        int64_t size = (int64_t)(int32_t)be32(at + 8) + 12;
        int32_t records = (int32_t)be32(at + 57);
        if (size < HEADER_BYTES || size > view.len - position || at[16] != 2 || be16(at + 21) & UNUSUAL_ATTRIBUTES
            || records < 0 || records > WALK_RECORDS_MAX || be64(at) < 0 || be64(at) > INT64_MAX - UINT32_MAX)
            break;
        is_common = has_crc(args[0], position + CRC_START, position + size, at + CRC_START, be32(at + 17));
        Py_ssize_t before = PyList_GET_SIZE(rows);
        if (is_common > 0) is_common = add_rows(rows, at + HEADER_BYTES, size - HEADER_BYTES, be64(at), records);
        if (!is_common && PyList_SetSlice(rows, before, PyList_GET_SIZE(rows), NULL)) is_common = -1;
        if (is_common > 0) position += size;
    }
    PyBuffer_Release(&view);
    if (is_common >= 0) return Py_BuildValue("Nn", rows, position);
    Py_XDECREF(rows);
    return NULL;
}
#include "_compaction.h"
#include "_decode.h"
#include "_catalog.h"

/* ---- a body in another codec ------------------------------------------------------------------ */

/* Of larger bodies a walk does not keep the interpreter from other threads: the loop waits for it there. */
#define HELD_BODY_BYTES_MAX (64 * 1024)
static PyThreadState *let_others_go_on(Py_ssize_t size) { return size > HELD_BODY_BYTES_MAX ? PyEval_SaveThread() : NULL; }
static void go_on(PyThreadState *state) { if (state) PyEval_RestoreThread(state); }

/* survey(data, count): (least time delta, greatest, have all a key, is it plain), or None. See records/fast_path.py. */
static PyObject *survey(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "survey(data, count)");
    long records = PyLong_AsLong(args[1]);
    Py_buffer view;
    if ((records == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    PyThreadState *state = let_others_go_on(view.len);
    int is_right = records > 0 && records <= INT32_MAX && is_body(view.buf, view.len, (int32_t)records);
    int64_t least = INT64_MAX, greatest = INT64_MIN;
    int have_keys = 1, is_plain = 1;
    struct reader all = {view.buf, (const uint8_t *)view.buf + view.len, 0};
    struct record r;
    for (int32_t i = 0; is_right && i < records && next_record(&all, &r); i++) {
        is_plain &= r.time_at[-1] == 0 && r.offset_delta == i;
        if (r.time_delta < least) least = r.time_delta;
        if (r.time_delta > greatest) greatest = r.time_delta;
        have_keys &= r.key_size >= 0;
    }
    go_on(state);
    PyBuffer_Release(&view);
    if (!is_right) Py_RETURN_NONE;
    return Py_BuildValue("(LLOO)", (long long)least, (long long)greatest, have_keys ? Py_True : Py_False,
                         is_plain ? Py_True : Py_False);
}

/* The times of the first record, and the greatest. */
struct times { int64_t first, greatest; };

/* Write the records of a body that is_body has seen to `to`, or nowhere if that is NULL, with offsets 0, 1, 2 and so
 * on; return how many bytes that is. Times wrap, as in Java. */
static int64_t put_numbered(uint8_t *to, struct reader all, int32_t count, int have_times, uint64_t base, struct times *t) {
    int64_t total = 0;
    struct record r;
    for (int32_t i = 0; i < count && next_record(&all, &r); i++) {
        int64_t time = (int64_t)(base + (uint64_t)r.time_delta);
        if (!i) t->first = t->greatest = time;
        if (time > t->greatest) t->greatest = time;
        struct reader rest = {r.offset_at, r.end, 0};
        varint32(&rest);
        uint8_t front[16] = {0}, length[10], *end = front + 1;
        end = put_varint(end, have_times ? (int64_t)((uint64_t)time - (uint64_t)t->first) : 0);
        end = put_varint(end, i);
        Py_ssize_t front_bytes = end - front, rest_bytes = rest.end - rest.at;
        Py_ssize_t length_bytes = put_varint(length, front_bytes + rest_bytes) - length;
        total += length_bytes + front_bytes + rest_bytes;
        if (!to) continue;
        memcpy(to, length, (size_t)length_bytes);
        memcpy(to + length_bytes, front, (size_t)front_bytes);
        memcpy(to + length_bytes + front_bytes, rest.at, (size_t)rest_bytes);
        to += length_bytes + front_bytes + rest_bytes;
    }
    return total;
}

/* renumber(data, count, base, bytes_max): (body, first time, greatest), or None. See records/fast_path.py. */
static PyObject *renumber(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t records, base = 0, bytes_max, size = -1;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "renumber(data, count, base, bytes_max)");
    int have_times = args[2] != Py_None;
    Py_buffer view;
    if (!numbers(args + 1, 1, &records) || !numbers(args + 3, 1, &bytes_max)) return NULL;
    if ((have_times && !numbers(args + 2, 1, &base)) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    struct reader all = {view.buf, (const uint8_t *)view.buf + view.len, 0};
    struct times t = {0, 0};
    PyThreadState *state = let_others_go_on(view.len);
    if (records > 0 && records <= INT32_MAX && is_body(view.buf, view.len, (int32_t)records))
        size = put_numbered(NULL, all, (int32_t)records, have_times, (uint64_t)base, &t);
    go_on(state);
    int is_right = size >= 0 && size <= bytes_max;
    PyObject *body = is_right ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size) : NULL;
    if (body) {
        state = let_others_go_on(view.len);
        put_numbered((uint8_t *)PyBytes_AS_STRING(body), all, (int32_t)records, have_times, (uint64_t)base, &t);
        go_on(state);
    }
    PyBuffer_Release(&view);
    if (!is_right) Py_RETURN_NONE;
    return body ? Py_BuildValue("(NLL)", body, (long long)t.first, (long long)t.greatest) : NULL;
}

/* ---- requests --------------------------------------------------------------------------------- */

/* (key and version, correlation id, topic, partition, acks, timeout, records, header of the batch) */
static PyObject *produce_request(struct reader *r, int32_t version, int32_t correlation_id, PyObject *data,
                                 const uint8_t *base) {
    int flexible = version >= 9;
    expect(r, length(r, flexible, 2) == -1);  /* no transactional id */
    int acks = int16(r);
    expect(r, acks >= -1 && acks <= 1);
    int32_t timeout_ms = int32(r);
    expect(r, length(r, flexible, 4) == 1);
    struct topic topic = read_topic(r, flexible, version >= 13);
    expect(r, length(r, flexible, 4) == 1);
    int32_t index = int32(r);
    int32_t size = length(r, flexible, 4);
    expect(r, size <= COMMON_BATCH_BYTES_MAX);
    const uint8_t *records = r->failed ? NULL : take(r, size);
    no_tags(r, flexible);
    no_tags(r, flexible);
    no_tags(r, flexible);
    if (r->failed || r->at != r->end) Py_RETURN_NONE;
    Py_ssize_t start = records - base;
    PyObject *header = batch_header(data, start, start + size, records);
    if (!header || header == Py_None) return header;
    return Py_BuildValue("iiNiiiNN", version, correlation_id, topic_object(topic), index, acks, timeout_ms,
                         PySequence_GetSlice(data, start, start + size), header);
}

/* (key and version, correlation id, topic, partition, offset, bytes of the partition, bytes of the answer,
 *  least bytes, leader epoch, session, epoch of the session); with no topic where a session asks for nothing new */
static PyObject *fetch_request(struct reader *r, int32_t version, int32_t correlation_id) {
    int flexible = version >= 12;
    if (version < 15) expect(r, int32(r) == -1);  /* a consumer */
    int32(r);  /* the longest wait: what is there is answered at once */
    int32_t min_bytes = int32(r), max_bytes = int32(r);
    expect(r, int8(r) == 0);   /* reads what is not committed, too */
    int32_t session = int32(r), session_epoch = int32(r);
    expect(r, session ? session > 0 && session_epoch > 0 : session_epoch == -1);  /* in one, or without */
    int32_t topics = length(r, flexible, 4);
    expect(r, topics == 1 || (session && topics == 0));
    struct topic topic = {NULL, 0, 0};
    int32_t index = -1, epoch = -1, partition_bytes = 0;
    int64_t offset = -1;
    if (topics == 1) {
        topic = read_topic(r, flexible, version >= 13);
        expect(r, length(r, flexible, 4) == 1);
        index = int32(r);
        if (version >= 9) epoch = int32(r);
        offset = int64(r);
        if (version >= 12) expect(r, int32(r) == -1);  /* the epoch of the last record: followers state it */
        int64(r);  /* the log start of a follower */
        partition_bytes = int32(r);
        no_tags(r, flexible);
        no_tags(r, flexible);
    }
    expect(r, length(r, flexible, 4) == 0);  /* nothing to forget */
    if (version >= 11) {  /* the rack */
        int32_t size = length(r, flexible, 2);
        const uint8_t *rack = take(r, size);
        if (rack) expect(r, is_ascii(rack, size));
    }
    no_tags(r, flexible);
    if (r->failed || r->at != r->end) Py_RETURN_NONE;
    return Py_BuildValue("iiNiLiiiiii", 1 << 16 | version, correlation_id, topic_object(topic), index,
                         (long long)offset, partition_bytes, max_bytes, min_bytes, epoch, session, session_epoch);
}

/* (key and version, correlation id, name and version of the client's software) */
static PyObject *api_versions_request(struct reader *r, int32_t version, int32_t correlation_id) {
    int32_t name_size = length(r, 1, 2);
    const uint8_t *name = r->failed ? NULL : take(r, name_size);
    int32_t version_size = length(r, 1, 2);
    const uint8_t *software_version = r->failed ? NULL : take(r, version_size);
    no_tags(r, 1);
    if (r->failed || r->at != r->end || !is_ascii(name, name_size) || !is_ascii(software_version, version_size))
        Py_RETURN_NONE;
    return Py_BuildValue("iis#s#", API_VERSIONS << 16 | version, correlation_id, name, (Py_ssize_t)name_size,
                         software_version, (Py_ssize_t)version_size);
}

/* common_request(data, size): what the first `size` bytes of `data` ask, if they are one frame of a Produce of
 * one batch, a Fetch of one partition, or ApiVersions. */
static PyObject *common_request(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "common_request(data, size)");
    Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    if (size == -1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    PyObject *found = Py_None;
    const uint8_t *base = view.buf;
    if (size >= 14 && size <= view.len && (int64_t)(int32_t)be32(base) + 4 == size) {
        struct reader r = {base + 14, base + size, 0};
        int key = be16(base + 4), version = be16(base + 6), client_size = be16(base + 12);
        int32_t correlation_id = (int32_t)be32(base + 8);
        int is_produce = key == 0 && version >= 5 && version <= 13;  /* older answers have another layout */
        int is_api_versions = key == API_VERSIONS && (version == 3 || version == 4);
        if (is_produce || is_api_versions || (key == 1 && version >= 7 && version <= 18)) {
            if (client_size != -1) {
                const uint8_t *client = take(&r, client_size);
                if (client) expect(&r, is_ascii(client, client_size));
            }
            no_tags(&r, version >= (is_api_versions ? 3 : is_produce ? 9 : 12));
            found = is_produce ? produce_request(&r, version, correlation_id, args[0], base)
                  : is_api_versions ? api_versions_request(&r, version, correlation_id)
                               : fetch_request(&r, version, correlation_id);
            PyBuffer_Release(&view);
            return found;
        }
    }
    PyBuffer_Release(&view);
    return Py_NewRef(found);
}

/* ---- sockets ---------------------------------------------------------------------------------- */

/* Read what is in memory: -1 where that would wait for the disk. Where nobody can tell it waits. */
static ssize_t ready_bytes(int fd, void *room, size_t size, long long position) {
#ifdef RWF_NOWAIT
    struct iovec part = {room, size};
    ssize_t got = preadv2(fd, &part, 1, position, RWF_NOWAIT);
    if (got >= 0 || errno == EAGAIN) return got;
#endif
    return pread(fd, room, size, position);
}

/* Copy (bytes, (file, position, size), bytes) to `room`; return its size, 0 if it is another kind of answer
 * or cannot be read whole at once, -1 with an exception. */
static Py_ssize_t gather(PyObject *answer, uint8_t *room, Py_ssize_t room_size) {
    if (PyTuple_GET_SIZE(answer) != 3) return 0;
    PyObject *front = PyTuple_GET_ITEM(answer, 0), *slice = PyTuple_GET_ITEM(answer, 1);
    PyObject *after = PyTuple_GET_ITEM(answer, 2);
    if (!PyBytes_Check(front) || !PyBytes_Check(after) || !PyTuple_Check(slice) || PyTuple_GET_SIZE(slice) != 3)
        return 0;
    Py_ssize_t front_size = PyBytes_GET_SIZE(front), after_size = PyBytes_GET_SIZE(after);
    long long position = PyLong_AsLongLong(PyTuple_GET_ITEM(slice, 1));
    Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(slice, 2));
    if (PyErr_Occurred()) return -1;
    if (size < 0 || size > room_size || front_size > room_size || after_size > room_size
        || front_size + size + after_size > room_size)
        return 0;
    PyObject *number = PyObject_CallMethodNoArgs(PyTuple_GET_ITEM(slice, 0), fileno_name);
    if (!number) return -1;
    long fd = PyLong_AsLong(number);
    Py_DECREF(number);
    if (fd == -1 && PyErr_Occurred()) return -1;
    if (fd < 0) return 0;
    memcpy(room, PyBytes_AS_STRING(front), (size_t)front_size);
    ssize_t got;
    Py_BEGIN_ALLOW_THREADS
    got = ready_bytes((int)fd, room + front_size, (size_t)size, position);
    Py_END_ALLOW_THREADS
    if (got != size) return 0;
    memcpy(room + front_size + size, PyBytes_AS_STRING(after), (size_t)after_size);
    return front_size + size + after_size;
}

/* Send what on_received returned; on_unsent(answer, bytes sent) is called when something is left. */
static int send_answer(int fd, PyObject *answer, PyObject *on_unsent, uint8_t *room, Py_ssize_t room_size) {
    const void *bytes = room;
    Py_ssize_t size;
    if (PyBytes_Check(answer)) {
        bytes = PyBytes_AS_STRING(answer);
        size = PyBytes_GET_SIZE(answer);
    } else if (PyTuple_Check(answer)) {
        size = gather(answer, room, room_size < JOIN_BYTES_MAX ? room_size : JOIN_BYTES_MAX);
        if (size < 0) return -1;
    } else {
        PyErr_Format(PyExc_TypeError, "an answer is bytes or a tuple, and not %R", answer);
        return -1;
    }
    ssize_t sent = size ? send(fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent == size && size) return 0;
    PyObject *done = PyObject_CallFunction(on_unsent, "On", answer, sent < 0 ? (Py_ssize_t)0 : (Py_ssize_t)sent);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* An answer that is sent together with those after it: the peers then wake up once, not once for each. */
struct due { int fd; PyObject *stream, *answer; };
struct turn { PyObject *callbacks, *streams; Py_buffer shared; struct due due[TOGETHER_MAX]; int due_count; };

/* Send what is due; -1 with an exception. A stream that was closed meanwhile is passed over. */
static int send_due(struct turn *t) {
    int done = 0;
    for (int i = 0; i < t->due_count; i++) {
        struct due *due = &t->due[i];
        PyObject *key = done < 0 ? NULL : PyLong_FromLong(due->fd);
        if (key && PyDict_GetItemWithError(t->streams, key) == due->stream)
            done = send_answer(due->fd, due->answer, PyTuple_GET_ITEM(due->stream, 1), t->shared.buf, t->shared.len);
        if (PyErr_Occurred()) done = -1;
        Py_XDECREF(key);
        Py_DECREF(due->stream);
        Py_DECREF(due->answer);
    }
    t->due_count = 0;
    return done;
}

static void drop_due(struct turn *t) {
    while (t->due_count) {
        Py_DECREF(t->due[--t->due_count].stream);
        Py_DECREF(t->due[t->due_count].answer);
    }
}

/* Receive from one stream and have it handled; -1 with an exception. */
static int serve(struct turn *t, int fd, PyObject *stream) {
    ssize_t got = recv(fd, t->shared.buf, (size_t)t->shared.len, MSG_DONTWAIT);
    if (got < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
        got = 0;  /* the peer is gone, one way or the other */
    }
    PyObject *size = PyLong_FromSsize_t(got);
    PyObject *answer = size ? PyObject_CallOneArg(PyTuple_GET_ITEM(stream, 0), size) : NULL;
    Py_XDECREF(size);
    if (!answer) return -1;
    if (answer == Py_None) {
        Py_DECREF(answer);
        return 0;
    }
    t->due[t->due_count++] = (struct due){fd, Py_NewRef(stream), answer};
    return t->due_count == TOGETHER_MAX ? send_due(t) : 0;
}

/* Serve one ready descriptor; -1 with an exception. */
static int serve_ready(struct turn *t, int fd, uint32_t events) {
    PyObject *key = PyLong_FromLong(fd), *found = NULL;
    if (!key) return -1;
    int done = -1;
    if (events & EPOLLIN && (found = PyDict_GetItemWithError(t->streams, key))) {
        Py_INCREF(found);
        if (PyTuple_Check(found) && PyTuple_GET_SIZE(found) == 2) done = serve(t, fd, found);
        else PyErr_SetString(PyExc_TypeError, "a stream is (on_received, on_unsent)");
        Py_DECREF(found);
    } else if (!PyErr_Occurred() && (found = PyDict_GetItemWithError(t->callbacks, key))) {
        Py_INCREF(found);
        PyObject *number = PyLong_FromUnsignedLong(events);
        PyObject *result = number ? PyObject_CallOneArg(found, number) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(result);
        Py_DECREF(found);
        done = result ? 0 : -1;
    } else if (!PyErr_Occurred()) {
        done = 0;  /* forgotten earlier in this turn */
    }
    Py_DECREF(key);
    return done;
}

static double monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Tell of a step that was slow, if it was, and now and then that the next one begins; return when it does, -1
 * with an exception. `marked`: when that was told last. */
static double note_step(PyObject *on_slow, PyObject *begins, int fd, double began, double *marked) {
    double now = monotonic();
    if (now - began > SLOW_S) {
        PyObject *told = PyObject_CallFunction(on_slow, "id", fd, now - began);
        Py_XDECREF(told);
        if (!told) return -1;
        now = monotonic();
    }
    if (now - *marked > MARK_EVERY_S) {
        *marked = now;
        PyObject *told = PyObject_CallFunction(begins, "d", now);
        Py_XDECREF(told);
        if (!told) return -1;
    }
    return now;
}

/* turn(poller, seconds to wait, callbacks, streams, shared buffer, on_slow, begins) */
static PyObject *turn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 7 || !PyDict_Check(args[2]) || !PyDict_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "turn(poller, wait_s, callbacks, streams, shared, on_slow, begins)");
    int epoll_fd = PyObject_AsFileDescriptor(args[0]);
    double wait_ms = PyFloat_AsDouble(args[1]) * 1000;
    struct turn t = {.callbacks = args[2], .streams = args[3]};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[4], &t.shared, PyBUF_WRITABLE)) return NULL;
    struct epoll_event ready[READY_MAX];
    int found, wait = wait_ms > 60000 ? 60000 : wait_ms > 0 ? (int)ceil(wait_ms) : 0;
    Py_BEGIN_ALLOW_THREADS
    found = epoll_wait(epoll_fd, ready, READY_MAX, wait);
    Py_END_ALLOW_THREADS
    int is_bad = 0;
    if (found < 0) {
        if (errno != EINTR) PyErr_SetFromErrno(PyExc_OSError);
        is_bad = errno != EINTR || PyErr_CheckSignals();
    }
    double began = monotonic(), last = began, marked = began;
    for (int i = 0; i < found && !is_bad; i++) {
        is_bad = serve_ready(&t, ready[i].data.fd, ready[i].events) < 0;
        if (!is_bad) is_bad = (last = note_step(args[5], args[6], ready[i].data.fd, last, &marked)) < 0;
    }
    if (is_bad) drop_due(&t);
    else if (t.due_count) is_bad = send_due(&t) < 0 || note_step(args[5], args[6], -1, last, &marked) < 0;
    PyBuffer_Release(&t.shared);
    return is_bad ? NULL : PyFloat_FromDouble(began);
}

/* ---- syncs ------------------------------------------------------------------------------------- */

/* serve_syncs(jobs, done): sync what is asked for in one pipe and tell in the other, until nobody asks. */
static PyObject *serve_syncs(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "serve_syncs(jobs_fd, done_fd)");
    int jobs = PyObject_AsFileDescriptor(args[0]), done = PyObject_AsFileDescriptor(args[1]);
    if (PyErr_Occurred()) return NULL;
    struct { int fd, number; } job;
    struct { int number, failed; } told;
    ssize_t size;
    Py_BEGIN_ALLOW_THREADS
    while ((size = read(jobs, &job, sizeof job)) == sizeof job || (size < 0 && errno == EINTR)) {
        if (size < 0) continue;
        told.number = job.number;
        while ((told.failed = fdatasync(job.fd) ? errno : 0) == EINTR) {}
        while (write(done, &told, sizeof told) < 0 && errno == EINTR) {}
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- a segment --------------------------------------------------------------------------------- */

/* The slots of records.walk.Slot, and what records.walk.Problem says. */
enum { POSITION, NEXT_OFFSET, BASE_OFFSET, END_OFFSET, HEADS_CRC, FIRST_CRC, MAX_TIMESTAMP, GAPS, ABORTS,
       OFFSET_ENTRY, TIME_ENTRY, WRONG_INDEX, PROBLEM, MIN_TIMESTAMP, UNTIMED, SLOTS };
enum { NOT_A_BATCH = 1, WRONG_CRC, OVERLAP, BEYOND_END, OTHER_EPOCH, WRONG_COUNT };
#define CONTROL_MASK 0x20
#define LOG_APPEND_TIME_MASK 0x08
#define LOG_OVERHEAD_BYTES 12

struct walk { Py_buffer data, epochs, offsets, times, state; };

/* Compare the index entries that name the batch at POSITION with it. */
static void note_batch(struct walk *w, int64_t *s, int64_t base, int64_t last, int64_t max_timestamp) {
    const uint8_t *offsets = w->offsets.buf, *times = w->times.buf;
    if (max_timestamp > s[MAX_TIMESTAMP]) s[MAX_TIMESTAMP] = max_timestamp;
    for (; s[OFFSET_ENTRY] < w->offsets.len / 8; s[OFFSET_ENTRY]++) {
        const uint8_t *entry = offsets + s[OFFSET_ENTRY] * 8;
        int32_t relative = (int32_t)be32(entry), place = (int32_t)be32(entry + 4);
        if (place > s[POSITION]) break;
        if (place != s[POSITION] || relative != last - s[BASE_OFFSET]) s[WRONG_INDEX] |= 1;
    }
    for (; s[TIME_ENTRY] < w->times.len / 12; s[TIME_ENTRY]++) {
        const uint8_t *entry = times + s[TIME_ENTRY] * 12;
        int64_t time = be64(entry), relative = (int32_t)be32(entry + 8);
        if (relative > last - s[BASE_OFFSET]) break;
        if (relative < base - s[BASE_OFFSET] || time != max_timestamp || time != s[MAX_TIMESTAMP])
            s[WRONG_INDEX] |= 2;
    }
}

/* Whether a control batch may abort a transaction: its record's key is version and type, 0 for ABORT. */
static int may_abort(const uint8_t *at, Py_ssize_t size) {
    if (!be32(at + 57)) return 0;  /* what a compaction leaves of one */
    struct reader r = {at + HEADER_BYTES, at + size, 0};
    varint32(&r);
    take(&r, 1);
    varint(&r, 10);
    varint32(&r);
    int32_t length = varint32(&r);
    const uint8_t *key = take(&r, length > 0 ? length : 0);
    if (r.failed || be16(at + 21) & 7) return 1;
    return length >= 4 && be16(key + 2) == 0;
}

/* Note the least timestamp of a batch's records. The header states only the first and the greatest one. */
static void note_least_time(int64_t *s, const uint8_t *at, Py_ssize_t size) {
    int64_t first = (int64_t)be64(at + 27), least = (int64_t)be64(at + 35);
    int is_for_all = be16(at + 21) & LOG_APPEND_TIME_MASK;
    struct reader r = {at + HEADER_BYTES, at + size, !is_for_all && be16(at + 21) & 7};
    for (int32_t left = is_for_all ? 0 : (int32_t)be32(at + 57); left && !r.failed; left--) {
        int32_t length = varint32(&r);
        const uint8_t *body = take(&r, length);
        struct reader one = {body, body ? body + length : body, r.failed};
        take(&one, 1);
        int64_t time, delta = varint(&one, 10);
        r.failed = one.failed || __builtin_add_overflow(first, delta, &time);
        if (!r.failed && time < least) least = time;
    }
    if (r.failed) s[UNTIMED]++;
    else if (least < s[MIN_TIMESTAMP]) s[MIN_TIMESTAMP] = least;
}

/* Pass one whole batch of `size` bytes; the problem, or 0. */
static int pass_batch(struct walk *w, int64_t *s, const uint8_t *at, Py_ssize_t size, Py_ssize_t *run) {
    const int64_t *epochs = w->epochs.buf;
    int64_t base = be64(at);
    int32_t delta = (int32_t)be32(at + 23), count = (int32_t)be32(at + 57);
    if (any_crc_on(0, at + CRC_START, (size_t)(size - CRC_START)) != be32(at + 17)) return WRONG_CRC;
    if (base < s[NEXT_OFFSET]) return OVERLAP;
    if (delta < 0 || base > s[END_OFFSET] || delta > s[END_OFFSET] - base) return BEYOND_END;
    while (*run + 1 < w->epochs.len / 16 && epochs[2 * (*run + 1) + 1] <= base) ++*run;
    if (*run >= 0 && (int32_t)be32(at + 12) != epochs[2 * *run]) return OTHER_EPOCH;
    if (count < 0 || count - 1 > delta) return WRONG_COUNT;
    note_batch(w, s, base, base + delta, be64(at + 35));
    if (count) note_least_time(s, at, size);
    s[GAPS] += base != s[NEXT_OFFSET] || count <= delta;
    if (be16(at + 21) & CONTROL_MASK) s[ABORTS] += may_abort(at, size);
    if (!s[POSITION]) s[FIRST_CRC] = be32(at + 17);
    s[HEADS_CRC] = any_crc_on((uint32_t)s[HEADS_CRC], at, CRC_START);
    s[NEXT_OFFSET] = base + delta + 1;
    s[POSITION] += size;
    return 0;
}

static void walk_all(struct walk *w, int64_t *s) {
    const uint8_t *at = w->data.buf, *end = at + w->data.len;
    Py_ssize_t run = -1;
    while (end - at >= HEADER_BYTES && !s[PROBLEM]) {
        int32_t length = (int32_t)be32(at + 8);
        if (at[16] != 2 || length < HEADER_BYTES - LOG_OVERHEAD_BYTES) { s[PROBLEM] = NOT_A_BATCH; return; }
        if (length > end - at - LOG_OVERHEAD_BYTES) return;
        s[PROBLEM] = pass_batch(w, s, at, (Py_ssize_t)length + LOG_OVERHEAD_BYTES, &run);
        at += (Py_ssize_t)length + LOG_OVERHEAD_BYTES;
    }
}

/* walk_batches(data, epochs, offsets, times, state) */
static PyObject *walk_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "walk_batches(data, epochs, offsets, times, state)");
    struct walk w;
    Py_buffer *views[] = {&w.data, &w.epochs, &w.offsets, &w.times, &w.state};
    int held = 0;
    for (; held < 5; held++)
        if (PyObject_GetBuffer(args[held], views[held], held == 4 ? PyBUF_WRITABLE : PyBUF_SIMPLE)) break;
    int is_right = held == 5 && w.state.len == SLOTS * 8 && w.epochs.len % 16 == 0;
    if (held == 5 && !is_right) PyErr_SetString(PyExc_ValueError, "epochs and state are 64-bit slots");
    if (is_right) {
        Py_BEGIN_ALLOW_THREADS
        walk_all(&w, w.state.buf);
        Py_END_ALLOW_THREADS
    }
    while (held--) PyBuffer_Release(views[held]);
    if (!is_right) return NULL;
    Py_RETURN_NONE;
}

/* ---- the module ------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL, "See spark/decoding/native_records.py."},
    {"filter_batches", (PyCFunction)(void (*)(void))filter_batches, METH_FASTCALL, "See log/compaction/walk.py."},
    {"filter_body", (PyCFunction)(void (*)(void))filter_body, METH_FASTCALL, "See log/compaction/cleaner.py."},
    {"first_wrong_crc", (PyCFunction)(void (*)(void))first_wrong_crc, METH_FASTCALL, "See spark/frames.py."},
    {"find_batches", find_batches, METH_O, "See spark/frames.py."},
    {"map_batches", (PyCFunction)(void (*)(void))map_batches, METH_FASTCALL, "See log/compaction/walk.py."},
    {"map_body", (PyCFunction)(void (*)(void))map_body, METH_FASTCALL, "See log/compaction/cleaner.py."},
    {"renumber", (PyCFunction)(void (*)(void))renumber, METH_FASTCALL, "See records/fast_path.py."},
    {"right_body", (PyCFunction)(void (*)(void))right_body, METH_FASTCALL, "See records/fast_path.py."},
    {"serve_syncs", (PyCFunction)(void (*)(void))serve_syncs, METH_FASTCALL, "See runtime/threads/sync_threads.py."},
    {"turn", (PyCFunction)(void (*)(void))turn, METH_FASTCALL, "See runtime/turn.py."},
    {"survey", (PyCFunction)(void (*)(void))survey, METH_FASTCALL, "See records/fast_path.py."},
    {"common_batch", common_batch, METH_O, "See records/fast_path.py."},
    {"common_records", (PyCFunction)(void (*)(void))common_records, METH_FASTCALL, "See records/fast_path.py."},
    {"common_rows", (PyCFunction)(void (*)(void))common_rows, METH_FASTCALL, "See tiered/catalog/format.py."},
    {"common_request", (PyCFunction)(void (*)(void))common_request, METH_FASTCALL, "See api/fast_path.py."},
    {"walk_batches", (PyCFunction)(void (*)(void))walk_batches, METH_FASTCALL, "See records/walk.py."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "firnline._native", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    fill_crc_table();
    if (HAS_OWN_CRC) fill_crc_lane();
    PyObject *package = PyImport_ImportModule("crc32c");
    crc32c = package ? PyObject_GetAttrString(package, "crc32c") : NULL;
    Py_XDECREF(package);
    fileno_name = PyUnicode_InternFromString("fileno");
    return crc32c && fileno_name ? PyModule_Create(&definition) : NULL;
}
