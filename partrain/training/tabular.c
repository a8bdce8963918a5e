/* Forward and backward pass of the network `tabular` (models/tabular.py) in training: one call for each.

compiled_tabular.py mirrors the structures. Symbols: b items of a batch, m members, R = b * m rows of activations. Matrices are in row-major
order. A pass takes items in tiles whose activations stay in the cache. Comparisons let NaN through. */

#include <string.h>

#include "product.h"
#include "steps.h"

typedef struct {
    NUMBER *value, *gradient;
} Parameter;

typedef struct {
    int64_t column, rows, width; /* column of the codes; the table is (rows, width) */
    Parameter table;
} Embedding;

typedef struct {
    Parameter norm_weight, norm_bias, weight1, bias1, weight2, bias2;
    const int16_t *draws1, *draws2; /* dropout: random bits, (b, hidden) and (b, width); null: no dropout */
    int64_t limit1, limit2;         /* draws below these limits drop a unit */
    NUMBER *in, *moments;           /* (R, width); mean and 1 / deviation of each row, (R, 2) */
    NUMBER *normal, *inner;         /* normalized input (R, width), output of the first layer (R, hidden) */
} Block;

typedef struct {
    Gemm *gemm;
    int64_t items, columns;                /* shape of `inputs` */
    const NUMBER *inputs;
    int64_t embedding_count, plain_count;  /* columns of categories, columns of numbers */
    const Embedding *embeddings;
    const int64_t *plain;
    int64_t frequencies, periodic;         /* per number; length of a number's embedding, or 0 */
    int64_t features, members, width, hidden, blocks, outputs;
    Parameter frequency, mix_weight, mix_bias, factors, enter_weight, enter_bias, norm_weight, norm_bias, last_weight, last_bias, straight;
    const Block *block;
    NUMBER *numbers, *waves, *embedded;    /* (b, plain), (b * plain, 2 frequencies), (b * plain, periodic) */
    NUMBER *feature, *entrance;            /* (b, features), (R, features): times factors */
    NUMBER *last_in, *last_moments, *last_normal; /* input of the last LayerNorm, its moments, its output after ReLU */
    NUMBER *answers;                       /* (R, outputs) */
    const NUMBER *delta;                   /* gradient of the loss by the answers (R, outputs) */
    NUMBER *wide, *narrow, *narrow2;       /* of a tile: (rows, max(hidden, features)), 2 x (rows, width) */
    NUMBER *few, *few2;                    /* of a tile: (items * plain, periodic), (items * plain, 2 frequencies) */
    int64_t tile;                          /* items */
} Network;

#define EPSILON 1e-5
enum { LANES = 16 };

/* Define NAME(x, y, mean, count): the sum of `term`, an expression in j, over j < count. Lanes become SIMD instructions. */
#define SUM(NAME, term)                                                                                  \
    static inline NUMBER NAME(const NUMBER *x, const NUMBER *y, NUMBER mean, int64_t count) {            \
        NUMBER lanes[LANES] = {0}, total = 0;                                                            \
        int64_t first = 0;                                                                               \
        for (; first + LANES <= count; first += LANES)                                                   \
            for (int64_t j = first; j < first + LANES; j++) lanes[j - first] += term;                    \
        for (int64_t j = first; j < count; j++) total += term;                                           \
        for (int lane = 0; lane < LANES; lane++) total += lanes[lane];                                   \
        return total;                                                                                    \
    }

SUM(sum, x[j])
SUM(squares, (x[j] - mean) * (x[j] - mean))
SUM(dot, x[j] * y[j])

/* LayerNorm of rows (count, width), followed by ReLU if `rectified`. */
static void normalize(const NUMBER *in, const NUMBER *restrict weight, const NUMBER *restrict bias, int64_t count, int64_t width,
                      int rectified, NUMBER *moments, NUMBER *out) {
    for (int64_t row = 0; row < count; row++) {
        const NUMBER *restrict x = in + row * width;
        NUMBER *restrict y = out + row * width;
        const NUMBER mean = sum(x, 0, 0, width) / width;
        const NUMBER inverse = 1 / (NUMBER)sqrt(squares(x, 0, mean, width) / width + (NUMBER)EPSILON);
        moments[2 * row] = mean;
        moments[2 * row + 1] = inverse;
        if (rectified)
            for (int64_t j = 0; j < width; j++) {
                const NUMBER a = (x[j] - mean) * inverse * weight[j] + bias[j];
                y[j] = a < 0 ? 0 : a;
            }
        else
            for (int64_t j = 0; j < width; j++) y[j] = (x[j] - mean) * inverse * weight[j] + bias[j];
    }
}

