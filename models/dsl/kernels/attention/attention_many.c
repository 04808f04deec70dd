// Attention of many queries: the bits that attention_scores.c and attention_mix.c give for few. A
// variant for a dtype of caches defines NAME, what attention_softmax.h says, and SINKS if heads
// have sinks.
//
// Keys are transposed, so that lanes are keys and no sum of lanes is needed: the products of lane i
// of attention_scores.c are added up in a vector for 16 keys, and these vectors in the order in
// which sums4 adds lanes. Values are converted once for all queries.
#include "attention/attention_softmax.h"
#include "isa/transpose.h"

// A workgroup takes 86 KiB of stack: a worker has 128.
enum {
    MAX_QUERIES = 64,
    TRANSPOSED = 32,  // keys that are transposed at a time
    STRIP = 64,       // values of a head that are mixed at a time
};

// Accumulators that stay in registers together with their operands: vectors of scores and of mixed
// values, of QUERIES queries each. Two vectors of keys share a load of a query's column, but
// some sums of lanes do not stay in registers; a Zen 4 loads two columns while it multiplies once.
#if defined(__znver4__)
enum { TALL = 1, WIDE = 4 };
#elif defined(__AVX512F__)
enum { TALL = 2, WIDE = 4 };
#else
enum { TALL = 1, WIDE = 1 };
#endif

// Keys of a block from `first` on: value LANES * j + i of key k to
// to[(i * steps + j) * TRANSPOSED + k].
INLINE void transpose_keys(float *to, const Cache *cache, const Block *block, size_t first) {
    size_t steps = cache->width / LANES;
    for (size_t j = 0; j < steps; j++)
        for (size_t k = 0; k < TRANSPOSED; k += LANES) {
            f32x16 keys[LANES];
            for (int i = 0; i < LANES; i++)
                keys[i] = COLUMNS(cache, key, block->row[first + k + i], j * LANES);
            transpose16(keys);
            for (int i = 0; i < LANES; i++) store(to + (i * steps + j) * TRANSPOSED + k, keys[i]);
        }
}

// Sums of each query and TALL vectors of keys.
typedef struct {
    f32x16 of[QUERIES][TALL];
} Sums;

INLINE Sums add(Sums a, Sums b) {
    for (int q = 0; q < QUERIES; q++)
        for (int t = 0; t < TALL; t++) a.of[q][t] += b.of[q][t];
    return a;
}

// Lane i of the products of queries and keys.
INLINE Sums lane(const float *const query[QUERIES], const float *keys, size_t steps, size_t i) {
    Sums sums = {};
    for (size_t j = 0; j < steps; j++)
        for (int q = 0; q < QUERIES; q++)
            for (int t = 0; t < TALL; t++) {
                f32x16 key = load(keys + (i * steps + j) * TRANSPOSED + t * LANES);
                sums.of[q][t] = fma16(splat(query[q][j * LANES + i]), key, sums.of[q][t]);
            }
    return sums;
}

// Lanes i and i + 1, added.
INLINE Sums two_lanes(const float *const query[QUERIES], const float *keys, size_t steps,
                      size_t i) {
    return add(lane(query, keys, steps, i), lane(query, keys, steps, i + 1));
}

INLINE Sums four_lanes(const float *const query[QUERIES], const float *keys, size_t steps,
                       size_t i) {
    return add(two_lanes(query, keys, steps, i), two_lanes(query, keys, steps, i + 2));
}

// scores[j][k] = scale * query j times key k of the first `count` that are transposed, or more.
INLINE void score_transposed(const float *query, const Queries *queries, const float *keys,
                             size_t count, size_t steps, float scale, float (*scores)[KEYS]) {
    const float *own[QUERIES];
    for (int q = 0; q < QUERIES; q++) own[q] = query + queries->at[q];
    for (size_t k = 0; k < count; k += TALL * LANES) {
        Sums halves[2];
        for (size_t i = 0; i < 2; i++)
            halves[i] = add(four_lanes(own, keys + k, steps, 4 * i),
                            four_lanes(own, keys + k, steps, 4 * i + 8));
        Sums sums = add(halves[0], halves[1]);
        for (int q = 0; q < QUERIES; q++)
            for (int t = 0; t < TALL; t++) store(scores[q] + k + t * LANES, sums.of[q][t] * scale);
    }
}

