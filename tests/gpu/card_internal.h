/* card_internal.h: between the parts of card.h: programs and launches (card.c), memory (card_memory.c). */
#ifndef QN_CARD_INTERNAL_H
#define QN_CARD_INTERNAL_H

#include "card.h"
#include "cuda/exec.h"

typedef struct card_device {
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_cu_context ctx;
    qn_cu_stream stream;
    bool lost; /* a launch has left it unusable for this process */
} card_device;
extern card_device card_dev;

/* Both return -1. */
int card_report(emu_report *r, const char *kind, const char *text);
int card_driver_failed(qn_cu_result code, const char *what, emu_report *r);

int card_memory_open(qn_err *err);
void card_memory_close(void);
/* The card's address of one in the mirror; other values stay. */
uint64_t card_there(uint64_t value);
/* What the host has written goes to the card, where nothing was launched since; a failure that could not be
 * told before is told now. */
int card_send(emu_report *r);

#endif
