"""The client on a terminal: a pseudo-terminal, a small emulator of the screen behind it, and a real daemon."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata

BUILD = os.environ["PT_BUILD"]
RUN = sys.argv[1]
HERE = os.path.join(RUN, "here")  # where the client is called
PATIENCE = 60.0
os.makedirs(HERE)


class Screen:
    """What a terminal would show: characters by row and column, the cursor, the two buffers."""

    def __init__(self, columns, rows):
        self.resize(columns, rows)
        self.other = False  # the alternate buffer is shown
        self.cursor = True
        self.overrun = 0  # characters that did not fit into their line, since the last frame began
        self.whole = []  # of each frame that was drawn to its end: how many did not fit
        self.colors = set()
        self.rest = ""

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.cell = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cell)

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\033":
                found = re.match(r"\033\[([?\d;]*)([A-Za-z])", text[at:])
                if not found:
                    self.rest = text[at:]
                    return
                self.escape(found.group(1), found.group(2))
                at += found.end()
            else:
                self.put(text[at])
                at += 1

    def escape(self, number, letter):
        if letter == "H":
            self.x = self.y = self.overrun = 0
        elif letter == "K":
            if self.y < self.rows:
                self.cell[self.y][self.x :] = [" "] * (self.columns - self.x)
        elif letter == "J":
            self.whole.append(self.overrun)
            self.escape("", "K")
            for y in range(self.y + 1, self.rows):
                self.cell[y] = [" "] * self.columns
        elif letter == "m":
            self.colors.add(number)
        elif number == "?1049":
            self.other = letter == "h"
        elif number == "?25":
            self.cursor = letter == "h"
        else:
            raise AssertionError(f"an escape sequence that is not expected: {number}{letter}")

    def put(self, c):
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.y = min(self.y + 1, self.rows - 1)
        elif unicodedata.combining(c):
            pass
        elif self.x >= self.columns:
            self.overrun += 1
        else:
            self.cell[self.y][self.x] = c
            self.x += 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, arguments, columns=100, rows=30, **more):
        self.screen = Screen(columns, rows)
        self.status = None
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
        environment.update(TERM="xterm", **more)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(HERE)
            os.execve(os.path.join(BUILD, "partune"), ["partune", *arguments], environment)
        self.size(columns, rows)
        self.settings = termios.tcgetattr(self.fd)

    def size(self, columns, rows):
        self.screen.resize(columns, rows)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            self.status = self.status or os.waitpid(self.pid, 0)
            return
        while not is_whole(data):  # a character was cut
            data += os.read(self.fd, 1)
        self.screen.feed(data.decode())

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited for {what}; the screen shows:\n{self.screen.text()}")
            if self.status:
                raise AssertionError(f"ended before {what}; the screen shows:\n{self.screen.text()}")
            self.read(0.2)

    def shows(self, pattern):
        self.until(lambda: re.search(pattern, self.screen.text()), f"/{pattern}/")

    def end(self):
        """The exit code, or minus the signal, once it has ended and all was read."""
        end = time.monotonic() + PATIENCE
        while not self.status:
            assert time.monotonic() < end, "the program does not end"
            self.read(0.2)
        code = self.status[1]
        return -os.WTERMSIG(code) if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)

    def restored(self):
        return (
            not self.screen.other
            and self.screen.cursor
            and termios.tcgetattr(self.fd)[:4] == self.settings[:4]
        )

    def press(self, keys):
        os.write(self.fd, keys)


def is_whole(data):
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True


class Daemon:
    def __init__(self):
        self.port = 0
        self.data = os.path.join(RUN, "data")
        self.start()

    def start(self):
        log = os.path.join(RUN, "log")
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "partuned"), "--data", self.data]
                + ["--listen", f"127.0.0.1:{self.port}"],
                stdout=out,
                stderr=out,
            )
        end = time.monotonic() + PATIENCE
        while True:
            with open(log, encoding="utf-8") as f:
                found = re.search(r"ready at http://127\.0\.0\.1:(\d+)", f.read())
            if found:
                self.port = int(found.group(1))
                return
            assert time.monotonic() < end and self.process.poll() is None, "the daemon starts"
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()


def partune(*arguments):
    return subprocess.run(
        [os.path.join(BUILD, "partune"), *arguments], capture_output=True, text=True, check=False
    )


def submit(name, trials, speed):
    """A campaign of simulated trials: SPEED says how much faster than the clock they are."""
    path = os.path.join(RUN, "campaign.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(
            {
                "name": name,
                "model": "gpt-1.4B",
                "cluster": {"profile": "dgx-a100", "nodes": 1},
                "workload": {"global_batch": 16},
                "space": {"micro_batch": [1, 2], "pp": [1, 2], "recompute": ["none"]},
                "trainer": "megatron",
                "launcher": {"kind": "simulated", "speed": speed},
                "search": {"method": "random", "seed": 1},
                "budget": {"trials": trials},
            },
            f,
        )
    done = partune("--json", "submit", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["id"]


TESTS = []


def test(function):
    TESTS.append(function)
    return function


FAST, NEVER = 100000, 0.001


@test
def the_view_has_the_screen_and_fits_it():
    t = Terminal(["watch", LIVE], 100, 24)
    t.shows("q: leave")
    t.shows("running")
    assert t.screen.other and not t.screen.cursor
    assert t.screen.overrun == 0
    assert not termios.tcgetattr(t.fd)[3] & (termios.ICANON | termios.ECHO)
    t.press(b"q")
    assert t.end() == 0 and t.restored()
    assert "running" in t.screen.text()


@test
def other_sizes_are_drawn_anew_and_never_overrun():
    t = Terminal(["watch", MANY], 120, 40)
    t.shows("q: leave")
    for columns, rows in ((60, 20), (32, 12), (20, 6), (200, 50), (80, 24)):
        t.size(columns, rows)
        seen = len(t.screen.whole)  # what is on its way may still be of the size before
        t.until(lambda n=seen: 0 in t.screen.whole[n:], f"a frame that fits {columns} x {rows}")
        if columns > 30 and rows > 10:
            t.shows("state")
            t.shows("q: leave")
    t.press(b"q")
    assert t.end() == 0 and t.restored()


@test
def control_c_leaves_the_view_and_not_the_campaign():
    t = Terminal(["watch", LIVE])
    t.shows("q: leave")
    t.press(b"\x03")
    assert t.end() == 0 and t.restored()
    assert json.loads(partune("--json", "show", LIVE).stdout)["state"] == "running"


@test
def a_signal_gives_the_terminal_back_before_it_ends_the_program():
    t = Terminal(["watch", LIVE])
    t.shows("q: leave")
    os.kill(t.pid, signal.SIGTERM)
    assert t.end() == -signal.SIGTERM and t.restored()


@test
def new_called_bare_asks_at_a_terminal_and_asks_again_where_the_answer_is_wrong():
    path = os.path.join(HERE, "campaign.json")
    assert not os.path.exists(path)
    t = Terminal(["new"], 110, 60)
    t.shows(r"model \[tiny-moe\]:")
    t.press(b"mixtral-8x77b\n")
    t.shows(r'did you mean "mixtral-8x7b"')
    t.press(b"mixtral-8x7b\n")
    t.shows(r"local a100[\s\S]*cluster \[dgx-h100\]:")
    t.press(b"gh200\n")
    t.shows(r"describe the machine")
    t.press(b"dgx-a100\n")
    t.shows(r"nodes \[")
    t.press(b"none\n")
    t.shows(r"nodes must be 1 or more")
    t.press(b"4\n")
    t.shows(r"trainer \[megatron\]:")
    t.press(b"\n")
    t.shows(r"launcher \[slurm\]:")
    t.press(b"simulated\n")
    assert t.end() == 0
    with open(path, encoding="utf-8") as f:
        text = "".join(line for line in f if not line.lstrip().startswith("//"))
    campaign = json.loads(text)
    assert campaign["model"] == "mixtral-8x7b"
    assert campaign["cluster"] == {"profile": "dgx-a100", "nodes": 4}
    assert campaign["trainer"] == "megatron"
    assert campaign["launcher"] == {"kind": "simulated"}
    assert partune("check", path).returncode == 0


@test
def new_asks_only_what_is_not_given_and_writes_nothing_where_answers_end():
    path = os.path.join(RUN, "half.json")
    t = Terminal(["new", path, "--model", "tiny-llama", "--cluster", "local"], 110, 30)
    t.shows(r"trainer \[partune\]:")
    assert "model [" not in t.screen.text()
    t.press(b"\x04")
    assert t.end() == 6 and not os.path.exists(path)


@test
def states_are_colored_and_said():
    t = Terminal(["watch", LIVE])
    t.shows("running")
    assert {"34", "1"} <= t.screen.colors
    t.press(b"q")
    t.end()
    for more in (["--no-color"], []):
        t = Terminal(["watch", LIVE, *more], **({} if more else {"NO_COLOR": "1"}))
        t.shows("running")
        assert t.screen.colors == set()
        t.press(b"q")
        t.end()


@test
def a_warning_state_has_a_color_of_its_own():
    assert partune("pause", LIVE).returncode == 0
    t = Terminal(["ls"])
    t.shows("paused")
    t.end()
    assert "33" in t.screen.colors
    assert partune("resume", LIVE).returncode == 0


@test
def names_cannot_steer_the_terminal():
    named = submit("to the left \u202eecaps", 1, FAST)
    for command in ("watch", "show"):
        t = Terminal([command, named])
        assert t.end() == 0
        assert command == "watch" or "to the left ?" in t.screen.text(), t.screen.text()
        assert "\u202e" not in t.screen.text()


@test
def the_view_ends_with_the_campaign_and_leaves_the_result():
    t = Terminal(["watch", submit("short", 8, FAST)])
    assert t.end() == 0 and t.restored()
    text = t.screen.text()
    assert "done" in text and "best" in text and "baseline" in text, text


@test
def earlier_trials_are_scrolled_back_to():
    t = Terminal(["watch", MANY], 100, 14)
    t.shows("q: leave")

    def first():
        rows = re.findall(r"^ *(\d+)  (?:baseline|search)", t.screen.text(), re.M)
        return int(rows[0]) if rows else 0

    t.until(lambda: first() > 1, "more trials than rows")
    was = first()
    t.press(b"\033[A\033[A")
    t.until(lambda: 0 < first() < was, "earlier trials")
    t.press(b"q")
    assert t.end() == 0


@test
def a_daemon_that_comes_back_is_found_again():
    t = Terminal(["watch", LIVE])
    t.shows("q: leave")
    DAEMON.kill()
    t.shows("does not answer")
    DAEMON.start()
    t.until(lambda: "does not answer" not in t.screen.text(), "the daemon to be found")
    t.press(b"q")
    assert t.end() == 0 and t.restored()


@test
def tables_fit_terminals_of_every_width():
    for arguments in (["ls"], ["trials", MANY], ["predictions", MANY], ["plan", PLAN]):
        for columns in (60, 80, 120):
            t = Terminal(arguments, columns, 60)
            code = t.end()
            assert code == 0 and t.screen.overrun == 0, f"{arguments} {columns}: {t.screen.text()}"


def main():
    global DAEMON, LIVE, MANY, PLAN
    DAEMON = Daemon()
    failed = 0
    os.environ.update(
        PARTUNE_SERVER=f"http://127.0.0.1:{DAEMON.port}",
        PARTUNE_DATA=DAEMON.data,
        XDG_CONFIG_HOME=os.path.join(RUN, "none"),
    )
    PLAN = os.path.join(RUN, "plan.json")
    with open(PLAN, "w", encoding="utf-8") as f:
        json.dump({"model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1},
                   "workload": {"global_batch": 16}, "trainer": "megatron"}, f)
    print(f"1..{len(TESTS)}", flush=True)
    try:
        LIVE = submit("a campaign that continues", 4, NEVER)
        # Some trials a second, and more of them than the tests take seconds: it must not end before them.
        MANY = submit("one with many trials", 400, 300)
        for i, function in enumerate(TESTS, 1):
            try:
                function()
                print(f"ok {i} - {function.__name__}", flush=True)
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                print(f"not ok {i} - {function.__name__}")
                for line in f"{type(error).__name__}: {error}".splitlines():
                    print(f"#   {line}", flush=True)
    finally:
        DAEMON.kill()
    return 1 if failed else 0


sys.exit(main())
