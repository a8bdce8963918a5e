/* One direction of a recurrent layer: its states at all steps, and its gradients, in one call each.

compiled_recurrent.py mirrors the structure. The rows of a step are adjacent, as in torch's PackedSequence. Gates have torch's order. */

#include <string.h>

#include "product.h"

enum { TANH, RELU, LSTM, GRU };
enum { START, ROWS, EARLIER_START, EARLIER_ROWS, STEP }; /* columns of `steps` */

typedef struct {
    Gemm *gemm;
    int64_t kind, gate_count, rows, width, hidden, step_count;
    const int64_t *steps; /* (step_count, STEP) in the direction's order: rows, and the previous step's rows whose items continue */
    const NUMBER *x;      /* (rows, width) */
    const NUMBER *input_weight, *state_weight; /* (gate_count H, width), (gate_count H, H) */
    const NUMBER *input_bias, *state_bias;     /* (gate_count H) */
    NUMBER *gates;        /* (rows, gate_count H): after their activations */
    NUMBER *inner;        /* (rows, H): cells of an LSTM; for a GRU the third gate's input from the state, before the reset */
    NUMBER *out;          /* (rows, H): states */
    NUMBER *state_gates;  /* (most rows of a step, gate_count H): the inputs of a step's gates from the state */
    const NUMBER *zeros;  /* (H): the state before the first step */
    /* only for the backward pass: */
    const NUMBER *out_gradient, *cell_gradient; /* (rows, H), or null */
    NUMBER *before;                  /* (rows, H): states at the start of each step */
    NUMBER *of_gates, *of_state_gates; /* (rows, gate_count H): gradient by the gates' inputs from input and state; one except for a GRU */
    NUMBER *carry, *cell_carry;      /* (most rows of a step, H): initially zeros */
    NUMBER *input_weight_gradient, *state_weight_gradient, *input_bias_gradient, *state_bias_gradient;
    NUMBER *x_gradient;              /* null if not wanted */
} Layer;

/* Each function takes a row of every matrix: gates a (gate_count H), from input u and state v, with biases c and d. */

static void lstm(int64_t H, const NUMBER *restrict v, const NUMBER *restrict c, const NUMBER *restrict d, const NUMBER *restrict cell,
                 NUMBER *restrict a, NUMBER *restrict next_cell, NUMBER *restrict h) {
    for (int64_t j = 0; j < H; j++) {
        const int64_t f = H + j, g = 2 * H + j, o = 3 * H + j;
        a[j] = sigmoid(a[j] + c[j] + v[j] + d[j]);
        a[f] = sigmoid(a[f] + c[f] + v[f] + d[f]);
        a[g] = hyperbolic_tangent(a[g] + c[g] + v[g] + d[g]);
        a[o] = sigmoid(a[o] + c[o] + v[o] + d[o]);
        next_cell[j] = a[f] * cell[j] + a[j] * a[g];
        h[j] = a[o] * hyperbolic_tangent(next_cell[j]);
    }
}

static void gru(int64_t H, const NUMBER *restrict v, const NUMBER *restrict c, const NUMBER *restrict d, const NUMBER *restrict before,
                NUMBER *restrict a, NUMBER *restrict inner, NUMBER *restrict h) {
    for (int64_t j = 0; j < H; j++) {
        const int64_t z = H + j, n = 2 * H + j;
        a[j] = sigmoid(a[j] + c[j] + v[j] + d[j]);
        a[z] = sigmoid(a[z] + c[z] + v[z] + d[z]);
        inner[j] = v[n] + d[n];
        a[n] = hyperbolic_tangent(a[n] + c[n] + a[j] * inner[j]);
        h[j] = a[n] + a[z] * (before[j] - a[n]);
    }
}

static void elman(int64_t H, int64_t kind, const NUMBER *restrict v, const NUMBER *restrict c, const NUMBER *restrict d,
                  const NUMBER *restrict a, NUMBER *restrict h) {
    if (kind == TANH) for (int64_t j = 0; j < H; j++) h[j] = hyperbolic_tangent(a[j] + c[j] + v[j] + d[j]);
    else for (int64_t j = 0; j < H; j++) { const NUMBER sum = a[j] + c[j] + v[j] + d[j]; h[j] = sum < 0 ? 0 : sum; }
}

void forward(const Layer *l) {
    const int64_t H = l->hidden, G = l->gate_count * H;
    product(l->gemm, 0, 1, l->rows, G, l->width, l->x, l->input_weight, 0, l->gates);
    for (const int64_t *step = l->steps; step < l->steps + l->step_count * STEP; step += STEP) {
        const NUMBER *earlier = l->out + step[EARLIER_START] * H, *earlier_cell = l->inner + step[EARLIER_START] * H;
        const int64_t going = step[EARLIER_ROWS];
        memset(l->state_gates + going * G, 0, (step[ROWS] - going) * G * sizeof(NUMBER));
        if (going) product(l->gemm, 0, 1, going, G, H, earlier, l->state_weight, 0, l->state_gates);
        for (int64_t row = 0; row < step[ROWS]; row++) {
            const int64_t at = step[START] + row;
            const NUMBER *v = l->state_gates + row * G, *c = l->input_bias, *d = l->state_bias;
            NUMBER *a = l->gates + at * G, *inner = l->inner + at * H, *h = l->out + at * H;
            switch (l->kind) {
            case LSTM: lstm(H, v, c, d, row < going ? earlier_cell + row * H : l->zeros, a, inner, h); break;
            case GRU: gru(H, v, c, d, row < going ? earlier + row * H : l->zeros, a, inner, h); break;
            default: elman(H, l->kind, v, c, d, a, h);
            }
        }
    }
}

