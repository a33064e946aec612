/* template_cases.h: `quern template --cases`. */
#ifndef QN_CLI_TEMPLATE_CASES_H
#define QN_CLI_TEMPLATE_CASES_H

#include "engine/template.h"

/* Renders every case of a file, one JSON object a line:
 *
 *     {"case": "...", "messages": [...], "vars": {...}, "expect": "..."}   or "error" for "expect"
 *
 * ("messages" and "vars" may be left out; "template": a template of the case's own instead of t, which may be
 * NULL where all have one), with strftime_now standing at 2026-02-03 04:05:06. An error that begins
 * "TemplateError: " is the text that the template itself must refuse with; any other asks only for a refusal.
 * Prints each mismatch and "N of M" on stdout. Returns the exit status: QN_EXIT_OK only if all match. */
int qn_template_run_cases(const quern_template *t, const char *path);

#endif
