#!/usr/bin/env python3
"""check_wrappers.py PTX.CUH EMU_PTX.CUH: every ptx_* function of the first has a twin in the second, and no other has."""
import re
import sys

FUNCTION = re.compile(r"^(?:template <[^>]*>\s*)?(?:QN_DEV|static inline)\s+[\w\s*]+?\*?\b(ptx_\w+)\(", re.M)


def names(path):
    with open(path, encoding="utf-8") as f:
        return set(FUNCTION.findall(f.read()))


def main():
    real, twins = names(sys.argv[1]), names(sys.argv[2])
    for name in sorted(real - twins):
        print("%s: %s has no twin in %s" % (sys.argv[1], name, sys.argv[2]))
    for name in sorted(twins - real):
        print("%s: %s is no wrapper of %s" % (sys.argv[2], name, sys.argv[1]))
    print("%d wrappers, %d twins" % (len(real), len(twins)))
    return 1 if real != twins or not real else 0


sys.exit(main())
