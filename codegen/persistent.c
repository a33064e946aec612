#include "codegen/persistent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The constants of a part, then its template, in a namespace. */
static int print_part(FILE *f, const qn_persistent_part *part, int index, qn_err *err)
{
    const char *text = part->source->text, *defines = strstr(text, "#define QN_VARIANT ");
    const char *include = defines ? strstr(defines, "#include \"") : NULL;
    if (!include || part->threads < 32 || part->threads % 32 != 0) {
        return qn_fail(err, "%s cannot be a phase of a persistent kernel: %d threads a block",
                       part->source->symbol, part->threads);
    }
    fprintf(f, "namespace p%d { // %s\n", index, part->source->symbol);
    if (!part->rings || part->passes) {
        fputs("constexpr int qn_ring_bytes = 0;\n", f);
    }
    fwrite(text, 1, (size_t)(defines - text), f);
    fprintf(f, "typedef qn_phase_shape<%u, %u, %u, %d, %d> shape;\n", part->grid[0], part->grid[1],
            part->grid[2], part->threads, part->passes);
    fprintf(f, "#define QN_THREADS %d\n#define QN_KERNEL run\n#include \"again.cuh\"\n%s", part->threads,
            include);
    fprintf(f, "#undef QN_THREADS\n#undef QN_KERNEL\n} // namespace p%d\n\n", index);
    return 0;
}

static void print_args(FILE *f, const qn_persistent_part *part, const char *before, const char *behind)
{
    for (int i = 0; i < part->n_arg; i++) {
        const qn_persistent_arg *a = &part->args[i];
        unsigned long long v = a->value;
        const char *end = i + 1 < part->n_arg ? ", " : "";
        if (a->from == QN_FROM_SOURCE) {
            fprintf(f, "%s%lluu%s%s", before, v, behind, end);
        } else {
            fprintf(f, "%s%s[%llu]%s%s", before, a->from == QN_FROM_PHASE ? "own" : "words.w", v, behind,
                    end);
        }
    }
}

static void print_call(FILE *f, const qn_persistent_part *part, int index)
{
    fprintf(f, "    case %d:\n        for (qn_passes<p%d::shape> pass; pass.more(); pass.next()) {\n", index,
            index);
    fprintf(f, "            if (pass.mine()) {\n                p%d::run(", index);
    print_args(f, part, "qn_any{", "}");
    fputs(");\n            }\n        }\n        break;\n", f);
}

/* What the ring's writer does for a phase. */
static void print_bring(FILE *f, const qn_persistent_part *part, int index)
{
    fprintf(f, "    case %d: {\n        const u64 args[] = {", index);
    print_args(f, part, "", "");
    fprintf(f, "};\n        return p%d::bring(job, args, number, lane);\n    }\n", index);
}

static int print_all(FILE *f, const qn_persistent_part *parts, int n_part, const qn_persistent_launch *launch,
                     qn_err *err)
{
    fprintf(f, "#define QN_VARIANT %d\n#define QN_PERSISTENT 1\n", launch->variant);
    fprintf(f, "#define QN_LAUNCH_THREADS %d\n#define QN_RING_AT %u\n#define QN_RING_BYTES %u\n",
            launch->threads, launch->ring_at, launch->ring_bytes);
    fputs("#include \"persistent_begin.cuh\"\n", f);
    fputs("namespace persistent {\n", f);
    for (int i = 0; i < n_part; i++) {
        if (print_part(f, &parts[i], i, err)) {
            return -1;
        }
    }
    fprintf(f, "struct words_of_launch {\n    u64 w[%d];\n};\n\n", launch->n_word > 0 ? launch->n_word : 1);
    fputs("QN_DEV void run_phase(int program, const u64 *own, const words_of_launch &words)\n{\n"
          "    switch (program) {\n",
          f);
    for (int i = 0; i < n_part; i++) {
        print_call(f, &parts[i], i);
    }
    fputs("    }\n}\n\n", f);
    fputs("QN_DEV bool bring(ring_job &job, int number, int lane, int program, const u64 *own,\n"
          "                  const words_of_launch &words)\n{\n    switch (program) {\n",
          f);
    for (int i = 0; i < n_part && launch->ring_bytes > 0; i++) {
        if (parts[i].rings && !parts[i].passes) {
            print_bring(f, &parts[i], i);
        }
    }
    fputs("    default:\n        return false;\n    }\n}\n} // namespace persistent\n\n", f);
    return 0;
}

int qn_source_persistent(qn_source *out, const qn_persistent_part *parts, int n_part,
                         const qn_persistent_launch *launch, qn_err *err)
{
    *out = (qn_source){0};
    const int threads = launch->threads + (launch->ring_bytes > 0 ? QN_RING_WRITER : 0);
    size_t size = 0;
    FILE *f = open_memstream(&out->text, &size);
    if (!f) {
        return qn_fail(err, "out of memory");
    }
    int rc = print_all(f, parts, n_part, launch, err);
    if (fflush(f) == 0) {
        unsigned long long hash = XXH3_64bits(out->text, size);
        snprintf(out->spec, sizeof out->spec, "phases%d_threads%d_%016llx", n_part, threads, hash);
        snprintf(out->symbol, sizeof out->symbol, "persistent_%.120s", out->spec);
    }
    fprintf(f, "#define QN_THREADS %d\n#define QN_KERNEL %s\n#include \"persistent.cu\"\n", threads,
            out->symbol);
    if (fclose(f) != 0 && rc == 0) {
        rc = qn_fail(err, "out of memory");
    }
    if (rc != 0) {
        qn_source_free(out);
    }
    return rc;
}