static void through_lstm(int64_t H, const NUMBER *restrict a, const NUMBER *restrict cell, const NUMBER *restrict earlier_cell,
                         const NUMBER *restrict of_cell, const NUMBER *restrict of_h, NUMBER *restrict carry, NUMBER *restrict of_a) {
    for (int64_t j = 0; j < H; j++) {
        const int64_t f = H + j, g = 2 * H + j, o = 3 * H + j;
        const NUMBER t = hyperbolic_tangent(cell[j]), of_c = carry[j] + of_cell[j] + of_h[j] * a[o] * (1 - t * t);
        of_a[j] = of_c * a[g] * a[j] * (1 - a[j]);
        of_a[f] = of_c * earlier_cell[j] * a[f] * (1 - a[f]);
        of_a[g] = of_c * a[j] * (1 - a[g] * a[g]);
        of_a[o] = of_h[j] * t * a[o] * (1 - a[o]);
        carry[j] = of_c * a[f];
    }
}

static void through_gru(int64_t H, const NUMBER *restrict a, const NUMBER *restrict inner, const NUMBER *restrict before,
                        NUMBER *restrict of_h, NUMBER *restrict of_a, NUMBER *restrict of_v) {
    for (int64_t j = 0; j < H; j++) {
        const int64_t z = H + j, n = 2 * H + j;
        const NUMBER by_sum = of_h[j] * (1 - a[z]) * (1 - a[n] * a[n]);
        of_v[j] = of_a[j] = by_sum * inner[j] * a[j] * (1 - a[j]);
        of_v[z] = of_a[z] = of_h[j] * (before[j] - a[n]) * a[z] * (1 - a[z]);
        of_a[n] = by_sum;
        of_v[n] = by_sum * a[j];
        of_h[j] *= a[z];
    }
}

static void through_elman(int64_t H, int64_t kind, const NUMBER *restrict h, const NUMBER *restrict of_h, NUMBER *restrict of_a) {
    if (kind == TANH) for (int64_t j = 0; j < H; j++) of_a[j] = of_h[j] * (1 - h[j] * h[j]);
    else for (int64_t j = 0; j < H; j++) of_a[j] = h[j] <= 0 ? 0 : of_h[j];
}

static void sum_rows(int64_t rows, int64_t width, const NUMBER *restrict x, NUMBER *restrict sum) {
    memset(sum, 0, width * sizeof(NUMBER));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < width; j++) sum[j] += x[row * width + j];
}

void backward(const Layer *l) {
    const int64_t H = l->hidden, G = l->gate_count * H;
    for (const int64_t *step = l->steps + l->step_count * STEP; step > l->steps;) {
        step -= STEP;
        const int64_t going = step[EARLIER_ROWS];
        for (int64_t row = 0; row < step[ROWS]; row++) {
            const int64_t at = step[START] + row, earlier = (step[EARLIER_START] + row) * H;
            const NUMBER *a = l->gates + at * G, *h = row < going ? l->out + earlier : l->zeros;
            NUMBER *of_h = l->carry + row * H, *of_a = l->of_gates + at * G;
            memcpy(l->before + at * H, h, H * sizeof(NUMBER));
            if (l->out_gradient) for (int64_t j = 0; j < H; j++) of_h[j] += l->out_gradient[at * H + j];
            switch (l->kind) {
            case LSTM:
                through_lstm(H, a, l->inner + at * H, row < going ? l->inner + earlier : l->zeros,
                             l->cell_gradient ? l->cell_gradient + at * H : l->zeros, of_h, l->cell_carry + row * H, of_a);
                break;
            case GRU: through_gru(H, a, l->inner + at * H, h, of_h, of_a, l->of_state_gates + at * G); break;
            default: through_elman(H, l->kind, l->out + at * H, of_h, of_a);
            }
        }
        if (going)
            product(l->gemm, 0, 0, going, H, G, l->of_state_gates + step[START] * G, l->state_weight, l->kind == GRU, l->carry);
    }
    product(l->gemm, 1, 0, G, l->width, l->rows, l->of_gates, l->x, 0, l->input_weight_gradient);
    product(l->gemm, 1, 0, G, H, l->rows, l->of_state_gates, l->before, 0, l->state_weight_gradient);
    sum_rows(l->rows, G, l->of_gates, l->input_bias_gradient);
    sum_rows(l->rows, G, l->of_state_gates, l->state_bias_gradient);
    if (l->x_gradient) product(l->gemm, 0, 0, l->rows, l->width, G, l->of_gates, l->input_weight, 0, l->x_gradient);
}
