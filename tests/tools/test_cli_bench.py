#!/usr/bin/env python3
"""`quern bench`: lists, sequences, forms of output, limits of the device. test_cli_bench.py QUERN [unittest arguments]."""
import csv
import io
import json
import os
import statistics

from cli_case import CliCase, main


class Bench(CliCase):
    def bench(self, *args, model=None, env=None, **kw):
        cache = {"QUERN_CACHE": os.path.join(self.dir, "cache")}
        return self.quern("bench", *([model or self.model] if model != "" else []), "-t", "1", *args, env=dict(cache, **(env or {})),
                          **kw)

    def measured(self, *args, **kw):
        r = self.bench("-r", "1", "-o", "json", *args, **kw)
        self.assertEqual(r.code, 0, r.err)
        return r.json

    def sizes(self, *args):
        return [(t["n_prompt"], t["n_gen"], t["n_depth"], t["n_pl"]) for t in self.measured(*args)]

    def test_lists_and_ranges(self):
        self.assertEqual(self.sizes("-p", "4,8", "-n", "0"), [(4, 0, 0, 1), (8, 0, 0, 1)])
        self.assertEqual(self.sizes("-p", "4", "-p", "8", "-n", "0"), [(4, 0, 0, 1), (8, 0, 0, 1)])
        self.assertEqual([s[0] for s in self.sizes("-p", "4-12+4", "-n", "0")], [4, 8, 12])
        self.assertEqual([s[0] for s in self.sizes("-p", "4-16*2,20", "-n", "0")], [4, 8, 16, 20])
        self.assertEqual([s[0] for s in self.sizes("-p", "7-9", "-n", "0")], [7, 8, 9])
        self.assertEqual(self.sizes("-p", "4", "-n", "2", "-d", "0-6+3"),
                         [s for d in (0, 3, 6) for s in ((4, 0, d, 1), (0, 2, d, 1))])
        for bad in ("4-", "-4", "8-4", "4-8+0", "4-8*1", "4-8*x", "0-8*2", "4,,8", "1-100000", "4+2", ""):
            self.refuse(["-p"], "bench", self.model, "-p", bad, code=2)

    def test_settings(self):
        r = self.measured("-p", "8", "-n", "0", "-ub", "4,8", "-b", "8", "-t", "2")
        self.assertEqual([(t["n_threads"], t["n_ubatch"], t["n_batch"]) for t in r],
                         [(1, 4, 8), (2, 4, 8), (1, 8, 8), (2, 8, 8)])  # -t 1 comes first
        r = self.measured("-p", "8", "-n", "0", "-ub", "8", "-b", "4")
        self.assertEqual([t["n_ubatch"] for t in r], [4])

    def test_sequences(self):
        self.assertEqual(self.sizes("-p", "4", "-n", "2", "-npl", "1,3"),
                         [(4, 0, 0, 1), (0, 2, 0, 1), (4, 0, 0, 3), (0, 2, 0, 3)])
        for t in self.measured("-p", "4", "-n", "3", "-npl", "2", "-d", "5"):
            n = 2 * (t["n_prompt"] or t["n_gen"])
            self.assertAlmostEqual(t["avg_ts"], n / (t["samples_ns"][0] * 1e-9), delta=1e-4 * t["avg_ts"])
        one, three = [t["gb_per_second"] * t["avg_ns"] for t in self.measured("-p", "0", "-n", "3", "-npl", "1,3", "-d", "5")]
        row = 2 * 1 * (32 + 32)  # bytes of K and V at one position of the model's only layer, f16
        self.assertAlmostEqual(three - one, 2 * (6 + 7 + 8) * row, delta=0.01 * row)  # the weights are read once for all
        self.assertIn("tg2 x3 @ d4", self.bench("-p", "0", "-n", "2", "-d", "4", "-npl", "3", "-r", "1").text)
        self.refuse(["-npl", "1..8"], "bench", self.model, "-npl", "9", code=2)

    def test_samplers(self):
        filters = ["--temp", "0.8", "--top-k", "4", "--top-p", "0.9", "--min-p", "0", "--repeat-penalty", "1.1"]
        text = "temp 0.8, top-k 4, top-p 0.9, min-p 0, repeat-penalty 1.1 over 64"
        p, g = self.measured("-p", "4", "-n", "3", *filters)
        self.assertEqual((p["sampler"], p["sampled_by"]), ("", ""))
        self.assertEqual((g["sampler"], g["sampled_by"]), (text, "host"))
        g = self.measured("-p", "0", "-n", "3", "-npl", "2", "-d", "5", *filters)[0]
        self.assertEqual((g["sampler"], g["n_pl"], g["n_depth"]), (text, 2, 5))
        for args in ([], ["--temp", "0"], ["--top-k", "4"], ["--repeat-penalty", "2", "--repeat-last-n", "0"]):
            g = self.measured("-p", "0", "-n", "3", *args)[0]
            self.assertEqual((g["sampler"], g["sampled_by"]), ("greedy", "given tokens"), args)
        g = self.measured("-p", "0", "-n", "3", "--repeat-penalty", "1.5", "--repeat-last-n", "-1")[0]
        self.assertEqual((g["sampler"][:6], g["sampled_by"]), ("temp 0", "host"))
        r = self.bench("-p", "0", "-n", "2", "-r", "1", *filters, "-o", "csv")
        self.assertIn("sampling: " + text, r.err)
        row = next(csv.DictReader(io.StringIO(r.text)))
        self.assertEqual((row["sampler"], row["sampled_by"]), (text, "host"))
        self.refuse(["--repeat-penalty"], "bench", self.model, "--repeat-penalty", "0", code=2)
        self.refuse(["--seed"], "bench", self.model, "--seed", "x", code=2)

    def test_statistics(self):
        r = self.bench("-p", "8", "-n", "2", "-r", "5", "-o", "json")
        for t in r.json:
            self.assertEqual((len(t["samples_ts"]), len(t["samples_ns"])), (5, 5))
            for unit, samples in (("ts", t["samples_ts"]), ("ns", t["samples_ns"])):
                near = {"delta": 1e-4 * statistics.mean(samples)}
                self.assertAlmostEqual(t["avg_" + unit], statistics.mean(samples), **near)
                self.assertAlmostEqual(t["stddev_" + unit], statistics.stdev(samples), **near)
                self.assertAlmostEqual(t["median_" + unit], statistics.median(samples), **near)
        r = self.bench("-p", "8", "-n", "0", "-r", "2", "-o", "json", "--no-warmup").json[0]
        self.assertAlmostEqual(r["median_ts"], statistics.mean(r["samples_ts"]), delta=1e-4 * r["avg_ts"])

    def test_forms(self):
        ids = self.table("ids", "--no-tokenizer")
        args = ["-p", "4", "-n", "2", "-d", "0,3", "-r", "1", ids]
        whole = self.bench(*args, "-o", "json").json
        self.assertEqual(len(whole), 8)  # two models
        lines = [json.loads(line) for line in self.bench(*args, "-o", "jsonl").text.splitlines()]
        self.assertEqual([set(t) for t in lines], [set(t) for t in whole])
        same = ("model_filename", "n_prompt", "n_gen", "n_depth", "n_threads", "n_ubatch", "model_quant", "n_pl")
        self.assertEqual([[t[k] for k in same] for t in lines], [[t[k] for k in same] for t in whole])
        header, *rows = csv.reader(io.StringIO(self.bench(*args, "-o", "csv").text))
        self.assertEqual([[str(t[k]) for k in same] for t in whole], [[row[header.index(k)] for k in same] for row in rows])
        table = self.bench(*args).text
        self.assertEqual(len(table.splitlines()), 10)
        self.assertEqual(len({len(line) for line in table.splitlines()}), 1, table)
        self.assertEqual(len(self.bench(*args, "-o", "md").text.splitlines()), 10)

    def test_limits(self):
        """Measured and kept; each number of threads by itself; a share is what was measured over the limit."""
        args = ["-p", "8", "-n", "4", "-r", "1", "-o", "json"]
        cache = {"QUERN_CACHE": os.path.join(self.dir, "limits")}
        none = self.bench(*args, env=cache)
        self.assertIn("--device-limits", none.err)
        self.assertTrue(all(t["share_of_limit"] is None and t["limit_gb_per_second"] is None for t in none.json))
        measured = self.bench("--device-limits", "-o", "json", model="", env=cache)
        self.assertEqual(measured.code, 0, measured.err)
        limits, = measured.json
        self.assertEqual(limits["threads"], 1)
        for key in ("read_bytes_per_second", "f32_ops_per_second", "int8_ops_per_second"):
            self.assertGreater(limits[key], 1e6)
        with open(os.path.join(self.dir, "limits", "limits.json")) as f:
            kept = json.load(f)["limits"]
        self.assertEqual([(k["device"], k["threads"]) for k in kept], [(limits["device"], 1)])
        for exact, key in ((["--exact"], "f32_ops_per_second"), ([], "f32_ops_per_second")):  # the model's weights are f32
            r = self.bench(*args, *exact, env=cache)
            self.assertNotIn("not measured", r.err)
            pp, tg = r.json
            self.assertEqual((pp["device"], tg["device"]), 2 * (limits["device"],))
            self.assertAlmostEqual(pp["share_of_limit"], 1e12 * pp["tflop_per_second"] / limits[key],
                                   delta=1e-4 * pp["share_of_limit"])
            self.assertAlmostEqual(tg["share_of_limit"], 1e9 * tg["gb_per_second"] / limits["read_bytes_per_second"],
                                   delta=1e-4 * tg["share_of_limit"])
        self.assertRegex(self.bench("-p", "8", "-n", "0", "-r", "1", env=cache).text, r"\| +\d+ % \|\n$")
        self.assertIn("not measured", self.bench(*args, "-t", "2", env=cache).err)
        n = len(os.sched_getaffinity(0))
        self.bench("--device-limits", "-t", str(n), model="", env=cache)
        self.assertRegex(self.quern("doctor", env=cache).text, r", %d threads: reads \d+\.\d GB/s" % n)
        with open(os.path.join(self.dir, "limits", "limits.json"), "w") as f:
            f.write("{ not JSON")  # as if never measured
        r = self.bench(*args, env=cache)
        self.assertEqual((r.code, r.json[0]["share_of_limit"]), (0, None))
        self.assertIn("entries", self.quern("cache", "list", env=cache).text)  # no entry, no trouble

    def test_limits_that_cannot_be_kept(self):
        file = self.file("no-folder", b"")
        r = self.bench("--device-limits", model="", env={"QUERN_CACHE": file})
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("warning: the limits are not kept", r.err)
        self.assertRegex(r.text, r"1 threads: reads \d+\.\d GB/s, f32 \d+\.\d+ TFLOP/s, int8 \d+\.\d+ TOP/s\n$")
        r = self.bench("--device-limits", "--backend", "cuda", model="", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(r.code, 1)
        self.assertIn("backend cuda", r.err)

    def test_refusals(self):
        self.refuse(["nothing"], "bench", self.model, "-p", "0", "-n", "0", code=2)
        self.refuse(["no model"], "bench", code=2)
        self.refuse(["'xml'", "jsonl"], "bench", self.model, "-o", "xml", code=2)


if __name__ == "__main__":
    main()
