/* Matrix products, by torch's BLAS library or, if `gemm` is null, by this file's code.

BLAS libraries that mistake an AMD processor of 512 bits at once for one of 256 bits take twice as long as this code.
Each number of a product here depends only on its terms and their order, not on alignment or on neighboring numbers. */

#pragma once

#include "numeric.h"

typedef void Gemm(const char *, const char *, const int *, const int *, const int *, const NUMBER *, const NUMBER *, const int *,
                  const NUMBER *, const int *, const NUMBER *, NUMBER *, const int *);

#if defined(SINGLE) && defined(__AVX512F__)
#include <immintrin.h>
#define OWN_PRODUCTS 1

enum { LANES_OF_VECTOR = 16, PANEL = 2 * LANES_OF_VECTOR, MOST_TERMS = 256, FEW_ROWS = 36 };

typedef struct {
    int64_t terms;
    const float *a, *b;             /* term t of row i: a[i * a_row + t * a_term] times the vectors at b + t * b_term */
    int64_t a_row, a_term, b_term;
    float *c;
    int64_t c_row, add;             /* add to the numbers in c */
    __mmask16 first, second;        /* columns of the two vectors that c has */
} Panel;

/* Rows of a panel of C, VECTORS times 16 columns wide. Its numbers stay in registers during the sum over terms. */
#define PANEL_ROWS(NAME, ROWS, VECTORS)                                                                                                     \
    static __attribute__((noinline)) void NAME(const Panel *panel, int64_t row) {                                                            \
        const float *a = panel->a + row * panel->a_row, *b = panel->b;                                                                       \
        const int64_t a_row = panel->a_row, a_term = panel->a_term, b_term = panel->b_term;                                                  \
        const __mmask16 masks[2] = {panel->first, panel->second};                                                                            \
        __m512 sums[ROWS][VECTORS];                                                                                                          \
        _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++)                                                                              \
            _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) sums[i][v] = _mm512_setzero_ps();                                      \
        for (int64_t term = 0; term < panel->terms; term++, a += a_term, b += b_term) {                                                      \
            __m512 some[VECTORS];                                                                                                            \
            _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) some[v] = _mm512_maskz_loadu_ps(masks[v], b + v * LANES_OF_VECTOR);    \
            _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {                                                                        \
                const __m512 x = _mm512_set1_ps(a[i * a_row]);                                                                               \
                _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) sums[i][v] = _mm512_fmadd_ps(x, some[v], sums[i][v]);              \
            }                                                                                                                                \
        }                                                                                                                                    \
        _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++)                                                                              \
            _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) {                                                                      \
                float *c = panel->c + (row + i) * panel->c_row + v * LANES_OF_VECTOR;                                                        \
                if (panel->add) sums[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[v], c), sums[i][v]);                                  \
                _mm512_mask_storeu_ps(c, masks[v], sums[i][v]);                                                                              \
            }                                                                                                                                \
    }

PANEL_ROWS(rows_12_2, 12, 2)
PANEL_ROWS(rows_8_2, 8, 2)
PANEL_ROWS(rows_4_2, 4, 2)
PANEL_ROWS(rows_2_2, 2, 2)
PANEL_ROWS(rows_1_2, 1, 2)
PANEL_ROWS(rows_12_1, 12, 1)
PANEL_ROWS(rows_8_1, 8, 1)
PANEL_ROWS(rows_4_1, 4, 1)
PANEL_ROWS(rows_2_1, 2, 1)
PANEL_ROWS(rows_1_1, 1, 1)

static void multiply_panel(const Panel *panel, int64_t rows) {
    static void (*const wide[])(const Panel *, int64_t) = {rows_1_2, rows_2_2, rows_4_2, rows_8_2, rows_12_2};
    static void (*const narrow[])(const Panel *, int64_t) = {rows_1_1, rows_2_1, rows_4_1, rows_8_1, rows_12_1};
    for (int64_t row = 0; row < rows;) {
        const int64_t left = rows - row;
        const int kind = left >= 12 && left != 16 ? 4 : left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
        (panel->second ? wide : narrow)[kind](panel, row);
        row += kind == 4 ? 12 : 1 << kind;
    }
}

