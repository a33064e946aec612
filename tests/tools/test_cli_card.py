#!/usr/bin/env python3
"""What scripts see of a GPU, on one without arithmetic (tests/fake/fake_gpu.c): test_cli_card.py QUERN FAKE_GPU_DIR
[unittest arguments]. NVRTC is a real one."""
import json
import math
import os
import re
import subprocess
import sys

FAKE = os.path.abspath(sys.argv.pop(2))

from cli_case import QUERN, SANITIZED, TERMINAL, CliCase, at_terminal, main, table


class Card(CliCase):
    def environment(self, cache="cache", **more):
        env = {"LD_LIBRARY_PATH": FAKE, "QUERN_CACHE": self.path(cache), "FAKE_REPORT": self.path("report"),
               "CUDA_VISIBLE_DEVICES": None, **more}
        if SANITIZED:  # NVRTC keeps what its threads have made
            env["LSAN_OPTIONS"] = "print_suppressions=0:suppressions=" + self.file("lsan", b"leak:libnvrtc\n")
        return env

    def card(self, *args, cache="cache", env={}, **kw):
        r = self.quern(*args, env=self.environment(cache, **env), **kw)
        self.assertEqual(r.code, 0, r.err)
        return r

    def clean(self):
        with open(self.path("report")) as f:
            report = json.load(f)
        for what in ("live", "host", "streams", "events", "held", "misuse"):
            self.assertEqual(report[what], 0, what)
        return report

    def test_logprobs(self):
        """The device chooses token 5 by itself; with log-probabilities the host does, from logits that are all zero."""
        args = ["run", self.model, "-p", "A", "--temp", "0", "-n", "3", "--json", "--backend", "cuda"]
        self.assertEqual(self.card(*args).json["ids"][1:], [5, 5])
        j = self.card(*args, "--logprobs", "2").json
        self.assertEqual(j["ids"], [0, 0, 0])
        for row in j["logprobs"]:
            self.assertEqual([t["id"] for t in row["top_logprobs"]], [0, 1])
            self.assertAlmostEqual(row["logprob"], -math.log(len(table.TOKENS)), places=5)
        self.clean()

    def test_context_is_made_once(self):
        """It takes a quarter of a second, and the device is asked and opened several times."""
        for backend in ("cuda", "auto"):
            self.card("run", self.model, "-p", "A", "-n", "2", "--backend", backend)
            self.assertEqual(self.clean()["contexts"], 1, backend)
        self.card("bench", self.model, "-p", "4", "-n", "2", "-r", "1", "--backend", "cuda")
        self.assertEqual(self.clean()["contexts"], 1)

    def test_hits_and_compiles(self):
        args = ["run", self.model, "-p", "A", "-n", "2", "--backend", "cuda"]
        first = self.card(*args, cache="cold").err
        n = int(re.search(r"compiling (\d+) kernels \(0 in the cache\), cached next time", first).group(1))
        self.assertRegex(first, r"%d kernels compiled in \d+\.\d s, 0 from the cache" % n)
        self.assertIn("kernels: 0 cached, %d compiled" % n, first)
        self.assertRegex(first, r"peak memory .*, of the device ")
        second = self.card(*args, cache="cold").err
        self.assertNotIn("compiling", second)
        self.assertIn("kernels: %d cached, 0 compiled" % n, second)
        j = self.card(*args, "--json", cache="cold").json["startup"]
        self.assertEqual((j["kernels"], j["kernels_compiled"]), (n, 0))
        self.assertEqual(self.card(*args, "-q", cache="other").err, "")

    def compiled_at_terminal(self, *args):
        """stdout, and stderr as a terminal is sent it. One CPU compiles the kernels one after the other, which takes seconds."""
        def one_cpu():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

        env = dict(os.environ, LD_LIBRARY_PATH=FAKE)
        env.pop("CUDA_VISIBLE_DEVICES", None)
        code, shown, out = at_terminal([QUERN, *args], env=env, stdout=subprocess.PIPE, stderr=TERMINAL, preexec_fn=one_cpu)
        self.assertEqual(code, 0, shown)
        return out, shown.decode()

    def progress(self, shown, seconds):
        """How many kernels each line of progress tells of; of what takes less than a second there need not be any."""
        steps = [int(x) for x in re.findall(r"\r\x1b\[Kloading: [^\r]*?(\d+) of \d+ kernels compiled", shown)]
        self.assertTrue(steps or seconds < 1, shown)
        self.assertEqual(steps, sorted(steps))
        if steps:
            self.assertIn("\r\x1b[K", shown[shown.rindex("loading: "):])  # wiped before the next line

    def test_progress_of_compiling(self):
        args = ["run", self.model, "-p", "A", "-n", "1", "--temp", "0", "--backend", "cuda", "--cache", "none"]
        out, shown = self.compiled_at_terminal(*args)
        self.progress(shown, float(re.search(r"kernels compiled in (\d+\.\d) s", shown)[1]))
        self.assertNotIn(b"loading", out)
        _, shown = self.compiled_at_terminal(*args, "-q")
        self.assertEqual(shown, "")
        out, shown = self.compiled_at_terminal("cache", "warm", self.model, "--cache", self.path("warm"))
        self.progress(shown, int(re.search(rb", (\d+) ms, in ", out)[1]) / 1000)

    def test_limits(self):
        limits, = self.card("bench", "--device-limits", "-o", "json").json
        report = self.clean()
        self.assertEqual((limits["threads"], limits["driver"]), (0, "CUDA 13.0"))
        self.assertIn("Fake card 0, compute capability 9.0", limits["device"])
        self.assertGreater(limits["read_bytes_per_second"], 0)
        self.assertGreater(limits["f16_ops_per_second"], 0)
        self.assertGreater(report["launches"], 10)
        args = ["bench", self.model, "-p", "8", "-n", "4", "-r", "1", "-o", "json"]
        pp, tg = self.card(*args).json
        self.assertEqual((pp["device"], pp["driver"]), (limits["device"], limits["driver"]))
        self.assertAlmostEqual(pp["limit_tflop_per_second"], 1e-12 * limits["f16_ops_per_second"], delta=1)
        self.assertAlmostEqual(tg["limit_gb_per_second"], 1e-9 * limits["read_bytes_per_second"], delta=1)
        r = self.card(*args, env={"FAKE_VERSION": "12080"})  # another driver: other figures
        self.assertIn("were not measured yet", r.err)
        self.assertIsNone(r.json[0]["share_of_limit"])

    def test_several_sequences(self):
        r = self.card("bench", self.model, "-p", "8", "-n", "4", "-npl", "1,4", "-r", "1", "-o", "json", "--backend", "cuda")
        self.assertEqual([(t["n_prompt"], t["n_gen"], t["n_pl"]) for t in r.json], [(8, 0, 1), (0, 4, 1), (8, 0, 4), (0, 4, 4)])
        self.clean()

    def test_routes_of_prompts(self):
        """Each way to multiply runs whole, gives back what it took, and says what it keeps."""
        prompt = "A " * 20  # more tokens than the kernels of decode take; the weights are F32
        args = ["run", self.model, "-p", prompt, "-n", "1", "--temp", "0", "--backend", "cuda", "--no-tune"]
        for extra, cached in ((["--weight-cache", "on"], True), (["--weight-cache", "off"], False),
                              (["--weight-cache", "serial"], False), (["--prefill", "mma"], True),
                              (["--prefill", "mmq"], True), (["--prefill", "wgmma"], True), (["--prefill", "fp8"], True),
                              (["--attention", "tma"], True), (["--attention", "flash"], True), ([], True)):
            r = self.card(*args, *extra)
            self.assertEqual("weight cache" in r.err, cached, (extra, r.err))
            self.clean()

    def test_products_are_timed_once(self):
        args = ["run", self.model, "-p", "A", "-n", "1", "--backend", "cuda"]
        self.assertRegex(self.card(*args, cache="tuned").err, r"products: timed \d+ of \d+")
        self.assertNotIn("products: timed", self.card(*args, cache="tuned").err)
        for option in ("--no-tune", "--deterministic"):
            self.assertNotIn("products: timed", self.card(*args, option, cache="untuned").err)

    def test_without_the_library(self):
        """The plan says which kernels take its place."""
        env = {"LD_PRELOAD": os.path.join(FAKE, "libno_library.so"), "NO_LIBRARY": "libcublasLt"}
        if SANITIZED:
            env["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        r = self.card("plan", self.model, "--kernels", "--phase", "prefill", env=env)
        self.assertIn(b"mma f16", r.out)
        self.assertNotIn(b"cuBLASLt", r.out)

    def test_profile(self):
        """Each kind of step with its time, rates and, once the limits are known, share of them; the sum of all."""
        args = ["profile", self.model, "-p", "40", "-r", "1", "--backend", "cuda"]
        r = self.card(*args, cache="unmeasured")
        self.assertIn("were not measured yet", r.err)
        self.assertNotIn(b"of the limit", r.out)
        self.card("bench", "--device-limits", cache="measured")
        out = self.card(*args, cache="measured").out.decode()
        rows = {line.split()[0]: line for line in out.splitlines()}
        for kind in ("embed", "attn_norm", "qkv", "rope_kv", "attention", "attn_out", "ffn_norm", "ffn_glu", "ffn_down", "output",
                     "total"):
            self.assertIn(kind, rows)
        for kind in ("ffn_glu", "total"):
            self.assertRegex(rows[kind], r"ms .* % .* GB/s .* TFLOP/s .* % of the limit")
        self.assertIn("blk.0.qkv ", self.card(*args, "--steps", cache="measured").out.decode())
        got = json.loads(self.card(*args, "-o", "json", cache="measured").out)
        self.assertEqual((got["n_prompt"], got["n_gen"], got["repetitions"]), (40, 0, 1))
        self.assertEqual([r["name"] for r in got["rows"]], list(rows)[:-1])
        self.assertEqual(sum(r["steps"] for r in got["rows"]), got["total"]["steps"])
        self.assertAlmostEqual(sum(r["ms"] for r in got["rows"]), got["total"]["ms"], places=3)
        self.assertGreater(got["total"]["share_of_limit"], 0)
        steps = ["profile", self.model, "-n", "3", "--backend", "cuda"]
        got = json.loads(self.card(*steps, "-o", "json", cache="measured").out)
        self.assertEqual((got["n_prompt"], got["n_gen"], got["repetitions"]), (0, 1, 3))
        self.assertTrue(any("choices" in r for r in got["rows"]))
        r = self.quern(*steps, "-p", "40", env=self.environment())
        self.assertEqual(r.code, 2, r.err)
        self.assertIn("one of them", r.err)
        self.clean()

    def test_refused_choices(self):
        args = ["run", self.model, "-p", "A", "-n", "1", "--backend", "cuda"]
        for extra, says in ((["--prefill", "mmq", "--weight-cache", "on"], "--weight-cache on would never be read"),
                            (["--prefill", "wgmma", "--weight-cache", "on"], "--prefill wgmma multiplies the quantised weights"),
                            (["--prefill", "fp8", "--weight-cache", "off"], "--weight-cache off has none"),
                            (["--variant", "sm80", "--prefill", "wgmma"], "--prefill wgmma is for sm_90a"),
                            (["--variant", "sm80", "--attention", "tma"], "--attention tma is for sm_90a")):
            r = self.quern(*args, *extra, env=self.environment())
            self.assertEqual(r.code, 1, r.err)
            self.assertIn(says, r.err)

    def test_limits_that_fail(self):
        for env, word in (({"FAKE_OOM_AT": "1"}, "device memory"), ({"FAKE_LAUNCH_FAIL": "read_limit"}, "reading"),
                          ({"FAKE_REFUSE": "209"}, "read_limit")):
            r = self.quern("bench", "--device-limits", "--backend", "cuda", env=self.environment(**env))
            self.assertEqual(r.code, 1, r.err)
            self.assertIn(word, r.err)
            self.clean()


if __name__ == "__main__":
    main()
