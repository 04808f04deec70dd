// Experts that are larger than memory. Slots in memory keep the matrices of the experts that were
// used last. Kernels read other experts from the file, past the system's cache, which takes more
// time than the products. runtime/expert_cache.py prepares the structures below; objects for such a
// model are compiled with STREAMED 1.
#ifndef HEARTH_EXPERT_CACHE_H
#define HEARTH_EXPERT_CACHE_H

#include "chain.h"
#include "product/asynchronous_reads.h"
#include "product/experts.h"

// The most arrays of a matrix, and its most experts; the most experts of a call that are read, or
// have been, before they are multiplied; bytes of a page of the file.
enum { MAX_ARRAYS = 7, MAX_EXPERTS = 1024, EXPERTS_AHEAD = 16, FILE_PAGE = 4096 };

// An array of a matrix, which kernels know by the address where the file is mapped. The file has
// `bytes` of it for each expert, from `offset` on. Its slots are `stride` bytes each.
typedef struct {
    const char *mapped;
    char *slots;
    uint64_t offset, bytes, stride;
} CachedArray;

// A slot of each array, for the expert `expert - 1`, or for none yet. `used` is when it was taken
// last, `busy` whether a workgroup multiplies it, `reading` how many of its arrays are read.
typedef struct {
    struct ExpertCache *cache;
    uint32_t expert, used, busy;
    int32_t reading;
} __attribute__((aligned(32))) Slot;

enum { NOT_CHOSEN, CHOSEN, TAKEN };

// The experts of a matrix. `next` is another matrix of the layer, in a ring: it multiplies the same
// experts. `joined` and `left` count the workgroups of a call, and `choice` is of its experts.
typedef struct ExpertCache {
    struct ExpertCache *next;
    uint64_t context, file, array_count, slot_count;
    CachedArray arrays[MAX_ARRAYS];
    uint32_t lock, time, joined, left;
    uint16_t slot_of[MAX_EXPERTS];  // its index + 1, or 0
    uint8_t choice[MAX_EXPERTS];
    Slot slots[MAX_EXPERTS];
} ExpertCache;

// runtime/expert_cache.py allocates this many bytes, and writes the fields before `lock`.
_Static_assert(sizeof(ExpertCache) <= 1 << 16, "the size of an ExpertCache");

// The first bytes of an array with slots, at its first address that is a multiple of MARK_ALIGN: at
// least a page of memory on every system.
enum { MARK_ALIGN = 1 << 16 };
typedef struct {
    uint64_t marks[2];
    ExpertCache *cache;
} CacheMark;

INLINE void lock_cache(ExpertCache *cache) {
    for (int turn = 1; __atomic_exchange_n(&cache->lock, 1, __ATOMIC_ACQUIRE); turn++)
        if (turn % PATIENCE)
            pause_core();
        else
            yield_core();
}

INLINE void unlock_cache(ExpertCache *cache) {
    __atomic_store_n(&cache->lock, 0, __ATOMIC_RELEASE);
}

INLINE int is_read(const Slot *slot) { return !__atomic_load_n(&slot->reading, __ATOMIC_ACQUIRE); }

// The least recently used slot that no workgroup of the call needs, or 0.
INLINE Slot *unneeded_slot(ExpertCache *cache) {
    Slot *found = 0;
    for (Slot *slot = cache->slots; slot < cache->slots + cache->slot_count; slot++) {
        if (slot->busy || !is_read(slot)) continue;
        if (slot->expert && cache->choice[slot->expert - 1] == CHOSEN) continue;
        if (!found || slot->used < found->used) found = slot;
    }
    return found;
}

// Slots that a thread has given to other experts, to be read when it has unlocked the cache.
typedef struct {
    Slot *slots[EXPERTS_AHEAD];
    size_t count;
} NewSlots;

// Gives an expert a slot; returns whether there is one.
INLINE int give_slot(ExpertCache *cache, size_t expert, NewSlots *given) {
    Slot *slot = unneeded_slot(cache);
    if (!slot) return 0;
    if (slot->expert) cache->slot_of[slot->expert - 1] = 0;
    cache->slot_of[expert] = (uint16_t)(slot - cache->slots + 1);
    slot->cache = cache;
    slot->expert = (uint32_t)expert + 1;
    slot->used = ++cache->time;
    slot->reading = (int32_t)cache->array_count;
    given->slots[given->count++] = slot;
    return 1;
}

// Where an array of a slot's expert begins in a page of the file, and so in the slot.
INLINE uint64_t start_in_page(const CachedArray *array, const Slot *slot) {
    return (array->offset + (slot->expert - 1) * array->bytes) % FILE_PAGE;
}

INLINE char *slot_start(const CachedArray *array, const Slot *slot) {
    return array->slots + (size_t)(slot - slot->cache->slots) * array->stride;
}