// The scores of sets from `from` up to `to` and the keys of a block.
INLINE void score_sets(const float *query, const Queries *sets, size_t from, size_t to,
                       const Cache *cache, const Block *block, size_t begin, float *buffer,
                       float (*scores)[KEYS]) {
    size_t steps = cache->width / LANES;
    for (size_t k = 0; k < block->keys; k += TRANSPOSED) {
        transpose_keys(buffer, cache, block, k);
        for (size_t s = from; s < to; s++) {
            size_t newest = sets[s].last[QUERIES - 1];
            if (newest < begin + k) continue;
            size_t count = least(newest - begin - k + 1, TRANSPOSED);
            float (*own)[KEYS] = (float (*)[KEYS])(scores[s * QUERIES] + k);
            // A constant lets the compiler unroll the loop of steps.
            if (steps == 4)
                score_transposed(query, &sets[s], buffer, count, 4, cache->scale, own);
            else
                score_transposed(query, &sets[s], buffer, count, steps, cache->scale, own);
        }
    }
}

// Adds the first `keys` values of a strip of `columns`, weighted, to `out`. A constant `wide` keeps
// sums in registers.
INLINE void mix_strip(float *out, const Queries *queries, const float kept[QUERIES],
                      const float *values, size_t keys, float weights[QUERIES][KEYS],
                      size_t columns, const int wide) {
    for (size_t d = 0; d < columns; d += (size_t)wide * LANES) {
        f32x16 sums[QUERIES][WIDE];
        for (int j = 0; j < QUERIES; j++)
            for (int i = 0; i < wide; i++)
                sums[j][i] = load(out + queries->at[j] + d + i * LANES) * kept[j];
        for (size_t k = 0; k < keys; k++) {
            f32x16 value[WIDE];
            for (int i = 0; i < wide; i++) value[i] = load(values + k * STRIP + d + i * LANES);
            for (int j = 0; j < QUERIES; j++)
                for (int i = 0; i < wide; i++)
                    sums[j][i] = fma16(splat(weights[j][k]), value[i], sums[j][i]);
        }
        for (int j = 0; j < QUERIES; j++)
            for (int i = 0; i < wide; i++) store(out + queries->at[j] + d + i * LANES, sums[j][i]);
    }
}

// Adds the values of a block, weighted, to `out`.
INLINE void mix_sets(float *out, const Queries *sets, size_t from, size_t to,
                     const Softmax *softmax, const Cache *cache, const Block *block, size_t begin,
                     float *buffer, float (*weights)[KEYS]) {
    for (size_t d = 0; d < cache->width; d += STRIP) {
        size_t columns = least(cache->width - d, STRIP);
        for (size_t k = 0; k < block->keys; k++)
            for (size_t i = 0; i < columns; i += LANES)
                store(buffer + k * STRIP + i, COLUMNS(cache, value, block->row[k], d + i));
        for (size_t s = from; s < to; s++) {
            size_t keys = least(sets[s].last[QUERIES - 1] - begin + 1, KEYS);
            float (*own)[KEYS] = &weights[s * QUERIES];
            if (columns == STRIP)
                mix_strip(out + d, &sets[s], softmax[s].kept, buffer, keys, own, STRIP, WIDE);
            else
                mix_strip(out + d, &sets[s], softmax[s].kept, buffer, keys, own, columns, 1);
        }
    }
}

