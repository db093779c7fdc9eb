/* delay: a network with latency, from C so that it costs little CPU beside what is measured.
 *
 *   build:  cc -O2 -o delay delay.c -lpthread
 *   delay LISTEN_PORT TARGET_PORT DELAY_MS
 *
 * Passes TCP connections of 127.0.0.1 on. What the client sends arrives DELAY_MS later, what the server sends
 * arrives at once: so each request takes DELAY_MS longer, and the bytes of one are as fast as before.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 18, WAITING_MAX = 1 << 26 };

struct chunk {
    struct chunk *next;
    double due_s;
    ssize_t size;
    char bytes[];
};

struct pair {
    int client, server, users;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chunk *first, **last;
    size_t waiting;
    int is_over;
};

static int target_port;
static double delay_s;

static double clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int write_all(int to, const char *bytes, ssize_t size) {
    while (size > 0) {
        ssize_t done = write(to, bytes, size);
        if (done <= 0)
            return 0;
        bytes += done;
        size -= done;
    }
    return 1;
}

/* The last of the three threads of a connection closes it. */
static void leave(struct pair *pair) {
    shutdown(pair->client, SHUT_RDWR);
    shutdown(pair->server, SHUT_RDWR);
    pthread_mutex_lock(&pair->lock);
    pair->is_over = 1;
    int users = --pair->users;
    pthread_cond_broadcast(&pair->changed);
    pthread_mutex_unlock(&pair->lock);
    if (users)
        return;
    close(pair->client);
    close(pair->server);
    for (struct chunk *each = pair->first; each;) {
        struct chunk *next = each->next;
        free(each);
        each = next;
    }
    free(pair);
}

static void *take(void *opaque) {
    struct pair *pair = opaque;
    for (;;) {
        struct chunk *chunk = malloc(sizeof *chunk + CHUNK_BYTES);
        chunk->size = read(pair->client, chunk->bytes, CHUNK_BYTES);
        if (chunk->size <= 0) {
            free(chunk);
            break;
        }
        chunk->due_s = clock_s() + delay_s;
        chunk->next = NULL;
        pthread_mutex_lock(&pair->lock);
        *pair->last = chunk;
        pair->last = &chunk->next;
        pair->waiting += chunk->size;
        pthread_cond_broadcast(&pair->changed);
        while (pair->waiting > WAITING_MAX && !pair->is_over)
            pthread_cond_wait(&pair->changed, &pair->lock);
        pthread_mutex_unlock(&pair->lock);
    }
    leave(pair);
    return NULL;
}

static void *give(void *opaque) {
    struct pair *pair = opaque;
    for (;;) {
        pthread_mutex_lock(&pair->lock);
        while (!pair->first && !pair->is_over)
            pthread_cond_wait(&pair->changed, &pair->lock);
        struct chunk *chunk = pair->is_over ? NULL : pair->first;
        if (chunk) {
            pair->first = chunk->next;
            if (!pair->first)
                pair->last = &pair->first;
            pair->waiting -= chunk->size;
            pthread_cond_broadcast(&pair->changed);
        }
        pthread_mutex_unlock(&pair->lock);
        if (!chunk)
            break;
        double left_s = chunk->due_s - clock_s();
        if (left_s > 0)
            usleep(left_s * 1e6);
        int is_written = write_all(pair->server, chunk->bytes, chunk->size);
        free(chunk);
        if (!is_written)
            break;
    }
    leave(pair);
    return NULL;
}

static void *answer(void *opaque) {
    struct pair *pair = opaque;
    char *bytes = malloc(CHUNK_BYTES);
    ssize_t size;
    while ((size = read(pair->server, bytes, CHUNK_BYTES)) > 0)
        if (!write_all(pair->client, bytes, size))
            break;
    free(bytes);
    leave(pair);
    return NULL;
}

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void pass_on(int client) {
    int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at(target_port);
    if (connect(server, (struct sockaddr *)&to, sizeof to)) {
        close(client);
        close(server);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct pair *pair = calloc(1, sizeof *pair);
    pair->client = client;
    pair->server = server;
    pair->users = 3;
    pair->last = &pair->first;
    pthread_mutex_init(&pair->lock, NULL);
    pthread_cond_init(&pair->changed, NULL);
    void *(*runs[])(void *) = {take, give, answer};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, runs[i], pair);
        pthread_detach(thread);
    }
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "delay: LISTEN_PORT TARGET_PORT DELAY_MS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    target_port = atoi(words[2]);
    delay_s = atof(words[3]) / 1000;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = at(atoi(words[1]));
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 256)) {
        perror("delay");
        return 1;
    }
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client >= 0)
            pass_on(client);
    }
}