/* to[t * PANEL + j] = from[j * line + t]: 16 rows j and 16 terms t, of which `rows` and `terms` exist. */
static void transpose_block(const float *from, int64_t line, int64_t rows, int64_t terms, float *to) {
    const __mmask16 mask = (1u << terms) - 1;
    __m512 x[16], y[16];
    for (int j = 0; j < 16; j++) x[j] = j < rows ? _mm512_maskz_loadu_ps(mask, from + j * line) : _mm512_setzero_ps();
    for (int j = 0; j < 16; j += 2) {
        y[j] = _mm512_unpacklo_ps(x[j], x[j + 1]);
        y[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
    }
    for (int j = 0; j < 16; j += 4)
        for (int half = 0; half < 2; half++) {
            x[j + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(y[j + half]), _mm512_castps_pd(y[j + 2 + half])));
            x[j + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(y[j + half]), _mm512_castps_pd(y[j + 2 + half])));
        }
    for (int j = 0; j < 4; j++) { /* x[4 g + j] has term j + 4 q of rows 4 g .. 4 g + 3 in quarter q */
        const __m512 low = _mm512_shuffle_f32x4(x[j], x[4 + j], 0x88), low_odd = _mm512_shuffle_f32x4(x[j], x[4 + j], 0xdd);
        const __m512 high = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0x88), high_odd = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0xdd);
        y[j] = _mm512_shuffle_f32x4(low, high, 0x88);
        y[j + 4] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
        y[j + 8] = _mm512_shuffle_f32x4(low, high, 0xdd);
        y[j + 12] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
    }
    for (int t = 0; t < terms; t++) _mm512_storeu_ps(to + t * PANEL, y[t]);
}

static void copy_panel(const Panel *panel, float *to) {
    for (int64_t t = 0; t < panel->terms; t++) {
        _mm512_store_ps(to + t * PANEL, _mm512_maskz_loadu_ps(panel->first, panel->b + t * panel->b_term));
        if (panel->second) _mm512_store_ps(to + t * PANEL + 16, _mm512_maskz_loadu_ps(panel->second, panel->b + t * panel->b_term + 16));
    }
}

static void own_product(int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_line, const float *b,
                        int64_t b_line, int64_t add, float *c, int64_t c_line) {
    float copied[MOST_TERMS * PANEL] __attribute__((aligned(64)));
    for (int64_t column = 0; column < n; column += PANEL) {
        const int64_t width = n - column < PANEL ? n - column : PANEL;
        const __mmask16 first = width >= 16 ? 0xffff : (1u << width) - 1, second = width > 16 ? (1u << (width - 16)) - 1 : 0;
        for (int64_t term = 0; term < k || term == 0; term += MOST_TERMS) {
            const int64_t terms = k - term < MOST_TERMS ? k - term : MOST_TERMS;
            Panel panel = {terms, a + term * (a_transposed ? a_line : 1), b + term * b_line + column, a_transposed ? 1 : a_line,
                           a_transposed ? a_line : 1, b_line, c + column, c_line, add || term, first, second};
            if (b_transposed || (m >= FEW_ROWS && b_line > PANEL)) { /* lines at equal distances would evict each other from the cache */
                if (b_transposed)
                    for (int64_t j = 0; j < width; j += 16)
                        for (int64_t t = 0; t < terms; t += 16)
                            transpose_block(b + (column + j) * b_line + term + t, b_line, width - j, terms - t < 16 ? terms - t : 16,
                                            copied + t * PANEL + j);
                else copy_panel(&panel, copied);
                panel.b = copied;
                panel.b_term = PANEL;
            }
            multiply_panel(&panel, m);
        }
    }
}
#endif

/* Return whether this file has its own products for NUMBER. */
int has_products(void) {
#ifdef OWN_PRODUCTS
    return 1;
#else
    return 0;
#endif
}

/* C (m, n) = op(A) op(B) + kept C, with k inner terms, in row-major order; memory holds the transpose of a `transposed` operand. `line`: numbers
from one row in memory to the next. kept: 0 or 1. */
static inline void strided_product(Gemm *gemm, int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k, const NUMBER *a,
                                   int64_t a_line, const NUMBER *b, int64_t b_line, NUMBER kept, NUMBER *c, int64_t c_line) {
#ifdef OWN_PRODUCTS
    if (!gemm) {
        own_product(a_transposed, b_transposed, m, n, k, a, a_line, b, b_line, kept != 0, c, c_line);
        return;
    }
#endif
    const int rows = m, columns = n, inner = k, a_lead = a_line, b_lead = b_line, c_lead = c_line;
    const NUMBER one = 1; /* gemm has column-major order */
    gemm(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &columns, &rows, &inner, &one, b, &b_lead, a, &a_lead, &kept, c, &c_lead);
}

/* The same for matrices without gaps. */
static inline void product(Gemm *gemm, int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k, const NUMBER *a,
                           const NUMBER *b, NUMBER kept, NUMBER *c) {
    strided_product(gemm, a_transposed, b_transposed, m, n, k, a, a_transposed ? m : k, b, b_transposed ? k : n, kept, c, n);
}
