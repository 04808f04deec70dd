// The recurrence of Mamba-2 (Dao and Gu, 2024), token by token: op `ssm_scan`.
//
//     dt = softplus(steps + bias)
//     state = exp(dt rates) state + key (dt x)^T;  output = silu(gate) (state^T query + skip x)
//
// A column of a state depends on no other column, so a strip of them reads all tokens while it is
// in the first cache. A row of the strip reads several tokens while it is in registers. Every
// token is computed in the same way, so the bits do not depend on how a text is split.
#include "gates.h"
#include "recurrent/rows.h"

// Vectors of a row of the state that are computed together: as many as there are registers for.
#if defined(__AVX512F__)
enum { STRIP = 4 };
#else
enum { STRIP = 1 };
#endif
enum { BLOCK = 4 };  // tokens that a row reads together

// A head's inputs of some tokens, and the time step and decay of each token.
struct inputs {
    struct rows query, key, x, gate;
    const float *dt, *kept;
    float skip;
};

// `count` tokens: `from` and `to` are the same strip of the state before and after them. With
// `each`, the state after token t goes to `each[t]`, past the caches.
INLINE void update(const float *from, float *to, float *const *each, struct inputs in, float *out,
                   size_t out_step, size_t keys, size_t width, int vectors, int count,
                   int is_alone) {
    f32x16 mixed[BLOCK][STRIP] = {}, value[BLOCK][STRIP], kept[BLOCK];
    UNROLL for (int t = 0; t < count; t++) {
        kept[t] = splat(in.kept[t]);
        UNROLL for (int v = 0; v < vectors; v++) value[t][v] =
            load(in.x.at + t * in.x.step + v * LANES) * in.dt[t];
    }
    for (size_t i = 0; i < keys; i++) {
        f32x16 key[BLOCK], query[BLOCK];
        UNROLL for (int t = 0; t < count; t++) {
            key[t] = splat(in.key.at[t * in.key.step + i]);
            query[t] = splat(in.query.at[t * in.query.step + i]);
        }
        UNROLL for (int v = 0; v < vectors; v++) {
            f32x16 state = load(from + i * width + v * LANES);
            UNROLL for (int t = 0; t < count; t++) {
                state = fma16(key[t], value[t][v], state * kept[t]);
                mixed[t][v] = fma16(state, query[t], mixed[t][v]);
                if (each) store_past(each[t] + i * width + v * LANES, state);
            }
            if (!each) store_state(to + i * width + v * LANES, state, is_alone);
        }
    }
    UNROLL for (int t = 0; t < count; t++) UNROLL for (int v = 0; v < vectors; v++) {
        f32x16 x = load(in.x.at + t * in.x.step + v * LANES);
        f32x16 gate = load(in.gate.at + t * in.gate.step + v * LANES);
        store(out + t * out_step + v * LANES, silu(gate) * fma16(splat(in.skip), x, mixed[t][v]));
    }
}

// The time steps and decays of up to LANES tokens; only the first `counted` count.
INLINE void step_sizes(struct rows steps, size_t tokens, size_t counted, float bias, float rate,
                       float dt[LANES], float kept[LANES]) {
    f32x16 sizes = {};
    for (size_t t = 0; t < least(tokens, LANES); t++) sizes[t] = steps.at[t * steps.step] + bias;
    sizes = softplus(sizes);
    for (size_t t = least(counted, LANES); t < LANES; t++) sizes[t] = 0;
    store(dt, sizes);
    store(kept, exp16(sizes * rate));
}

// positions i32 (2,): of the first token and of the last one that counts; query and key f32
// (tokens, groups, keys), x and gate f32 (tokens, heads, width) and steps f32 (tokens, heads),
// which begin at `..._start` and have rows of `..._step` values; bias, rates and skip f32 (heads,),
// out f32 (ring, heads, keys, width): the state after position p is row p mod ring; behind these
// rows, outputs (tokens, heads, width). A workgroup computes a head.
int hearth_ssm_scan(const int32_t *positions, size_t positions_at, const float *query,
                    size_t query_at, const float *key, size_t key_at, const float *x, size_t x_at,
                    const float *steps, size_t steps_at, const float *gate, size_t gate_at,
                    const float *bias, size_t bias_at, const float *rates, size_t rates_at,
                    const float *skip, size_t skip_at, float *out, size_t out_at, size_t head,
                    size_t tokens, size_t heads, size_t groups, size_t keys, size_t width,
                    size_t ring, size_t every, size_t query_start, size_t query_step,
                    size_t key_start, size_t key_step, size_t x_start, size_t x_step,
                    size_t steps_start, size_t steps_step, size_t gate_start, size_t gate_step) {
    size_t size = keys * width, row = heads * size, group = head / (heads / groups);
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    size_t counted = every ? tokens : last - first + 1, out_step = heads * width;
    struct rows times = {steps + steps_at + steps_start + head, steps_step};
    struct inputs all = {
        .query = {query + query_at + query_start + group * keys, query_step},
        .key = {key + key_at + key_start + group * keys, key_step},
        .x = {x + x_at + x_start + head * width, x_step},
        .gate = {gate + gate_at + gate_start + head * width, gate_step},
        .skip = skip[skip_at + head],
    };
    float *states = out + out_at + head * size, dt[LANES], kept[LANES];
    int is_past = is_aligned(states), is_alone = tokens == 1 && is_past;
    for (size_t at = 0, vectors; at < width; at += vectors * LANES) {
        vectors = width - at < STRIP * LANES ? 1 : STRIP;
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0, count; t < tokens; t += count) {
            if (t % LANES == 0)
                step_sizes(behind(times, t), tokens - t, counted - least(counted, t),
                           bias[bias_at + head], rates[rates_at + head], dt, kept);
            struct inputs in = all;
            in.query = behind(all.query, t), in.key = behind(all.key, t);
            in.x = behind(all.x, t), in.gate = behind(all.gate, t);
            in.x.at += at, in.gate.at += at;
            in.dt = dt + t % LANES, in.kept = kept + t % LANES;
            float *to = states + (every ? first + t : last) % ring * row + at;
            float *output = out + out_at + ring * row + head * width + t * out_step + at;
            if (!from) {
                for (size_t i = 0; i < keys; i++)
                    for (size_t v = 0; v < vectors; v++)
                        store(to + i * width + v * LANES, (f32x16){});
                from = to;
            }
            count = (every && !is_past) || tokens - t < BLOCK ? 1 : BLOCK;
            float *each[BLOCK] = {};
            for (size_t u = 0; u < count; u++) each[u] = states + (first + t + u) % ring * row + at;
            int keeps_each = every && count == BLOCK;
            if (vectors == STRIP && keeps_each)
                update(from, 0, each, in, output, out_step, keys, width, STRIP, BLOCK, 0);
            else if (vectors == STRIP && count == BLOCK)
                update(from, to, 0, in, output, out_step, keys, width, STRIP, BLOCK, 0);
            else if (vectors == STRIP && is_alone)
                update(from, to, 0, in, output, out_step, keys, width, STRIP, 1, 1);
            else if (vectors == STRIP)
                update(from, to, 0, in, output, out_step, keys, width, STRIP, 1, 0);
            else if (keeps_each)
                update(from, 0, each, in, output, out_step, keys, width, 1, BLOCK, 0);
            else if (count == BLOCK)
                update(from, to, 0, in, output, out_step, keys, width, 1, BLOCK, 0);
            else
                update(from, to, 0, in, output, out_step, keys, width, 1, 1, 0);
            from = keeps_each ? each[count - 1] : to;
        }
    }
    return 0;
}
