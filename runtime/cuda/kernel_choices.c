/* kernel_choices.c: the knobs that were chosen for a card by measuring, as they are kept. */
#include <stdio.h>
#include <string.h>

#include "codegen/kernel_files.h"
#include "cuda/tune_kernels.h"

int qn_kernel_choices_open(qn_choices *c, const char *dir, const qn_kernel_world *w, qn_err *err)
{
    char digest[17], head[320];
    qn_kernel_files files = {0};
    int rc = qn_kernel_files_load(&files, w->kernel_src, err) || qn_kernel_files_digest(&files, digest, err);
    qn_kernel_files_free(&files);
    if (rc) {
        return -1;
    }
    snprintf(head, sizeof head,
             "%.120s, compute capability %d.%d; driver %d; NVRTC %d.%d; %s, %s; kernels %s", w->card,
             w->cc / 10, w->cc % 10, w->driver, w->nvrtc[0], w->nvrtc[1], w->arch->name,
             qn_variant_name(w->arch->variant), digest);
    return qn_choices_open(c, dir, "kernels", head, err);
}

bool qn_kernel_choice(void *user, const qn_site *site, qn_knobs *k)
{
    char text[QN_KNOB_TEXT];
    const char *value = qn_choices_get(user, site->key);
    return value && strcmp(value, qn_knobs_text(site->kind, &site->shipped, text)) != 0 &&
           qn_knobs_read(site->kind, value, k);
}

qn_kernel_world qn_kernel_world_of(const qn_cuda_exec *x)
{
    return (qn_kernel_world){.card = x->dev.name,
                             .cc = x->dev.cc,
                             .driver = x->cuda.version,
                             .nvrtc = {x->nvrtc.major, x->nvrtc.minor},
                             .arch = qn_jit_arch(x->jit),
                             .kernel_src = x->base.opts.kernel_src};
}
