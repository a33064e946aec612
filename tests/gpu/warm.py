#!/usr/bin/env python3
"""Compiles, without a GPU, the kernels that the golden models of run_gpu.py need, into a folder that is then given to it as
--cache on the machine of the card. Keys hold NVRTC's version (major.minor) and the architecture and nothing of the driver, so
the NVRTC here and there must be of one version: 'quern doctor' says which.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_lib import UBATCH, VARIANTS, WAYS, Bench, last_line  # noqa: E402

# What the parts goldens, variants and check run with.
SETS = {"default": [[]], "ways": [list(w) for w in WAYS], "variants": [list(v) for v in VARIANTS], "check": [["--no-fuse"]]}


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build_dir")
    a.add_argument("cache")
    a.add_argument("--arch", default="sm_90a")
    a.add_argument("--sets", default="default,ways,check", help="of default, ways, variants, check; default: all but variants")
    a.add_argument("--models", help="names of golden models, separated by commas; default: all")
    a.add_argument("--seconds", type=float, default=1e9, help="no new compile is begun after this time")
    a.add_argument("--work", metavar="DIR", help="folder for what is made on the way, kept; default: a temporary one")
    return a.parse_args()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as reports:  # there are none
        args.backend, args.out_dir, args.jobs = "cpu", reports, 1
        return warm(args, Bench(args))


def warm(args, b):
    start = time.monotonic()
    jobs = [(g, way) for name in args.sets.split(",") for way in SETS[name] for g in b.goldens]
    for i, (g, way) in enumerate(jobs):
        if time.monotonic() - start > args.seconds:
            print("%d of %d, %.0f s: the time is over" % (i, len(jobs), time.monotonic() - start))
            break
        p = subprocess.run([b.quern, "cache", "warm", g.model, "--arch", args.arch, "--cache", args.cache, "-ub", UBATCH] + way,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        print("%d of %d, %.0f s: %s %s: %s" % (i + 1, len(jobs), time.monotonic() - start, g.name, " ".join(way),
                                             last_line(p.stdout or p.stderr)), flush=True)
        if p.returncode != 0:
            return 1
    b.clean()
    return 0


if __name__ == "__main__":
    sys.exit(main())
