/* source.h: a step's specialisation constants as kernel source text.
 *
 * The text is `namespace spec { constexpr ... }`, one line a field of the op's row and one a constant of the
 * backend (launch shape, variant), a definition of QN_KERNEL, the entry's symbol, and an #include of the op's
 * template. */
#ifndef QN_CODEGEN_SOURCE_H
#define QN_CODEGEN_SOURCE_H

#include "base/error.h"
#include "codegen/op.h"

/* A constant that the backend adds: spec::<name>. */
typedef struct qn_source_const {
    const char *name;
    int value;
    bool in_symbol; /* part of the symbol and of the entry's name ("threads256") */
    bool is_dtype;  /* a GGUF type number: its name becomes part of the symbol */
} qn_source_const;

typedef struct qn_source {
    char *text;       /* malloc'ed; free with qn_source_free */
    char symbol[160]; /* "norm_rms_n4096_has_w_threads256": an identifier */
    char spec[160];   /* what follows the op's name in the symbol */
} qn_source;

/* A program: a template with the fields of an op's row (or none: a kernel that serves no op by itself) and
 * the backend's constants. */
typedef struct qn_source_request {
    const char *name;   /* first part of the symbol */
    const char *kernel; /* template: "norm.cu" */
    const qn_op *op;    /* NULL: no fields */
    const qn_spec *spec;
    const qn_op *also; /* a second op that the program serves; NULL: none. Fields that both have are equal */
    const qn_spec *also_spec;
    int variant; /* codegen/nvrtc.h: spec::variant */
    const qn_source_const *consts;
    int n_const;
} qn_source_request;

/* Writes the source. A float that is not finite, or an enumeration's value without a name, is an error. */
int qn_source_make(qn_source *out, const qn_source_request *r, qn_err *err);

/* The same of an op's own template: `op` with the values of `spec`, for one hardware variant
 * (codegen/nvrtc.h: spec::variant). A float that is not finite, or an enumeration's value without a name, is
 * an error. */
int qn_source_generate(qn_source *out, const qn_op *op, const qn_spec *spec, int variant,
                       const qn_source_const *consts, int n_const, qn_err *err);
void qn_source_free(qn_source *s);

#endif
