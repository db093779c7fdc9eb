/* load: librdkafka from C against any broker, so that the client is not what is measured.
 *
 *   build:  cc -O2 -o load load.c -lrdkafka -lpthread
 *   load produce BROKER TOPIC MESSAGES SIZE [key=value]...      until every message is acknowledged
 *   load consume BROKER TOPIC PARTITIONS MESSAGES [key=value]... from the beginning of each partition
 *   load pace    BROKER TOPIC PER_SECOND SECONDS SIZE [key=value]... steady rate; time to each acknowledgement
 *
 * key=value goes to librdkafka. One JSON line: seconds, MB_s (10^6 payload bytes), per_s, client_cpu_s,
 * errors; for pace also p50_us, p95_us, p99_us, p999_us of what was sent after the first fifth.
 * Exit code 1 when a message failed or is missing.
 */
#define _GNU_SOURCE
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BODIES = 97 };

static atomic_long done, failed;
static atomic_int over;
static double *delays, counted_from;
static long delay_count, delay_room;

static double clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void stop(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle, (void)opaque;
    if (message->err) {
        if (failed++ == 0) fprintf(stderr, "load: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    done++;
    if (!delays) return;
    double sent;
    memcpy(&sent, message->payload, sizeof sent);
    if (sent >= counted_from && delay_count < delay_room) delays[delay_count++] = (clock_s() - sent) * 1e6;
}

static rd_kafka_t *open_client(rd_kafka_type_t type, const char *broker, char **settings, int count) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", broker, why, sizeof why);
    if (type == RD_KAFKA_CONSUMER) {
        rd_kafka_conf_set(conf, "group.id", "load", why, sizeof why);
        rd_kafka_conf_set(conf, "enable.auto.commit", "false", why, sizeof why);
    } else {
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    for (int i = 0; i < count; i++) {
        char *name = strdup(settings[i]), *value = strchr(name, '=');
        if (!value) stop("not key=value", name);
        *value++ = 0;
        if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) stop(settings[i], why);
        free(name);
    }
    rd_kafka_t *handle = rd_kafka_new(type, conf, why, sizeof why);
    if (!handle) stop("client", why);
    return handle;
}

/* Bodies that do not compress, made before the clock starts. */
static char *make_bodies(long size) {
    char *bodies = malloc(BODIES * size);
    unsigned long x = 88172645463325252UL;
    for (long i = 0; i < BODIES * size; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bodies[i] = (char)(x >> 32);
    }
    return bodies;
}

static void send_one(rd_kafka_t *handle, rd_kafka_topic_t *topic, char *body, long size) {
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, body, size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) stop("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(handle, 2);
    }
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *handle, const char *name) {
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    rd_kafka_resp_err_t error = rd_kafka_metadata(handle, 0, topic, &metadata, 30000);
    if (error) stop(name, rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int print_result(const char *mode, double seconds, long messages, double bytes, long wanted) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    printf("{\"mode\":\"%s\",\"seconds\":%.3f,\"messages\":%ld,\"MB_s\":%.1f,\"per_s\":%.0f,\"client_cpu_s\":%.2f,\"errors\":%ld", mode, seconds,
           messages, bytes / seconds / 1e6, messages / seconds, cpu, (long)failed);
    if (delay_count) {
        qsort(delays, delay_count, sizeof *delays, ascending);
        printf(",\"p50_us\":%.0f,\"p95_us\":%.0f,\"p99_us\":%.0f,\"p999_us\":%.0f", delays[delay_count / 2],
               delays[delay_count * 95 / 100], delays[delay_count * 99 / 100], delays[delay_count * 999 / 1000]);
    }
    puts("}");
    return failed || messages < wanted;
}

static int produce(char **args, char **settings, int count) {
    rd_kafka_t *handle = open_client(RD_KAFKA_PRODUCER, args[0], settings, count);
    rd_kafka_topic_t *topic = open_topic(handle, args[1]);
    long messages = atol(args[2]), size = atol(args[3]);
    char *bodies = make_bodies(size);
    double began = clock_s();
    for (long i = 0; i < messages; i++) {
        send_one(handle, topic, bodies + i % BODIES * size, size);
        if (i % 512 == 0) rd_kafka_poll(handle, 0);
    }
    while (done + failed < messages) rd_kafka_poll(handle, 20);
    return print_result("produce", clock_s() - began, done, (double)done * size, messages);
}

static int consume(char **args, char **settings, int count) {
    rd_kafka_t *handle = open_client(RD_KAFKA_CONSUMER, args[0], settings, count);
    int partitions = atoi(args[2]);
    long messages = atol(args[3]), seen = 0;
    double bytes = 0;
    static rd_kafka_message_t *batch[8192];
    rd_kafka_poll_set_consumer(handle);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int p = 0; p < partitions; p++) rd_kafka_topic_partition_list_add(list, args[1], p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    double began = clock_s(), last = began;
    rd_kafka_assign(handle, list);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(handle);
    while (seen < messages && clock_s() - last < 20) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 100, batch, 8192);
        for (ssize_t i = 0; i < got; i++) {
            if (batch[i]->err) failed++;
            else seen++, bytes += batch[i]->len;
            rd_kafka_message_destroy(batch[i]);
        }
        if (got > 0) last = clock_s();
    }
    return print_result("consume", last - began, seen, bytes, messages);
}

static void *poll_forever(void *handle) {
    while (!over) rd_kafka_poll(handle, 10);
    return NULL;
}

static int pace(char **args, char **settings, int count) {
    double rate = atof(args[2]), seconds = atof(args[3]);
    long size = atol(args[4]), messages = (long)(rate * seconds);
    if (size < (long)sizeof(double)) stop("SIZE", "at least 8");
    delay_room = messages;
    delays = malloc(delay_room * sizeof *delays);
    rd_kafka_t *handle = open_client(RD_KAFKA_PRODUCER, args[0], settings, count);
    rd_kafka_topic_t *topic = open_topic(handle, args[1]);
    char *bodies = make_bodies(size);
    pthread_t poller;
    pthread_create(&poller, NULL, poll_forever, handle);
    double began = clock_s();
    counted_from = began + seconds / 5;
    for (long i = 0; i < messages; i++) {
        double due = began + i / rate, now;
        while ((now = clock_s()) < due) {
            struct timespec nap = {0, (long)((due - now) * 5e8)};
            nanosleep(&nap, NULL);
        }
        char *body = bodies + i % BODIES * size;
        memcpy(body, &now, sizeof now);
        send_one(handle, topic, body, size);
    }
    while (done + failed < messages) {
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    double took = clock_s() - began;
    over = 1;
    pthread_join(poller, NULL);
    return print_result("pace", took, done, (double)done * size, messages);
}

int main(int argc, char **argv) {
    if (argc >= 6 && !strcmp(argv[1], "produce")) return produce(argv + 2, argv + 6, argc - 6);
    if (argc >= 6 && !strcmp(argv[1], "consume")) return consume(argv + 2, argv + 6, argc - 6);
    if (argc >= 7 && !strcmp(argv[1], "pace")) return pace(argv + 2, argv + 7, argc - 7);
    stop("usage", "load produce|consume|pace BROKER TOPIC ... (see the head of load.c)");
}
