/* Looks at words in shared memory, each of which takes from Python as long as a short wait. */

#include <stdint.h>
#include <time.h>

enum { LINE = 8, LOOKS = 64 }; /* words of a cache line; looks between two readings of the clock */

/* Set word `own` of `count` words, each in its own cache line. Return whether all are at least `value`. */
int64_t arrive(int64_t *words, int64_t count, int64_t own, int64_t value) {
    __atomic_store_n(words + own * LINE, value, __ATOMIC_SEQ_CST);
    for (int64_t i = 0; i < count; i++)
        if (__atomic_load_n(words + i * LINE, __ATOMIC_SEQ_CST) < value) return 0;
    return 1;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Spin until a word is at least `value`, at most some nanoseconds. Return the word. */
int64_t spin(const int64_t *word, int64_t value, int64_t nanoseconds) {
    int64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    for (const int64_t deadline = now() + nanoseconds; seen < value && now() < deadline;)
        for (int look = 0; seen < value && look < LOOKS; look++) {
#ifdef __x86_64__
            __builtin_ia32_pause();
#endif
            seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        }
    return seen;
}
