// Experts that are larger than memory: kernels have Linux read the matrices that they multiply
// next, all at once. Objects for such a model are compiled with STREAMED 1. Without this, a thread
// waits at each page that is missing, and the system guesses what is read next.
#ifndef HEARTH_READ_AHEAD_H
#define HEARTH_READ_AHEAD_H

#include "product/experts.h"

#ifndef STREAMED
#define STREAMED 0
#endif

// The experts that a workgroup asks for at the same time.
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

// The experts that a workgroup multiplies with some rows, and the blocks of their matrices. It has
// every `turns`-th expert of those that some row has, `turn` being its first one.
typedef struct {
    size_t expert, last_expert, begin, end, turn, turns;
} RoutedShare;

// Workgroups take `experts_each` experts and `blocks` blocks each. If experts are read from their
// file, workgroups with the same experts have all blocks of one expert after the other: then an
// expert is multiplied while the next ones are read.
INLINE RoutedShare routed_share_of(size_t workgroup, size_t experts_each, size_t blocks,
                                   Routing routing, size_t outputs) {
    size_t all = (outputs + LANES - 1) / LANES, shares = (all + blocks - 1) / blocks;
    size_t expert = workgroup / shares * experts_each, share = workgroup % shares;
    size_t last_expert = least(expert + experts_each, routing.experts), begin = share * blocks;
    if (STREAMED) return (RoutedShare){expert, last_expert, 0, all, share, shares};
    return (RoutedShare){expert, last_expert, begin, least(begin + blocks, all), 0, 1};
}

// The expert after `skipped` others, from `expert` on, that some row has.
INLINE size_t expert_after(RoutedShare share, Routing routing, size_t expert, size_t skipped) {
    expert = next_expert(routing, expert);
    for (; skipped && expert < share.last_expert; skipped--)
        expert = next_expert(routing, expert + 1);
    return expert;
}

INLINE size_t first_expert(RoutedShare share, Routing routing) {
    return expert_after(share, routing, share.expert, share.turn);
}

INLINE size_t following_expert(RoutedShare share, Routing routing, size_t expert) {
    return expert_after(share, routing, expert + 1, share.turns - 1);
}

// Has experts read before `expert` is multiplied, of which the workgroup has met `met` before. The
// first two turns ask for the first experts of all turns, alternately: asking for pages that are in
// memory takes time, too. After those each turn asks for its following one.
INLINE void read_experts_soon(const ExpertArrays *all, Routing routing, RoutedShare share,
                              size_t expert, size_t following, size_t met) {
    size_t askers = least(share.turns, 2), next = expert;
    size_t count = share.turn < askers ? EXPERTS_AHEAD : 1;
    for (size_t i = 0; !met && i < count && next < share.last_expert; i++) {
        read_expert_soon(all, next);
        next = expert_after(share, routing, next + 1, askers - 1);
    }
    if (following < share.last_expert &&
        share.turn + (met + 1) * share.turns >= askers * EXPERTS_AHEAD)
        read_expert_soon(all, following);
}

#endif
