/* What a plan does to every row of a catalog: read its line of JSON, and keep it as `Segment`. Included by _native.c.
 *
 * The reference implementation is the general way in tiered/catalog/format.py, and `segment_in` in spark/planning/plan.py.
 * A row is common if it is written as our writer writes it, in ASCII and without escapes, if it has no checksum but of
 * objects that we know, and if nothing about it is to be refused. Any other line is left to the general way, which
 * decodes it, or says what is wrong with it.
 */

#define DIGITS_MAX 18  /* so that a number has 64 bits */
#define SUFFIXES_MAX 8
#define ROW_FIELDS 11

/* Whether the next bytes are `text`, a literal; they are passed then. */
#define SKIPS(r, text) skips(r, text, sizeof(text) - 1)
static int skips(struct reader *r, const char *text, Py_ssize_t size) {
    if (r->failed || size > r->end - r->at || memcmp(r->at, text, (size_t)size)) return 0;
    r->at += size;
    return 1;
}
static void needs(struct reader *r, const char *text) { expect(r, skips(r, text, (Py_ssize_t)strlen(text))); }

static int64_t json_number(struct reader *r) {
    int64_t value = 0;
    int is_negative = SKIPS(r, "-"), digits = 0;
    const uint8_t *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && digits < DIGITS_MAX; r->at++, digits++)
        value = value * 10 + (*r->at - '0');
    expect(r, digits && (*first != '0' || (digits == 1 && !is_negative)));
    return is_negative ? -value : value;
}

/* Text between quotation marks. */
struct text { const char *at; Py_ssize_t size; };

static struct text json_text(struct reader *r) {
    needs(r, "\"");
    struct text found = {(const char *)r->at, 0};
    while (r->at < r->end && *r->at >= ' ' && *r->at < 0x80 && *r->at != '"' && *r->at != '\\') r->at++;
    found.size = (const char *)r->at - found.at;
    needs(r, "\"");
    return found;
}
static PyObject *text_object(struct text t) { return PyUnicode_DecodeASCII(t.at, t.size, NULL); }

/* Add to a list what was made; a failure is one of the reader, with an exception. */
static void append(struct reader *r, PyObject *list, PyObject *made) {
    if (!made || PyList_Append(list, made)) r->failed = 1;
    Py_XDECREF(made);
}

/* An id in Kafka's text form. The last character has 4 bits too many, which do not count. */
static PyObject *json_id(struct reader *r) {
    struct text t = json_text(r);
    uint8_t id[18] = {0};
    expect(r, t.size == 22);
    for (int i = 0; !r->failed && i < 22; i++) {
        char c = t.at[i];
        int bits = c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
                 : c == '-' ? 62 : c == '_' ? 63 : -1;
        expect(r, bits >= 0);
        for (int bit = 0; bit < 6; bit++)
            if (bits >> (5 - bit) & 1) id[(6 * i + bit) / 8] |= (uint8_t)(128 >> (6 * i + bit) % 8);
    }
    return r->failed ? NULL : PyBytes_FromStringAndSize((const char *)id, 16);
}

static PyObject *json_epochs(struct reader *r) {
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    needs(r, "[");
    for (int more = 1; more && !r->failed; more = SKIPS(r, ",")) {
        needs(r, "[");
        long long epoch = json_number(r);
        needs(r, ",");
        long long offset = json_number(r);
        needs(r, "]");
        if (!r->failed) append(r, list, Py_BuildValue("(LL)", epoch, offset));
    }
    needs(r, "]");
    PyObject *found = r->failed ? NULL : PyList_AsTuple(list);
    Py_DECREF(list);
    return found;
}

/* The suffixes of objects that we know, in their order: a tuple, and its texts. */
struct suffixes { PyObject *all; Py_ssize_t count; struct text texts[SUFFIXES_MAX]; };

static int is_suffixes(PyObject *all, struct suffixes *found) {
    found->all = all;
    found->count = PyTuple_Check(all) ? PyTuple_GET_SIZE(all) : -1;
    if (found->count < 0 || found->count > SUFFIXES_MAX) return 0;
    for (Py_ssize_t i = 0; i < found->count; i++) {
        found->texts[i].at = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(all, i), &found->texts[i].size);
        if (!found->texts[i].at) return 0;
    }
    return 1;
}

/* The place of a suffix among those that we know; -1: none. */
static Py_ssize_t suffix_place(const struct suffixes *known, struct text t) {
    for (Py_ssize_t i = 0; i < known->count; i++)
        if (known->texts[i].size == t.size && !memcmp(known->texts[i].at, t.at, (size_t)t.size)) return i;
    return -1;
}

