// Compares two files of float32 logits, [n_tokens][n_vocab] row-major, little-endian.
//
//     compare_logits REFERENCE GOT N_VOCAB TOLERANCE
//
// Fails (exit 1) when NMSE(reference, got) = sum((a - b)^2) / sum(a^2) over the whole file exceeds TOLERANCE,
// when GOT holds a NaN or an Inf, when the sizes differ, or when the most likely token differs at a position
// where the reference is decided: its two largest logits lie further apart than 8 standard deviations of the
// error that TOLERANCE allows. Prints one line with the figures. Exit 2: usage, or a file that cannot be
// read.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float *read_floats(const char *path, size_t *count)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(2);
    }
    long size = ftell(f);
    rewind(f);
    if (size <= 0 || size % (long)sizeof(float)) {
        fprintf(stderr, "%s: %ld bytes are no array of float32\n", path, size);
        exit(1);
    }
    *count = (size_t)size / sizeof(float);
    float *values = malloc((size_t)size);
    if (!values || fread(values, sizeof(float), *count, f) != *count) {
        perror(path);
        exit(2);
    }
    fclose(f);
    return values;
}

static size_t argmax(const float *row, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

// Distance between the two largest of row[0..n).
static double top2_margin(const float *row, size_t n)
{
    size_t best = argmax(row, n);
    double second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (i != best && row[i] > second)
            second = row[i];
    return row[best] - second;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s REFERENCE GOT N_VOCAB TOLERANCE\n", argv[0]);
        return 2;
    }
    size_t n_vocab = strtoul(argv[3], NULL, 10), n_ref, n_got;
    double tolerance = strtod(argv[4], NULL);
    float *ref = read_floats(argv[1], &n_ref), *got = read_floats(argv[2], &n_got);
    if (n_vocab < 2 || n_ref % n_vocab || !(tolerance > 0)) {
        fprintf(stderr, "%s: %zu values are no rows of %s; tolerance %s\n", argv[1], n_ref, argv[3], argv[4]);
        return 2;
    }
    if (n_ref != n_got) {
        fprintf(stderr, "%s has %zu values, %s has %zu\n", argv[1], n_ref, argv[2], n_got);
        return 1;
    }
    double error = 0, power = 0;
    size_t not_finite = 0, worst_row = 0;
    double worst = 0;
    for (size_t row = 0; row < n_ref / n_vocab; row++) {
        double row_error = 0;
        for (size_t i = row * n_vocab; i < (row + 1) * n_vocab; i++) {
            double d = (double)ref[i] - got[i];
            not_finite += !isfinite(got[i]);
            row_error += d * d;
            power += (double)ref[i] * ref[i];
        }
        error += row_error;
        if (row_error > worst) {
            worst = row_error;
            worst_row = row;
        }
    }
    double nmse = error / power, margin = 8 * sqrt(tolerance * power / (double)n_ref);
    size_t decided = 0, differ = 0;
    for (size_t row = 0; row < n_ref / n_vocab; row++) {
        const float *a = ref + row * n_vocab, *b = got + row * n_vocab;
        if (top2_margin(a, n_vocab) <= margin)
            continue;
        decided++;
        differ += argmax(a, n_vocab) != argmax(b, n_vocab);
    }
    int ok = nmse <= tolerance && !not_finite && !differ;
    printf("%s NMSE %.3e (tolerance %.0e), worst row %zu; argmax differs in %zu of %zu rows decided by %.2g "
           "(of %zu); "
           "%zu values not finite\n",
           ok ? "ok" : "FAILED", nmse, tolerance, worst_row, differ, decided, margin, n_ref / n_vocab,
           not_finite);
    free(ref);
    free(got);
    return !ok;
}
