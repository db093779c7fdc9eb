/* What a scan does to every batch and every record: find it, check it, lay out its fields as columns of Arrow.
 * Included by _native.c.
 *
 * The reference implementations are in spark/frames.py and spark/decoding/numpy_records.py. What either refuses is
 * refused here, by None: the Python code then says which record is bad, and why. All memory that is written is
 * allocated here, for the number of records that the headers state, which is never more than the bodies can hold.
 */

/* ---- batches ---------------------------------------------------------------------------------- */

/* Pass the complete batches of data; return their number, -1 for what is not a v2 batch. Copies the positions of their
 * begins, and where the last one ends, and their headers, where there is room for them. */
static int64_t pass_batches(const Py_buffer *data, int64_t *places, uint8_t *heads) {
    const uint8_t *base = data->buf, *at = base, *end = base + data->len;
    int64_t count = 0;
    for (; end - at >= HEADER_BYTES; count++) {
        int32_t length = (int32_t)be32(at + 8);
        if (length < HEADER_BYTES - 12 || at[16] != 2) return -1;
        if (length > end - at - 12) break;
        if (places) {
            places[count] = at - base;
            memcpy(heads + count * HEADER_BYTES, at, HEADER_BYTES);
        }
        at += (Py_ssize_t)length + 12;
    }
    if (end - at > 16 && at[16] != 2) return -1;
    if (places) places[count] = at - base;
    return count;
}

/* find_batches(data): (begins of the batches and the end of the last, 64-bit; their headers), or None. */
static PyObject *find_batches(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    int64_t count = pass_batches(&view, NULL, NULL);
    PyObject *found = count < 0 ? Py_NewRef(Py_None) : NULL;
    if (!found) {
        PyObject *places = PyBytes_FromStringAndSize(NULL, (count + 1) * 8);
        PyObject *heads = PyBytes_FromStringAndSize(NULL, count * HEADER_BYTES);
        if (places && heads) {
            pass_batches(&view, (int64_t *)PyBytes_AS_STRING(places), (uint8_t *)PyBytes_AS_STRING(heads));
            found = PyTuple_Pack(2, places, heads);
        }
        Py_XDECREF(places);
        Py_XDECREF(heads);
    }
    PyBuffer_Release(&view);
    return found;
}

/* first_wrong_crc(data, begins, ends, heads): the number of the first batch whose CRC is not what its header states, -1
 * without one; None where the processor has no instruction for it, and the crc32c package is faster. */
static PyObject *first_wrong_crc(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data, of[3];
    int held = 0;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "first_wrong_crc(data, begins, ends, heads)");
    if (!HAS_OWN_CRC) Py_RETURN_NONE;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE)) return NULL;
    while (held < 3 && !PyObject_GetBuffer(args[held + 1], &of[held], PyBUF_SIMPLE)) held++;
    int64_t found = -1, batches = held == 3 ? of[0].len / 8 : 0;
    int is_right = held == 3 && of[1].len == of[0].len && of[2].len / HEADER_BYTES >= batches;
    if (held == 3 && !is_right) PyErr_SetString(PyExc_ValueError, "a begin, an end and a header for each batch");
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; is_right && found < 0 && i < batches; i++) {
        int64_t begin = ((const int64_t *)of[0].buf)[i], end = ((const int64_t *)of[1].buf)[i];
        const uint8_t *at = (const uint8_t *)data.buf + begin, *head = (const uint8_t *)of[2].buf + i * HEADER_BYTES;
        is_right = begin >= 0 && end <= data.len && begin <= end - HEADER_BYTES;
        if (is_right && any_crc_on(0, at + CRC_START, (size_t)(end - begin - CRC_START)) != be32(head + 17)) found = i;
    }
    Py_END_ALLOW_THREADS
    if (held == 3 && !is_right && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a batch is outside the data");
    while (held--) PyBuffer_Release(&of[held]);
    PyBuffer_Release(&data);
    return is_right ? PyLong_FromLongLong(found) : NULL;
}

/* ---- records ---------------------------------------------------------------------------------- */

/* spark/decoding/native_records.py: which fields are laid out. To reach a field, those before it are read, too. */
enum { KEYS = 1, VALUES = 2, HEADERS = 4, TIMES = 8, BATCHES = 16 };
#define TIME_MS_MAX (INT64_MAX / 1000)  /* spark/schema.py */

