/* What compaction does to every record: find its key's last offset, keep it or not. Included by _native.c.
 *
 * The reference implementations are in log/compaction/offset_map.py and log/compaction/cleaner.py: the table is the same, byte for
 * byte, and so is every body. `*_batches` goes over whole batches that need no decision but that: not compressed,
 * not transactional, not control batches, no tombstone that is met for the first time. At any other, and at one
 * that is not good, it stops, and Python goes on from there.
 */

/* ---- SipHash-2-4 with 128 bits: Aumasson and Bernstein, 2012 ------------------------------------ */

static uint64_t little(uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}
static uint64_t le64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return little(value);
}
static void put_le64(uint8_t *at, uint64_t value) {
    value = little(value);
    memcpy(at, &value, 8);
}
static uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }

struct sip { uint64_t a, b, c, d; };
struct hash { uint64_t low, high; };

static inline void sip_mix(struct sip *s, int rounds) {
    while (rounds--) {
        s->a += s->b; s->b = turned(s->b, 13) ^ s->a; s->a = turned(s->a, 32);
        s->c += s->d; s->d = turned(s->d, 16) ^ s->c;
        s->a += s->d; s->d = turned(s->d, 21) ^ s->a;
        s->c += s->b; s->b = turned(s->b, 17) ^ s->c; s->c = turned(s->c, 32);
    }
}
static inline void sip_word(struct sip *s, uint64_t word) {
    s->d ^= word;
    sip_mix(s, 2);
    s->a ^= word;
}
static struct sip sip_with(const uint8_t secret[16]) {
    uint64_t low = le64(secret), high = le64(secret + 8);
    return (struct sip){low ^ 0x736f6d6570736575u, high ^ 0x646f72616e646f6du ^ 0xee,
                        low ^ 0x6c7967656e657261u, high ^ 0x7465646279746573u};
}
static struct hash sip_of(struct sip s, const uint8_t *at, Py_ssize_t size) {
    uint64_t last = (uint64_t)size << 56;
    for (; size >= 8; size -= 8, at += 8) sip_word(&s, le64(at));
    while (size--) last |= (uint64_t)at[size] << 8 * size;
    sip_word(&s, last);
    s.c ^= 0xee;
    sip_mix(&s, 4);
    struct hash made = {s.a ^ s.b ^ s.c ^ s.d, 0};
    s.b ^= 0xdd;
    sip_mix(&s, 4);
    made.high = s.a ^ s.b ^ s.c ^ s.d;
    return made;
}

/* ---- the table -------------------------------------------------------------------------------- */

#define SLOT_BYTES 24
#define SECRET_BYTES 16
/* `latest` is the last offset that the table covers. */
struct offsets { Py_buffer view; uint8_t *table; uint64_t slots; struct sip secret; int64_t used, latest; };

/* Take over table and secret; 0 with an exception. */
static int open_offsets(struct offsets *o, PyObject *table, PyObject *secret) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(secret, &bytes, &size)) return 0;
    if (size != SECRET_BYTES) { PyErr_SetString(PyExc_ValueError, "a secret has 16 bytes"); return 0; }
    if (PyObject_GetBuffer(table, &o->view, PyBUF_WRITABLE)) return 0;
    if (o->view.len < 2 * SLOT_BYTES || o->view.len % SLOT_BYTES) {
        PyBuffer_Release(&o->view);
        PyErr_SetString(PyExc_ValueError, "a table has whole slots, two or more");
        return 0;
    }
    o->table = o->view.buf;
    o->slots = (uint64_t)o->view.len / SLOT_BYTES;
    o->secret = sip_with((const uint8_t *)bytes);
    return 1;
}

/* Where a hash points. The table is larger than any cache: what is at that place is on its way before it is asked for. */
static uint64_t place_of(const struct offsets *o, struct hash hash) {
    uint64_t place = hash.low % o->slots;
    const uint8_t *slot = o->table + place * SLOT_BYTES;
    __builtin_prefetch(slot);
    __builtin_prefetch(slot + SLOT_BYTES - 1);
    return place;
}

