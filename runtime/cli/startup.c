#include "cli/startup.h"

#include "cli/cli.h"

static double upload_rate(const qn_exec_stats *s)
{
    return s->upload > 0 ? 1e-9 * (double)s->upload_bytes / s->upload : 0;
}

void qn_startup_print(const qn_exec_stats *s)
{
    if (s->n_kernels == 0 || !qn_cli_wants(1)) {
        return;
    }
    qn_cli_detail("  driver   %8.1f ms", 1e3 * s->driver);
    qn_cli_detail("  weights  %8.1f ms, %.1f MiB read and uploaded, %.1f GB/s", 1e3 * s->upload,
                  (double)s->upload_bytes / 1048576, upload_rate(s));
    qn_cli_detail("  kernels  %8.1f ms beside it, %d cached, %d compiled", 1e3 * s->kernels,
                  s->n_kernels - s->n_compiled, s->n_compiled);
    qn_cli_detail("  capture  %8.1f ms, %d captures%s%s", 1e3 * s->capture, s->captures,
                  s->graph_off[0] ? ", graph off: " : "", s->graph_off);
    qn_cli_detail("  prompts  %d captures, %d chunks by their graphs%s%s", s->prompt_captures,
                  s->prompt_replays, s->prompt_graph_off[0] ? ", graphs off: " : "", s->prompt_graph_off);
    qn_cli_detail("  device memory %.1f MiB; the host waited %d times", (double)s->device_bytes / 1048576,
                  s->syncs);
}

int qn_startup_json(json_t *object, const qn_exec_stats *s)
{
    if (s->n_kernels == 0) {
        return 0;
    }
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "driver_seconds", qn_json_real(s->driver));
    bad |= qn_json_set(o, "upload_seconds", qn_json_real(s->upload));
    bad |= qn_json_set(o, "upload_bytes", json_integer((json_int_t)s->upload_bytes));
    bad |= qn_json_set(o, "upload_gb_per_second", qn_json_real(upload_rate(s)));
    bad |= qn_json_set(o, "kernels_seconds", qn_json_real(s->kernels));
    bad |= qn_json_set(o, "kernels", json_integer(s->n_kernels));
    bad |= qn_json_set(o, "kernels_compiled", json_integer(s->n_compiled));
    bad |= qn_json_set(o, "capture_seconds", qn_json_real(s->capture));
    bad |= qn_json_set(o, "captures", json_integer(s->captures));
    bad |= qn_json_set(o, "prompt_captures", json_integer(s->prompt_captures));
    bad |= qn_json_set(o, "prompt_replays", json_integer(s->prompt_replays));
    bad |= qn_json_set(o, "syncs", json_integer(s->syncs));
    bad |= qn_json_set(o, "device_bytes", json_integer((json_int_t)s->device_bytes));
    bad |= qn_json_set(o, "graph_off", qn_json_str(s->graph_off));
    bad |= qn_json_set(o, "prompt_graph_off", qn_json_str(s->prompt_graph_off));
    bad |= qn_json_set(object, "startup", o);
    return bad;
}
