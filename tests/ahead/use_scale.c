/* Runs `scale` in each of its ways, and compares with plain C. */
#include <pthread.h>
#include <stdlib.h>

#include "scale.h"

#define N 100003
#define THREADS 4
#define CHUNK 7
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static float x[2 * N + 4], out[N + 4];

static void check(const scale_args *args)
{
    int64_t i;
    for (i = 0; i < args->n; i++)
        CHECK(args->out_ptr[i] == args->x_ptr[i * args->stride] * args->factor);
    CHECK(args->out_ptr[args->n] == -1.0f);
}

static void clear(void)
{
    int64_t i;
    for (i = 0; i < N + 4; i++) out[i] = -1.0f;
}

typedef struct task {
    const scale_args *args;
    const int64_t *grid;
    int64_t *next;
    pthread_mutex_t *lock;
    deuteron_failure *failure;
} task;

static void *work(void *given)
{
    task *t = (task *)given;
    void *scratch = NULL;
    CHECK(!posix_memalign(&scratch, DEUTERON_ALIGNMENT, scale_scratch_bytes() + 1));
    for (;;) {
        int64_t begin, end, all = t->grid[0] * t->grid[1] * t->grid[2];
        pthread_mutex_lock(t->lock);
        begin = *t->next;
        end = *t->next = begin + CHUNK < all ? begin + CHUNK : all;
        pthread_mutex_unlock(t->lock);
        if (begin == all) break;
        CHECK(scale_range(t->args, t->grid, begin, end, scratch, NULL, t->failure) == DEUTERON_OK);
    }
    free(scratch);
    return NULL;
}

static void run_on_threads(const scale_args *args, const int64_t *grid)
{
    pthread_t threads[THREADS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    deuteron_failure failure = {0};
    int64_t next = 0;
    task t = {args, grid, &next, &lock, &failure};
    int i;
    for (i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, work, &t));
    for (i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    CHECK(failure.number == 0 && scale_failure_text(&failure) == NULL);
}

int main(void)
{
    scale_args args = {.x_ptr = x, .out_ptr = out, .n = N, .stride = 1, .factor = 1.5f};
    int64_t grid[3] = {(N + SCALE_BLOCK - 1) / SCALE_BLOCK, 1, 1};
    int64_t far[3] = {2147483648, 1, 1}, many[3] = {2147483647, 2147483647, 2147483647};
    int64_t none[3] = {0, 5, 5}, negative[3] = {1, -1, 1};
    deuteron_failure failure;
    int64_t i;
    for (i = 0; i < 2 * N + 4; i++) x[i] = (float)(i % 1000) - 500.0f;

    clear();
    CHECK(scale(&args, grid, NULL) == DEUTERON_OK);
    check(&args);

    clear();
    args.stride = 2; /* as the second signature says, at any address */
    args.x_ptr = x + 1;
    args.out_ptr = out + 3;
    CHECK(scale(&args, grid, &failure) == DEUTERON_OK);
    CHECK(failure.number == 0 && failure.variant == 1);
    check(&args);

    clear();
    run_on_threads(&args, grid);
    check(&args);

    clear();
    CHECK(scale_range(&args, grid, 3, 3, NULL, NULL, NULL) == DEUTERON_OK);
    CHECK(scale_range(&args, grid, -1, 3, NULL, NULL, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale_range(&args, grid, 4, 3, NULL, NULL, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale_range(&args, grid, 0, grid[0] + 1, NULL, NULL, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale(&args, far, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale(&args, many, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale(&args, negative, NULL) == DEUTERON_BAD_RANGE);
    CHECK(scale(&args, none, NULL) == DEUTERON_OK);
    args.out_ptr = (float *)(void *)((char *)out + 2);
    CHECK(scale(&args, grid, NULL) == DEUTERON_BAD_ARGUMENT);
    for (i = 0; i < N + 4; i++) CHECK(out[i] == -1.0f);
    return 0;
}
