/* table_programs.h: the programs of many models, each once, and a sample of them that has every
 * specialisation. */
#ifndef QN_TABLE_PROGRAMS_H
#define QN_TABLE_PROGRAMS_H

#include "cuda/programs.h"

typedef struct table_program {
    char *text, *spec; /* owned */
    char symbol[160], name[40], model[64];
    char class[200]; /* template, with the tensor types or head dimensions that it is made for */
    uint64_t hash;   /* of text */
    int variant;
    uint32_t shared; /* dynamic, most of its launches */
    bool sampled;
} table_program;

typedef struct table_programs {
    table_program *p;
    int n, cap;
} table_programs;

/* Adds the programs of a model for a variant, with every option that changes programs. */
int table_add_model(table_programs *t, const qn_plans *plans, const char *model, int variant, qn_err *err);
/* Marks a sample: together its programs have each value of each constant of each template and variant that
 * some program has (sizes by their divisibility and magnitude), and each class. */
void table_sample(table_programs *t);
void table_free(table_programs *t);

#endif