// Waits a while for the end of a read. Its `data` is the address of its slot plus the index of its
// array, which is below the alignment of slots.
INLINE void await_read(uint64_t context) {
    ReadEnd end;
    if (!next_end(context, &end)) return;
    Slot *slot = (Slot *)(uintptr_t)(end.data / sizeof(Slot) * sizeof(Slot));
    const CachedArray *array = slot->cache->arrays + end.data % sizeof(Slot);
    // As for a mapped page that cannot be read, the process ends.
    if (end.bytes < (int64_t)(start_in_page(array, slot) + array->bytes)) __builtin_trap();
    __atomic_fetch_sub(&slot->reading, 1, __ATOMIC_RELEASE);
}

INLINE void read_slot(const ExpertCache *cache, const Slot *slot) {
    for (size_t i = 0; i < cache->array_count; i++) {
        const CachedArray *array = cache->arrays + i;
        uint64_t page_start = start_in_page(array, slot);
        uint64_t bytes = page_start + array->bytes + FILE_PAGE - 1;
        uint64_t at = array->offset + (slot->expert - 1) * array->bytes - page_start;
        Read read = {.data = (uintptr_t)slot + i,
                     .file = (uint32_t)cache->file,
                     .buffer = (uintptr_t)slot_start(array, slot),
                     .bytes = bytes / FILE_PAGE * FILE_PAGE,
                     .offset = (int64_t)at};
        while (!begin_read(cache->context, &read)) await_read(cache->context);
    }
}

INLINE void read_slots(const ExpertCache *cache, const NewSlots *given) {
    for (size_t i = 0; i < given->count; i++) read_slot(cache, given->slots[i]);
}

// Gives slots to chosen experts that have none, as long as few wait to be multiplied.
INLINE void give_slots(ExpertCache *cache, size_t experts, NewSlots *given) {
    size_t waiting = 0;
    for (size_t expert = 0; expert < experts; expert++)
        waiting += cache->choice[expert] == CHOSEN && cache->slot_of[expert];
    for (size_t expert = 0; expert < experts && waiting < EXPERTS_AHEAD; expert++) {
        if (cache->choice[expert] != CHOSEN || cache->slot_of[expert]) continue;
        if (!give_slot(cache, expert, given)) return;
        waiting++;
    }
}

// Reads, for another matrix that multiplies next, the first of the call's experts that it lacks in
// memory.
INLINE void read_for_next(ExpertCache *cache, Routing routing) {
    NewSlots given = {.count = 0};
    size_t most = least(EXPERTS_AHEAD, cache->slot_count), first = next_expert(routing, 0);
    lock_cache(cache);
    size_t expert = first;
    for (size_t i = 0; !cache->joined && i < most && expert < routing.experts; i++) {
        if (cache->slot_of[expert]) cache->slots[cache->slot_of[expert] - 1].used = ++cache->time;
        expert = next_expert(routing, expert + 1);
    }
    expert = first;
    for (size_t i = 0; !cache->joined && i < most && expert < routing.experts; i++) {
        if (!cache->slot_of[expert] && !give_slot(cache, expert, &given)) break;
        expert = next_expert(routing, expert + 1);
    }
    unlock_cache(cache);
    read_slots(cache, &given);
}

// A workgroup of a call begins. The first one starts reads of the first experts, also for the other
// matrices of the layer.
INLINE void join_call(ExpertCache *cache, Routing routing) {
    NewSlots given = {.count = 0};
    lock_cache(cache);
    int is_first = !cache->joined++;
    if (is_first) {
        for (size_t row = 0; row < routing.rows; row++)
            cache->choice[expert_of(routing, row)] = CHOSEN;
        give_slots(cache, routing.experts, &given);
    }
    unlock_cache(cache);
    read_slots(cache, &given);
    for (ExpertCache *other = cache->next; is_first && other != cache; other = other->next)
        read_for_next(other, routing);
}

// A workgroup of a call ends. Every workgroup of the call leaves it once.
INLINE void leave_call(ExpertCache *cache, size_t workgroups) {
    lock_cache(cache);
    if (++cache->left == workgroups) {
        cache->joined = cache->left = 0;
        for (size_t expert = 0; expert < MAX_EXPERTS; expert++) cache->choice[expert] = NOT_CHOSEN;
    }
    unlock_cache(cache);
}

// Takes a chosen expert that is in memory and that no workgroup has taken; 0 if there are no more.
INLINE Slot *take_expert(ExpertCache *cache, size_t experts) {
    for (;;) {
        NewSlots given = {.count = 0};
        Slot *taken = 0;
        size_t missing = 0;
        lock_cache(cache);
        for (size_t expert = 0; expert < experts && !taken; expert++) {
            if (cache->choice[expert] != CHOSEN) continue;
            size_t slot = cache->slot_of[expert];
            missing++;
            if (!slot || !is_read(cache->slots + slot - 1)) continue;
            taken = cache->slots + slot - 1;
            taken->busy = 1;
            taken->used = ++cache->time;
            cache->choice[expert] = TAKEN;
        }
        if (missing) give_slots(cache, experts, &given);
        unlock_cache(cache);
        read_slots(cache, &given);
        if (taken || !missing) return taken;
        if (!given.count) await_read(cache->context);
    }
}

INLINE void return_expert(Slot *slot) {
    lock_cache(slot->cache);
    slot->busy = 0;
    unlock_cache(slot->cache);
}

#endif
