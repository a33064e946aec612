"""What the test scripts of the commands share. A script's first argument is the binary, the others are unittest's; a
selection that matches no test fails."""
import os
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_table_model as table
from terminal import HANG, TERMINAL, at_terminal

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.dirname(TESTS)
DATA = os.path.join(TESTS, "data")
QUERN = os.path.abspath(sys.argv[1])


def read(path):
    with open(path, "rb") as f:
        return f.read()


SANITIZED = b"__asan_init" in read(QUERN) or b"__tsan_init" in read(QUERN)  # needs address space of its own


class Result:
    """seconds: of the CPU."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err_bytes, self.seconds = code, out, err, seconds

    @property
    def err(self):
        return self.err_bytes.decode()  # fails on invalid UTF-8

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        import json
        return json.loads(self.out)


def options(*args):
    """make_table_model.py's arguments, parsed."""
    return table.parser().parse_args(["-"] + list(args))


class CliCase(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.dir = cls.tmp.name
        cls.model = cls.table("t")

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.dir, name)

    @classmethod
    def file(cls, name, data):
        with open(cls.path(name), "wb") as f:
            f.write(data)
        return cls.path(name)

    @classmethod
    def table(cls, name, *args):
        """A lookup-table model under this name, made once."""
        path = cls.path(name + ".gguf")
        if not os.path.exists(path):
            a = options(*args)
            cls.file(name + ".gguf", table.pack(table.metadata(a), [] if a.vocab_only else table.tensors(a)))
        return path

    def start(self, *args, **kw):
        return subprocess.Popen([QUERN] + list(args), **kw)

    def quern(self, *args, stdin=b"", timeout=HANG, memory=None, env=None, binary=QUERN, prepare=None, **kw):
        """stdin: bytes, or a file; memory: most bytes of address space; env: changed variables, None unsets; prepare: is called
        in the child."""
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if memory is not None and not SANITIZED:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            if prepare is not None:
                prepare()

        full = dict(os.environ)
        for k, v in (env or {}).items():
            full.pop(k, None)
            if v is not None:
                full[k] = v
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        streams.update(kw)
        streams["input" if isinstance(stdin, bytes) else "stdin"] = stdin
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        p = subprocess.run([binary] + [str(a) for a in args], timeout=timeout, env=full, preexec_fn=limit, **streams)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Result(p.returncode, p.stdout or b"", p.stderr or b"", seconds)

    def interrupted(self, *args, model, stdout=subprocess.PIPE):
        """Stops an answer without an end by Ctrl-C once it has begun: (exit status, stdout). The tokens that --debug tells of are
        the sign; as nobody reads on, the process waits there."""
        p = self.start("run", model, "-p", "C", "--temp", "0", "-c", "0", "--debug", "tokens", *args, stdin=subprocess.DEVNULL,
                       stdout=stdout, stderr=subprocess.PIPE)
        seen = b""
        while b"[tokens] 2: " not in seen:
            seen = p.stderr.readline()
            self.assertTrue(seen, "no token")
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=HANG)
        return p.returncode, out

    def terminal(self, *args, model=None, **kw):
        """What a terminal at stdout is sent of an answer."""
        code, shown, _ = at_terminal([QUERN, "run", model or self.model, "--temp", "0", "-q"] + list(args), stdout=TERMINAL,
                                     stderr=subprocess.DEVNULL, **kw)
        self.assertEqual(code, 0, shown)
        return shown.replace(b"\r\n", b"\n")

    def answer(self, *args, model=None, **kw):
        return self.quern("run", model or self.model, "--temp", "0", *args, **kw)

    def expect(self, text, *args, **kw):
        r = self.answer(*args, **kw)
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(r.text, text)
        return r

    def refuse(self, words, *args, code=1, **kw):
        """Fails cleanly: one line on stderr that holds the words, nothing on stdout, no signal."""
        r = self.quern(*args, **kw)
        self.assertEqual(r.code, code, (args, r.err))
        self.assertEqual(r.out, b"", args)
        errors = [line for line in r.err.splitlines() if line.startswith("quern: error: ")]
        self.assertEqual(len(errors), 1, (args, r.err))
        for w in words:
            self.assertIn(w, errors[0])
        for c in errors[0]:
            self.assertTrue(c >= " " and c != "\x7f", errors)
        return errors[0]


def main():
    program = unittest.main(module="__main__", argv=sys.argv[:1] + sys.argv[2:], exit=False)
    if program.result.testsRun == 0:
        sys.exit("no test matches")
    sys.exit(not program.result.wasSuccessful())
