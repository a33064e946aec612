#!/usr/bin/env python3
"""Op cases on a card without arithmetic, but for one kernel: test_op_cases.py OP_CASES FAKE_GPU_DIR WORK_DIR"""
import json
import os
import re
import subprocess
import sys
import unittest

CASES, FAKE, WORK = [os.path.abspath(a) for a in sys.argv[1:4]]
del sys.argv[1:4]


def run(*options, **env):
    """(exit status, output, the JSON file's contents or None)"""
    os.makedirs(WORK, exist_ok=True)
    path = os.path.join(WORK, "out.json")
    if os.path.exists(path):
        os.remove(path)
    p = subprocess.run([CASES, *options, "--jobs", "2", "--cache", os.path.join(WORK, "cache"), "--json", path], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=600,
                       env=dict(os.environ, LD_LIBRARY_PATH=FAKE, FAKE_FREE_MB="20000", **env))
    data = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
    return p.returncode, p.stdout, data


class Chosen(unittest.TestCase):
    """What is to run, without a card."""

    def listed(self, *options):
        p = subprocess.run([CASES, "--list", *options], stdout=subprocess.PIPE, text=True, check=True)
        return p.stdout.splitlines()

    def test_every_op_has_cases_in_each_choice(self):
        everything = self.listed("--all")
        some, large = self.listed(), self.listed("--large")
        self.assertGreater(len(everything), 800)
        self.assertGreater(len(large), 30)
        self.assertLess(len(some), len(everything) / 2)
        self.assertTrue(set(large) <= set(some) <= set(everything))

        def ops(lines):
            return {re.match(r"(?:types \d \d )?(\w+)", line).group(1) for line in lines}
        due = {"embed", "select", "norm", "linear", "glu", "rope_kv", "attention", "mix", "mul", "rescale", "altup", "latent_kv", "argmax"}
        self.assertLessEqual(due, ops(some))
        self.assertLessEqual(due, ops(large))

    def test_choices(self):
        self.assertEqual(len(self.listed("--op", "select", "--all", "--no-large")), 6)
        self.assertEqual(self.listed("--op", "select", "--word", "n 33 all", "--all"), ["select n 33 all steps of 32 sm80"])

    def test_usage(self):
        for options in (["--every", "0"], ["--op", "nonsense"], ["--variant", "sm1"], ["more"], ["--jobs", "1000"]):
            p = subprocess.run([CASES, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(p.returncode, 2, options)
            self.assertIn("usage", p.stderr)

    def test_no_card(self):
        p = subprocess.run([CASES, "--op", "select"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env=dict(os.environ, LD_LIBRARY_PATH=FAKE, FAKE_DEVICES="0"))
        self.assertEqual(p.returncode, 2)
        self.assertIn("op_cases:", p.stderr)


class Fake(unittest.TestCase):
    def test_a_right_kernel_passes(self):
        code, out, data = run("--op", "select", "--all", FAKE_SELECT="1")
        self.assertEqual(code, 0, out)
        self.assertTrue(data["ok"])
        op = data["ops"][0]
        self.assertEqual([op["op"], op["cases"], op["of"], op["large"], op["failed"]], ["select", 7, 7, 1, 0])
        self.assertEqual(op["runs"], 7 * 3)
        self.assertEqual(op["nmse"], 0)
        self.assertEqual(data["templates"], ["select"])

    def test_kernels_without_effect_fail(self):
        for op in ("select", "mul", "norm", "argmax"):
            code, out, data = run("--op", op, "--no-large", "--every", "50")
            self.assertEqual(code, 1, out)
            row = data["ops"][0]
            self.assertGreater(row["runs"], 2)
            self.assertEqual(row["failed"], row["runs"], out)

    def test_strays(self):
        behind = 4 * 33 * 16  # bytes of the output's buffer
        for at, words in ((str(behind), "a kernel wrote at 2112 of 'out', which has 2112 bytes"),
                          (str(behind + 3000), "a kernel wrote at 5112 of 'out'"),
                          ("-3", "a kernel wrote 3 bytes before 'out'"), ("in:0", "which is no output"),
                          ("in:-13", "a kernel wrote 1 bytes before 'x'")):
            code, out, _ = run("--op", "select", "--word", "n 33 all", "--all", FAKE_SELECT="1", FAKE_STRAY=at)
            self.assertEqual(code, 1, out)
            self.assertIn(words, out)
            self.assertNotIn("signal", out)

    def test_a_launch_that_fails(self):
        code, out, data = run("--op", "select", "--all", FAKE_LAUNCH_FAIL="select_n33")
        self.assertEqual(code, 1)
        self.assertIn("FAILED select n 33", out)
        self.assertEqual(data["ops"][0]["cases"], 7, "the process was replaced, and the other cases ran")

    def test_nothing_ran(self):
        code, out, _ = run("--op", "select", "--seconds", "0.000001", FAKE_SELECT="1")
        self.assertEqual(code, 1)
        self.assertIn("FAILED select: no case of it ran", out)


if __name__ == "__main__":
    unittest.main()