static PyObject *json_suffixes(struct reader *r, const struct suffixes *known) {
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    needs(r, "[");
    for (int more = 1; more && !r->failed; more = SKIPS(r, ",")) {
        struct text suffix = json_text(r);
        Py_ssize_t place = suffix_place(known, suffix);
        if (!r->failed)
            append(r, list, place < 0 ? text_object(suffix) : Py_NewRef(PyTuple_GET_ITEM(known->all, place)));
    }
    needs(r, "]");
    PyObject *found = r->failed ? NULL : PyList_AsTuple(list);
    Py_DECREF(list);
    return found;
}

/* The objects of the row before, and the bytes that name them: nearly all rows of a catalog have the same ones. */
struct objects { const uint8_t *at; Py_ssize_t size; PyObject *made; };

static PyObject *objects_of_row(struct reader *r, const struct suffixes *known, struct objects *before) {
    if (before->made && before->size <= r->end - r->at && !memcmp(r->at, before->at, (size_t)before->size)) {
        r->at += before->size;
        return Py_NewRef(before->made);
    }
    const uint8_t *at = r->at;
    PyObject *found = json_suffixes(r, known);
    if (!found) return NULL;
    Py_XSETREF(before->made, Py_NewRef(found));
    before->at = at;
    before->size = r->at - at;
    return found;
}

/* The splits in 8 bytes for each number, without bytes if there are none. They are inside the segment, in order. */
static PyObject *json_splits(struct reader *r, int64_t base, int64_t end, int64_t size) {
    if (!SKIPS(r, ",\"splits\":[")) return PyBytes_FromStringAndSize(NULL, 0);
    int64_t last[3] = {base, 0, -1}, next[3];
    /* A split has at least eight bytes of text, `[1,1,1],`. */
    PyObject *found = PyBytes_FromStringAndSize(NULL, (r->end - r->at) / 8 * 24 + 24);
    if (!found) return NULL;
    char *room = PyBytes_AS_STRING(found);
    Py_ssize_t used = 0;
    for (int more = 1; more && !r->failed; more = SKIPS(r, ",")) {
        needs(r, "[");
        next[0] = json_number(r);
        needs(r, ",");
        next[1] = json_number(r);
        needs(r, ",");
        next[2] = json_number(r);
        needs(r, "]");
        expect(r, next[0] > last[0] && next[1] > last[1] && next[2] >= last[2]);
        if (r->failed) break;
        memcpy(room + used, next, sizeof next);
        memcpy(last, next, sizeof next);
        used += (Py_ssize_t)sizeof next;
    }
    needs(r, "]");
    expect(r, last[0] <= end && last[1] < size);
    if (r->failed) Py_CLEAR(found);
    else _PyBytes_Resize(&found, used);
    return found;
}

static uint32_t json_uint32(struct reader *r) {
    int64_t number = json_number(r);
    expect(r, 0 <= number && number <= UINT32_MAX);
    return (uint32_t)number;
}

/* The fingerprint as `pack_fingerprint` in tiered/objects/fingerprint.py packs it, or None. */
static PyObject *json_fingerprint(struct reader *r, const struct suffixes *known, int *may_have_gaps) {
    *may_have_gaps = 1;
    if (!SKIPS(r, ",\"mayHaveGaps\":")) return Py_NewRef(Py_None);
    *may_have_gaps = SKIPS(r, "true");
    if (!*may_have_gaps) needs(r, "false");
    needs(r, ",\"firstCrc32c\":");
    uint32_t first_crc = json_uint32(r);
    needs(r, ",\"headsCrc32c\":");
    uint32_t heads_crc = json_uint32(r);
    needs(r, ",\"sums\":{");
    uint32_t sums[SUFFIXES_MAX][2];
    int there = 0;
    for (int more = 1; more && !r->failed; more = SKIPS(r, ",")) {
        Py_ssize_t place = suffix_place(known, json_text(r));
        expect(r, place >= 0 && !(there >> place & 1));  /* JSON takes the last of two */
        if (r->failed) break;
        there |= 1 << place;
        needs(r, ":[");
        sums[place][0] = json_uint32(r);
        needs(r, ",");
        sums[place][1] = json_uint32(r);
        needs(r, "]");
    }
    needs(r, "}");
    if (r->failed) return NULL;
    uint8_t packed[13 + 8 * SUFFIXES_MAX] = {'F', 'L', 1, (uint8_t)*may_have_gaps}, *at = packed + 4;
    put_be32(at, first_crc);
    put_be32(at + 4, heads_crc);
    at[8] = (uint8_t)there;
    at += 9;
    for (Py_ssize_t i = 0; i < known->count; i++) {
        if (!(there >> i & 1)) continue;
        put_be32(at, sums[i][0]);
        put_be32(at + 4, sums[i][1]);
        at += 8;
    }
    return PyBytes_FromStringAndSize((const char *)packed, at - packed);
}