/* The slot of a hash: its own, or an empty one. A full table has none: NULL. */
static uint8_t *slot_of(const struct offsets *o, struct hash hash, uint64_t place) {
    for (uint64_t tries = 0; tries < o->slots; tries++) {
        uint8_t *slot = o->table + place * SLOT_BYTES;
        if (!le64(slot + 16) || (le64(slot) == hash.low && le64(slot + 8) == hash.high)) return slot;
        if (++place == o->slots) place = 0;
    }
    return NULL;
}

/* ---- records ---------------------------------------------------------------------------------- */

/* Where the parts of a record are, as in cleaner.py; `key` is NULL without one. */
struct record {
    const uint8_t *start, *time_at, *offset_at, *end, *key;
    int64_t time_delta;
    int32_t offset_delta, key_size;
    int has_value;
};

/* Read the next record of `all`; 0 when it is not what it says. */
static int next_record(struct reader *all, struct record *found) {
    found->start = all->at;
    int32_t size = varint32(all);
    if (all->failed || size < 1) return 0;
    const uint8_t *at = take(all, size);
    if (!at) return 0;
    struct reader r = {at + 1, at + size, 0};
    found->time_at = r.at;
    found->time_delta = varint(&r, 10);
    found->offset_at = r.at;
    found->offset_delta = varint32(&r);
    found->key_size = varint32(&r);
    found->key = NULL;
    if (!r.failed && found->key_size >= 0) {
        found->key = take(&r, found->key_size);
        if (!found->key) return 0;
    }
    int32_t value_size = varint32(&r);
    if (r.failed || value_size > r.end - r.at) return 0;
    found->has_value = value_size >= 0;
    found->end = at + size;
    return 1;
}

/* A batch's records: what is asked of both walks. */
struct body { const uint8_t *at; Py_ssize_t size; int64_t count, base_offset, last_delta; };

/* Some records of a batch, read one after another before the table is asked for the first of their keys.
 * `done` of all were read before, `before` is the last offset delta; `is_bad` when the next is not what the header says. */
#define GATHERED_MAX 32
struct keyed { struct record record; int64_t offset; int is_wanted; struct hash hash; uint64_t place; };
struct gathered { struct reader all; int64_t done, before; int is_bad, count; struct keyed some[GATHERED_MAX]; };

static void begin(struct gathered *g, const struct body *b) {
    g->all = (struct reader){b->at, b->at + b->size, 0};
    g->done = g->is_bad = g->count = 0;
    g->before = -1;
}

/* Read the next records; of those whose offset is in [low, high] the keys are looked up. 0 after the last. */
static int read_some(struct gathered *g, const struct body *b, const struct offsets *o, int64_t low, int64_t high) {
    for (g->count = 0; g->count < GATHERED_MAX && g->done < b->count && !g->is_bad; g->done++) {
        struct keyed *k = &g->some[g->count];
        struct record *r = &k->record;
        if (!next_record(&g->all, r) || r->offset_delta <= g->before || r->offset_delta > b->last_delta) {
            g->is_bad = 1;
            break;
        }
        g->before = r->offset_delta;
        g->count++;
        k->offset = b->base_offset + r->offset_delta;
        k->is_wanted = r->key && k->offset >= low && k->offset <= high;
        if (!k->is_wanted) continue;
        k->hash = sip_of(o->secret, r->key, r->key_size);
        k->place = place_of(o, k->hash);
    }
    return g->count;
}
/* Whether all records were read, and were what the header says. */
static int is_complete(const struct gathered *g) { return !g->is_bad && g->all.at == g->all.end; }

/* 1 all put, 0 the table is full, -1 not what the header says. */
static int put_keys(const struct body *b, struct offsets *o, int64_t start_offset, int64_t keys_max) {
    struct gathered g;
    begin(&g, b);
    while (read_some(&g, b, o, start_offset, INT64_MAX))
        for (int i = 0; i < g.count; i++) {
            const struct keyed *k = &g.some[i];
            if (!k->is_wanted) continue;
            if (o->used >= keys_max) return 0;
            uint8_t *slot = slot_of(o, k->hash, k->place);
            if (!slot) return 0;
            if (!le64(slot + 16)) {
                put_le64(slot, k->hash.low);
                put_le64(slot + 8, k->hash.high);
                o->used++;
            }
            put_le64(slot + 16, (uint64_t)k->offset + 1);
        }
    return is_complete(&g) ? 1 : -1;
}