/* Gradients of a LayerNorm: by its input, added to `to` if `add`; by weight and bias, added. Overwrites `of_out` (count, width). */
static void through_norm(const NUMBER *in, const NUMBER *moments, Parameter weight, Parameter bias, int64_t count, int64_t width,
                         NUMBER *of_out, int add, NUMBER *to) {
    for (int64_t row = 0; row < count; row++) {
        const NUMBER *restrict x = in + row * width;
        NUMBER *restrict g = of_out + row * width, *restrict out = to + row * width;
        NUMBER *restrict of_weight = weight.gradient, *restrict of_bias = bias.gradient;
        const NUMBER *restrict w = weight.value;
        const NUMBER mean = moments[2 * row], inverse = moments[2 * row + 1];
        NUMBER lanes[LANES] = {0}, lanes2[LANES] = {0}, total = 0, total2 = 0;
        int64_t j = 0;
        for (; j + LANES <= width; j += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                const NUMBER normal = (x[j + lane] - mean) * inverse, a = g[j + lane];
                of_weight[j + lane] += a * normal;
                of_bias[j + lane] += a;
                const NUMBER scaled = a * w[j + lane];
                g[j + lane] = scaled;
                lanes[lane] += scaled;
                lanes2[lane] += scaled * normal;
            }
        for (; j < width; j++) {
            const NUMBER normal = (x[j] - mean) * inverse, a = g[j];
            of_weight[j] += a * normal;
            of_bias[j] += a;
            g[j] = a * w[j];
            total += g[j];
            total2 += g[j] * normal;
        }
        for (int lane = 0; lane < LANES; lane++) {
            total += lanes[lane];
            total2 += lanes2[lane];
        }
        const NUMBER shift = total / width, slope = total2 / width * inverse;
        if (add)
            for (int64_t k = 0; k < width; k++) out[k] += inverse * (g[k] - shift - (x[k] - mean) * slope);
        else
            for (int64_t k = 0; k < width; k++) out[k] = inverse * (g[k] - shift - (x[k] - mean) * slope);
    }
}

static void add_columns(const NUMBER *rows, int64_t count, int64_t width, NUMBER *restrict sums) {
    for (int64_t row = 0; row < count; row++)
        for (int64_t j = 0; j < width; j++) sums[j] += rows[row * width + j];
}

#ifdef SINGLE
/* sin(2 pi t) and cos(2 pi t), by polynomials on an eighth of a turn (Cephes). */
static inline void sine_cosine(float turns, float *sine, float *cosine) {
    const float rest = turns - rintf(turns), quarter = rintf(4 * rest), r = (rest - 0.25f * quarter) * 6.28318531f, z = r * r;
    const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    const float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
    const int q = (int)quarter, odd = q & 1;
    const float a = odd ? c : s, b = odd ? s : c;
    *sine = q & 2 ? -a : a;
    *cosine = (q + 1) & 2 ? -b : b;
}
#else
static inline void sine_cosine(double turns, double *sine, double *cosine) {
    const double angle = 2 * 3.14159265358979323846 * (turns - rint(turns));
    *sine = sin(angle);
    *cosine = cos(angle);
}
#endif

