// Kernels that follow each other in one dispatch: models/dsl/mlir/chains writes the calls.
//
// All calls of all kernels have a ticket, in their order. A thread takes the next ticket, waits
// until the calls are done whose results it reads, and runs its call. Each call that a thread waits
// for has been taken by a thread that runs, so any number of threads comes to the end, also one.
#ifndef HEARTH_CHAIN_H
#define HEARTH_CHAIN_H

#include <stddef.h>
#include <stdint.h>

// Turns of waiting before the thread offers its core to others.
enum { PATIENCE = 1024 };

// Counts of tickets taken, of calls done and of workgroups that have left, each in a cache line.
// They are 0 before the first chain and after each one.
typedef struct {
    int32_t taken[16], done[16], left[16];
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

static inline int32_t take_ticket(Chain *chain) {
    return __atomic_fetch_add(chain->taken, 1, __ATOMIC_RELAXED);
}

// Waits until the first `count` calls are done.
static inline void wait_for(Chain *chain, int32_t count) {
    for (int turn = 0; __atomic_load_n(chain->done, __ATOMIC_ACQUIRE) < count; turn++)
        if (turn % PATIENCE == PATIENCE - 1)
            yield_core();
        else
            pause_core();
}

// Fetches bytes into the second cache that the next call reads. Stops when the first `count` calls
// are done.
static inline void fetch_until(Chain *chain, int32_t count, const char *from, size_t bytes) {
    enum { LINE = 64, TOGETHER = 4 };
    for (size_t at = 0; at < bytes; at += LINE * TOGETHER) {
        if (__atomic_load_n(chain->done, __ATOMIC_RELAXED) >= count) return;
        for (int i = 0; i < TOGETHER; i++) __builtin_prefetch(from + at + i * LINE, 0, 2);
    }
}

static inline void call_done(Chain *chain) { __atomic_fetch_add(chain->done, 1, __ATOMIC_RELEASE); }

// The last one of `workgroups` makes the chain ready for the next one.
static inline void leave_chain(Chain *chain, int32_t workgroups) {
    if (__atomic_fetch_add(chain->left, 1, __ATOMIC_ACQ_REL) < workgroups - 1) return;
    *chain->taken = *chain->done = *chain->left = 0;
}

#endif
