"""A program at a pseudo-terminal: `Terminal` talks with one, `at_terminal` runs one to its end.

Nothing here depends on how fast the machine is: what is waited for is text, a mode of the terminal or an end, and the limit of a
wait is only there so that a program that hangs fails."""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time

HANG = 600  # seconds
TERMINAL = object()
PIECE = 4096  # bytes read at once: a program whose output is not read is soon held up
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|\x07")


class Terminal:
    def __init__(self, argv, term="xterm", env=None, limit=HANG, **kw):
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
        mode = termios.tcgetattr(self.slave)
        mode[3] |= termios.NOFLSH | termios.ECHONL  # not what a line editor would set by itself
        termios.tcsetattr(self.slave, termios.TCSANOW, mode)
        self.before = termios.tcgetattr(self.slave)
        self.raw, self.seen, self.limit = b"", 0, limit
        full = dict(os.environ, TERM=term, LC_ALL="C.UTF-8", **(env or {}))
        full.pop("HOME", None)  # nobody's .editrc
        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        streams.update(kw)

        def own():
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

        self.p = subprocess.Popen(argv, env=full, start_new_session=True, preexec_fn=own, pass_fds=[self.slave], **streams)

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        for stream in (self.p.stdin, self.p.stdout, self.p.stderr):
            if stream is not None:
                stream.close()
        os.close(self.master)
        os.close(self.slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        os.write(self.master, data.encode() if isinstance(data, str) else data)

    def pump(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.raw += os.read(self.master, PIECE)

    @property
    def screen(self):
        """All output so far without escape sequences."""
        return ESCAPES.sub(b"", self.raw).decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text, limit=None):
        """Reads until `text` stands in what was not yet waited for; returns what came up to and with it."""
        end = time.monotonic() + (limit or self.limit)
        while True:
            at = self.screen.find(text, self.seen)
            if at >= 0:
                new = self.screen[self.seen:at + len(text)]
                self.seen = at + len(text)
                return new
            if time.monotonic() > end or (self.p.poll() is not None and not select.select([self.master], [], [], 0)[0]):
                raise AssertionError("no %r in %r (all: %r)" % (text, self.screen[self.seen:], self.screen))
            self.pump(0.05)

    def code(self, limit=None):
        """Exit status; everything the program wrote is read."""
        end = time.monotonic() + (limit or self.limit)
        while self.p.poll() is None:
            if time.monotonic() > end:
                raise AssertionError("still runs; screen: %r" % self.screen)
            self.pump(0.02)
        while select.select([self.master], [], [], 0)[0]:
            self.pump(0)
        return self.p.returncode

    @property
    def mode(self):
        return termios.tcgetattr(self.slave)

    @property
    def restored(self):
        return self.mode == self.before

    def wait_mode(self, editing, limit=None):
        """Until the terminal gives characters one by one (editing), or lines."""
        end = time.monotonic() + (limit or self.limit)
        while bool(self.mode[3] & termios.ICANON) == editing:
            if time.monotonic() > end:
                raise AssertionError("the terminal stays; screen: %r" % self.screen)
            self.pump(0.02)

    def signal(self, sig):
        self.p.send_signal(sig)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.p.send_signal(signal.SIGWINCH)


def at_terminal(argv, env=None, limit=HANG, preexec_fn=None, **streams):
    """Runs a program with each stream that is given as TERMINAL at a pseudo-terminal. (exit status, bytes that the terminal was
    sent, bytes of stdout where it is subprocess.PIPE). A stdin that is not given is empty."""
    master, slave = os.openpty()
    streams = {name: slave if to is TERMINAL else to for name, to in {"stdin": subprocess.DEVNULL, **streams}.items()}
    p = subprocess.Popen(argv, env=env, preexec_fn=preexec_fn, **streams)
    os.close(slave)
    files = [f for f in (master, p.stdout) if f is not None]
    got, end = {f: b"" for f in files}, time.monotonic() + limit
    while files:
        ready = select.select(files, [], [], max(0, end - time.monotonic()))[0]
        if not ready:
            p.kill()
            p.wait()
            raise AssertionError("no end of %r after %r" % (argv, got))
        for f in ready:
            try:
                piece = os.read(f if f is master else f.fileno(), PIECE)
            except OSError:  # nobody has the other end of the terminal any more
                piece = b""
            got[f] += piece
            if not piece:
                files.remove(f)
    os.close(master)
    code = p.wait(timeout=limit)
    if p.stdout is not None:
        p.stdout.close()
    return code, got[master], got.get(p.stdout, b"")
