/* synced: what the disk alone takes: append and fdatasync at a steady rate.
 *
 *   build:  cc -O2 -o synced synced.c
 *   synced FILE PER_SECOND SECONDS SIZE
 *
 * One JSON line: messages, cpu_s, and p50_us, p99_us, p999_us of append and sync after the first fifth. due_p99_us
 * is counted from when a message was due: a slow sync delays those after it, too, as it does for a client that
 * sends at a steady rate.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    if (argc != 5) { fprintf(stderr, "usage: synced FILE PER_SECOND SECONDS SIZE\n"); return 2; }
    double rate = atof(argv[2]), seconds = atof(argv[3]);
    long size = atol(argv[4]), messages = (long)(rate * seconds), kept = 0;
    char *data = calloc(1, size);
    double *delays = malloc(messages * sizeof *delays), *due_delays = malloc(messages * sizeof *delays);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) { perror(argv[1]); return 1; }
    double began = clock_s();
    for (long i = 0; i < messages; i++) {
        double due = began + i / rate, now;
        while ((now = clock_s()) < due) {
            struct timespec nap = {0, (long)((due - now) * 5e8)};
            nanosleep(&nap, NULL);
        }
        if (pwrite(fd, data, size, i * size) != size || fdatasync(fd)) { perror("append and sync"); return 1; }
        if (i < messages / 5) continue;
        double end = clock_s();
        delays[kept] = end - now;
        due_delays[kept++] = end - due;
    }
    qsort(delays, kept, sizeof *delays, by_value);
    qsort(due_delays, kept, sizeof *due_delays, by_value);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    printf("{\"messages\": %ld, \"cpu_s\": %.3f, \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, \"due_p99_us\": %.0f}\n",
           messages, cpu, delays[kept / 2] * 1e6, delays[kept * 99 / 100] * 1e6, delays[kept * 999 / 1000] * 1e6,
           due_delays[kept * 99 / 100] * 1e6);
    return 0;
}
