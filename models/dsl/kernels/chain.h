// Kernels that follow each other in one dispatch: models/dsl/mlir/chains writes the calls.
//
// All workgroups of all calls have a ticket, in their order. A thread takes the next ticket or
// some, waits until the workgroups are done whose results it reads, and runs its own. Each
// workgroup that a thread waits for has been taken by a thread that runs, so any number of threads
// comes to the end, also one.
#ifndef HEARTH_CHAIN_H
#define HEARTH_CHAIN_H

#include <stddef.h>
#include <stdint.h>

// Turns of waiting before the thread offers its core to others.
enum { PATIENCE = 1024 };

// Bytes that a waiting thread fetches at most: with 16 KB and with 256 KB, steps took as long.
enum { MOST_FETCHED = 1 << 16 };

// Counts of threads that have come, of tickets taken, of tickets done and of threads that have
// left, each in a cache line. They are 0 before the first chain and after each one.
typedef struct {
    int32_t come[16], taken[16], done[16], left[16];
} Chain;

static inline void yield_core(void) {
#if defined(__linux__) && defined(__x86_64__)
    long result = 24;  // sched_yield
    __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
#elif defined(__linux__) && defined(__aarch64__)
    register long number __asm__("x8") = 124, result __asm__("x0");  // sched_yield
    __asm__ volatile("svc 0" : "=r"(result) : "r"(number) : "memory");
#endif
}

static inline void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static inline void enter_chain(Chain *chain) {
    __atomic_fetch_add(chain->come, 1, __ATOMIC_RELAXED);
}

static inline size_t next_ticket(Chain *chain) {
    return (size_t)__atomic_load_n(chain->taken, __ATOMIC_RELAXED);
}

// How many of the `all` workgroups of a call a thread takes as one, so that each thread that has
// come takes two times or more. The second thread comes soon.
static inline size_t to_join(Chain *chain, size_t all) {
    size_t come = (size_t)__atomic_load_n(chain->come, __ATOMIC_RELAXED), count = 1;
    size_t threads = come < 2 ? 2 : come;
    while (4 * count * threads <= all) count *= 2;
    return count;
}

// Takes `count` tickets, or fewer: a power of two that divides the number of tickets of the call
// before this one. 0 if another thread was faster. The call has `all` tickets from `first` on.
static inline size_t take_tickets(Chain *chain, size_t ticket, size_t first, size_t all,
                                  size_t count) {
    size_t before = ticket - first;
    int32_t expected = (int32_t)ticket;
    while (before % count || before + count > all) count /= 2;
    return __atomic_compare_exchange_n(chain->taken, &expected, (int32_t)(ticket + count), 0,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)
               ? count
               : 0;
}

// Waits until the first `count` tickets are done.
static inline void wait_for(Chain *chain, int32_t count) {
    for (int turn = 0; __atomic_load_n(chain->done, __ATOMIC_ACQUIRE) < count; turn++)
        if (turn % PATIENCE == PATIENCE - 1)
            yield_core();
        else
            pause_core();
}

// Fetches bytes into the second cache that are read next. Stops when the first `count` tickets are
// done.
static inline void fetch_until(Chain *chain, int32_t count, const char *from, size_t bytes) {
    enum { LINE = 64, TOGETHER = 4 };
    if (bytes > MOST_FETCHED) bytes = MOST_FETCHED;
    for (size_t at = 0; at < bytes; at += LINE * TOGETHER) {
        if (__atomic_load_n(chain->done, __ATOMIC_RELAXED) >= count) return;
        for (int i = 0; i < TOGETHER; i++) __builtin_prefetch(from + at + i * LINE, 0, 2);
    }
}

static inline void tickets_done(Chain *chain, size_t count) {
    __atomic_fetch_add(chain->done, (int32_t)count, __ATOMIC_RELEASE);
}

// The last one of `workgroups` threads makes the chain ready for the next one.
static inline void leave_chain(Chain *chain, int32_t workgroups) {
    if (__atomic_fetch_add(chain->left, 1, __ATOMIC_ACQ_REL) < workgroups - 1) return;
    *chain->come = *chain->taken = *chain->done = *chain->left = 0;
}

#endif
