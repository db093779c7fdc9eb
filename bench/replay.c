/* replay: send one recorded request again and again over a few connections and wait for each answer.
 *
 *   build:  cc -O2 -o replay replay.c
 *   replay HOST PORT FRAME_FILE CONNECTIONS DEPTH SECONDS
 *
 * FRAME_FILE holds one whole frame, its length prefix included; DEPTH of it are in flight on each
 * connection. Prints one JSON line: answers, seconds, requests per second, bytes received, and the
 * client's CPU seconds. An answer is any length-prefixed frame; a closed connection ends the run with 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct peer { int fd; long unsent; size_t sent; uint8_t head[4]; int have; long left; int want_write; };

static uint8_t *frame; static size_t frame_size; static int poller;
static double now_s(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void die(const char *what) { perror(what); exit(1); }

static void watch(struct peer *p, int want_write) {
    if (p->want_write == want_write) return;
    p->want_write = want_write;
    struct epoll_event e = {EPOLLIN | (want_write ? EPOLLOUT : 0), {.ptr = p}};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &e)) die("epoll_ctl");
}
static void push(struct peer *p) {
    while (p->unsent) {
        ssize_t n = send(p->fd, frame + p->sent, frame_size - p->sent, MSG_NOSIGNAL);
        if (n < 0) { if (errno == EAGAIN) { watch(p, 1); return; } die("send"); }
        if ((p->sent += n) == frame_size) { p->sent = 0; p->unsent--; }
    }
    watch(p, 0);
}
int main(int argc, char **argv) {
    if (argc != 7) { fprintf(stderr, "usage: replay HOST PORT FRAME_FILE CONNECTIONS DEPTH SECONDS\n"); return 2; }
    FILE *f = fopen(argv[3], "rb"); if (!f) die(argv[3]);
    frame = malloc(64 << 20); frame_size = fread(frame, 1, 64 << 20, f); fclose(f);
    int connections = atoi(argv[4]); long depth = atol(argv[5]); double seconds = atof(argv[6]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) die(argv[1]);
    struct peer *peers = calloc(connections, sizeof *peers); poller = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        struct peer *p = &peers[i]; p->fd = socket(AF_INET, SOCK_STREAM, 0); int one = 1;
        if (connect(p->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
        setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(p->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {EPOLLIN, {.ptr = p}};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, p->fd, &e)) die("epoll_ctl");
        p->unsent = depth; push(p);
    }
    static uint8_t sink[4 << 20]; struct epoll_event ready[256];
    long answers = 0; double bytes = 0, began = now_s(), end = began + seconds, t = began;
    while ((t = now_s()) < end) {
        int n = epoll_wait(poller, ready, 256, 100);
        for (int i = 0; i < n; i++) {
            struct peer *p = ready[i].data.ptr;
            if (ready[i].events & EPOLLIN) {
                ssize_t got = recv(p->fd, sink, sizeof sink, 0);
                if (got == 0) { fprintf(stderr, "replay: the broker closed the connection\n"); return 1; }
                if (got < 0) { if (errno == EAGAIN) continue; die("recv"); }
                bytes += got;
                for (ssize_t at = 0; at < got;) {
                    if (p->left) { long take = got - at < p->left ? got - at : p->left; p->left -= take; at += take; if (!p->left) { answers++; p->unsent++; p->have = 0; } continue; }
                    p->head[p->have++] = sink[at++];
                    if (p->have == 4) p->left = ((long)p->head[0] << 24) | (p->head[1] << 16) | (p->head[2] << 8) | p->head[3];
                }
            }
            push(p);
        }
    }
    struct rusage r; getrusage(RUSAGE_SELF, &r);
    printf("{\"answers\":%ld,\"seconds\":%.3f,\"per_s\":%.0f,\"bytes\":%.0f,\"client_cpu_s\":%.2f}\n", answers, t - began, answers / (t - began), bytes,
           r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6);
    return 0;
}
