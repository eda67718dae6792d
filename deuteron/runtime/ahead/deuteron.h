/* What the headers of kernels compiled by `deuteron compile` have in common.
 *
 * Of a kernel NAME its header NAME.h declares
 *
 *     NAME_args             its arguments; scalars and pointers, no copies are made
 *     NAME()                runs a whole grid on the calling thread
 *     NAME_range()          runs some programs of it: for threads of your own
 *     NAME_scratch_bytes()  memory each of those threads brings, if it does not want malloc
 *     NAME_store_bytes()    memory each of them may bring, for products of matrices
 *     NAME_failure_text()   which device_assert of the kernel failed
 *     NAME_on_print()       sets who takes what device_print says (of kernels that print)
 *
 * All of them may be called from any number of threads at once.
 */
#ifndef DEUTERON_H
#define DEUTERON_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What NAME() and NAME_range() return. */
typedef enum deuteron_status {
    DEUTERON_OK = 0,
    DEUTERON_ASSERT_FAILED = 1, /* a device_assert did not hold; NAME_failure_text tells which */
    DEUTERON_BAD_ARGUMENT = 2,  /* no signature that was compiled fits these arguments */
    DEUTERON_BAD_RANGE = 3,     /* programs outside of the grid, or a size not in 0 .. 2^31 - 1 */
    DEUTERON_NO_MEMORY = 4      /* malloc had no scratch memory to give */
} deuteron_status;

/* The first device_assert that failed.  All threads that run one grid share one: when one of them
 * fails, the others stop early.  Zero it before the first range; NAME() does so itself. */
typedef struct deuteron_failure {
    int64_t number;     /* 0: none did */
    int64_t program[3]; /* the program that it failed in */
    int64_t variant;    /* of the signatures in the header, the one that ran */
    int64_t reserved[3];
} deuteron_failure;

/* Alignment, in bytes, of scratch and store. */
#define DEUTERON_ALIGNMENT 64

/* One operand of one device_print. */
typedef struct deuteron_print_site {
    const char *label;
    const char *dtype;    /* "float32", "bfloat16", "int64", "int1", ..., "pointer" */
    const int64_t *shape; /* `rank` sizes; rank 0 is a scalar */
    int64_t rank;
    int64_t count;   /* elements in `data`; 0 when only the label is printed */
    int32_t hex;     /* integers are wanted in hexadecimal */
    int32_t operand; /* which of several operands this is; -1 when it is the only one */
} deuteron_print_site;

/* Gets the elements of an operand, row-major, in the form they have in memory.  It is called while
 * the kernel runs, on the thread that runs it.  `data` is valid during the call only. */
typedef void (*deuteron_print_hook)(const deuteron_print_site *site, const int64_t program[3],
                                    const void *data);

/* ---- a hook that writes lines to stdout, as a launch from Python does -------------------------
 *
 *     NAME_on_print(deuteron_print_stdout);
 */

static inline float deuteron_widen(uint16_t bits, int is_bfloat16)
{
    uint32_t wide, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value;
    if (is_bfloat16) {
        wide = (uint32_t)bits << 16;
    } else if (exponent == 0) { /* zero, and steps of 2^-24 */
        value = (float)mantissa / 16777216.0f;
        return bits >> 15 ? -value : value;
    } else {
        wide = (uint32_t)(bits >> 15) << 31 | (exponent == 31 ? 255 : exponent + 112) << 23;
        wide |= mantissa << 13;
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline int64_t deuteron_integer(const void *data, int64_t index, int bytes, int is_signed)
{
    const char *at = (const char *)data + index * bytes;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (bytes) {
    case 1: memcpy(&i8, at, 1); return is_signed ? i8 : (int64_t)(uint8_t)i8;
    case 2: memcpy(&i16, at, 2); return is_signed ? i16 : (int64_t)(uint16_t)i16;
    case 4: memcpy(&i32, at, 4); return is_signed ? i32 : (int64_t)(uint32_t)i32;
    default: memcpy(&i64, at, 8); return i64;
    }
}

static inline int deuteron_dtype_bytes(const char *dtype)
{
    if (strstr(dtype, "64") || !strcmp(dtype, "pointer")) return 8;
    if (strstr(dtype, "32")) return 4;
    if (!strncmp(dtype, "float8", 6)) return 1;
    return strstr(dtype, "16") ? 2 : 1;
}

static inline void deuteron_print_element(const deuteron_print_site *site, const void *data,
                                          int64_t index)
{
    const char *dtype = site->dtype;
    int bytes = deuteron_dtype_bytes(dtype);
    int64_t number = deuteron_integer(data, index, bytes, !site->hex && dtype[0] == 'i');
    double wide;
    float narrow;
    if (!strcmp(dtype, "float64")) {
        memcpy(&wide, &number, sizeof wide);
        printf(" %.17g\n", wide);
    } else if (!strcmp(dtype, "float32")) {
        memcpy(&narrow, (const char *)data + 4 * index, sizeof narrow);
        printf(" %.9g\n", (double)narrow);
    } else if (!strcmp(dtype, "float16") || !strcmp(dtype, "bfloat16")) {
        printf(" %g\n", (double)deuteron_widen((uint16_t)number, dtype[0] == 'b'));
    } else if (site->hex || dtype[0] == 'p' || dtype[0] == 'f') { /* an 8-bit float is its bits */
        printf(" 0x%0*" PRIx64 "\n", dtype[0] == 'p' ? 1 : 2 * bytes, (uint64_t)number);
    } else if (dtype[0] == 'u') {
        printf(" %" PRIu64 "\n", (uint64_t)number);
    } else {
        printf(" %" PRId64 "\n", number);
    }
}

static inline void deuteron_print_stdout(const deuteron_print_site *site, const int64_t program[3],
                                         const void *data)
{
    int64_t index, axis, rest, span;
    const char *space = site->label[0] ? " " : "";
    for (index = 0; index < site->count || (index == 0 && site->count == 0); index++) {
        printf("pid (%" PRId64 ", %" PRId64 ", %" PRId64 ")", program[0], program[1], program[2]);
        if (site->count == 0) {
            printf("%s%s\n", space, site->label);
            return;
        }
        printf(" idx (");
        for (axis = 0, rest = index, span = site->count; axis < site->rank; axis++) {
            span /= site->shape[axis];
            printf("%s%*" PRId64, axis ? ", " : "",
                   snprintf(NULL, 0, "%" PRId64, site->shape[axis] - 1), rest / span);
            rest %= span;
        }
        printf(")%s%s", space, site->label);
        if (site->operand >= 0) printf(" (operand %" PRId32 ")", site->operand);
        deuteron_print_element(site, data, index);
    }
}

#ifdef __cplusplus
}
#endif

#endif