/* Read a zigzag varint of at most five bytes; the position after it, NULL if it does not end before `end`. What has
 * more than 32 bits is not refused here: every caller compares the value with a limit below that. */
static inline const uint8_t *get_int32(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 35 && at < end; shift += 7) {
        uint8_t byte = *at++;
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
            return at;
        }
    }
    return NULL;
}
static inline const uint8_t *get_int64(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && (byte & 127) > 1) return NULL;
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
            return at;
        }
    }
    return NULL;
}

/* Bytes behind their length; -1 is null. */
struct span { const uint8_t *at; int64_t size; };
static inline const uint8_t *get_span(const uint8_t *at, const uint8_t *end, struct span *found) {
    at = get_int32(at, end, &found->size);
    if (!at || found->size < -1 || found->size > end - at) return NULL;
    found->at = at;
    return found->size > 0 ? at + found->size : at;
}

/* A column of Arrow: where each value begins in `data`, and which are not null, a bit for each. */
struct column { PyObject *places, *data, *valid; int64_t used, room, nulls; };

static int open_column(struct column *c, int64_t rows, int64_t room) {
    c->used = c->nulls = 0;
    c->room = room;
    c->places = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    c->data = PyBytes_FromStringAndSize(NULL, room);
    c->valid = PyBytes_FromStringAndSize(NULL, rows / 8 + 1);
    if (!c->places || !c->data || !c->valid) return 0;
    *(int32_t *)PyBytes_AS_STRING(c->places) = 0;
    memset(PyBytes_AS_STRING(c->valid), 0, (size_t)(rows / 8 + 1));
    return 1;
}
static void close_column(struct column *c) {
    Py_CLEAR(c->places);
    Py_CLEAR(c->data);
    Py_CLEAR(c->valid);
}
/* Add row number `row`; 0 without room. */
static inline int add(struct column *c, int64_t row, const struct span *s) {
    if (s->size < 0) {
        c->nulls++;
    } else {
        if (s->size > c->room - c->used) return 0;
        memcpy(PyBytes_AS_STRING(c->data) + c->used, s->at, (size_t)s->size);
        c->used += s->size;
        PyBytes_AS_STRING(c->valid)[row >> 3] |= (char)(1 << (row & 7));
    }
    ((int32_t *)PyBytes_AS_STRING(c->places))[row + 1] = (int32_t)c->used;
    return 1;
}
/* (places, data, validity, nulls), and leave the column empty; NULL with an exception. */
static PyObject *column_object(struct column *c) {
    PyObject *made = NULL;
    if (!_PyBytes_Resize(&c->data, (Py_ssize_t)c->used))
        made = Py_BuildValue("OOOL", c->places, c->data, c->valid, (long long)c->nulls);
    close_column(c);
    return made;
}

/* What is read and what is made of it. `headers_at` has, for each row, where its headers begin and its record ends. */
struct scan {
    Py_buffer body, begins, ends, heads;
    int64_t low, high, batches, records, rows, headers;
    int fields;
    PyObject *offsets, *times, *numbers, *header_places, *header_valid;
    struct span *headers_at;
    struct column keys, values, header_keys, header_values;
    int64_t headless;
};

/* Read the headers of row number `row`, the first of which gets the number `first`; 0 if they are not what they say. */
static int read_headers(struct scan *s, int64_t row, int64_t first) {
    const int32_t *places = (const int32_t *)PyBytes_AS_STRING(s->header_places);
    const uint8_t *at = s->headers_at[row].at, *end = at + s->headers_at[row].size;
    struct span key, value;
    for (int64_t i = first; i < places[row + 1]; i++) {
        at = get_span(at, end, &key);
        if (!at || key.size < 0) return 0;
        at = get_span(at, end, &value);
        if (!at || !add(&s->header_keys, i, &key) || !add(&s->header_values, i, &value)) return 0;
    }
    return at == end;
}
static int read_all_headers(struct scan *s) {
    const int32_t *places = (const int32_t *)PyBytes_AS_STRING(s->header_places);
    for (int64_t row = 0; row < s->rows; row++)
        if (!read_headers(s, row, places[row])) return 0;
    return 1;
}

/* Read key, value and the number of headers of one record as far as they are wanted, and add them as the next row if
 * it is inside; 0 if they are not what they say. */
