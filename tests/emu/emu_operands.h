/* emu_operands.h: operands as the products of prompts have them, for the reference: weights rounded to f16;
 * e4m3 by its definition, for what is to come of kernel_src/fp8.cuh; tensor maps. */
#ifndef QN_EMU_OPERANDS_H
#define QN_EMU_OPERANDS_H

#include "emu_cases.h"
#include "emu_exec.h"

/* Weights as prefill's products see them: f16 and bf16 as they are, others rounded to f16. */
typedef struct emu_rounded {
    qn_tensor tensors[3];
    void *data[3];
    const qn_tensor *w[3]; /* what the step had */
    int n;
} emu_rounded;
extern const int emu_weight_roles[3];
/* Does a product of the list come as f16? */
bool emu_half_products(const qn_cuda_list *list);
void emu_round_weights(qn_step *s, emu_rounded *r);
void emu_restore_weights(qn_step *s, emu_rounded *r);

/* A map of a tensor at `base` that copies take boxes of, written to `at`. */
void emu_put_map(uint64_t at, const qn_tma *t, uint64_t base);

/* Is it a case of one product that e4m3 operands take? */
bool emu_fp8_serves(const emu_case *c);

/* A matrix product, as cuBLASLt does it: 16-bit or e4m3 operands, f32 sums (here in double, then rounded),
 * times `up`. Rows from `rows` on, up to `padded`, come out as NaN: nobody may look at them. */
int emu_product(const qn_cuda_gemm *g, int rows, int padded, float up, qn_err *err);

float emu_e4m3_value(uint8_t code);
/* The nearest value, of two the one with the even code. */
float emu_e4m3_round(float x);

/* Runs the case's step on the reference, with operands as the products of --prefill fp8 have them: the rows
 * that stand in the emulated device's memory, which are checked, and weights rounded here. */
int emu_fp8_reference(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, int rows, qn_err *err);

#endif
