/* emu_source.h: programs of the lowering as C++ that the host compiles. */
#ifndef QN_EMU_SOURCE_H
#define QN_EMU_SOURCE_H

#include <stdio.h>

#include "codegen/kernel_files.h"
#include "emu.h"

/* Key of a program's source text. without_variant: lines that name the hardware variant do not count, so that
 * a kernel that does not ask for it is one program. */
uint64_t emu_source_key(const char *text, bool without_variant);

/* Does a template, or a header that it includes, depend on the variant? */
bool emu_source_has_variant(const qn_kernel_files *files, const char *kernel);

/* The program in a table for a source text; NULL: it is not there. */
const emu_program *emu_source_find(const emu_program *table, int n, const char *text);

/* Includes of every header that no constant of a program reaches: once, before all programs. */
void emu_source_headers(FILE *f, const qn_kernel_files *files);

/* One program: namespace <name> with the constants and the template, its headers that use the constants
 * copied in. The kernel is emu_<name>. dir: folder of the templates, for messages. */
void emu_source_program(FILE *f, const qn_kernel_files *files, const char *dir, const char *text,
                        const char *kernel, const char *name);

#endif