/* Features (b, features) of `count` items: embeddings of categories, numbers, periodic embeddings of numbers. */
static void embed(const Network *network, int64_t first, int64_t count) {
    const int64_t plain = network->plain_count, frequencies = network->frequencies, width = network->periodic;
    for (int64_t item = first; item < first + count; item++) {
        const NUMBER *row = network->inputs + item * network->columns;
        NUMBER *to = network->feature + item * network->features, *numbers = network->numbers + item * plain;
        for (const Embedding *e = network->embeddings; e < network->embeddings + network->embedding_count; e++) {
            memcpy(to, e->table.value + (int64_t)rint(row[e->column]) * e->width, e->width * sizeof(NUMBER));
            to += e->width;
        }
        for (int64_t n = 0; n < plain; n++) to[n] = numbers[n] = row[network->plain[n]];
        for (int64_t n = 0; width && n < plain; n++) {
            const NUMBER *restrict frequency = network->frequency.value + n * frequencies;
            NUMBER *restrict waves = network->waves + (item * plain + n) * 2 * frequencies;
            for (int64_t k = 0; k < frequencies; k++) sine_cosine(frequency[k] * numbers[n], waves + frequencies + k, waves + k);
        }
    }
    if (!width) return;
    const int64_t rows = count * plain;
    NUMBER *embedded = network->embedded + first * plain * width;
    product(network->gemm, 0, 1, rows, width, 2 * frequencies, network->waves + first * plain * 2 * frequencies, network->mix_weight.value,
            0, embedded);
    for (int64_t row = 0; row < rows; row++) {
        NUMBER *restrict z = embedded + row * width;
        for (int64_t j = 0; j < width; j++) {
            const NUMBER a = z[j] + network->mix_bias.value[j];
            z[j] = a < 0 ? 0 : a;
        }
    }
    for (int64_t item = 0; item < count; item++)
        memcpy(network->feature + (first + item + 1) * network->features - plain * width, embedded + item * plain * width,
               plain * width * sizeof(NUMBER));
}

static inline NUMBER scale_of(int64_t limit) { return (NUMBER)65536 / (65536 - limit); }

/* First layer of a block after its product: bias, ReLU, dropout of an item's units, the same in all members. */
static void activate(const Block *block, int64_t first, int64_t count, int64_t members, int64_t hidden) {
    const NUMBER scale = scale_of(block->limit1), *restrict bias = block->bias1.value;
    const int16_t limit = block->limit1 - 32768;
    for (int64_t row = first * members; row < (first + count) * members; row++) {
        NUMBER *restrict z = block->inner + row * hidden;
        const int16_t *restrict draws = block->draws1 ? block->draws1 + row / members * hidden : 0;
        if (draws)
            for (int64_t j = 0; j < hidden; j++) {
                const NUMBER a = z[j] + bias[j], kept = draws[j] >= limit ? scale : 0;
                z[j] = (a < 0 ? 0 : a) * kept;
            }
        else
            for (int64_t j = 0; j < hidden; j++) {
                const NUMBER a = z[j] + bias[j];
                z[j] = a < 0 ? 0 : a;
            }
    }
}

/* out = in + dropout(z + bias). */
static void add_residual(const Block *block, int64_t first, int64_t count, int64_t members, int64_t width, const NUMBER *products, NUMBER *out) {
    const NUMBER scale = scale_of(block->limit2), *restrict bias = block->bias2.value;
    const int16_t limit = block->limit2 - 32768;
    for (int64_t row = first * members; row < (first + count) * members; row++) {
        const NUMBER *restrict z = products + (row - first * members) * width, *restrict x = block->in + row * width;
        const int16_t *restrict draws = block->draws2 ? block->draws2 + row / members * width : 0;
        NUMBER *restrict y = out + row * width;
        if (draws)
            for (int64_t j = 0; j < width; j++) {
                const NUMBER kept = draws[j] >= limit ? scale : 0;
                y[j] = x[j] + (z[j] + bias[j]) * kept;
            }
        else
            for (int64_t j = 0; j < width; j++) y[j] = x[j] + z[j] + bias[j];
    }
}

