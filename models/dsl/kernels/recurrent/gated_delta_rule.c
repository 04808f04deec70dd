// The gated delta rule (Yang et al., 2024), token by token: op `gated_delta_rule`.
//
//     decay = exp(softplus(a + bias) rates);  rate = sigmoid(b)
//     state = decay state;  state = state + key (rate (value - state^T key))^T
//     output = state^T query
//
// Keys have length 1 and queries K^-0.5: the sums over them are scaled, not each of their values. A
// column of a state depends on no other column, so a strip of them learns all tokens while it is in
// the first cache: the state is read from memory once, and written once. Every token is computed in
// the same way, in a call of its own or with others, so the bits do not depend on how a text is
// split.
#include "gates.h"
#include "recurrent/rows.h"

enum { STRIP = 4 };              // vectors of a row of the state that are computed together
enum { BLOCK = 4, NARROW = 2 };  // tokens whose states are all kept, and their vectors of a row

// Factors of some tokens: of keys and queries, to give them their lengths, of the state (`kept`),
// and of the change that it learns (`rate`).
struct numbers {
    float key[LANES], query[LANES], kept[LANES], rate[LANES];
};

// One token, number `t` of `numbers`: `from` and `to` are the same strip of the state before and
// after it.
INLINE void learn(const float *from, float *to, const float *query, const float *key,
                  const float *value, const struct numbers *numbers, size_t t, float *out,
                  size_t keys, size_t width, int vectors, int is_alone) {
    f32x16 read[STRIP] = {}, mixed[STRIP] = {}, learned[STRIP], kept = splat(numbers->kept[t]);
    float key_factor = numbers->key[t], rate = numbers->rate[t] * key_factor;
    for (size_t i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            read[v] = fma16(load(from + i * width + v * LANES) * kept, splat(key[i]), read[v]);
    for (int v = 0; v < vectors; v++)
        learned[v] = (load(value + v * LANES) - read[v] * key_factor) * rate;
    for (size_t i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++) {
            f32x16 old = load(from + i * width + v * LANES) * kept;
            f32x16 new = fma16(splat(key[i]), learned[v], old);
            store_state(to + i * width + v * LANES, new, is_alone);
            mixed[v] = fma16(new, splat(query[i]), mixed[v]);
        }
    for (int v = 0; v < vectors; v++) store(out + v * LANES, mixed[v] * numbers->query[t]);
}

// `count` tokens from number `first` of `numbers`, keeping all states: the state after token t is
// stored past the caches at `to[t]`. A token's output is computed from the state before all tokens,
// which stays in the first cache, so each state is written once and not read. A value goes through
// the same operations as in `learn`.
INLINE void learn_each(const float *from, float *const *to, struct rows query, struct rows key,
                       struct rows value, const struct numbers *numbers, size_t first, float *out,
                       size_t out_step, size_t keys, size_t width, int vectors, int count) {
    f32x16 learned[BLOCK][NARROW], mixed[BLOCK][NARROW] = {};
    const float *kept = numbers->kept + first;
    UNROLL for (int t = 0; t < count; t++) {
        f32x16 read[NARROW] = {};
        float key_factor = numbers->key[first + t], rate = numbers->rate[first + t] * key_factor;
        for (size_t i = 0; i < keys; i++) UNROLL for (int v = 0; v < vectors; v++) {
                f32x16 state = load(from + i * width + v * LANES);
                UNROLL for (int u = 0; u < t; u++) state =
                    fma16(splat(key.at[u * key.step + i]), learned[u][v], state * splat(kept[u]));
                read[v] = fma16(state * splat(kept[t]), splat(key.at[t * key.step + i]), read[v]);
            }
        UNROLL for (int v = 0; v < vectors; v++) {
            f32x16 expected = load(value.at + t * value.step + v * LANES);
            learned[t][v] = (expected - read[v] * key_factor) * rate;
        }
    }
    for (size_t i = 0; i < keys; i++) UNROLL for (int v = 0; v < vectors; v++) {
            f32x16 state = load(from + i * width + v * LANES);
            UNROLL for (int t = 0; t < count; t++) {
                state =
                    fma16(splat(key.at[t * key.step + i]), learned[t][v], state * splat(kept[t]));
                store_past(to[t] + i * width + v * LANES, state);
                mixed[t][v] = fma16(state, splat(query.at[t * query.step + i]), mixed[t][v]);
            }
        }
    UNROLL for (int t = 0; t < count; t++) UNROLL for (int v = 0; v < vectors; v++)
        store(out + t * out_step + v * LANES, mixed[t][v] * numbers->query[first + t]);
}

// 1 / sqrt(sum(x^2) + 1e-6).
INLINE float inverse_length(const float *x, size_t count) {
    f32x16 squares = {}, rest = {};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) squares = fma16(load(x + i), load(x + i), squares);
    for (size_t lane = 0; i + lane < count; lane++) rest[lane] = x[i + lane];
    return 1.0f / __builtin_sqrtf(sum(fma16(rest, rest, squares)) + 1e-6f);
}

// The numbers of up to LANES tokens; only the first `counted` count.
INLINE void measure(struct rows query, struct rows key, struct rows a, struct rows b, size_t tokens,
                    size_t counted, size_t keys, float bias, float rate, struct numbers *numbers) {
    f32x16 steps = {}, rates = {};
    float length = 1.0f / __builtin_sqrtf((float)keys);
    for (size_t t = 0; t < least(tokens, LANES); t++) {
        steps[t] = *behind(a, t).at + bias, rates[t] = *behind(b, t).at;
        numbers->key[t] = inverse_length(behind(key, t).at, keys);
        numbers->query[t] = inverse_length(behind(query, t).at, keys) * length;
    }
    steps = softplus(steps) * rate, rates = sigmoid16(rates);
    for (size_t t = least(counted, LANES); t < LANES; t++) steps[t] = rates[t] = 0;
    store(numbers->kept, exp16(steps));
    store(numbers->rate, rates);
}