// `count` sets of queries, the oldest first; the last query may be repeated to fill the last set.
// Mixed values are added up in `out`.
INLINE void attend_many(const float *query, const Queries *sets, size_t count, const Cache *cache,
                        size_t window, const float *sinks, size_t heads, float *out) {
    Softmax softmax[MAX_QUERIES / QUERIES];
    for (size_t s = 0; s < count; s++) {
        softmax[s] = no_scores(&sets[s], QUERIES, sinks, heads, cache->width);
        for (int j = 0; j < QUERIES; j++)
            for (size_t d = 0; d < cache->width; d += LANES)
                store(out + sets[s].at[j] + d, (f32x16){});
    }
    size_t oldest = oldest_seen(sets, window), newest = sets[count - 1].last[QUERIES - 1];
    for (size_t begin = oldest / KEYS * KEYS; begin <= newest; begin += KEYS) {
        // Transposed keys, and then a strip of values.
        _Alignas(64) float buffer[TRANSPOSED * MAX_WIDTH];
        _Alignas(64) float scores[MAX_QUERIES][KEYS];
        Seen seen[MAX_QUERIES / QUERIES];
        Block block;
        find_block(&block, begin, newest, cache);
        // The sets that see keys of this block.
        size_t from = 0, to = count;
        while (sets[from].last[QUERIES - 1] < begin) from++;
        while (oldest_seen(&sets[to - 1], window) >= begin + KEYS) to--;
        score_sets(query, sets, from, to, cache, &block, begin, buffer, scores);
        for (size_t s = from; s < to; s++) {
            seen[s] = seen_in_block(&sets[s], QUERIES, begin, window);
#ifdef SCALED
            for (int j = 0; j < QUERIES; j++) multiply(scores[s * QUERIES + j], block.key_scale);
#endif
            raise_tops(&softmax[s], QUERIES, &scores[s * QUERIES], &seen[s]);
        }
        for (size_t s = from; s < to; s++) {
            weigh(&softmax[s], QUERIES, &scores[s * QUERIES], &seen[s]);
#ifdef SCALED
            for (int j = 0; j < QUERIES; j++) multiply(scores[s * QUERIES + j], block.value_scale);
#endif
        }
        mix_sets(out, sets, from, to, softmax, cache, &block, begin, buffer, scores);
    }
    for (size_t s = 0; s < count; s++)
        for (int j = 0; j < QUERIES; j++) {
            float *row = out + sets[s].at[j];
            if (j && sets[s].at[j] == sets[s].at[j - 1]) break;  // the last query, repeated
            for (size_t d = 0; d < cache->width; d += LANES)
                store(row + d, load(row + d) / softmax[s].total[j]);
#ifdef PACKED
            rotate(row, row, cache->width);
#endif
        }
}

// out f32 (tokens, heads, width). A workgroup computes `queries`, a multiple of QUERIES, of
// `together` heads of one group, token after token. A token sees those up to its own; with a
// `block`, also those before the position that follows in `start`.
int NAME(INPUTS, float *out, size_t out_at, size_t workgroup, SIZES, size_t block, size_t together,
         size_t queries, float scale) {
    size_t parts = heads / together, head = workgroup % parts * together;
    size_t begin = workgroup / parts * queries, end = tokens * together;
    const Cache cache = CACHE(head / (heads / groups));
    Queries sets[MAX_QUERIES / QUERIES];
    size_t count = least(end - begin, queries), all = (count + QUERIES - 1) / QUERIES;
    size_t token = begin / together, next = begin % together;
    size_t end_of_block = block ? (size_t)start[start_at + 1] : 0;
    for (size_t j = 0; j < all * QUERIES; j++) {
        sets[j / QUERIES].at[j % QUERIES] = (token * heads + head + next) * width;
        size_t position = (size_t)start[start_at] + token;
        sets[j / QUERIES].position[j % QUERIES] = position;
        sets[j / QUERIES].last[j % QUERIES] = position < end_of_block ? end_of_block - 1 : position;
        if (j + 1 < count && ++next == together) next = 0, token++;
    }
    attend_many(query + query_at, sets, all, &cache, window, SINKS_OF_HEADS, heads, out + out_at);
    return 0;
}