static inline int read_fields(struct scan *s, const uint8_t *at, const uint8_t *end, int is_inside) {
    struct span key, value;
    int64_t headers, row = s->rows;
    at = get_span(at, end, &key);
    if (!at) return 0;
    if (is_inside && s->fields & KEYS && !add(&s->keys, row, &key)) return 0;
    if (!(s->fields & (VALUES | HEADERS))) return 1;
    at = get_span(at, end, &value);
    if (!at) return 0;
    at = get_int32(at, end, &headers);
    if (!at || headers < 0 || headers * 2 > end - at || (!headers && at != end)) return 0;
    if (!is_inside) return 1;
    if (s->fields & VALUES && !add(&s->values, row, &value)) return 0;
    if (s->fields & HEADERS) {
        s->headers += headers;
        s->headless += !headers;
        if (headers) PyBytes_AS_STRING(s->header_valid)[row >> 3] |= (char)(1 << (row & 7));
        ((int32_t *)PyBytes_AS_STRING(s->header_places))[row + 1] = (int32_t)s->headers;
        s->headers_at[row] = (struct span){at, end - at};
    }
    return 1;
}

/* Read the records of batch number `batch`; 0 if they are not what the header says. */
static int read_batch(struct scan *s, int64_t batch) {
    const uint8_t *head = (const uint8_t *)s->heads.buf + batch * HEADER_BYTES;
    const uint8_t *at = (const uint8_t *)s->body.buf + ((const int64_t *)s->begins.buf)[batch];
    const uint8_t *end = (const uint8_t *)s->body.buf + ((const int64_t *)s->ends.buf)[batch];
    int64_t *offsets = (int64_t *)PyBytes_AS_STRING(s->offsets);
    int64_t *times = s->times ? (int64_t *)PyBytes_AS_STRING(s->times) : NULL;
    int32_t *numbers = s->numbers ? (int32_t *)PyBytes_AS_STRING(s->numbers) : NULL;
    int64_t base = be64(head), last_delta = (int32_t)be32(head + 23), count = (int32_t)be32(head + 57);
    int is_append_time = be16(head + 21) & LOG_APPEND;
    uint64_t first_time = (uint64_t)be64(head + 27);
    int64_t time = be64(head + 35), size, delta, time_delta;
    for (int64_t i = 0; i < count; i++) {
        at = get_int32(at, end, &size);
        if (!at || size < 1 || size > end - at) return 0;
        const uint8_t *next = at + size;
        at = get_int64(at + 1, next, &time_delta);  /* after the attributes, which are unused */
        if (at) at = get_int32(at, next, &delta);
        if (!at || delta < 0 || delta > last_delta) return 0;
        if (!is_append_time) time = (int64_t)(first_time + (uint64_t)time_delta);
        if (times && (time > TIME_MS_MAX || time < -TIME_MS_MAX)) return 0;
        int64_t offset = (int64_t)((uint64_t)base + (uint64_t)delta);
        int is_inside = offset >= s->low && offset < s->high;
        if (s->fields & (KEYS | VALUES | HEADERS) && !read_fields(s, at, next, is_inside)) return 0;
        at = next;
        if (!is_inside) continue;
        offsets[s->rows] = offset;
        if (times) times[s->rows] = time * 1000;
        if (numbers) numbers[s->rows] = (int32_t)batch;
        s->rows++;
    }
    return at == end;
}
static int read_all(struct scan *s) {
    for (int64_t batch = 0; batch < s->batches; batch++)
        if (!read_batch(s, batch)) return 0;
    return 1;
}

/* Count the records; -1 with an exception if the arguments do not fit one another, 0 if the bodies cannot hold them. */
static int count_records(struct scan *s) {
    const int64_t *begins = s->begins.buf, *ends = s->ends.buf;
    s->batches = s->begins.len / 8;
    int is_right = s->body.len <= (int64_t)INT32_MAX + HEADER_BYTES && s->begins.len % 8 == 0 && s->ends.len == s->begins.len
        && s->heads.len / HEADER_BYTES == s->batches && s->heads.len % HEADER_BYTES == 0 && s->batches <= INT32_MAX;
    int64_t before = 0, can_hold = 1;
    for (int64_t i = 0; is_right && i < s->batches; i++) {
        int64_t count = (int32_t)be32((const uint8_t *)s->heads.buf + i * HEADER_BYTES + 57);
        is_right = count >= 0 && begins[i] >= before && ends[i] >= begins[i] && ends[i] <= s->body.len;
        if (!is_right) break;
        before = ends[i];
        can_hold &= count * RECORD_BYTES_MIN <= ends[i] - begins[i];
        s->records += count;
    }
    if (is_right) return (int)can_hold;
    PyErr_SetString(PyExc_ValueError, "batches are one after another within a body of at most 2 GiB");
    return -1;
}