static void forward_tile(const Network *network, int64_t first, int64_t count) {
    const int64_t members = network->members, width = network->width, hidden = network->hidden, features = network->features;
    const int64_t row = first * members, rows = count * members, outputs = network->outputs;
    embed(network, first, count);
    if (network->factors.value)
        for (int64_t item = first; item < first + count; item++)
            for (int64_t member = 0; member < members; member++) {
                const NUMBER *restrict from = network->feature + item * features, *restrict by = network->factors.value + member * features;
                NUMBER *restrict to = network->entrance + (item * members + member) * features;
                for (int64_t j = 0; j < features; j++) to[j] = from[j] * by[j];
            }
    NUMBER *x = (network->blocks ? network->block->in : network->last_in) + row * width;
    product(network->gemm, 0, 1, rows, width, features, network->entrance + row * features, network->enter_weight.value, 0, x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++) x[i * width + j] += network->enter_bias.value[j];
    for (int64_t number = 0; number < network->blocks; number++) {
        const Block *block = network->block + number;
        NUMBER *normal = block->normal + row * width;
        normalize(block->in + row * width, block->norm_weight.value, block->norm_bias.value, rows, width, 0, block->moments + 2 * row, normal);
        product(network->gemm, 0, 1, rows, hidden, width, normal, block->weight1.value, 0, block->inner + row * hidden);
        activate(block, first, count, members, hidden);
        product(network->gemm, 0, 1, rows, width, hidden, block->inner + row * hidden, block->weight2.value, 0, network->narrow);
        NUMBER *out = number + 1 < network->blocks ? block[1].in : network->last_in;
        add_residual(block, first, count, members, width, network->narrow, out);
    }
    normalize(network->last_in + row * width, network->norm_weight.value, network->norm_bias.value, rows, width, 1,
              network->last_moments + 2 * row, network->last_normal + row * width);
    for (int64_t member = 0; member < members; member++) {
        const NUMBER *in = network->last_normal + (row + member) * width;
        NUMBER *out = network->answers + (row + member) * outputs;
        const NUMBER *weight = network->last_weight.value + member * width * outputs, *bias = network->last_bias.value + member * outputs;
        strided_product(network->gemm, 0, !network->factors.value, count, outputs, width, in, members * width, weight,
                        network->factors.value ? outputs : width, 0, out, members * outputs);
        for (int64_t item = 0; item < count; item++)
            for (int64_t j = 0; j < outputs; j++) out[item * members * outputs + j] += bias[j];
    }
    for (int64_t item = first; network->straight.value && item < first + count; item++)
        for (int64_t j = 0; j < outputs; j++) {
            const int64_t plain = network->plain_count;
            const NUMBER more = dot(network->numbers + item * plain, network->straight.value + j * plain, 0, plain);
            for (int64_t member = 0; member < members; member++) network->answers[(item * members + member) * outputs + j] += more;
        }
}

/* Compute the answers. Return 0, or 1 if a code is not a row of its table. */
int64_t forward(const Network *network) {
    for (const Embedding *e = network->embeddings; e < network->embeddings + network->embedding_count; e++)
        for (int64_t item = 0; item < network->items; item++) {
            const NUMBER code = rint(network->inputs[item * network->columns + e->column]);
            if (!(code >= 0 && code < e->rows)) return 1;
        }
    for (int64_t first = 0; first < network->items; first += network->tile)
        forward_tile(network, first, network->items - first < network->tile ? network->items - first : network->tile);
    return 0;
}

/* Compute the answers (count * members, outputs) to `count` items in evaluation mode, a tile at a time: the network has memory for one tile.
Return 0, or 1 if a code is not a row of its table. */
int64_t answer(const Network *network, const NUMBER *inputs, int64_t count, NUMBER *answers) {
    for (int64_t first = 0; first < count; first += network->tile) {
        Network some = *network;
        some.items = count - first < network->tile ? count - first : network->tile;
        some.inputs = inputs + first * network->columns;
        some.answers = answers + first * network->members * network->outputs;
        if (forward(&some)) return 1;
    }
    return 0;
}