/* Read one line into a tuple with the fields of `Segment`; NULL if that fails, or if it is not common. */
static PyObject *read_row(struct reader *r, const struct suffixes *known, struct objects *before) {
    int may_have_gaps;
    needs(r, "{\"id\":");
    PyObject *id = json_id(r);
    needs(r, ",\"base\":");
    int64_t base = json_number(r);
    needs(r, ",\"end\":");
    int64_t end = json_number(r);
    needs(r, ",\"bytes\":");
    int64_t size = json_number(r);
    needs(r, ",\"maxTimestampMs\":");
    int64_t newest_ms = json_number(r);
    expect(r, 0 <= base && base <= end && size >= 0);
    needs(r, ",\"epochs\":");
    PyObject *epochs = json_epochs(r);
    needs(r, ",\"stem\":");
    struct text stem = json_text(r);
    needs(r, ",\"objects\":");
    PyObject *objects = objects_of_row(r, known, before);
    int has_oldest = SKIPS(r, ",\"minTimestampMs\":");
    int64_t oldest_ms = has_oldest ? json_number(r) : 0;
    PyObject *splits = json_splits(r, base, end, size);
    PyObject *copied = json_fingerprint(r, known, &may_have_gaps);
    needs(r, "}\n");
    if (may_have_gaps && splits) Py_SETREF(splits, PyBytes_FromStringAndSize(NULL, 0));
    int is_common = !r->failed;
    PyObject *fields[ROW_FIELDS] = {
        id, is_common ? PyLong_FromLongLong(base) : NULL, is_common ? PyLong_FromLongLong(end) : NULL,
        is_common ? PyLong_FromLongLong(size) : NULL, epochs, is_common ? text_object(stem) : NULL, objects, copied,
        !is_common ? NULL : has_oldest ? PyLong_FromLongLong(oldest_ms) : Py_NewRef(Py_None),
        is_common ? PyLong_FromLongLong(newest_ms) : NULL, splits,
    };
    PyObject *found = is_common ? PyTuple_New(ROW_FIELDS) : NULL;
    int is_complete = found != NULL;
    for (int i = 0; i < ROW_FIELDS; i++) {
        is_complete = is_complete && fields[i];
        if (found) PyTuple_SET_ITEM(found, i, fields[i]);
        else Py_XDECREF(fields[i]);
    }
    if (!is_complete) Py_CLEAR(found);
    return found;
}

/* Make a named tuple of a tuple, which is used up. */
static PyObject *named(PyTypeObject *type, PyObject *fields) {
    PyObject *args = fields ? PyTuple_Pack(1, fields) : NULL;
    Py_XDECREF(fields);
    PyObject *found = args ? PyTuple_Type.tp_new(type, args, NULL) : NULL;
    Py_XDECREF(args);
    return found;
}

/* common_rows(data, at, type, suffixes): the rows of the lines from `at` on that are common, as objects of that subclass of
 * tuple, and the begin of the first line that is not, or the end. `suffixes`: those of the objects that we know, in order. */
static PyObject *common_rows(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    struct suffixes known;
    struct objects before = {0};
    if (count != 4 || !PyType_Check(args[2]) || !PyType_IsSubtype((PyTypeObject *)args[2], &PyTuple_Type)
        || !is_suffixes(args[3], &known))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "common_rows(data, at, type, suffixes)");
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    if (at == -1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) return NULL;
    const uint8_t *begin = view.buf;
    struct reader list = {NULL, NULL, 0};
    PyObject *found = PyList_New(0);
    while (found && !list.failed && at >= 0 && at < view.len) {
        const uint8_t *last = memchr(begin + at, '\n', (size_t)(view.len - at));
        struct reader r = {begin + at, last ? last + 1 : begin + at, 0};
        PyObject *row = last ? read_row(&r, &known, &before) : NULL;
        if (!row) break;
        append(&list, found, named((PyTypeObject *)args[2], row));
        at = r.at - begin;
    }
    Py_XDECREF(before.made);
    PyBuffer_Release(&view);
    if (PyErr_Occurred()) Py_CLEAR(found);
    return found ? Py_BuildValue("(Nn)", found, at) : NULL;
}