static int survives(const struct keyed *k, const struct offsets *o, int drops_tombstones) {
    if (k->offset > o->latest) return 1;
    if (!k->record.key) return 0;
    const uint8_t *slot = slot_of(o, k->hash, k->place);
    if (slot && (uint64_t)k->offset + 1 < le64(slot + 16)) return 0;
    return k->record.has_value || !drops_tombstones;
}

static uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; rest > 127; rest >>= 7) *at++ = (uint8_t)(rest & 127) | 128;
    *at++ = (uint8_t)rest;
    return at;
}

/* What is left of a batch's records; `run` begins where bytes have not been copied yet. */
struct left { int64_t count, max_delta; int has_tombstones, is_same; const uint8_t *run; uint8_t *end; };

static void put_bytes(struct left *left, const uint8_t *from, const uint8_t *to) {
    memcpy(left->end, from, (size_t)(to - from));
    left->end += to - from;
}

/* Write a record that survives with another timestamp. */
static void put_shifted(struct left *left, const struct record *r, int64_t shift) {
    int64_t moved = (int64_t)((uint64_t)r->time_delta + (uint64_t)shift); /* wraps, as in Java */
    uint8_t time[10], *time_end = put_varint(time, moved);
    left->end = put_varint(left->end, 1 + (time_end - time) + (r->end - r->offset_at));
    *left->end++ = r->time_at[-1];
    put_bytes(left, time, time_end);
    put_bytes(left, r->offset_at, r->end);
}

/* Write what survives to `out`, which has room for the body and, with a shift, 15 bytes more for each record. Nothing is
 * written while all survive as they are. 0 when the records are not what the header says. */
static int put_survivors(const struct body *b, const struct offsets *o, int drops_tombstones, int64_t shift,
                         uint8_t *out, struct left *left) {
    struct gathered g;
    begin(&g, b);
    *left = (struct left){0, INT64_MIN, 0, shift == 0, b->at, out};
    while (read_some(&g, b, o, INT64_MIN, o->latest))
        for (int i = 0; i < g.count; i++) {
            const struct record *r = &g.some[i].record;
            if (survives(&g.some[i], o, drops_tombstones)) {
                left->count++;
                left->has_tombstones |= !r->has_value;
                if (r->time_delta > left->max_delta) left->max_delta = r->time_delta;
                if (shift) put_shifted(left, r, shift);
                continue;
            }
            if (!shift) put_bytes(left, left->run, r->start);
            left->run = r->end;
            left->is_same = 0;
        }
    if (!is_complete(&g)) return 0;
    if (!shift && !left->is_same) put_bytes(left, left->run, g.all.end);
    if (!left->count) left->max_delta = 0;
    return 1;
}

/* Read numbers from arguments; 0 with an exception. */
static int numbers(PyObject *const *args, Py_ssize_t count, int64_t *into) {
    for (Py_ssize_t i = 0; i < count; i++) {
        into[i] = PyLong_AsLongLong(args[i]);
        if (into[i] == -1 && PyErr_Occurred()) return 0;
    }
    return 1;
}

/* map_body(body, count, base offset, last delta, table, secret, used, start offset, keys max): (status, used) */
static PyObject *map_body(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t of_batch[3], more[3];
    struct offsets o;
    Py_buffer view;
    if (count != 9) return PyErr_Format(PyExc_TypeError, "map_body takes 9 arguments");
    if (!numbers(args + 1, 3, of_batch) || !numbers(args + 6, 3, more) || !open_offsets(&o, args[4], args[5])) return NULL;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) { PyBuffer_Release(&o.view); return NULL; }
    o.used = more[0];
    struct body b = {view.buf, view.len, of_batch[0], of_batch[1], of_batch[2]};
    int status = put_keys(&b, &o, more[1], more[2]);
    PyBuffer_Release(&view);
    PyBuffer_Release(&o.view);
    return Py_BuildValue("iL", status, (long long)o.used);
}

