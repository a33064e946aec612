#!/usr/bin/env python3
"""`quern tune` and what it leaves, on a GPU without arithmetic whose launches take the time that a test says
(tests/fake/fake_clock.h): test_cli_tune.py QUERN FAKE_GPU_DIR [unittest arguments]. NVRTC is a real one."""
import glob
import json
import os
import re
import shutil
import sys

FAKE = os.path.abspath(sys.argv.pop(2))

from cli_case import DATA, HANG, SANITIZED, CliCase, main

QUANTISED = os.path.join(DATA, "goldens", "quants", "llama-Q4_0.gguf")
# Blocks of 8 warps are faster in one product, and attention's of 4; everything else is as it is.
FASTER = "linear_q8:256=0.5,linear_q8=0.9,attention_rope:128=0.7,attention_rope=1"


class Tune(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = QUANTISED

    def run_quern(self, *args, code=0, **env):
        env = {"LD_LIBRARY_PATH": FAKE, "QUERN_CACHE": self.path("cache"), "FAKE_REPORT": self.path("report"),
               "CUDA_VISIBLE_DEVICES": None, "FAKE_MS": FASTER, **env}
        if SANITIZED:  # NVRTC keeps what its threads have made
            env["LSAN_OPTIONS"] = "print_suppressions=0:suppressions=" + self.file("lsan", b"leak:libnvrtc\n")
        r = self.quern(*args, env=env, timeout=4 * HANG)
        self.assertEqual(r.code, code, r.err)
        return r

    def tune(self, *args, **env):
        return self.run_quern("tune", self.model, "--backend", "cuda", "-c", "64", *args, **env)

    def kernels(self, *args, **env):
        """Lines of plan --kernels on what decode's launches choose."""
        out = self.run_quern("plan", self.model, "-c", "64", "--kernels", "--phase", "decode", *args, **env).text
        return re.findall(r"^ +((?:warps \d+.*)) \((tuned|shipped)\)$", out, re.M)

    def choices(self):
        path, = glob.glob(self.path("cache") + "/kernels-*.txt")
        return path

    def test_tunes_and_reuses(self):
        shutil.rmtree(self.path("cache"), ignore_errors=True)
        self.assertEqual({how for _, how in self.kernels()}, {"shipped"})
        r = self.tune("-o", "json", "--budget", "3600")
        j = r.json
        with open(self.path("report")) as f:
            report = json.load(f)
        for what in ("live", "host", "streams", "events", "held", "misuse"):
            self.assertEqual(report[what], 0, what)
        self.assertEqual(report["modules"], report["unloads"])
        self.assertEqual(report["instantiated"], report["graphs_destroyed"])
        self.assertIn("4 of 5 launches tuned", r.err)
        rows = {row["launch"].split()[0]: row for row in j["launches"]}
        self.assertEqual({row["left"] for row in j["launches"]}, {0})
        self.assertIn("warps 8,", rows["linear_q8"]["tuned"]["knobs"])
        self.assertAlmostEqual(rows["linear_q8"]["tuned"]["us"], 500, delta=1)
        self.assertAlmostEqual(rows["linear_q8"]["shipped"]["us"], 900, delta=1)
        self.assertIn("warps 4,", rows["attention_rope"]["tuned"]["knobs"])
        self.assertIsNone(rows["glu_q8"]["tuned"])
        self.assertLess(j["token_ms_tuned"], j["token_ms_shipped"])
        self.assertEqual(j["kept"], self.choices())
        # A later run takes them, and compiles nothing once they were compiled.
        kept = self.kernels()
        self.assertEqual([how for _, how in kept], ["tuned", "tuned", "tuned", "shipped", "tuned", "tuned"])
        self.assertEqual({how for _, how in self.kernels("--tune", "off")}, {"shipped"})
        bench = ["bench", self.model, "-c", "64", "-p", "0", "-n", "4", "-r", "1", "-v", "--backend", "cuda"]
        self.assertIn("4 of 13 choices tuned", self.run_quern(*bench).err)
        again = self.run_quern(*bench).err
        self.assertIn("4 of 13 choices tuned", again)
        self.assertNotIn("compiling", again)
        for option in (["--tune", "off"], ["--no-tune"], ["--deterministic"]):
            self.assertNotIn("choices tuned", self.run_quern(*bench, *option).err, option)
        # Kept for one card, driver and version of the kernels.
        self.assertNotIn("choices tuned", self.run_quern(*bench, FAKE_VERSION="13010").err)
        sources = self.path("kernel_src")
        shutil.copytree(os.path.join(os.path.dirname(os.path.dirname(DATA)), "kernel_src"), sources)
        with open(os.path.join(sources, "reduce.cuh"), "a") as f:
            f.write("// another\n")
        self.assertEqual({how for _, how in self.kernels("--kernel-src", sources)}, {"shipped"})
        out = self.run_quern("profile", self.model, "-c", "64", "-r", "1", "--backend", "cuda").text
        self.assertRegex(out, r"(?m)^qkv +warps 8, slices 1, ahead \d, blocks \d \(tuned\)$")
        ptx = self.run_quern("ptx", self.model, "-c", "64", "--kernel", "linear_q8*", "--json").json
        self.assertEqual({p["tuned"] for p in ptx if "one_row=1" in p["constants"]}, {True})
        # Listed, and gone when the cache is cleared.
        listed = self.run_quern("cache", "list").text
        self.assertIn("choices: kernels; Fake card 0, compute capability 9.0; driver 13000; NVRTC", listed)
        self.assertRegex(listed, r"\n  glu_q8 in 256 out 256 q4_0, q4_0: warps 16, ")
        self.damaged()
        self.assertIn("choices made by measuring removed", self.run_quern("cache", "clear").text)
        self.assertEqual(glob.glob(self.path("cache") + "/*-*.txt"), [])

    def damaged(self):
        """Cut, changed, or another card's under this one's name: ignored, said, and written anew."""
        path = self.choices()
        with open(path, "rb") as f:
            whole = f.read()
        other = whole.replace(b"Fake card 0", b"Fake card 9")
        for bad, word in ((whole[:-30], "is damaged"), (whole.replace(b"warps 8", b"warps 4", 1), "is damaged"),
                          (b"", "is damaged"), (b"\xff" * 5000, "is damaged"), (other, "is damaged")):
            with open(path, "wb") as f:
                f.write(bad)
            r = self.run_quern("bench", self.model, "-c", "64", "-p", "0", "-n", "2", "-r", "1", "-v", "--backend", "cuda")
            self.assertIn(word + " and was ignored: kernels as shipped", r.err)
            self.assertNotIn("choices tuned", r.err)
        self.assertIn("is damaged", self.run_quern("cache", "verify", code=1).text)
        self.assertIn("launches tuned", self.tune("--budget", "3600").err)
        self.assertIn("tuned", {how for _, how in self.kernels()})

    def test_at_load(self):
        """--tune SECONDS: measures where nothing is known, once; the session that did so runs with it."""
        cache = self.path("at-load")
        bench = ["bench", self.model, "-c", "64", "-p", "0", "-n", "2", "-r", "1", "-v", "--backend", "cuda", "--tune"]
        r = self.run_quern(*bench, "3600", QUERN_CACHE=cache)
        self.assertIn("measuring kernels of decode for about 3600 s", r.err)
        self.assertIn("kernels: 4 of 5 choices tuned in", r.err)
        self.assertIn("4 of 13 choices tuned on this card", r.err)
        again = self.run_quern(*bench, "3600", QUERN_CACHE=cache)
        self.assertNotIn("measuring kernels", again.err)
        self.assertIn("4 of 13 choices tuned on this card", again.err)
        # Too short for anything: what is shipped serves, and nothing is kept.
        r = self.run_quern(*bench, "0.000001", QUERN_CACHE=self.path("short"))
        self.assertIn("kernels: 0 of 5 choices tuned", r.err)

    def test_noise_keeps_what_is_shipped(self):
        """Half a hundredth is no gain; nor is one that the runs' own spread covers."""
        for ms, noise in (("linear_q8:256=0.996,linear_q8=1", None), ("linear_q8:256=0.9,linear_q8=1", "50")):
            r = self.tune("-o", "json", "--budget", "3600", FAKE_MS=ms, FAKE_NOISE=noise)
            self.assertEqual([row["tuned"] for row in r.json["launches"]], [None] * 5)

    def test_failures(self):
        for env, word in (({"FAKE_CAPTURE": "900"}, "capturing launches"), ({"FAKE_OOM_AT": "3"}, "device memory")):
            r = self.run_quern("tune", self.model, "-c", "64", "--backend", "cuda", code=1, **env)
            self.assertIn(word, r.err)
        r = self.run_quern("tune", self.model, "-c", "64", "--backend", "cuda", "--cache", "none", code=1)
        self.assertIn("choices are kept in the folder of compiled kernels, and there is none", r.err)
        r = self.run_quern("tune", self.model, "-c", "64", "--backend", "cpu", code=1)
        self.assertIn("backend cpu has nothing to tune", r.err)

    def test_usage(self):
        for args, word in ((["--tune", "off"], "leaves nothing to tune"), (["--deterministic"], "leaves nothing to tune"),
                           (["--persistent"], "leaves nothing to tune"), (["--budget", "0"], "--budget"),
                           (["--tune", "often"], "--tune 'often' is not auto, off or a number of seconds"),
                           (["--tune", "-1"], "is not auto"), (["--tune", "nan"], "is not auto"),
                           (["--tune", "5s"], "is not auto"), (["--tune", "1e9"], "is not auto")):
            r = self.run_quern("tune", self.model, *args, code=2)
            self.assertIn(word, r.err)


if __name__ == "__main__":
    main()
