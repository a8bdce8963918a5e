/* Training of a plain stack of linear layers: gradients and optimizer steps of many mini-batches in one call.

compiled_mlp.py mirrors the structures. Matrices are in row-major order. Comparisons let NaN through. */

#include "product.h"
#include "steps.h"

enum { NO_ACTIVATION, RELU, TANH, SIGMOID };

typedef struct {
    int64_t inputs, outputs, activation;
    NUMBER *weight, *bias;                   /* (outputs, inputs), (outputs) */
    NUMBER *weight_gradient, *bias_gradient;
    NUMBER *out;                             /* z = f(x W^T + c), (b, outputs) */
    NUMBER *delta;                           /* gradient of the loss by z, then by the argument of f */
} Layer;

typedef struct {
    Gemm *gemm;
    int64_t count;
    Layer *layers;
} Network;

static void add_and_activate(const Layer *layer, int64_t items) {
    const int64_t width = layer->outputs;
    const NUMBER *bias = layer->bias;
    for (int64_t item = 0; item < items; item++) {
        NUMBER *z = layer->out + item * width;
        switch (layer->activation) {
        case RELU:
            for (int64_t j = 0; j < width; j++) { const NUMBER a = z[j] + bias[j]; z[j] = a < 0 ? 0 : a; }
            break;
        case TANH:
            for (int64_t j = 0; j < width; j++) z[j] = hyperbolic_tangent(z[j] + bias[j]);
            break;
        case SIGMOID:
            for (int64_t j = 0; j < width; j++) z[j] = sigmoid(z[j] + bias[j]);
            break;
        default:
            for (int64_t j = 0; j < width; j++) z[j] += bias[j];
        }
    }
}

/* delta *= f'(a), from z = f(a). */
static void through_activation(const Layer *layer, int64_t items) {
    const NUMBER *z = layer->out;
    NUMBER *delta = layer->delta;
    const int64_t numbers = items * layer->outputs;
    switch (layer->activation) {
    case RELU:
        for (int64_t j = 0; j < numbers; j++) delta[j] = z[j] <= 0 ? 0 : delta[j];
        break;
    case TANH:
        for (int64_t j = 0; j < numbers; j++) delta[j] *= 1 - z[j] * z[j];
        break;
    case SIGMOID:
        for (int64_t j = 0; j < numbers; j++) delta[j] *= z[j] * (1 - z[j]);
    }
}

/* Mean cross-entropy of answers (items, width) to labels, and its gradient; -1 if a label is not a class. */
static int64_t cross_entropy(const Layer *last, const int64_t *labels, int64_t items, NUMBER *loss) {
    const int64_t width = last->outputs;
    double sum = 0;
    for (int64_t item = 0; item < items; item++) {
        const NUMBER *answers = last->out + item * width;
        NUMBER *delta = last->delta + item * width, most = answers[0], total = 0;
        if (labels[item] < 0 || labels[item] >= width) return -1;
        for (int64_t j = 1; j < width; j++) most = answers[j] > most ? answers[j] : most;
        for (int64_t j = 0; j < width; j++) delta[j] = exponential(answers[j] - most);
        for (int64_t j = 0; j < width; j++) total += delta[j];
        sum += log(total) + most - answers[labels[item]];
        const NUMBER share = 1 / (total * items);
        for (int64_t j = 0; j < width; j++) delta[j] *= share;
        delta[labels[item]] -= (NUMBER)1 / items;
    }
    *loss = sum / items;
    return 0;
}

static void squared_error(const Layer *last, const NUMBER *targets, int64_t items, NUMBER *loss) {
    const int64_t numbers = items * last->outputs;
    const NUMBER factor = (NUMBER)2 / numbers;
    double sum = 0;
    for (int64_t j = 0; j < numbers; j++) {
        const NUMBER error = last->out[j] - targets[j];
        last->delta[j] = factor * error;
        sum += (double)error * error;
    }
    *loss = sum / numbers;
}

/* Answers of a layer's function to rows z: out = f(z W^T + c). */
static void through_layer(Gemm *gemm, const Layer *layer, const NUMBER *z, int64_t items) {
    product(gemm, 0, 1, items, layer->outputs, layer->inputs, z, layer->weight, 0, layer->out);
    add_and_activate(layer, items);
}

