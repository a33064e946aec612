/* startup.h: where the time before the first token went. */
#ifndef QN_CLI_STARTUP_H
#define QN_CLI_STARTUP_H

#include "cli/json.h"
#include "codegen/backend.h"

/* Lines under -v for what the executor has measured; nothing for one that measures nothing. */
void qn_startup_print(const qn_exec_stats *s);

/* A member "startup" with the same, and the counters of captures and waits. Returns 0, or -1 as qn_json_set
 * does. */
int qn_startup_json(json_t *object, const qn_exec_stats *s);

#endif