/* filter_body(body, count, base offset, last delta, table, secret, latest, drops tombstones, shift): what is left,
 * (count, has tombstones, max delta, body or None), or None. */
static PyObject *filter_body(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t of_batch[3], more[3];
    struct offsets o;
    Py_buffer view;
    if (count != 9) return PyErr_Format(PyExc_TypeError, "filter_body takes 9 arguments");
    if (!numbers(args + 1, 3, of_batch) || !numbers(args + 6, 3, more) || !open_offsets(&o, args[4], args[5])) return NULL;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) { PyBuffer_Release(&o.view); return NULL; }
    o.latest = more[0];
    struct body b = {view.buf, view.len, of_batch[0], of_batch[1], of_batch[2]};
    /* A record has 5 bytes or more: length, attributes, two deltas, key and value sizes. */
    Py_ssize_t room = view.len + (more[2] ? 15 * (view.len / 5 + 1) : 0);
    PyObject *out = PyBytes_FromStringAndSize(NULL, room), *found = NULL;
    struct left left;
    if (out && put_survivors(&b, &o, more[1] != 0, more[2], (uint8_t *)PyBytes_AS_STRING(out), &left)) {
        Py_ssize_t size = left.end - (uint8_t *)PyBytes_AS_STRING(out);
        if (left.is_same) { Py_DECREF(out); out = Py_NewRef(Py_None); }
        else _PyBytes_Resize(&out, size);
        if (out) found = Py_BuildValue("LOLO", (long long)left.count, left.has_tombstones ? Py_True : Py_False,
                                       (long long)left.max_delta, out);
    } else if (out) {
        found = Py_NewRef(Py_None);
    }
    Py_XDECREF(out);
    PyBuffer_Release(&view);
    PyBuffer_Release(&o.view);
    return found;
}

/* ---- whole batches ---------------------------------------------------------------------------- */

#define PLAIN_MASK 0x37  /* codec, transactional, control */
#define LOG_APPEND 0x08
#define HORIZON 0x40

static void put_be32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24); at[1] = (uint8_t)(value >> 16); at[2] = (uint8_t)(value >> 8); at[3] = (uint8_t)value;
}
static void put_be64(uint8_t *at, uint64_t value) { put_be32(at, (uint32_t)(value >> 32)); put_be32(at + 4, (uint32_t)value); }

/* Where a walk is: in the bytes, in the offsets, in the leader epochs; and where the segment ends. */
struct progress { const uint8_t *at, *end; int64_t expected, epoch, end_offset; };
struct plain { const uint8_t *at; Py_ssize_t size; int attributes; struct body body; int64_t last_offset; };

/* Look at the next batch: 1 if it is whole, good and plain. The walk stays where it is. */
static int next_plain(const struct progress *w, struct plain *p) {
    const uint8_t *at = p->at = w->at;
    if (w->end - at < HEADER_BYTES) return 0;
    int64_t size = (int64_t)(int32_t)be32(at + 8) + 12, base_offset = be64(at);
    int32_t delta = (int32_t)be32(at + 23), count = (int32_t)be32(at + 57);
    p->attributes = be16(at + 21);
    if (size < HEADER_BYTES || size > w->end - at || at[16] != 2 || p->attributes & PLAIN_MASK || delta < 0 || count < 0)
        return 0;
    if (base_offset < w->expected || __builtin_add_overflow(base_offset, (int64_t)delta, &p->last_offset)
        || p->last_offset >= w->end_offset || (int32_t)be32(at + 12) < w->epoch)
        return 0;
    if (any_crc_on(0, at + CRC_START, (size_t)(size - CRC_START)) != be32(at + 17)) return 0;
    p->size = (Py_ssize_t)size;
    p->body = (struct body){at + HEADER_BYTES, (Py_ssize_t)size - HEADER_BYTES, count, base_offset, delta};
    return 1;
}
static void pass(struct progress *w, const struct plain *p) {
    w->at += p->size;
    w->expected = p->last_offset + 1;
    w->epoch = (int32_t)be32(p->at + 12);
}

