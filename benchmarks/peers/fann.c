/* FANN: item by item; sigmoids and squared error, as its release 2.2 has neither ReLU nor softmax. ITERATIONS RATE MOMENTUM BATCH SEED */
#include <floatfann.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRAIN = 60000, TEST = 10000, WIDTH = 784, CLASSES = 10 };

static unsigned char *read_idx(const char *name, size_t offset, size_t bytes) {
    char command[200];
    unsigned char *data = malloc(offset + bytes);
    snprintf(command, sizeof command, "gzip -dc datasets/mnist/%s-ubyte.gz", name);
    FILE *pipe = popen(command, "r");
    if (!pipe || fread(data, 1, offset + bytes, pipe) != offset + bytes) exit(1);
    pclose(pipe);
    return data + offset;
}

static float *scaled(const char *name, size_t items) {
    unsigned char *bytes = read_idx(name, 16, items * WIDTH);
    float *values = malloc(items * WIDTH * sizeof *values);
    for (size_t index = 0; index < items * WIDTH; index++) values[index] = bytes[index] / 255.0f;
    return values;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    long total = atol(words[1]) * atol(words[4]), warm = total / 10 > 1 ? total / 10 : 1;
    double rate = atof(words[2]);
    float *inputs = scaled("train-images-idx3", TRAIN), *tests = scaled("t10k-images-idx3", TEST);
    unsigned char *targets = read_idx("train-labels-idx1", 8, TRAIN), *right = read_idx("t10k-labels-idx1", 8, TEST);
    struct fann *network = fann_create_standard(3, WIDTH, 128, CLASSES);
    srand(atoi(words[5])); /* fann_create has seeded it by the clock */
    fann_randomize_weights(network, -0.1f, 0.1f);
    fann_set_activation_function_hidden(network, FANN_SIGMOID_SYMMETRIC);
    fann_set_activation_function_output(network, FANN_SIGMOID);
    fann_set_training_algorithm(network, FANN_TRAIN_INCREMENTAL);
    fann_set_train_error_function(network, FANN_ERRORFUNC_LINEAR);
    fann_set_learning_momentum(network, atof(words[3]));
    int *order = malloc(TRAIN * sizeof *order);
    for (int item = 0; item < TRAIN; item++) order[item] = item;
    double began = now();
    for (long number = 0; number < total; number++) {
        if (number % TRAIN == 0)
            for (int last = TRAIN - 1; last > 0; last--) {
                int other = rand() % (last + 1), kept = order[last];
                order[last] = order[other], order[other] = kept;
            }
        double up = (number + 1.0) / warm, down = (double)(total - number) / (total - warm);
        float wanted[CLASSES] = {0};
        int item = order[number % TRAIN];
        wanted[targets[item]] = 1;
        fann_set_learning_rate(network, rate * (up < down ? up : down));
        fann_train(network, inputs + (size_t)item * WIDTH, wanted);
    }
    double seconds = now() - began;
    int good = 0;
    for (int item = 0; item < TEST; item++) {
        float *answer = fann_run(network, tests + (size_t)item * WIDTH);
        int best = 0;
        for (int class = 1; class < CLASSES; class++) best = answer[class] > answer[best] ? class : best;
        good += best == right[item];
    }
    printf("{\"seconds\": %.6f, \"accuracy\": %.4f, \"items\": %ld}\n", seconds, (double)good / TEST, total);
    return 0;
}
