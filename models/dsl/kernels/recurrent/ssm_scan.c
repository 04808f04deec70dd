// The recurrence of Mamba-2 (Dao and Gu, 2024), token by token: op `ssm_scan`.
//
//     state = exp(log_decay) state + key value^T;  output = state^T query
//
// A column of a state depends on no other column, so a strip of them learns all tokens while it is
// in the first cache. A row of the strip learns several tokens while it is in registers. Every
// token is computed alike, so the bits do not depend on how a text is split.
#include "isa/vector.h"

// Vectors of a row of the state that are computed together: as many as there are registers for.
#if defined(__AVX512F__)
enum { STRIP = 4 };
#else
enum { STRIP = 1 };
#endif
enum { BLOCK = 4 };  // tokens that a row learns together

// The rows of some tokens that a head reads: each `..._step` behind that of the token before.
struct rows {
    const float *query, *key, *value, *log_decay;
    size_t group_step, value_step, decay_step;
};

// `count` tokens: `from` and `to` are the same strip of the state before and after them.
INLINE void learn(const float *from, float *to, struct rows rows, float *out, size_t keys,
                  size_t width, int vectors, int count) {
    f32x16 mixed[BLOCK][STRIP], kept[BLOCK];
    UNROLL for (int t = 0; t < count; t++) {
        kept[t] = exp16(splat(rows.log_decay[t * rows.decay_step]));
        UNROLL for (int v = 0; v < vectors; v++) mixed[t][v] = (f32x16){};
    }
    for (size_t i = 0; i < keys; i++) UNROLL for (int v = 0; v < vectors; v++) {
            f32x16 state = load(from + i * width + v * LANES);
            UNROLL for (int t = 0; t < count; t++) {
                f32x16 value = load(rows.value + t * rows.value_step + v * LANES);
                f32x16 key = splat(rows.key[t * rows.group_step + i]);
                f32x16 query = splat(rows.query[t * rows.group_step + i]);
                state = fma16(key, value, state * kept[t]);
                mixed[t][v] = fma16(state, query, mixed[t][v]);
            }
            store(to + i * width + v * LANES, state);
        }
    UNROLL for (int t = 0; t < count; t++) UNROLL for (int v = 0; v < vectors; v++)
        store(out + t * rows.value_step + v * LANES, mixed[t][v]);
}

// positions i32 (2,): of the first token and of the last one that counts; query and key f32
// (tokens, groups, keys), value f32 (tokens, heads, width), log_decay f32 (tokens, heads), out f32
// (ring, heads, keys, width): the state after position p is row p mod ring; behind these rows,
// outputs (tokens, heads, width). A workgroup computes a head.
int hearth_ssm_scan(const int32_t *positions, size_t positions_at, const float *query,
                    size_t query_at, const float *key, size_t key_at, const float *value,
                    size_t value_at, const float *log_decay, size_t log_decay_at, float *out,
                    size_t out_at, size_t head, size_t tokens, size_t heads, size_t groups,
                    size_t keys, size_t width, size_t ring, size_t every) {
    size_t size = keys * width, row = heads * size, group = head / (heads / groups);
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    struct rows rows = {
        .query = query + query_at + group * keys,
        .key = key + key_at + group * keys,
        .log_decay = log_decay + log_decay_at + head,
        .group_step = groups * keys,
        .value_step = heads * width,
        .decay_step = heads,
    };
    float *states = out + out_at + head * size;
    for (size_t at = 0, vectors; at < width; at += vectors * LANES) {
        vectors = width - at < STRIP * LANES ? 1 : STRIP;
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0, count; t < tokens; t += count) {
            struct rows next = rows;
            next.query += t * rows.group_step;
            next.key += t * rows.group_step;
            next.value = value + value_at + head * width + t * rows.value_step + at;
            next.log_decay += t * rows.decay_step;
            float *to = states + (every ? first + t : last) % ring * row + at;
            float *output = out + out_at + ring * row + head * width + t * rows.value_step + at;
            if (!from) {
                for (size_t i = 0; i < keys; i++)
                    for (size_t v = 0; v < vectors; v++)
                        store(to + i * width + v * LANES, (f32x16){});
                from = to;
            }
            count = every || tokens - t < BLOCK ? 1 : BLOCK;
            if (vectors == STRIP && count == BLOCK)
                learn(from, to, next, output, keys, width, STRIP, BLOCK);
            else if (vectors == STRIP)
                learn(from, to, next, output, keys, width, STRIP, 1);
            else if (count == BLOCK)
                learn(from, to, next, output, keys, width, 1, BLOCK);
            else
                learn(from, to, next, output, keys, width, 1, 1);
            from = to;
        }
    }
    return 0;
}