/* Allocate what is written; 0 with an exception. */
static int open_scan(struct scan *s) {
    int64_t rows = s->records;
    if (!(s->offsets = PyBytes_FromStringAndSize(NULL, rows * 8))) return 0;
    if (s->fields & TIMES && !(s->times = PyBytes_FromStringAndSize(NULL, rows * 8))) return 0;
    if (s->fields & BATCHES && !(s->numbers = PyBytes_FromStringAndSize(NULL, rows * 4))) return 0;
    if (s->fields & KEYS && !open_column(&s->keys, rows, s->body.len)) return 0;
    if (s->fields & VALUES && !open_column(&s->values, rows, s->body.len)) return 0;
    if (!(s->fields & HEADERS)) return 1;
    s->header_places = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    s->header_valid = PyBytes_FromStringAndSize(NULL, rows / 8 + 1);
    s->headers_at = PyMem_Malloc((size_t)(rows + 1) * sizeof *s->headers_at);
    if (!s->header_places || !s->header_valid || !s->headers_at) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return 0;
    }
    *(int32_t *)PyBytes_AS_STRING(s->header_places) = 0;
    memset(PyBytes_AS_STRING(s->header_valid), 0, (size_t)(rows / 8 + 1));
    return 1;
}
static void close_scan(struct scan *s) {
    Py_XDECREF(s->offsets);
    Py_XDECREF(s->times);
    Py_XDECREF(s->numbers);
    Py_XDECREF(s->header_places);
    Py_XDECREF(s->header_valid);
    PyMem_Free(s->headers_at);
    close_column(&s->keys);
    close_column(&s->values);
    close_column(&s->header_keys);
    close_column(&s->header_values);
}

static PyObject *object_or_none(PyObject *object) { return Py_NewRef(object ? object : Py_None); }
static PyObject *column_or_none(struct column *c) { return c->places ? column_object(c) : Py_NewRef(Py_None); }

/* Read all, and return the columns; None if a record is not what it says. */
static PyObject *scanned(struct scan *s) {
    if (!open_scan(s)) return NULL;
    int is_right;
    Py_BEGIN_ALLOW_THREADS
    is_right = read_all(s);
    Py_END_ALLOW_THREADS
    if (is_right && s->fields & HEADERS) {
        if (!open_column(&s->header_keys, s->headers, s->body.len)) return NULL;
        if (!open_column(&s->header_values, s->headers, s->body.len)) return NULL;
        Py_BEGIN_ALLOW_THREADS
        is_right = read_all_headers(s);
        Py_END_ALLOW_THREADS
    }
    if (!is_right) Py_RETURN_NONE;
    return Py_BuildValue("LONNNNNNLNN", (long long)s->rows, s->offsets, object_or_none(s->times), object_or_none(s->numbers),
                         column_or_none(&s->keys), column_or_none(&s->values), object_or_none(s->header_places),
                         object_or_none(s->header_valid), (long long)s->headless, column_or_none(&s->header_keys),
                         column_or_none(&s->header_values));
}

/* decode_records(body, begins, ends, heads, low, high, fields): the records of batches whose offsets are in [low, high):
 * (rows, offsets, times in us, numbers of their batches, keys, values, where the headers of each row end, which rows have
 * some, how many have none, keys and values of the headers), or None. */
static PyObject *decode_records(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    struct scan s = {0};
    Py_buffer *views[] = {&s.body, &s.begins, &s.ends, &s.heads};
    int64_t more[3];
    int held = 0;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "decode_records takes 7 arguments");
    if (!numbers(args + 4, 3, more)) return NULL;
    s.low = more[0];
    s.high = more[1];
    s.fields = (int)more[2];
    PyObject *found = NULL;
    while (held < 4 && !PyObject_GetBuffer(args[held], views[held], PyBUF_SIMPLE)) held++;
    if (held == 4) {
        int can_hold = count_records(&s);
        if (can_hold > 0) found = scanned(&s);
        else if (!can_hold) found = Py_NewRef(Py_None);
    }
    close_scan(&s);
    while (held--) PyBuffer_Release(views[held]);
    return found;
}