static int64_t within(int64_t place, Py_ssize_t size) { return place < 0 || place > size ? size : place; }

/* map_batches(data, position, expected offset, epoch, end offset, table, secret, used, latest, start offset, keys max):
 * (position, expected offset, epoch, used, latest, is full) after the plain batches that follow one another. */
static PyObject *map_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t place[4], more[4];
    struct offsets o;
    Py_buffer view;
    if (count != 11) return PyErr_Format(PyExc_TypeError, "map_batches takes 11 arguments");
    if (!numbers(args + 1, 4, place) || !numbers(args + 7, 4, more) || !open_offsets(&o, args[5], args[6])) return NULL;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE)) { PyBuffer_Release(&o.view); return NULL; }
    const uint8_t *base = view.buf;
    struct progress w = {base + within(place[0], view.len), base + view.len, place[1], place[2], place[3]};
    struct plain p;
    int status = 1;
    o.used = more[0];
    o.latest = more[1];
    while (next_plain(&w, &p)) {
        if (p.last_offset >= more[2]) {
            status = put_keys(&p.body, &o, more[2], more[3]);
            if (status < 1) break;
            o.latest = p.last_offset;
        }
        pass(&w, &p);
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&o.view);
    return Py_BuildValue("nLLLLO", (Py_ssize_t)(w.at - base), (long long)w.expected, (long long)w.epoch,
                         (long long)o.used, (long long)o.latest, status == 0 ? Py_True : Py_False);
}

/* Whether (offset, producer) is among `count` pairs, ascending. */
static int is_among(const int64_t (*pairs)[2], Py_ssize_t count, int64_t offset, int64_t producer) {
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (pairs[middle][0] < offset || (pairs[middle][0] == offset && pairs[middle][1] < producer)) low = middle + 1;
        else high = middle;
    }
    return low < count && pairs[low][0] == offset && pairs[low][1] == producer;
}

/* What filter_batches writes into the room that it has, and when the next index entry is due: as `Segment.note`. */
struct written {
    uint8_t *out, *end, *room_end;
    int64_t size_before, unindexed, interval, max_time, max_time_offset, read, kept;
    PyObject *entries;
};

/* Take note of a batch of `size` bytes that was written at the end; 0 with an exception. */
static int note_written(struct written *n, Py_ssize_t size, int64_t last_offset, int64_t max_time) {
    if (max_time > n->max_time) { n->max_time = max_time; n->max_time_offset = last_offset; }
    if (n->unindexed > n->interval) {
        PyObject *entry = Py_BuildValue("LLLL", (long long)last_offset, (long long)(n->size_before + (n->end - n->out)),
                                        (long long)n->max_time, (long long)n->max_time_offset);
        if (!entry) return 0;
        int is_bad = PyList_Append(n->entries, entry);
        Py_DECREF(entry);
        if (is_bad) return 0;
        n->unindexed = 0;
    }
    n->unindexed += size;
    n->end += size;
    return 1;
}

/* The header of the batch that begins at `at`, changed for what is left of it. */
static void put_header(uint8_t *at, const struct plain *p, Py_ssize_t size, int64_t count, int64_t max_time) {
    memcpy(at, p->at, HEADER_BYTES);
    put_be32(at + 8, (uint32_t)(size - 12));
    put_be64(at + 35, (uint64_t)max_time);
    put_be32(at + 57, (uint32_t)count);
    if (!count) {
        at[21] = 0;
        at[22] &= LOG_APPEND;
        put_be64(at + 27, (uint64_t)-1);
    }
    put_be32(at + 17, any_crc_on(0, at + CRC_START, (size_t)(size - CRC_START)));
}

