#!/usr/bin/env python3
"""Bug cases B23 to B29 of docs/bug-cases.md: bugs_gpu.py QUERN FAKE_GPU_DIR [unittest arguments]. FAKE_GPU_DIR holds a
libcuda.so.1 and a libcublasLt.so.13 without arithmetic (tests/fake/fake_gpu.c); NVRTC is a real one."""
import array
import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

FAKE = os.path.abspath(sys.argv.pop(2))
CACHE = os.path.join(os.path.dirname(FAKE), "bug-cache")  # kept between runs: most cases are not about compiling

import cli_case
from cli_case import DATA, HANG, SOURCE, CliCase, read, table

QUANTS = os.path.join(DATA, "goldens", "quants")


def permissions_count():
    """In a child, before it becomes another program: root is asked for permission like anybody else."""
    if os.geteuid() == 0:
        drop_from_bounds, dac_override = 24, 1  # prctl(2), capabilities(7)
        ctypes.CDLL(None).prctl(drop_from_bounds, dac_override, 0, 0, 0)


class Gpu(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long = cls.table("long", "--context", "100000")

    def gpu(self, *args, cache=CACHE, **kw):
        """A run on the fake card; `report` of the result has its counters."""
        env = {"LD_LIBRARY_PATH": FAKE, "FAKE_REPORT": self.path("report"), "QUERN_CACHE": self.path(cache) if cache else None,
               "CUDA_VISIBLE_DEVICES": None}
        env.update({k: None if v is None else str(v) for k, v in kw.pop("env", {}).items()})
        if os.path.exists(self.path("report")):
            os.remove(self.path("report"))
        r = self.quern(*args, env=env, **kw)
        r.report = json.loads(read(self.path("report"))) if os.path.exists(self.path("report")) else {}
        return r

    def run_gpu(self, *args, model=None, **kw):
        r = self.gpu("run", model or self.model, "-p", "A", "--temp", "0", "-n", "5", *args, **kw)
        return r

    def clean(self, r):
        """Nothing of the card is left over, nothing was done that a capture forbids."""
        for what in ("live", "host", "streams", "events", "held", "misuse"):
            self.assertEqual(r.report[what], 0, (what, r.err))
        self.assertEqual(r.report["modules"] - r.report["unloads"], r.report.get("refused", 0), r.err)

    def fails(self, words, r):
        errors = [line for line in r.err.splitlines() if line.startswith("quern: error: ")]
        self.assertEqual((r.code, r.out, len(errors)), (1, b"", 1), r.err)
        for w in words:
            self.assertIn(w, errors[0])
        return errors[0]

    # B23: NVRTC, cuBLASLt and the driver of any installation
    def test_b23_no_header_of_a_toolkit(self):
        for folder, _, files in os.walk(os.path.join(SOURCE, "kernel_src")):
            for name in files:
                if name.endswith((".cu", ".cuh")):
                    self.assertNotRegex(read(os.path.join(folder, name)).decode(), r"#\s*include\s*<", name)

    def test_b23_wrong_cuda_path(self):
        for value in (None, "/nonexistent", self.dir, "/dev/null", ""):
            r = self.quern("ptx", self.model, "--arch", "sm_80", "--kernel", "norm*", env={"CUDA_PATH": value})
            self.assertEqual(r.code, 0, r.err)

    def test_b23_doctor_names_the_files(self):
        r = self.gpu("doctor")
        self.assertEqual(r.code, 0, r.err)
        for words in (FAKE + "/libcuda.so.1", FAKE + "/libcublasLt.so.13", "libnvrtc", "Fake card 0"):
            self.assertIn(words, r.text)

    def test_b23_the_compilers_own_message(self):
        folder = self.path("kernels")
        shutil.copytree(os.path.join(SOURCE, "kernel_src"), folder)
        with open(os.path.join(folder, "norm.cu"), "a") as f:
            f.write("\nQN_DEV int broken() { return no_such_name; }\n")
        r = self.gpu("run", self.model, "-p", "A", "--kernel-src", folder, "--backend", "cuda", cache="none")
        self.assertEqual((r.code, r.out), (1, b""))
        self.assertIn("no_such_name", r.err)
        self.assertRegex(r.err, r"norm\.cu\(\d+\)")
        self.clean(r)

    def without(self, *names):
        """Variables under which these libraries are nowhere."""
        env = {"LD_PRELOAD": os.path.join(FAKE, "libno_library.so"), "NO_LIBRARY": ":".join(names)}
        if cli_case.SANITIZED:  # it would be the first library; NVRTC, looked at and put back, leaks
            env["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
        return env

    def test_b23_libraries_that_are_not_there(self):
        """Said with the remedy; `auto` goes on with the CPU."""
        for names, words in ((["libnvrtc"], ["NVRTC", "is missing", "remedy: pip install nvidia-cuda-nvrtc", "libnvrtc.so.13"]),
                             (["libnvrtc-builtins"], ["NVRTC", "libnvrtc-builtins.so.1", "is missing beside it"]),
                             (["libnvrtc", "libcublasLt"], ["NVRTC", "is missing", "remedy"])):
            r = self.run_gpu("--backend", "cuda", env=self.without(*names))
            self.fails(["backend cuda: "] + words[:2], r)
            for w in words:
                self.assertIn(w, r.err)
            self.clean(r)
            r = self.run_gpu(env=self.without(*names))
            self.assertEqual((r.code, r.text), (0, " Hello world!"), r.err)
            self.assertEqual(r.err.count("backend cpu: NVRTC"), 1, r.err)
            r = self.gpu("doctor", env=self.without(*names))
            self.assertRegex(r.text, r"(?s)NVRTC +not found.*Missing or in doubt:\n- NVRTC.*Models run on the CPU")
            r = self.quern("ptx", self.model, "--arch", "sm_80", env=self.without(*names))
            self.fails(["NVRTC", "is missing"], r)

    def test_b23_no_cublaslt(self):
        """quern's own kernel multiplies, which is said; asked for by name, the library is an error."""
        env = self.without("libcublasLt")
        r = self.run_gpu("--backend", "cuda", env=env)
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(r.err.count("products of prompts by quern's own kernel"), 1, r.err)
        self.assertIn("cuBLASLt is missing (remedy: pip install nvidia-cublas", r.err)
        self.clean(r)
        self.fails(["--prefill cublaslt: cuBLASLt is missing"], self.run_gpu("--backend", "cuda", "--prefill", "cublaslt", env=env))
        r = self.run_gpu(env=env)
        self.assertEqual((r.code, r.text), (0, " Hello world!"), r.err)
        self.assertEqual(r.err.count("backend cpu: cuBLASLt is missing"), 1, r.err)
        self.assertRegex(self.gpu("doctor", env=env).text, r"cuBLASLt +not found")

    # B24: card, driver and NVRTC of different years
    def test_b24_card_newer_than_nvrtc(self):
        r = self.run_gpu("--backend", "cuda", cache="newer", env={"FAKE_CC": 199})
        self.assertEqual(r.code, 0, r.err)
        names = [read(os.path.join(folder, "meta")) for folder, _, files in os.walk(self.path("newer")) if "meta" in files]
        self.assertTrue(any(b"compute_" in m for m in names))  # PTX, which the driver compiles
        self.assertIn("newer than NVRTC", self.gpu("doctor", env={"FAKE_CC": 199}).text)

    def test_b24_driver_older_than_nvrtc(self):
        # NVRTC is looked at, passed over for an older one and taken in the end: what it leaks then is its own.
        old = {"FAKE_VERSION": 12000, "ASAN_OPTIONS": "detect_leaks=0"}
        r = self.run_gpu("--backend", "cuda", env=old)
        self.assertEqual(r.code, 0, r.err)  # cubins: PTX does not matter
        for code in (200, 209, 218, 222):
            r = self.run_gpu("--backend", "cuda", env=dict(old, FAKE_REFUSE=code, FAKE_VERSION=12020))
            line = self.fails([str(code), "compute capability 9.0", "driver of CUDA 12.2", "NVRTC "], r)
            if code in (209, 222):
                self.assertIn("remedy", line)
        self.assertEqual(self.run_gpu("--backend", "cuda").code, 0)  # the cache still serves

    def test_b24_entry_that_the_driver_refuses_once(self):
        self.assertEqual(self.run_gpu().code, 0)
        r = self.run_gpu(env={"FAKE_REFUSE": 209, "FAKE_REFUSE_N": 1})
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(r.err.count("kernel cache:"), 1)

    def test_b24_old_card(self):
        r = self.run_gpu("--backend", "cuda", env={"FAKE_CC": 61})
        self.fails(["6.1", "7.5"], r)
        r = self.run_gpu(env={"FAKE_CC": 61})
        self.assertEqual((r.code, r.text), (0, " Hello world!"), r.err)  # auto: the CPU, and why
        self.assertRegex(r.err, r"backend cpu: .*6\.1.*7\.5")

    def test_b24_ptx_without_a_card(self):
        for arch in ("sm_75", "sm_80", "sm_90a", "sm_100a"):
            r = self.quern("ptx", self.model, "--arch", arch, "--what", "ptx", "--kernel", "norm*", "--cache", "none")
            self.assertEqual(r.code, 0, r.err)
            self.assertIn(".target " + arch, r.text)
        self.assertRegex(self.refuse(["sm_13"], "ptx", self.model, "--arch", "sm_13"), "sm_75.*sm_90")

    # B25: no GPU
    def test_b25_nothing_is_linked(self):
        needs = subprocess.run(["ldd", cli_case.QUERN], stdout=subprocess.PIPE).stdout
        self.assertNotRegex(needs.decode().lower(), "cuda|nvrtc|cublas")

    def test_b25_auto_says_why_and_cuda_fails(self):
        for env in ({"FAKE_CUINIT": 999}, {"FAKE_CUINIT": 100}, {"FAKE_DEVICES": 0}, {"FAKE_CUINIT": 100, "CUDA_VISIBLE_DEVICES": ""},
                    {"FAKE_CUINIT": 34}, {"FAKE_CUINIT": 803}, {"FAKE_CUINIT": 304}):
            r = self.run_gpu(env=env)
            self.assertEqual((r.code, r.text), (0, " Hello world!"), r.err)
            self.assertEqual(r.err.count("backend cpu: "), 1, r.err)
            self.assertIn("remedy", r.err)
            self.assertEqual(self.run_gpu("-q", env=env).err, "")
            self.fails(["backend cuda", "remedy"], self.run_gpu("--backend", "cuda", env=env))
            self.assertEqual(self.run_gpu("--backend", "cpu", env=env).err.count("backend cpu: "), 0)
        line = self.fails(["device 3"], self.run_gpu("--backend", "cuda", "--device", "3"))
        self.assertIn("there are 1", line)

    # B26: a cache that cannot be written
    def test_b26_cache_places(self):
        self.file("is-a-file", b"precious")
        os.makedirs(self.path("home"))
        for env in ({"QUERN_CACHE": self.path("is-a-file")}, {"QUERN_CACHE": self.path("is-a-file/below")},
                    {"QUERN_CACHE": "/proc/none"}, {"QUERN_CACHE": "/dev/full"}):
            r = self.run_gpu("--backend", "cuda", env=env)
            self.assertEqual(r.code, 0, r.err)
            self.assertEqual(r.err.count("kernel cache:"), 1, r.err)
            self.assertIn("in memory", r.err)
        self.assertEqual(read(self.path("is-a-file")), b"precious")
        r = self.run_gpu("--backend", "cuda", "--cache", self.path("by-flag"), env={"QUERN_CACHE": self.path("by-env")})
        self.assertEqual((r.code, os.path.isdir(self.path("by-flag")), os.path.exists(self.path("by-env"))), (0, True, False))
        r = self.run_gpu("--backend", "cuda", cache="by-env", env={"HOME": self.path("home"), "XDG_CACHE_HOME": self.path("xdg")})
        self.assertTrue(os.path.isdir(self.path("by-env")))
        self.assertEqual((os.listdir(self.path("home")), os.path.exists(self.path("xdg"))), ([], False))
        r = self.run_gpu("--backend", "cuda", "--cache", "none")
        self.assertIn("not kept", r.err)

    def test_b26_read_only_home_away_from_a_checkout(self):
        """One file, copied away, for a user who may write nowhere: the right text, and one line that says where kernels stay."""
        away, home = self.path("away"), self.path("read-only")
        os.makedirs(away)
        os.makedirs(home, mode=0o555)
        self.addCleanup(os.chmod, home, 0o755)
        binary = shutil.copy(cli_case.QUERN, away)
        try:
            subprocess.run(["mkdir", os.path.join(home, "x")], preexec_fn=permissions_count, stderr=subprocess.DEVNULL, check=True)
            self.skipTest("this user may write everywhere")
        except subprocess.CalledProcessError:
            pass
        env = {"HOME": home, "XDG_CACHE_HOME": None}
        how = {"cache": None, "env": env, "binary": binary, "prepare": permissions_count}
        r = self.run_gpu("--backend", "cpu", **dict(how, env=dict(env)))
        self.assertEqual((r.code, r.text), (0, " Hello world!"), r.err)
        want = self.run_gpu("--backend", "cuda").text
        r = self.run_gpu("--backend", "cuda", **dict(how, env=dict(env)))
        self.assertEqual((r.code, r.text), (0, want), r.err)
        notes = re.findall("quern: kernel cache: .*", r.err)
        self.assertEqual(len(notes), 1, r.err)
        for words in (home + "/.cache", "Permission denied", "kernels stay in memory, for this run only"):
            self.assertIn(words, notes[0])
        self.assertRegex(r.err, r"kernels: 0 cached, \d+ compiled")
        self.clean(r)
        self.assertEqual((os.listdir(home), os.listdir(away)), ([], ["quern"]))
        os.chmod(home, 0o755)  # and where it may write, it does so where the order says
        r = self.run_gpu("--backend", "cuda", **dict(how, env=dict(env)))
        self.assertEqual((r.code, r.text, r.err.count("kernel cache:")), (0, want, 0), r.err)
        self.assertIn(os.path.join(home, ".cache", "quern"), self.gpu("doctor", **dict(how, env=dict(env))).text)
        self.assertRegex(self.run_gpu("--backend", "cuda", **dict(how, env=dict(env))).err, r"kernels: \d+ cached, 0 compiled")

    # B27: the first run
    def test_b27_says_that_it_compiles(self):
        p = self.start("run", self.model, "-p", "A", "--temp", "0", "-n", "5", "--backend", "cuda", stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, LD_LIBRARY_PATH=FAKE, QUERN_CACHE=self.path("cold")))
        first = p.stderr.readline().decode()
        rest = p.stderr.read().decode()
        out = p.stdout.read()
        self.assertEqual(p.wait(timeout=HANG), 0, rest)
        p.stdout.close()
        p.stderr.close()
        self.assertRegex(first, r"compiling \d+ kernels \(0 in the cache\), cached next time")
        self.assertNotIn(b"compil", out)
        self.assertNotIn("\r", first + rest)  # plain lines where stderr is no terminal
        r = self.run_gpu("-v", "--backend", "cuda", cache="cold")
        self.assertNotIn("compiling", r.err)
        self.assertRegex(r.err, r"kernels +[0-9.]+ ms beside it, \d+ cached, 0 compiled")
        startup = self.run_gpu("--backend", "cuda", "--json", cache="cold").json["startup"]
        self.assertEqual(startup["kernels_compiled"], 0)

    # B28: captures and memory
    def test_b28_one_capture_and_flat_memory(self):
        seen = []
        for n in ("20", "3000"):
            r = self.gpu("run", self.long, "-f", self.file("prompt", b"C" * 2100), "--temp", "0", "-n", n, "-c", "6000",
                         "--backend", "cuda", "-q")
            self.assertEqual(r.code, 0, r.err)
            self.clean(r)
            self.assertLessEqual(r.report["captures"], 2)  # decode; whole chunks of the prompt
            self.assertEqual(r.report["instantiated"], r.report["captures"])
            self.assertEqual(r.report["graphs_destroyed"], r.report["instantiated"])
            seen.append((r.report["allocs"], r.report["peak"], r.report["launches"], r.report["captures"]))
        self.assertEqual(seen[0], seen[1])  # 3000 tokens take no more memory, captures or single launches than 20
        self.assertGreaterEqual(r.report["graph_launches"], 2999)

    def test_b28_every_kind_of_weights(self):
        """The first decode step is captured right after the start; nothing is allocated inside."""
        for name in ("mix-Q4_K_M", "F16", "BF16", "Q8_0"):
            r = self.gpu("bench", os.path.join(QUANTS, "llama-%s.gguf" % name), "-p", "40", "-n", "20", "-r", "1", "--backend",
                         "cuda", "-o", "json")
            self.assertEqual(r.code, 0, r.err)
            self.clean(r)
            self.assertGreaterEqual(r.report["captures"], 1)
            self.assertEqual(r.report["instantiated"], r.report["captures"])

    def test_b28_capture_that_fails(self):
        want = self.run_gpu("--backend", "cuda").text
        r = self.run_gpu("--backend", "cuda", env={"FAKE_CAPTURE": 900})
        self.assertEqual((r.code, r.text), (0, want), r.err)
        self.assertEqual(r.err.count("graph: off"), 1, r.err)
        self.assertEqual((r.report["captures"], r.report["graph_launches"]), (1, 0))
        self.clean(r)
        r = self.run_gpu("--backend", "cuda", "--no-graph")
        self.assertEqual((r.code, r.text, r.report["captures"]), (0, want, 0))

    def test_b28_prompts(self):
        """Two warm-ups, of which the second is captured, then three runs by the graph; or launches, which is said once."""
        for extra, env, captures, replays, said in (((), {}, 1, 3, 0), (("--weight-cache", "off"), {}, 1, 3, 0),
                                                    (("--no-prompt-graph",), {}, 0, 0, 0), (("--no-graph",), {}, 0, 0, 0),
                                                    ((), {"FAKE_CAPTURE": 900}, 1, 0, 1)):
            r = self.gpu("bench", os.path.join(QUANTS, "llama-mix-Q4_K_M.gguf"), "-p", "40", "-n", "0", "-r", "3", "--backend",
                         "cuda", "-o", "json", *extra, env=env)
            self.assertEqual(r.code, 0, r.err)
            self.clean(r)
            self.assertEqual((r.report["captures"], r.report["graph_launches"]), (captures, replays), (extra, env))
            self.assertEqual(r.err.count("graphs of prompts: off"), said, r.err)

    def test_b28_every_way_to_the_card(self):
        """Nothing is left behind and nothing forbidden is done, whatever is asked for."""
        ids = self.file("ids", array.array("i", range(1, 40)).tobytes())
        text = self.file("text", b"0123" * 100)
        turns = self.file("turns", b"one\ntwo\n")
        template = self.file("t.jinja", b"{% for m in messages %}{{ m.content }}<|eot|>{% endfor %}A")
        run = ["run", self.long, "-p", "A", "-n", "12"]
        for command in (run + ["--temp", "0.8"], run + ["--temp", "1", "--top-k", "0"], run + ["--repeat-penalty", "1.2"],
                        run + ["--ignore-eos"], run + ["--answers", "3"], run + ["--logprobs", "2"], run + ["--attention", "plain"],
                        run + ["--f32-activations"], run + ["--variant", "sm80"], run + ["--variant", "sm75"], run + ["--no-fuse"],
                        run + ["-ctk", "q8_0", "-ctv", "q8_0"], run + ["--stop", "x"], run + ["-ub", "1"], ["bench", self.long, "-p", "16", "-n", "8", "-r", "1", "-npl", "4"],
                        ["perplexity", self.long, "-f", text, "-c", "64", "--chunks", "2"], ["profile", self.long],
                        ["logits", self.long, "--tokens", ids], ["logits", self.long, "--tokens", ids, "--mode", "decode"],
                        ["chat", self.long, "--chat-template", template, "-n", "6"]):
            with open(turns, "rb") as f:
                r = self.gpu(*command, "--backend", "cuda", stdin=f)
            self.assertEqual(r.code, 0, (command, r.err))
            self.clean(r)
            self.assertLessEqual(r.report["captures"], 4, command)

    # B29: memory
    def test_b29_contexts_that_do_not_fit(self):
        trained = self.table("large", "--context", "131072")
        r = self.run_gpu("--backend", "cuda", model=trained, env={"FAKE_FREE_MB": 64})
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("context 4096 of 131072 trained", r.err)  # the default is not the trained one
        r = self.run_gpu("--backend", "cuda", model=trained, env={"FAKE_FREE_MB": 42})
        self.assertEqual(r.code, 0, r.err)
        self.assertRegex(r.err, r"context reduced from 4096 to \d+: no more fits in memory")
        r = self.run_gpu("--backend", "cuda", "-c", "1000000", model=trained, env={"FAKE_FREE_MB": 60})
        line = self.fails(["context of 1000000", "weights", "KV cache", "scratch", "60.0 MiB are available"], r)
        largest = int(line.rsplit("the largest context that fits is ", 1)[1])
        for n, code in ((largest, 0), (largest + 1, 1)):
            r = self.run_gpu("--backend", "cuda", "-c", str(n), model=trained, env={"FAKE_FREE_MB": 60})
            self.assertEqual(r.code, code, r.err)
        self.assertLessEqual(r.report["peak"], 60 << 20)
        self.fails(["no context fits"], self.run_gpu("--backend", "cuda", env={"FAKE_FREE_MB": 20}))

    def test_b29_what_the_table_says_is_enough(self):
        units = {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}
        for path in [self.model] + [os.path.join(QUANTS, "llama-%s.gguf" % n) for n in ("mix-Q4_K_M", "Q8_0")]:
            for extra in ([], ["--no-fuse"]):
                command = ["bench", path, "-p", "32", "-n", "16", "-r", "1", "--backend", "cuda", "-v"] + extra
                r = self.gpu(*command)
                self.assertEqual(r.code, 0, r.err)
                number, unit = [line.split()[-2:] for line in r.err.splitlines() if line.startswith("quern:   total")][0]
                r = self.gpu(*command, env={"FAKE_FREE_MB": math.ceil((float(number) + 0.05) * units[unit])})
                self.assertEqual(r.code, 0, r.err)
                self.clean(r)

    def test_b29_every_allocation_may_fail(self):
        n = self.run_gpu("--backend", "cuda").report["allocs"]
        self.assertGreater(n, 20)
        for k in range(1, n + 1):
            r = self.run_gpu("--backend", "cuda", env={"FAKE_OOM_AT": k})
            self.fails(["device memory", "OUT_OF_MEMORY"], r)
            self.clean(r)

    def test_b29_launches_that_fail(self):
        for kernel in ("embed", "linear", "attention", "argmax"):
            r = self.run_gpu("--backend", "cuda", env={"FAKE_LAUNCH_FAIL": kernel})
            self.assertEqual(r.code, 1)
            self.assertEqual(r.err.count("quern: error: "), 1, r.err)
            self.assertIn("LAUNCH_FAILED", r.err)
            self.clean(r)

    def test_b29_interrupt_frees_the_card(self):
        env = dict(os.environ, LD_LIBRARY_PATH=FAKE, QUERN_CACHE=CACHE, FAKE_REPORT=self.path("report"),
                   FAKE_TOKEN=str(table.ID["x"]))
        self.run_gpu("-c", "100000", model=self.long)  # compiled beforehand
        p = self.start("run", self.long, "-p", "A", "--temp", "0", "-c", "100000", "--backend", "cuda", "-q", stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, env=env)
        head = p.stdout.read(50)
        p.send_signal(signal.SIGINT)
        rest = p.stdout.read()
        self.assertEqual(p.wait(timeout=HANG), 130)
        p.stdout.close()
        self.assertEqual(len(head), 50)
        self.assertRegex((head + rest).decode()[1:], r"^x*$")
        report = json.loads(read(self.path("report")))
        self.assertEqual((report["live"], report["host"], report["streams"]), (0, 0, 0))


if __name__ == "__main__":
    cli_case.main()
