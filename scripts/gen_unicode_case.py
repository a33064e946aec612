#!/usr/bin/env python3
"""Writes the tables of runtime/text/unicode_case_table.c from Python's own Unicode data (any Python from 3.11 on).

    gen_unicode_case.py > runtime/text/unicode_case_table.c && clang-format -i runtime/text/unicode_case_table.c
"""
import sys
import unicodedata


def runs(pairs):
    """(first, last, stride, delta) of ascending (code point, mapped)."""
    out = []
    for cp, to in pairs:
        delta = to - cp
        if out and out[-1][3] == delta:
            first, last, stride, _ = out[-1]
            step = cp - last
            if step <= 2 and (first == last or step == stride):
                out[-1] = (first, cp, step, delta)
                continue
        out.append((cp, cp, 1, delta))
    return out


def table(name, rows, width):
    flat = ", ".join(str(v) for row in rows for v in row)
    print("const int32_t %s[] = {%s};\nconst size_t %s_n = sizeof %s / sizeof *%s / %d;\n" % (name, flat, name, name, name, width))


points = [c for c in range(0x80, 0x110000) if not 0xd800 <= c < 0xe000]
print("/* unicode_case_table.c: made by scripts/gen_unicode_case.py, Unicode %s. */" % unicodedata.unidata_version)
print('#include "text/unicode_case.h"\n')
special = []
for name, fold in (("upper", str.upper), ("lower", str.lower), ("title", str.title)):
    pairs = []
    for c in points:
        to = [ord(x) for x in fold(chr(c))]
        if name == "title" and to == [ord(x) for x in chr(c).upper()]:
            continue
        if len(to) == 1 and (to[0] != c or name == "title"):
            pairs.append((c, to[0]))
        elif len(to) > 1:
            special.append((c, {"upper": 0, "lower": 1, "title": 2}[name], *(to + [0])[:3]))
    table("qn_unicode_%s_runs" % name, runs(pairs), 4)
table("qn_unicode_special_case", sorted(special), 5)
digits = [c for c in points if unicodedata.category(chr(c)) == "Nd"]
table("qn_unicode_digit_zeros", [(c,) for c in digits if unicodedata.decimal(chr(c)) == 0], 1)
sys.stdout.flush()
