/* emu_models.h: how whole models run under emulation; emu_gen.c and emu_model.c must agree, for these numbers
 * become constants of programs. */
#ifndef QN_EMU_MODELS_H
#define QN_EMU_MODELS_H

enum {
    EMU_MODEL_CTX = 256,    /* as the goldens were made */
    EMU_MODEL_UBATCH = 16,  /* rings of windowed layers (window + this) wrap within the goldens' 32 tokens */
    EMU_MULTIPROCESSORS = 3 /* few parts of the keys, but more than one */
};

#endif
