// Intrinsics in C, for CPUs without AMX or AVX-VNNI: a library of kernels includes this first. What
// the instructions compute is described in Intel's SDM, volume 2: LDTILECFG, TILELOADD, TILESTORED,
// TDPBSSD, TDPBSUD, TDPBF16PS, VPDPBUSD, VPDPWSSD. Tiles are static, so one thread at a time may
// call it.
#ifndef HEARTH_EMULATED_INSTRUCTIONS_H
#define HEARTH_EMULATED_INSTRUCTIONS_H

#include <immintrin.h>
#include <stdint.h>

// --- AVX-VNNI, by AVX2: sums of 32 bits, which do not saturate

#undef _mm256_dpbusd_avx_epi32
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_bytes
#define _mm256_dpwssd_avx_epi32 emulated_pairs

static inline __m256i emulated_pairs(__m256i sums, __m256i x, __m256i y) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, y));
}

// Unsigned bytes times signed ones: even bytes of each four, then odd ones.
static inline __m256i emulated_bytes(__m256i sums, __m256i x, __m256i y) {
    __m256i even = _mm256_and_si256(x, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(x, 8);
    __m256i signs = _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8);
    return emulated_pairs(emulated_pairs(sums, even, signs), odd, _mm256_srai_epi16(y, 8));
}

// --- AMX

#if defined(__AMX_INT8__)

// Kept out of loops of kernels, for which compiling takes long, and from calls of memset and
// memcpy.
#define EMULATED __attribute__((noinline, no_builtin, unused)) static

enum { TILE_REGISTERS = 8, MOST_ROWS = 16, MOST_BYTES = 64 };

static struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[MOST_ROWS];
    uint8_t rows[MOST_ROWS];
} tile_shapes;
static uint8_t tile_bytes[TILE_REGISTERS][MOST_ROWS][MOST_BYTES] __attribute__((aligned(64)));

EMULATED void emulated_zero(int tile) {
    __builtin_memset_inline(tile_bytes[tile], 0, sizeof tile_bytes[tile]);
}

// A CPU faults for a register without a shape, or for operands whose shapes do not fit.
EMULATED void require_tile(int fits) {
    if (!fits || tile_shapes.palette != 1) __builtin_trap();
}

EMULATED void emulated_config(const void *shapes) {
    __builtin_memcpy(&tile_shapes, shapes, sizeof tile_shapes);
    for (int tile = 0; tile < TILE_REGISTERS; tile++) {
        require_tile(tile_shapes.rows[tile] <= MOST_ROWS && tile_shapes.bytes[tile] <= MOST_BYTES);
        emulated_zero(tile);
    }
}

EMULATED void emulated_release(void) { tile_shapes.palette = 0; }

EMULATED void emulated_load(int tile, const void *from, int64_t stride) {
    require_tile(tile_shapes.rows[tile] > 0);
    emulated_zero(tile);
    for (int row = 0; row < tile_shapes.rows[tile]; row++)
        for (int i = 0; i < tile_shapes.bytes[tile]; i++)
            tile_bytes[tile][row][i] = ((const uint8_t *)from + row * stride)[i];
}

EMULATED void emulated_store(int tile, void *to, int64_t stride) {
    require_tile(tile_shapes.rows[tile] > 0);
    for (int row = 0; row < tile_shapes.rows[tile]; row++)
        for (int i = 0; i < tile_shapes.bytes[tile]; i++)
            ((uint8_t *)to + row * stride)[i] = tile_bytes[tile][row][i];
}

EMULATED void require_product(int to, int x, int y) {
    const uint8_t *rows = tile_shapes.rows;
    const uint16_t *bytes = tile_shapes.bytes;
    require_tile(rows[to] > 0 && rows[to] == rows[x] && bytes[to] == bytes[y] &&
                 bytes[x] == 4 * rows[y]);
}

EMULATED void emulated_integers(int to, int x, int y, int y_is_signed) {
    require_product(to, x, y);
    for (int row = 0; row < tile_shapes.rows[to]; row++)
        for (int lane = 0; lane < tile_shapes.bytes[to] / 4; lane++) {
            int32_t sum;
            __builtin_memcpy(&sum, &tile_bytes[to][row][4 * lane], sizeof sum);
            for (int i = 0; i < tile_shapes.bytes[x]; i++) {
                uint8_t weight = tile_bytes[y][i / 4][4 * lane + i % 4];
                sum += (int8_t)tile_bytes[x][row][i] * (y_is_signed ? (int8_t)weight : weight);
            }
            __builtin_memcpy(&tile_bytes[to][row][4 * lane], &sum, sizeof sum);
        }
}

EMULATED float emulated_bf16(const uint8_t *from) {
    uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// Even and odd columns have sums of their own, which are added last.
EMULATED void emulated_floats(int to, int x, int y) {
    require_product(to, x, y);
    for (int row = 0; row < tile_shapes.rows[to]; row++)
        for (int lane = 0; lane < tile_shapes.bytes[to] / 4; lane++) {
            float sum, parts[2] = {};
            __builtin_memcpy(&sum, &tile_bytes[to][row][4 * lane], sizeof sum);
            for (int i = 0; i < tile_shapes.bytes[x]; i += 2) {
                const uint8_t *weight = &tile_bytes[y][i / 4][4 * lane + i % 4];
                float *part = &parts[i / 2 % 2];
                *part = __builtin_fmaf(emulated_bf16(&tile_bytes[x][row][i]), emulated_bf16(weight),
                                       *part);
            }
            sum += parts[0] + parts[1];
            __builtin_memcpy(&tile_bytes[to][row][4 * lane], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_config
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, (int64_t)(stride))
#define _tile_stored(tile, to, stride) emulated_store(tile, to, (int64_t)(stride))
#define _tile_dpbssd(to, x, y) emulated_integers(to, x, y, 1)
#define _tile_dpbsud(to, x, y) emulated_integers(to, x, y, 0)
#define _tile_dpbf16ps emulated_floats

#endif
#endif
