#!/usr/bin/env python3
"""Writes cases of the template language: what Jinja2 itself makes of many small templates, some by hand, some random.

    make_template_cases.py [--seed N] [--random N] > language.cases.jsonl

Needs jinja2 3.1.2 (pip install jinja2==3.1.2), set up as Hugging Face transformers sets it up. The result is checked by
`quern template --cases`; tests/data/templates/language.tar.xz holds it. Templates whose result has an address in it,
and those of KNOWN, which quern refuses or does otherwise on purpose (docs/chat-templates.md), are left out.
"""
import argparse
import copy
import datetime
import json
import os
import random
import re
import sys
import warnings

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGES = [{"role": "user", "content": "hi <b>"}, {"role": "assistant", "content": "yo\n"},
            {"role": "user", "content": " end "}]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @staticmethod
    def _support(caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    now = datetime.datetime(2026, 2, 3, 4, 5, 6)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: now.strftime(form)
    return env


ENV = environment()


def case(template, all_vars):
    """A case as --cases reads it; None: the result is no text."""
    used = {k: v for k, v in all_vars.items() if re.search(r"\b%s\b" % re.escape(k), template)}
    out = {"template": template, "vars": used}
    if re.search(r"\bmessages\b", template):
        out["messages"] = MESSAGES
    out = json.loads(json.dumps(out))
    try:
        text = ENV.from_string(template).render(**copy.deepcopy(out["vars"]), messages=copy.deepcopy(MESSAGES))
        text.encode()
        out["expect"] = text
    except UnicodeEncodeError:
        return None
    except Exception as e:
        out["error"] = "%s: %s" % (type(e).__name__, e)
    return out


class Random:
    """Templates by a grammar: texts, numbers, lists, mappings, conditions, and statements around them."""

    def __init__(self, seed, grammar):
        self.r = random.Random(seed)
        self.g = grammar

    def make(self, kind, depth):
        g = self.g[kind]
        if depth <= 0 or self.r.random() < g.get("stop", 0.3):
            return self.r.choice(g["plain"])
        return self.fill(self.r.choice(g["rules"]), depth)

    def fill(self, rule, depth):
        """Replaces <kind> by something of that kind, one level down."""
        return re.sub(r"<(\w+)>", lambda m: self.make(m.group(1), depth - 1), rule)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=1500)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if jinja2.__version__ != "3.1.2":
        sys.exit("jinja2 is %s, not 3.1.2" % jinja2.__version__)
    with open(os.path.join(HERE, "template_language.json"), encoding="utf-8") as f:
        data = json.load(f)
    known, made = set(data["known"]), []
    for template in ["{{ %s }}" % e for e in data["expressions"]] + data["templates"]:
        if template not in known:
            made.append(case(template, data["vars"]))
    source = Random(args.seed, data["grammar"])
    n = 0
    while n < args.random:
        text = source.make("statement", 4)
        made.append(case(text, data["vars"]))
        n += made[-1] is not None and "expect" in made[-1]
    for one in made:
        line = json.dumps(one, ensure_ascii=False)
        too_big = re.search(r"\d{19}", line) and one["template"] not in data["templates"]  # quern's integers have 64 bits
        if one is not None and "object at 0x" not in line and not too_big:
            print(line)


main()
