// Experts that are larger than memory: kernels have Linux read the matrices that they multiply
// next, all at once. Objects for such a model are compiled with STREAMED 1. Without this, a thread
// waits at each page that is missing, and the system guesses what is read next.
#ifndef HEARTH_READ_AHEAD_H
#define HEARTH_READ_AHEAD_H

#include "product/experts.h"

#ifndef STREAMED
#define STREAMED 0
#endif

// The experts of a workgroup that the system reads at the same time.
enum { EXPERTS_AHEAD = 8 };

// An array of a matrix: each block of the matrix has `bytes` of it.
typedef struct {
    const char *from;
    size_t bytes;
} BlockArray;

enum { MAX_ARRAYS = 7 };

// The arrays of a matrix whose experts have `blocks` blocks each.
typedef struct {
    BlockArray arrays[MAX_ARRAYS];
    size_t count, blocks;
} ExpertArrays;

INLINE void add_array(ExpertArrays *all, const void *from, size_t bytes) {
    if (from && bytes) all->arrays[all->count++] = (BlockArray){from, bytes};
}

// Has Linux read bytes of a mapped file that are not in memory. It may wait for some of them.
INLINE void read_soon(const char *from, size_t bytes) {
    enum { MAX_PAGE = 1 << 16, WILLNEED = 3 };
    uintptr_t start = (uintptr_t)from / MAX_PAGE * MAX_PAGE;
    size_t size = (uintptr_t)from + bytes - start;
#if defined(__linux__) && defined(__x86_64__)
    long result = 28;  // madvise
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(start), "S"(size), "d"((long)WILLNEED)
                     : "rcx", "r11", "memory");
#elif defined(__linux__) && defined(__aarch64__)
    register long number __asm__("x8") = 233, advice __asm__("x2") = WILLNEED;  // madvise
    register uintptr_t result __asm__("x0") = start;
    register size_t length __asm__("x1") = size;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(number), "r"(length), "r"(advice) : "memory");
#else
    (void)start, (void)size;
#endif
}

INLINE void read_expert_soon(const ExpertArrays *all, size_t expert) {
    for (size_t i = 0; i < all->count; i++) {
        size_t bytes = all->blocks * all->arrays[i].bytes;
        read_soon(all->arrays[i].from + expert * bytes, bytes);
    }
}

// Has the next experts of a share read, from `expert` on, before its blocks `begin` to `end` are
// multiplied. Of the workgroups that have the same experts, only the first two do so, the second
// one backwards: asking for pages that are in memory takes time, too.
INLINE void read_experts_soon(const ExpertArrays *all, Routing routing, size_t expert,
                              size_t last_expert, size_t begin, size_t end) {
    if (begin >= 2 * (end - begin)) return;
    size_t experts[EXPERTS_AHEAD], count = 0;
    for (; expert < last_expert && count < EXPERTS_AHEAD; expert = next_expert(routing, expert + 1))
        experts[count++] = expert;
    for (size_t i = 0; i < count; i++)
        read_expert_soon(all, experts[begin > 0 ? count - 1 - i : i]);
}

#endif
