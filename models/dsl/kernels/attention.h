// Attention of new tokens over a ring cache that holds them: ops `attention_cached` and
// `attention_cached_i8`. Each dtype of a cache has a file, which says NAME, Value and load_value,
// and SCALED if each head of a row has a scale.
//
// Only keys that a token sees are read, in blocks of KEYS positions, with a running softmax
// (Milakov and Gimelshein, 2018). Blocks begin at multiples of KEYS and what is not seen counts as
// zero: a token's result does not depend on how many tokens are read with it. Rows of a head are
// far apart, which the CPU's own prefetching does not follow: the values of a block are prefetched
// while its keys are read, and then the keys of the next block.
#ifndef HEARTH_ATTENTION_H
#define HEARTH_ATTENTION_H

#include "attention_many.h"

// Keys whose scores are computed together, and queries that read them together: their sums stay in
// registers.
#ifdef __AVX512F__
enum { TOGETHER = 4, SHARING = 4 };
#else
enum { TOGETHER = 4, SHARING = 1 };
#endif

// scores[i][k] = scale * query i times key k of the block.
INLINE void score(const float *query, const Queries *queries, int count, const Cache *cache,
                  const Block *block, float scores[QUERIES][KEYS]) {
    for (size_t k = 0; k < block->keys; k += TOGETHER)
#pragma clang loop unroll(full)
        for (int first = 0; first < count; first += SHARING) {
            f32x16 products[SHARING][TOGETHER];
            for (int j = 0; j < SHARING; j++)
                for (int i = 0; i < TOGETHER; i++) products[j][i] = (f32x16){};
            for (size_t d = 0; d < cache->width; d += LANES) {
                f32x16 key[TOGETHER];
                for (int i = 0; i < TOGETHER; i++)
                    key[i] = load_value(cache->key + block->row[k + i] + d);
                for (int i = 0; i < TOGETHER && first == 0; i++)
                    __builtin_prefetch(cache->value + block->row[k + i] + d);
#pragma clang loop unroll(full)
                for (int j = 0; j < SHARING && first + j < count; j++) {
                    f32x16 own = load(query + queries->at[first + j] + d);
                    for (int i = 0; i < TOGETHER; i++)
                        products[j][i] = fma16(own, key[i], products[j][i]);
                }
            }
#pragma clang loop unroll(full)
            for (int j = 0; j < SHARING && first + j < count; j++) {
                f32x4 four = sums4(products[j]) * cache->scale;
                __builtin_memcpy(&scores[first + j][k], &four, sizeof four);
            }
        }
}

// Adds the values of the block's positions, weighted.
INLINE void mix(float mixed[QUERIES][MOST_WIDTH], int count, const float kept[QUERIES],
                const Cache *cache, const Block *block, const Block *next,
                float weights[QUERIES][KEYS]) {
    for (size_t d = 0; d < cache->width; d += WIDE * LANES) {
        f32x16 sums[QUERIES][WIDE];
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++) sums[j][i] = load(mixed[j] + d + i * LANES) * kept[j];
        for (size_t k = 0; k < block->keys; k++) {
            const Value *row = cache->value + block->row[k] + d;
            f32x16 value[WIDE];
            for (int i = 0; i < WIDE; i++) value[i] = load_value(row + i * LANES);
            for (int i = 0; i < WIDE; i++)
                __builtin_prefetch(cache->key + next->row[k] + d + i * LANES);
#pragma clang loop unroll(full)
            for (int j = 0; j < count; j++)
                for (int i = 0; i < WIDE; i++)
                    sums[j][i] = fma16(splat(weights[j][k]), value[i], sums[j][i]);
        }
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++) store(mixed[j] + d + i * LANES, sums[j][i]);
    }
}

// The first `count` queries.
INLINE void attend(const float *query, const Queries *queries, int count, const Cache *cache,
                   size_t window, float *out) {
    float mixed[QUERIES][MOST_WIDTH];  // values, weighted by exp(score - top)
    for (int j = 0; j < count; j++)
        for (size_t d = 0; d < cache->width; d += LANES) store(mixed[j] + d, (f32x16){});
    Softmax softmax = no_scores();
    size_t oldest = oldest_seen(queries, window), newest = queries->position[count - 1];
    Block blocks[2], *block = &blocks[0], *next = &blocks[1];
    find_block(next, oldest / KEYS * KEYS, newest, cache);
    for (size_t begin = oldest / KEYS * KEYS; begin <= newest; begin += KEYS) {
        float weights[QUERIES][KEYS];
        for (int j = 0; j < count; j++)
            for (int k = 0; k < KEYS; k += LANES) store(weights[j] + k, (f32x16){});
        Block *free = block;
        block = next, next = free;
        find_block(next, begin + KEYS, newest, cache);
        score(query, queries, count, cache, block, weights);
        Seen seen = seen_in_block(queries, count, begin, window);
#ifdef SCALED
        for (int j = 0; j < count; j++) multiply(weights[j], block->key_scale);
#endif
        raise_tops(&softmax, count, weights, &seen);
        weigh(&softmax, count, weights, &seen);
#ifdef SCALED
        for (int j = 0; j < count; j++) multiply(weights[j], block->value_scale);
#endif
        mix(mixed, count, softmax.kept, cache, block, next, weights);
    }
    for (int j = 0; j < count; j++)
        for (size_t d = 0; d < cache->width; d += LANES)
            store(out + queries->at[j] + d, load(mixed[j] + d) / softmax.total[j]);
}

// query f32 (tokens, heads, width), key and value (rows, groups, width), their scales f32
// (rows, groups), start i32 (1,), out f32 (tokens, heads, width). A workgroup computes `queries`, a
// multiple of QUERIES, of `together` heads of one group, token after token.
int NAME(const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value,
         size_t value_at,
#ifdef SCALED
         const float *key_scale, size_t key_scale_at, const float *value_scale,
         size_t value_scale_at,
#endif
         const int32_t *start, size_t start_at, float *out, size_t out_at, size_t workgroup,
         size_t tokens, size_t heads, size_t groups, size_t width, size_t rows, size_t window,
         size_t together, size_t queries, float scale) {
    size_t parts = heads / together, head = workgroup % parts * together;
    size_t begin = workgroup / parts * queries, end = tokens * together;
    size_t group = head / (heads / groups);
    Cache cache = {
        key + key_at + group * width,
        value + value_at + group * width,
        rows,
        groups * width,
        width,
        scale,
#ifdef SCALED
        key_scale + key_scale_at + group,
        value_scale + value_scale_at + group,
        groups,
#endif
    };
    Queries sets[MOST_QUERIES / QUERIES];
    size_t count = least(end - begin, queries);
    size_t token = begin / together, next = begin % together;
    for (size_t j = 0; j < count; j++) {
        sets[j / QUERIES].at[j % QUERIES] = (token * heads + head + next) * width;
        sets[j / QUERIES].position[j % QUERIES] = (size_t)start[start_at] + token;
        if (++next == together) next = 0, token++;
    }
    query += query_at;
    out += out_at;
    const Queries *rest = sets;
    if (queries > QUERIES && count >= QUERIES) {
        attend_many(query, sets, count / QUERIES, &cache, window, out);
        rest += count / QUERIES;
        count %= QUERIES;
    }
    if (count == 4) attend(query, rest, 4, &cache, window, out);
    if (count == 3) attend(query, rest, 3, &cache, window, out);
    if (count == 2) attend(query, rest, 2, &cache, window, out);
    if (count == 1) attend(query, rest, 1, &cache, window, out);
    return 0;
}

#endif
