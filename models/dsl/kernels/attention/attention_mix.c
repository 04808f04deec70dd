// The values of the keys that few queries see, weighted by the softmax of the scores.
#include "attention/attention_few.h"

// Values of a head that a workgroup mixes (it computes all weights), and vectors of sums that stay
// in registers.
#ifdef __AVX512F__
enum { SLICE = 64, WIDE = 4 };
#else
enum { SLICE = 64, WIDE = 1 };
#endif

// Adds the weighted values of the block of positions from `begin` on, and fetches the next block's.
INLINE void mix(float mixed[QUERIES][SLICE], int count, const float kept[QUERIES],
                const Cache *cache, size_t begin, size_t newest, float weights[QUERIES][KEYS]) {
    size_t left = newest - begin + 1, keys = least(left, KEYS), later = left - keys;
    for (size_t d = 0; d < SLICE; d += WIDE * LANES) {
        f32x16 sums[QUERIES][WIDE];
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++) sums[j][i] = load(mixed[j] + d + i * LANES) * kept[j];
        size_t row = begin % cache->rows, soon = (begin + KEYS) % cache->rows;
        for (size_t k = 0; k < keys; k++) {
            const Value *fetched =
                cache->value + (k < later ? soon : row) * cache->value_stride + AT(value, d);
            f32x16 value[WIDE];
            for (int i = 0; i < WIDE; i++) value[i] = COLUMNS(cache, value, row, d + i * LANES);
            for (int i = 0; i < WIDE; i++)
                if ((d + i * LANES) % LINE_COLUMNS == 0)
                    __builtin_prefetch(fetched + AT(value, i * LANES), 0, NEAREST);
#pragma clang loop unroll(full)
            for (int j = 0; j < count; j++)
                for (int i = 0; i < WIDE; i++)
                    sums[j][i] = fma16(splat(weights[j][k]), value[i], sums[j][i]);
            row = next_row(row, cache->rows), soon = next_row(soon, cache->rows);
        }
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++) store(mixed[j] + d + i * LANES, sums[j][i]);
    }
}

// Fetches the values of a block of positions.
INLINE void fetch_values(const Cache *cache, size_t begin, size_t newest) {
    size_t row = begin % cache->rows, keys = least(newest - begin + 1, KEYS);
    for (size_t k = 0; k < keys; k++, row = next_row(row, cache->rows))
        for (size_t d = 0; d < SLICE; d += LINE_COLUMNS)
            __builtin_prefetch(cache->value + row * cache->value_stride + AT(value, d), 0, NEAREST);
}

#ifdef SCALED
INLINE void find_scales(float scales[KEYS], const Cache *cache, size_t begin) {
    size_t row = begin % cache->rows;
    for (int k = 0; k < KEYS; k++, row = next_row(row, cache->rows))
        scales[k] = cache->value_scale[row * cache->scales];
}
#endif

// A slice of the first `count` queries. Their scores begin at position `first`, and the scores of
// the next query `stride` floats further.
INLINE void attend(const float *scores, size_t first, size_t stride, const Queries *queries,
                   int count, const Cache *cache, size_t window, const float *sinks, size_t heads,
                   float *out) {
    float mixed[QUERIES][SLICE];  // values, weighted by exp(score - top)
    for (int j = 0; j < count; j++)
        for (size_t d = 0; d < SLICE; d += LANES) store(mixed[j] + d, (f32x16){});
    Softmax softmax = no_scores(queries, count, sinks, heads, cache->width);
    size_t oldest = oldest_seen(queries, window), newest = queries->last[count - 1];
    size_t begin = oldest / KEYS * KEYS;
    fetch_values(cache, begin, newest);
    for (; begin <= newest; begin += KEYS) {
        float weights[QUERIES][KEYS];
        Seen seen = seen_in_block(queries, count, begin, window);
        for (int j = 0; j < count; j++)
            for (int k = 0; k < seen.groups * LANES; k += LANES)
                store(weights[j] + k, load(scores + j * stride + (begin - first) + k));
        raise_tops(&softmax, count, weights, &seen);
        weigh(&softmax, count, weights, &seen);
#ifdef SCALED
        float scales[KEYS];
        find_scales(scales, cache, begin);
        for (int j = 0; j < count; j++)
            for (int k = 0; k < seen.groups * LANES; k += LANES)
                store(weights[j] + k, load(weights[j] + k) * load(scales + k));
#endif
        mix(mixed, count, softmax.kept, cache, begin, newest, weights);
    }
    for (int j = 0; j < count; j++) {
        for (size_t d = 0; d < SLICE; d += LANES)
            store(out + queries->at[j] + d, load(mixed[j] + d) / softmax.total[j]);
#ifdef PACKED
        rotate(out + queries->at[j], out + queries->at[j], SLICE);
#endif
    }
}

// scores as attention_scores.h writes them, out f32 (tokens, heads, width). Each of `workgroups`
// computes some slices of sets of QUERIES queries.
int NAME(INPUTS, const float *scores, size_t scores_at, float *out, size_t out_at, size_t workgroup,
         SIZES, size_t keys, size_t workgroups, float scale) {
    (void)query, (void)query_at;
    const Call call = {tokens, heads, groups, width, window, (size_t)start[start_at]};
    size_t begin = first_score(&call), all = queries_of_group(&call);
    size_t slices = width / SLICE, sets = (all + QUERIES - 1) / QUERIES;
    size_t steps = groups * sets * slices;
    size_t end = steps * (workgroup + 1) / workgroups;
    for (size_t step = steps * workgroup / workgroups; step < end; step++) {
        size_t slice = step % slices, group = step / slices / sets;
        size_t first = step / slices % sets * QUERIES, count = least(all - first, QUERIES);
        Queries queries = find_queries(&call, group, first, count);
        Cache cache = CACHE(group);
        cache.value += AT(value, slice * SLICE);
#ifdef PACKED
        cache.value_scale += slice * SLICE / SCALE_GROUP;
#endif
        const float *from = scores + scores_at + (group * all + first) * keys;
        float *to = out + out_at + slice * SLICE;
        const float *sink = SINKS_OF_HEADS;
        if (count == 4) attend(from, begin, keys, &queries, 4, &cache, window, sink, heads, to);
        if (count == 3) attend(from, begin, keys, &queries, 3, &cache, window, sink, heads, to);
        if (count == 2) attend(from, begin, keys, &queries, 2, &cache, window, sink, heads, to);
        if (count == 1) attend(from, begin, keys, &queries, 1, &cache, window, sink, heads, to);
    }
    return 0;
}
