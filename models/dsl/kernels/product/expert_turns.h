// Which experts a workgroup multiplies, one after the other, and where their matrices are.
#ifndef HEARTH_EXPERT_TURNS_H
#define HEARTH_EXPERT_TURNS_H

#include "product/expert_cache.h"

#ifndef STREAMED
#define STREAMED 0
#endif

// An array of a matrix, of `bytes` for each expert.
typedef struct {
    const char *from;
    size_t bytes;
} ExpertArray;

typedef struct {
    ExpertArray arrays[MAX_ARRAYS];
    size_t count;
} ExpertArrays;

INLINE void add_array(ExpertArrays *all, const void *from, size_t bytes) {
    if (from && bytes) all->arrays[all->count++] = (ExpertArray){from, bytes};
}

// The turns of a workgroup: it multiplies the blocks `begin` to `end` of the matrix of `expert`,
// and of `following` next, below `last_expert`. Of the experts that rows have it takes each
// `stride`-th. If there is a cache, `slot` has the expert.
typedef struct {
    Routing routing;
    size_t expert, following, last_expert, stride, begin, end, workgroups;
    ExpertCache *cache;
    Slot *slot;
} Turns;

// The cache of a matrix, or 0 if it is read where it is mapped, as small ones are.
INLINE ExpertCache *cache_of(const ExpertArrays *all, size_t experts) {
    for (size_t i = 0; i < all->count; i++) {
        if (all->arrays[i].bytes * experts < 2 * MARK_ALIGN) continue;
        uintptr_t end = (uintptr_t)all->arrays[i].from + MARK_ALIGN - 1;
        const CacheMark *mark = (const CacheMark *)(end / MARK_ALIGN * MARK_ALIGN);
        if (mark->marks[0] == 0x9f1c7a5be3d24086u && mark->marks[1] == 0x5ad0b46e8127fc93u)
            return mark->cache;
    }
    return 0;
}

// Workgroups take `blocks` blocks each of `experts_each` experts, which `stride` workgroups share
// in turns: so the few experts of a decode are shared evenly, and each is read without gaps. If
// there is a cache, each of them takes all blocks of any experts: then some are multiplied while
// others are read.
INLINE Turns turns_of(size_t workgroup, size_t experts_each, size_t stride, size_t blocks,
                      Routing routing, size_t outputs, const ExpertArrays *arrays) {
    size_t all = (outputs + LANES - 1) / LANES, shares = (all + blocks - 1) / blocks;
    size_t share = workgroup / shares, begin = workgroup % shares * blocks;
    size_t expert = share / stride * experts_each;
    Turns turns = {.routing = routing,
                   .following = later_expert(routing, expert, share % stride),
                   .last_expert = least(expert + experts_each, routing.experts),
                   .stride = stride,
                   .begin = begin,
                   .end = least(begin + blocks, all)};
    if (STREAMED) turns.cache = cache_of(arrays, routing.experts);
    if (!turns.cache) return turns;
    turns.begin = 0;
    turns.end = all;
    turns.workgroups = (routing.experts + experts_each - 1) / experts_each * stride * shares;
    join_call(turns.cache, routing);
    return turns;
}

// Goes to the next expert; 0 if the workgroup has had its last one.
INLINE int next_turn(Turns *turns) {
    ExpertCache *cache = turns->cache;
    if (!cache) {
        turns->expert = turns->following;
        if (turns->expert >= turns->last_expert) return 0;
        turns->following = later_expert(turns->routing, turns->expert + 1, turns->stride - 1);
        return 1;
    }
    if (turns->slot) return_expert(turns->slot);
    turns->slot = take_expert(cache, turns->routing.experts);
    if (!turns->slot) leave_call(cache, turns->workgroups);
    turns->following = turns->last_expert;
    turns->expert = turns->slot ? turns->slot->expert - 1 : 0;
    return turns->slot != 0;
}

// Where the array of the turn's expert is, of an array with `bytes` for each expert.
INLINE const void *array_in_turn(const Turns *turns, const void *from, size_t bytes) {
    const char *mapped = from;
    for (size_t i = 0; turns->cache && i < turns->cache->array_count; i++) {
        const CachedArray *array = turns->cache->arrays + i;
        if (array->mapped == mapped)
            return slot_start(array, turns->slot) + start_in_page(array, turns->slot);
    }
    return mapped ? mapped + turns->expert * bytes : 0;
}

#endif
