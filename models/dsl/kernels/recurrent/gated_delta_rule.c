// The gated delta rule, token by token: op `gated_delta_rule`.
//
// A column of a state depends on no other column, so a strip of them learns all tokens while it is
// in the first cache: the state is read from memory once, and written once. Every token is computed
// alike, whether it comes alone or among others, so the bits do not depend on how a text is split.
#include "isa/vector.h"

enum { STRIP = 4 };  // vectors of a row of the state that are computed together

// One token: `from` and `to` are the same strip of the state before and after it.
INLINE void learn(const float *from, float *to, const float *query, const float *key,
                  const float *value, float decay, float rate, float *out, size_t keys,
                  size_t width, int vectors) {
    f32x16 read[STRIP] = {}, mixed[STRIP] = {}, learned[STRIP], kept = splat(decay);
    for (size_t i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            read[v] = fma16(load(from + i * width + v * LANES) * kept, splat(key[i]), read[v]);
    for (int v = 0; v < vectors; v++)
        learned[v] = (load(value + v * LANES) - read[v]) * splat(rate);
    for (size_t i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++) {
            f32x16 old = load(from + i * width + v * LANES) * kept;
            f32x16 new = fma16(splat(key[i]), learned[v], old);
            store(to + i * width + v * LANES, new);
            mixed[v] = fma16(new, splat(query[i]), mixed[v]);
        }
    for (int v = 0; v < vectors; v++) store(out + v * LANES, mixed[v]);
}

// positions i32 (2,): of the first token and of the last one that counts; query and key f32
// (tokens, heads, keys), value f32 (tokens, heads, width), log_decay and rate f32 (tokens, heads),
// out f32 (ring, heads, keys, width): the state after position p is row p mod ring; behind these
// rows, outputs (tokens, heads, width). A workgroup computes a head.
int hearth_gated_delta_rule(const int32_t *positions, size_t positions_at, const float *query,
                            size_t query_at, const float *key, size_t key_at, const float *value,
                            size_t value_at, const float *log_decay, size_t log_decay_at,
                            const float *rate, size_t rate_at, float *out, size_t out_at,
                            size_t head, size_t tokens, size_t heads, size_t keys, size_t width,
                            size_t ring, size_t every) {
    size_t size = keys * width, row = heads * size;
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    query += query_at + head * keys;
    key += key_at + head * keys;
    value += value_at + head * width;
    log_decay += log_decay_at + head;
    rate += rate_at + head;
    float *output = out + out_at + ring * row + head * width;
    float *states = out + out_at + head * size;
    for (size_t at = 0; at < width; at += STRIP * LANES) {
        int vectors = (int)least(STRIP, (width - at) / LANES);
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0; t < tokens; t++) {
            float *to = states + (every ? first + t : last) % ring * row + at;
            const float *q = query + t * heads * keys, *k = key + t * heads * keys;
            const float *v = value + t * heads * width + at;
            float *o = output + t * heads * width + at;
            float kept = exp16(splat(log_decay[t * heads]))[0], learned = rate[t * heads];
            if (!from) {
                for (size_t i = 0; i < keys; i++)
                    for (int j = 0; j < vectors; j++) store(to + i * width + j * LANES, (f32x16){});
                from = to;
            }
            if (vectors == STRIP)
                learn(from, to, q, k, v, kept, learned, o, keys, width, STRIP);
            else
                learn(from, to, q, k, v, kept, learned, o, keys, width, vectors);
            from = to;
        }
    }
    return 0;
}