// All tokens of a verify, as `learn_each` does some of them: `states` is a ring of `ring` rows of
// `row` values, and `first` the first token's position.
INLINE void verify(float *states, size_t first, size_t ring, size_t row, struct rows query,
                   struct rows key, struct rows value, const struct numbers *numbers, float *out,
                   size_t out_step, size_t tokens, size_t keys, size_t width) {
    for (size_t at = 0, vectors; at < width; at += vectors * LANES) {
        vectors = width - at < NARROW * LANES ? 1 : NARROW;
        for (size_t t = 0, count; t < tokens; t += count) {
            count = tokens - t < BLOCK ? tokens - t < 2 ? 1 : 2 : BLOCK;
            const float *from = states + (first + t + ring - 1) % ring * row + at;
            float *to[BLOCK], *o = out + t * out_step + at;
            for (size_t u = 0; u < count; u++) to[u] = states + (first + t + u) % ring * row + at;
            struct rows q = behind(query, t), k = behind(key, t), v = behind(value, t);
            v.at += at;
            if (vectors == NARROW && count == BLOCK)
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, NARROW, BLOCK);
            else if (vectors == NARROW && count == 2)
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, NARROW, 2);
            else if (vectors == NARROW)
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, NARROW, 1);
            else if (count == BLOCK)
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, 1, BLOCK);
            else if (count == 2)
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, 1, 2);
            else
                learn_each(from, to, q, k, v, numbers, t, o, out_step, keys, width, 1, 1);
        }
    }
}

// positions i32 (2,): of the first token and of the last one that counts; query and key f32
// (tokens, groups, keys), value f32 (tokens, heads, width), a and b f32 (tokens, heads), which
// begin at `..._start` and have rows of `..._step` values; bias and rates f32 (heads,), out f32
// (ring, heads, keys, width): the state after position p is row p mod ring; behind these rows,
// outputs (tokens, heads, width). A workgroup computes a head, with the queries and
// keys of group head / (heads / groups), or head mod groups if heads take turns.
int hearth_gated_delta_rule(const int32_t *positions, size_t positions_at, const float *query,
                            size_t query_at, const float *key, size_t key_at, const float *value,
                            size_t value_at, const float *a, size_t a_at, const float *b,
                            size_t b_at, const float *bias, size_t bias_at, const float *rates,
                            size_t rates_at, float *out, size_t out_at, size_t head, size_t tokens,
                            size_t heads, size_t groups, size_t keys, size_t width, size_t ring,
                            size_t every, size_t takes_turns, size_t query_start, size_t query_step,
                            size_t key_start, size_t key_step, size_t value_start,
                            size_t value_step, size_t a_start, size_t a_step, size_t b_start,
                            size_t b_step) {
    size_t size = keys * width, row = heads * size;
    size_t group = takes_turns ? head % groups : head / (heads / groups);
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    size_t counted = every ? tokens : last - first + 1;
    struct rows queries = {query + query_at + query_start + group * keys, query_step};
    struct rows key_rows = {key + key_at + key_start + group * keys, key_step};
    struct rows values = {value + value_at + value_start + head * width, value_step};
    struct rows as = {a + a_at + a_start + head, a_step}, bs = {b + b_at + b_start + head, b_step};
    float *output = out + out_at + ring * row + head * width;
    float *states = out + out_at + head * size;
    struct numbers numbers;
    int is_alone = tokens == 1 && is_aligned(states);
    if (first && every && tokens > 1 && tokens <= LANES && is_aligned(states)) {
        measure(queries, key_rows, as, bs, tokens, counted, keys, bias[bias_at + head],
                rates[rates_at + head], &numbers);
        verify(states, first, ring, row, queries, key_rows, values, &numbers, output, heads * width,
               tokens, keys, width);
        return 0;
    }
    for (size_t at = 0; at < width; at += STRIP * LANES) {
        int vectors = (int)least(STRIP, (width - at) / LANES);
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0; t < tokens; t++) {
            const float *q = behind(queries, t).at, *k = behind(key_rows, t).at;
            const float *v = behind(values, t).at + at;
            float *to = states + (every ? first + t : last) % ring * row + at;
            float *o = output + t * heads * width + at;
            if (t % LANES == 0)
                measure(behind(queries, t), behind(key_rows, t), behind(as, t), behind(bs, t),
                        tokens - t, counted - least(counted, t), keys, bias[bias_at + head],
                        rates[rates_at + head], &numbers);
            if (!from) {
                for (size_t i = 0; i < keys; i++)
                    for (int j = 0; j < vectors; j++) store(to + i * width + j * LANES, (f32x16){});
                from = to;
            }
            if (vectors == STRIP && is_alone)
                learn(from, to, q, k, v, &numbers, 0, o, keys, width, STRIP, 1);
            else if (vectors == STRIP)
                learn(from, to, q, k, v, &numbers, t % LANES, o, keys, width, STRIP, 0);
            else
                learn(from, to, q, k, v, &numbers, t % LANES, o, keys, width, vectors, 0);
            from = to;
        }
    }
    return 0;
}