/* Gradients by all parameters that compute the features, from the gradients by the features (count, features) of items. */
static void through_embedding(const Network *network, int64_t first, int64_t count, const NUMBER *of_feature, NUMBER kept) {
    const int64_t plain = network->plain_count, frequencies = network->frequencies, width = network->periodic, rows = count * plain;
    for (int64_t item = 0; item < count; item++) {
        const NUMBER *row = network->inputs + (first + item) * network->columns, *from = of_feature + item * network->features;
        for (const Embedding *e = network->embeddings; e < network->embeddings + network->embedding_count; e++) {
            NUMBER *restrict to = e->table.gradient + (int64_t)rint(row[e->column]) * e->width;
            for (int64_t j = 0; j < e->width; j++) to[j] += from[j];
            from += e->width;
        }
    }
    if (!width) return;
    const NUMBER *waves = network->waves + first * plain * 2 * frequencies;
    for (int64_t item = 0; item < count; item++) {
        const NUMBER *restrict from = of_feature + (item + 1) * network->features - plain * width;
        const NUMBER *restrict z = network->embedded + (first + item) * plain * width;
        NUMBER *restrict to = network->few + item * plain * width;
        for (int64_t j = 0; j < plain * width; j++) to[j] = z[j] > 0 ? from[j] : 0;
    }
    add_columns(network->few, rows, width, network->mix_bias.gradient);
    product(network->gemm, 1, 0, width, 2 * frequencies, rows, network->few, waves, kept, network->mix_weight.gradient);
    product(network->gemm, 0, 0, rows, 2 * frequencies, width, network->few, network->mix_weight.value, 0, network->few2);
    for (int64_t row = 0; row < rows; row++) {
        const NUMBER turn = 2 * (NUMBER)3.14159265358979323846 * network->numbers[first * plain + row];
        const NUMBER *restrict wave = waves + row * 2 * frequencies, *restrict by = network->few2 + row * 2 * frequencies;
        NUMBER *restrict to = network->frequency.gradient + row % plain * frequencies;
        for (int64_t k = 0; k < frequencies; k++) to[k] += turn * (by[frequencies + k] * wave[k] - by[k] * wave[frequencies + k]);
    }
}