static int64_t differentiate(const Network *network, const NUMBER *inputs, const int64_t *labels, const NUMBER *numbers,
                             int64_t items, NUMBER *loss) {
    const Layer *layers = network->layers, *last = layers + network->count - 1;
    const NUMBER *z = inputs;
    for (const Layer *layer = layers; layer <= last; z = layer->out, layer++) through_layer(network->gemm, layer, z, items);
    if (!labels) squared_error(last, numbers, items, loss);
    else if (cross_entropy(last, labels, items, loss)) return -1;
    for (const Layer *layer = last; layer >= layers; layer--) {
        through_activation(layer, items);
        for (int64_t j = 0; j < layer->outputs; j++) layer->bias_gradient[j] = 0;
        for (int64_t item = 0; item < items; item++)
            for (int64_t j = 0; j < layer->outputs; j++) layer->bias_gradient[j] += layer->delta[item * layer->outputs + j];
        product(network->gemm, 1, 0, layer->outputs, layer->inputs, items, layer->delta, layer == layers ? inputs : layer[-1].out,
                0, layer->weight_gradient);
        if (layer > layers)
            product(network->gemm, 0, 0, items, layer->inputs, layer->outputs, layer->delta, layer->weight, 0, layer[-1].delta);
    }
    return 0;
}

typedef struct {
    const void *inputs;    /* rows (n, inputs): numbers, or bytes */
    int64_t bytes;         /* the rows are bytes, multiplied by `scale` */
    double scale;
    const int64_t *labels; /* targets (n), or null */
    const NUMBER *numbers; /* targets (n, outputs), or null */
    const int64_t *index;  /* rows that the mini-batches take in turn; null: all rows in order */
    NUMBER *some_inputs, *some_numbers; /* memory for the rows of a mini-batch, with an index */
    int64_t *some_labels;
} Items;

enum { AHEAD = 4, LINE = 64 }; /* rows to fetch ahead; bytes of a cache line */

/* Copy rows, as numbers, to memory that stays in the cache. */
static void gather(const Items *items, const int64_t *index, int64_t count, int64_t in, int64_t out) {
    const NUMBER scale = items->scale;
    for (int64_t item = 0; item < count; item++) {
        NUMBER *restrict to = items->some_inputs + item * in;
        const int64_t width = in * (items->bytes ? 1 : sizeof(NUMBER)), ahead = item + AHEAD < count ? index[item + AHEAD] : 0;
        for (int64_t byte = 0; byte < width; byte += LINE) __builtin_prefetch((const char *)items->inputs + ahead * width + byte);
        if (items->bytes) {
            const uint8_t *restrict row = (const uint8_t *)items->inputs + index[item] * in;
            for (int64_t j = 0; j < in; j++) to[j] = row[j] * scale;
        } else {
            const NUMBER *restrict row = (const NUMBER *)items->inputs + index[item] * in;
            for (int64_t j = 0; j < in; j++) to[j] = row[j];
        }
        if (items->labels) items->some_labels[item] = items->labels[index[item]];
        else for (int64_t j = 0; j < out; j++) items->some_numbers[item * out + j] = items->numbers[index[item] * out + j];
    }
}

/* Train on mini-batches of `sizes` items: a gradient and a step each; only gradients if the optimizer is NO_STEP.

Write each loss to `losses`. Return the number of trained mini-batches: fewer than `count` if a label of the next mini-batch is
not a class. */
int64_t train(const Network *network, const Optimizer *optimizer, const Items *items, const int64_t *sizes, const double *rates,
              int64_t count, NUMBER *losses) {
    const int64_t in = network->layers[0].inputs, out = network->layers[network->count - 1].outputs;
    int64_t first = 0;
    for (int64_t batch = 0; batch < count; batch++) {
        const NUMBER *inputs = items->index ? items->some_inputs : (const NUMBER *)items->inputs + first * in;
        const int64_t *labels = items->labels ? items->index ? items->some_labels : items->labels + first : 0;
        const NUMBER *numbers = items->numbers ? items->index ? items->some_numbers : items->numbers + first * out : 0;
        if (items->index) gather(items, items->index + first, sizes[batch], in, out);
        if (differentiate(network, inputs, labels, numbers, sizes[batch], losses + batch)) return batch;
        if (optimizer->kind != NO_STEP) take_step(optimizer, rates[batch]);
        first += sizes[batch];
    }
    return count;
}

/* Compute the answers (items, outputs) to rows (items, inputs), `at_a_time` rows after another: `out` of the inner layers has room for these. */
void answer(const Network *network, const NUMBER *inputs, int64_t items, int64_t at_a_time, NUMBER *answers) {
    const int64_t in = network->layers[0].inputs, last = network->count - 1, outputs = network->layers[last].outputs;
    for (int64_t first = 0; first < items; first += at_a_time) {
        const int64_t count = items - first < at_a_time ? items - first : at_a_time;
        const NUMBER *z = inputs + first * in;
        for (int64_t number = 0; number <= last; number++) {
            Layer layer = network->layers[number];
            if (number == last) layer.out = answers + first * outputs;
            through_layer(network->gemm, &layer, z, count);
            z = layer.out;
        }
    }
}
