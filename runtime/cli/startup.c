#include "cli/startup.h"

#include "cli/cli.h"

static double upload_rate(const qn_exec_stats *s)
{
    return s->upload > 0 ? 1e-9 * (double)s->upload_bytes / s->upload : 0;
}

void qn_startup_print(const qn_exec_stats *s)
{
    if (s->n_kernels == 0 || qn_cli_verbosity < 1) {
        return;
    }
    qn_cli_note("  driver   %8.1f ms", 1e3 * s->driver);
    qn_cli_note("  weights  %8.1f ms, %.1f MiB read and uploaded, %.1f GB/s", 1e3 * s->upload,
                (double)s->upload_bytes / 1048576, upload_rate(s));
    qn_cli_note("  kernels  %8.1f ms beside it, %d cached, %d compiled", 1e3 * s->kernels,
                s->n_kernels - s->n_compiled, s->n_compiled);
    qn_cli_note("  capture  %8.1f ms, %d captures%s%s", 1e3 * s->capture, s->captures,
                s->graph_off[0] ? ", graph off: " : "", s->graph_off);
    qn_cli_note("  device memory %.1f MiB; the host waited %d times", (double)s->device_bytes / 1048576,
                s->syncs);
}

void qn_startup_json(qn_json_out *o, const qn_exec_stats *s)
{
    if (s->n_kernels == 0) {
        return;
    }
    qn_json_add_open(o, "startup", '{');
    qn_json_add_double(o, "driver_seconds", s->driver);
    qn_json_add_double(o, "upload_seconds", s->upload);
    qn_json_add_uint(o, "upload_bytes", s->upload_bytes);
    qn_json_add_double(o, "upload_gb_per_second", upload_rate(s));
    qn_json_add_double(o, "kernels_seconds", s->kernels);
    qn_json_add_int(o, "kernels", s->n_kernels);
    qn_json_add_int(o, "kernels_compiled", s->n_compiled);
    qn_json_add_double(o, "capture_seconds", s->capture);
    qn_json_add_int(o, "captures", s->captures);
    qn_json_add_int(o, "syncs", s->syncs);
    qn_json_add_uint(o, "device_bytes", s->device_bytes);
    qn_json_add_str(o, "graph_off", s->graph_off);
    qn_json_close(o, '}');
}