static void backward_tile(const Network *network, int64_t first, int64_t count) {
    const int64_t members = network->members, width = network->width, hidden = network->hidden, features = network->features;
    const int64_t row = first * members, rows = count * members, outputs = network->outputs;
    const NUMBER kept = first ? 1 : 0;
    NUMBER *of_out = network->narrow, *of_x = network->narrow2, *wide = network->wide;
    for (int64_t item = first; network->straight.value && item < first + count; item++)
        for (int64_t j = 0; j < outputs; j++) {
            NUMBER total = 0;
            for (int64_t member = 0; member < members; member++) total += network->delta[(item * members + member) * outputs + j];
            const NUMBER *restrict numbers = network->numbers + item * network->plain_count;
            NUMBER *restrict to = network->straight.gradient + j * network->plain_count;
            for (int64_t n = 0; n < network->plain_count; n++) to[n] += total * numbers[n];
        }
    for (int64_t member = 0; member < members; member++) {
        const NUMBER *in = network->last_normal + (row + member) * width, *delta = network->delta + (row + member) * outputs;
        const NUMBER *weight = network->last_weight.value + member * width * outputs;
        NUMBER *of_weight = network->last_weight.gradient + member * width * outputs;
        for (int64_t item = 0; item < count; item++)
            for (int64_t j = 0; j < outputs; j++) network->last_bias.gradient[member * outputs + j] += delta[item * members * outputs + j];
        const int64_t in_line = members * width, out_line = members * outputs;
        if (network->factors.value) {
            strided_product(network->gemm, 1, 0, width, outputs, count, in, in_line, delta, out_line, kept, of_weight, outputs);
            strided_product(network->gemm, 0, 1, count, width, outputs, delta, out_line, weight, outputs, 0, of_out + member * width, in_line);
        } else {
            strided_product(network->gemm, 1, 0, outputs, width, count, delta, out_line, in, in_line, kept, of_weight, width);
            strided_product(network->gemm, 0, 0, count, width, outputs, delta, out_line, weight, width, 0, of_out + member * width, in_line);
        }
    }
    for (int64_t j = 0; j < rows * width; j++) of_out[j] = network->last_normal[row * width + j] > 0 ? of_out[j] : 0;
    through_norm(network->last_in + row * width, network->last_moments + 2 * row, network->norm_weight, network->norm_bias, rows, width, of_out,
                 0, of_x);
    for (int64_t number = network->blocks - 1; number >= 0; number--) {
        const Block *block = network->block + number;
        const NUMBER scale2 = scale_of(block->limit2), scale1 = block->draws1 ? scale_of(block->limit1) : 1;
        const int16_t limit = block->limit2 - 32768;
        for (int64_t i = 0; i < rows; i++) {
            const NUMBER *restrict from = of_x + i * width;
            NUMBER *restrict to = of_out + i * width, *restrict sums = block->bias2.gradient;
            const int16_t *restrict draws = block->draws2 ? block->draws2 + (row + i) / members * width : 0;
            for (int64_t j = 0; draws && j < width; j++) {
                const NUMBER factor = draws[j] >= limit ? scale2 : 0;
                to[j] = from[j] * factor;
            }
            if (!draws) memcpy(to, from, width * sizeof(NUMBER));
            for (int64_t j = 0; j < width; j++) sums[j] += to[j];
        }
        const NUMBER *inner = block->inner + row * hidden, *normal = block->normal + row * width;
        product(network->gemm, 1, 0, width, hidden, rows, of_out, inner, kept, block->weight2.gradient);
        product(network->gemm, 0, 0, rows, hidden, width, of_out, block->weight2.value, 0, wide);
        for (int64_t i = 0; i < rows; i++) {
            const NUMBER *restrict z = inner + i * hidden;
            NUMBER *restrict to = wide + i * hidden, *restrict sums = block->bias1.gradient;
            for (int64_t j = 0; j < hidden; j++) {
                const NUMBER a = z[j] > 0 ? to[j] * scale1 : 0;
                to[j] = a;
                sums[j] += a;
            }
        }
        product(network->gemm, 1, 0, hidden, width, rows, wide, normal, kept, block->weight1.gradient);
        product(network->gemm, 0, 0, rows, width, hidden, wide, block->weight1.value, 0, of_out);
        through_norm(block->in + row * width, block->moments + 2 * row, block->norm_weight, block->norm_bias, rows, width, of_out, 1, of_x);
    }
    add_columns(of_x, rows, width, network->enter_bias.gradient);
    product(network->gemm, 1, 0, width, features, rows, of_x, network->entrance + row * features, kept, network->enter_weight.gradient);
    product(network->gemm, 0, 0, rows, features, width, of_x, network->enter_weight.value, 0, wide);
    if (network->factors.value) /* of_feature (count, features) overwrites the first `count` rows */
        for (int64_t item = 0; item < count; item++) {
            const NUMBER *restrict feature = network->feature + (first + item) * features;
            NUMBER *to = wide + item * features; /* for the first item: its own first row */
            for (int64_t member = 0; member < members; member++) {
                const NUMBER *restrict by = network->factors.value + member * features;
                const NUMBER *from = wide + (item * members + member) * features;
                NUMBER *restrict of_factor = network->factors.gradient + member * features;
                if (member == 0)
                    for (int64_t j = 0; j < features; j++) {
                        const NUMBER a = from[j];
                        of_factor[j] += a * feature[j];
                        to[j] = a * by[j];
                    }
                else
                    for (int64_t j = 0; j < features; j++) {
                        const NUMBER a = from[j];
                        of_factor[j] += a * feature[j];
                        to[j] += a * by[j];
                    }
            }
        }
    through_embedding(network, first, count, wide, kept);
}

static void clear(Parameter parameter, int64_t count) {
    if (parameter.value) memset(parameter.gradient, 0, count * sizeof(NUMBER));
}

/* Compute the gradients of all parameters from `delta`. Products overwrite theirs in the first tile; all others are sums. */
void backward(const Network *network) {
    const int64_t width = network->width, outputs = network->outputs;
    for (int64_t i = 0; i < network->embedding_count; i++) clear(network->embeddings[i].table, network->embeddings[i].rows * network->embeddings[i].width);
    for (int64_t i = 0; i < network->blocks; i++) {
        const Block *block = network->block + i;
        clear(block->norm_weight, width);
        clear(block->norm_bias, width);
        clear(block->bias1, network->hidden);
        clear(block->bias2, width);
    }
    clear(network->frequency, network->plain_count * network->frequencies);
    clear(network->mix_bias, network->periodic);
    clear(network->factors, network->members * network->features);
    clear(network->enter_bias, width);
    clear(network->norm_weight, width);
    clear(network->norm_bias, width);
    clear(network->last_bias, network->members * outputs);
    clear(network->straight, outputs * network->plain_count);
    for (int64_t first = 0; first < network->items; first += network->tile)
        backward_tile(network, first, network->items - first < network->tile ? network->items - first : network->tile);
}