/* Write what is left of one batch: 1 done, 0 Python is to do it, -1 with an exception. */
static int filter_one(const struct plain *p, const struct offsets *o, int64_t now_ms, int is_kept, struct written *n) {
    struct left left;
    int64_t base_time = be64(p->at + 27), max_time = be64(p->at + 35), greatest;
    int is_expired = p->attributes & HORIZON && base_time <= now_ms;
    /* What is left of a batch is never longer than the batch. */
    if (p->size > n->room_end - n->end) return 0;
    if (!put_survivors(&p->body, o, is_expired, 0, n->end + HEADER_BYTES, &left)) return 0;
    if (left.has_tombstones && !(p->attributes & HORIZON)) return 0;
    n->read += p->body.count;
    n->kept += left.count;
    Py_ssize_t size = p->size;
    if (!left.count) {
        if (!is_kept) return 1;
        size = HEADER_BYTES;
        put_header(n->end, p, size, 0, max_time);
    } else if (left.is_same) {
        memcpy(n->end, p->at, (size_t)size);
    } else {
        if (!(p->attributes & LOG_APPEND)) {
            if (__builtin_add_overflow(base_time, left.max_delta, &greatest)) greatest = base_time < 0 ? -1 : INT64_MAX;
            if (greatest < -1) greatest = -1;
            if (greatest < max_time) max_time = greatest;
        }
        size = left.end - n->end;
        put_header(n->end, p, size, left.count, max_time);
    }
    return note_written(n, size, p->last_offset, max_time) ? 1 : -1;
}

/* What filter_batches holds on to. */
struct filter_views { Py_buffer data, lasts, out; };

static int open_views(struct filter_views *v, PyObject *data, PyObject *lasts, PyObject *out) {
    if (PyObject_GetBuffer(data, &v->data, PyBUF_SIMPLE)) return 0;
    if (PyObject_GetBuffer(lasts, &v->lasts, PyBUF_SIMPLE)) { PyBuffer_Release(&v->data); return 0; }
    if (!PyObject_GetBuffer(out, &v->out, PyBUF_WRITABLE)) return 1;
    PyBuffer_Release(&v->data);
    PyBuffer_Release(&v->lasts);
    return 0;
}
/* filter_batches(data, position, expected offset, epoch, end offset, table, secret, latest, now ms, upto offset,
 * where the data of producers ends, room, used of it, size before, unindexed, interval, max time, its offset): (position,
 * expected offset, epoch, bytes written, index entries, unindexed, max time, its offset, records read, records kept).
 * It stops at a batch that the room might not hold, too. */
static PyObject *filter_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t place[4], more[3], index[6];
    struct offsets o;
    struct filter_views v;
    if (count != 18) return PyErr_Format(PyExc_TypeError, "filter_batches takes 18 arguments");
    if (!numbers(args + 1, 4, place) || !numbers(args + 7, 3, more) || !numbers(args + 12, 6, index)
        || !open_offsets(&o, args[5], args[6])) return NULL;
    if (!open_views(&v, args[0], args[10], args[11])) { PyBuffer_Release(&o.view); return NULL; }
    const uint8_t *base = v.data.buf;
    struct progress w = {base + within(place[0], v.data.len), base + v.data.len, place[1], place[2], place[3]};
    struct plain p;
    uint8_t *room = (uint8_t *)v.out.buf + within(index[0], v.out.len), *room_end = (uint8_t *)v.out.buf + v.out.len;
    struct written n = {room, room, room_end, index[1], index[2], index[3], index[4], index[5], 0, 0, PyList_New(0)};
    o.latest = more[0];
    int status = n.entries ? 1 : -1;
    while (status > 0 && next_plain(&w, &p)) {
        int is_kept = p.last_offset + 1 == more[2]
            || is_among(v.lasts.buf, v.lasts.len / 16, p.last_offset, be64(p.at + 43));
        status = filter_one(&p, &o, more[1], is_kept, &n);
        if (status > 0) pass(&w, &p);
    }
    PyObject *found = NULL;
    if (status >= 0)
        found = Py_BuildValue("nLLnOLLLLL", (Py_ssize_t)(w.at - base), (long long)w.expected, (long long)w.epoch,
                              (Py_ssize_t)(n.end - n.out), n.entries, (long long)n.unindexed, (long long)n.max_time,
                              (long long)n.max_time_offset, (long long)n.read, (long long)n.kept);
    Py_XDECREF(n.entries);
    PyBuffer_Release(&v.out);
    PyBuffer_Release(&v.lasts);
    PyBuffer_Release(&v.data);
    PyBuffer_Release(&o.view);
    return found;
}
