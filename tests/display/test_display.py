"""What a person sees, character by character, and that showing it never costs the training anything."""

import io
import os
import pty
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from partrain.display.closing_lines import closing_lines
from partrain.display.display import Display, LiveDisplay, PlainDisplay, make_display
from partrain.display.live_table import ASCII, COLUMNS, frame, sparkline
from partrain.number_format import clock, count, number, size, tenths, time_of_day
from partrain.record.events import (
    BalanceEvent,
    CommitEvent,
    EndEvent,
    FaultEvent,
    JudgementEvent,
    ReplayEvent,
    RoundEvent,
    SlowEvent,
    StartEvent,
    encode,
)
from partrain.record.round_record import NAN, RoundRecord
from partrain.record.run_state import RunState
from partrain.record.waiting import cause

T = 1795255200.0


def fake_run(rounds=40, workers=2, slow=1.0, **stop):
    """Events of a run with half-second rounds, in which the last worker may be slower than the others by a factor."""
    described = [{"rank": rank, "device": "cuda:0" if rank == workers - 1 > 1 else "cpu"} for rank in range(workers)]
    stop = stop or {"rounds": 400, "accuracy": 0.975, "patience": 20}
    yield StartEvent(t=T, name="mnist", rule="average", resumed_from=None, workers=described, stop=stop)
    for round_ in range(1, rounds + 1):
        t = T + 2 + 0.5 * round_
        for rank in range(workers):
            compute = 0.3 * (slow if rank == workers - 1 else 1)
            record = RoundRecord(
                round=round_, iterations=10, items=640, loss=2.3 * 0.9**round_, lr=0.1, compute=compute, wait=0.48 - compute, mix=0.02,
                distance=0.01 if round_ % 10 == 0 else NAN, bytes=0, staleness=NAN, seconds=0.5 * round_,
            )  # fmt: skip
            yield RoundEvent(t=t, rank=rank, record=record)
        if slow > 1 and round_ == 5:
            yield SlowEvent(t=t, round=5, rank=workers - 1, factor=slow, since=1)
        if round_ % 10 == 0:
            yield JudgementEvent(
                t=t, round=round_, item_iterations=640 * workers * round_, seconds=0.5 * round_, loss=2.5 * 0.9**round_,
                metrics={"accuracy": 1 - 0.9 * 0.95**round_}, best=True,
            )  # fmt: skip
        if round_ % 10 == 5:
            yield CommitEvent(t=t, round=round_, file="x.h5", bytes=1234567, seconds=0.0123)


def viewed(**settings):
    state = RunState()
    for event in fake_run(**settings):
        state.apply(event)
    return state


def rendered(state, width, height=14):
    """The table as rich writes it to a terminal of this size, without colours."""
    display = LiveDisplay(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), state)
    display._now = state.t
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    console.print(display)
    return console.export_text().rstrip("\n")


HEADER = """\
mnist · average · round  40/400  ━━──────────────────  10%  ETA 0:03:00

until   accuracy 0.8843/0.9750 · patience 0/20
judged  loss 0.0370 · accuracy 0.8843 · best accuracy 0.8843 in round 40
so far      51,200 item-iterations ·      2,560 items/s · 0:00:20 · lr 0.1000
saved   round 35 · 1.235 MB in 0.0123 s

"""
NARROW_HEADER = """\
mnist · average · round  40/400  ────────  10%  ETA 0:03:00

until   accuracy 0.8843/0.9750 · patience 0/20
judged  loss 0.0370 · accuracy 0.8843 · best accuracy 0.8843
so far      51,200 item-iterations ·      2,560 items/s
saved   round 35 · 1.235 MB in 0.0123 s

"""
TABLES = {
    140: """\
                                          item-                         training                      seconds   seconds   seconds  distance
  #  device   state      iterations  iterations  share   items/s  wait      loss                    computing   waiting    mixing   to mean
  0  cpu      computing         400      25,600    50%     1,280   36%    0.0340  ██▇▇▆▆▅▅▄▄▃▃▂▂▂▁       12.0       7.2       0.8    0.0100
  1  cpu      slow 1.4x         400      25,600    50%     1,280   12%    0.0340  ██▇▇▆▆▅▅▄▄▃▃▂▂▂▁       16.8       2.4       0.8    0.0100""",
    100: """\
                                          item-                         training
  #  device   state      iterations  iterations  share   items/s  wait      loss
  0  cpu      computing         400      25,600    50%     1,280   36%    0.0340  ██▇▇▆▆▅▅▄▄▃▃▂▂▂▁
  1  cpu      slow 1.4x         400      25,600    50%     1,280   12%    0.0340  ██▇▇▆▆▅▅▄▄▃▃▂▂▂▁""",
    80: """\
                                          item-                         training
  #  device   state      iterations  iterations  share   items/s  wait      loss
  0  cpu      computing         400      25,600    50%     1,280   36%    0.0340
  1  cpu      slow 1.4x         400      25,600    50%     1,280   12%    0.0340""",
    60: """\
                                      item-
  # device  state     iterations iterations share  items/s
  0 cpu     computing        400     25,600   50%    1,280
  1 cpu     slow 1.4x        400     25,600   50%    1,280""",
}


@pytest.mark.parametrize("width", TABLES)
def test_layout(width):
    lines = [line.rstrip() for line in rendered(viewed(slow=1.4), width).splitlines()]
    assert lines == ((HEADER if width >= 80 else NARROW_HEADER) + TABLES[width]).splitlines()


def test_a_curve_fills_the_height_that_is_left():
    """Seven judged losses, which fall by the same factor: on a logarithmic scale, stairs of the same height."""
    drawn = [line.rstrip() for line in rendered(viewed(rounds=70, slow=1.4), 80, height=22).splitlines()]
    assert drawn[11:14] == ["", "judged loss", "  0.8717  " + "█" * 10]
    assert drawn[-1][:72] == "  0.0016  " + "█" * 60 + "▁▁"
    assert len(drawn) == 21
    steps = [len(line[10:]) for line in drawn[13:]]
    assert steps == sorted(steps)
    assert set(steps) == {10, 20, 30, 40, 50, 60, 70}
    assert "judged loss" not in rendered(viewed(rounds=70, slow=1.4), 80, height=15)
    assert "judged loss" not in rendered(viewed(rounds=50), 80, height=22), "few bars would be walls"


def test_a_worker_that_left_keeps_its_row():
    """A run that is resumed with fewer workers still shows what the others did."""
    state = viewed()
    state.apply(
        StartEvent(t=state.t, name="mnist", rule="average", resumed_from=40, workers=[{"rank": 0, "device": "cpu"}], stop={})
    )
    assert rendered(state, 80).splitlines()[-1].split()[:3] == ["1", "cpu", "left"]


def test_the_folder_is_shown():
    def shown(width, folder):
        return ["".join(text for text, _ in line) for line in frame(viewed(), T, width, 40, folder=folder)][6]

    assert shown(80, "runs/mnist/2026") == "folder  runs/mnist/2026"
    assert shown(20, "runs/mnist/2026-11-23") == "folder  ...026-11-23"


def test_half_a_number_is_never_shown():
    state, pieces = viewed(), {text.strip() for line in frame(viewed(), T, 500, 13) for text, _ in line}
    pieces |= {word for text in pieces for word in text.split()}  # a number without its name, where there is no room for both
    narrow = ["".join(text for text, _ in line) for line in frame(state, T, 20, 13)]
    for label in ("judged", "so far"):
        assert any(line.startswith(label) and any(map(str.isdigit, line)) for line in narrow), label
    for width in range(8, 140):
        shown = [text.strip() for line in frame(state, T, width, 13) for text, _ in line[1:]]
        assert all(text in pieces or set(text) <= {"━", "─"} for text in shown), width


@pytest.mark.parametrize("width", [1, 7, 20, 41, 60, 79, 80, 81, 120, 200])
@pytest.mark.parametrize("height", [1, 5, 12, 50])
def test_nothing_leaves_the_terminal(width, height):
    for state in (RunState(), viewed(rounds=0), viewed(rounds=3, workers=30), viewed(rounds=40, workers=30, slow=2.0)):
        lines = frame(state, T, width, height)
        assert len(lines) <= height
        assert all(sum(len(text) for text, _ in line) <= width for line in lines)


def test_columns_keep_their_place():
    early, late = (rendered(viewed(rounds=rounds), 140).splitlines()[-4:-2] for rounds in (1, 100))
    assert early == late


def test_workers_that_do_not_fit_are_counted():
    lines = rendered(viewed(workers=30), 100, height=24).splitlines()
    assert len(lines) <= 23
    assert lines[-1].startswith("and 17 more workers")


def test_before_the_first_round():
    lines = rendered(viewed(rounds=0), 100).splitlines()
    assert lines[0].startswith("mnist · average · round   0/400  ────────────────────   0%  ETA -")
    assert lines[3] == "judged  -"
    assert "starting" in lines[-1]


def test_a_run_that_ended_says_how():
    state = viewed()
    state.apply(EndEvent(t=state.t, status="reached", reason="target", round=40, seconds={}))
    lines = rendered(state, 100).splitlines()
    assert lines[0].rstrip() == "mnist · average · round  40/400  reached (target)"
    assert "done" in lines[-1]


@pytest.mark.parametrize("status", ["stopped", "failed", "diverged"])
def test_the_table_of_a_run_that_did_not_come_to_its_end_says_so(status):
    state = viewed()
    state.apply(EndEvent(t=state.t, status=status, reason="SIGINT", round=40, seconds={}))
    assert [line.split()[2] for line in rendered(state, 100).splitlines()[-2:]] == ["stopped", "stopped"]


def test_faults_are_named():
    state = viewed(rounds=20)
    state.apply(FaultEvent(t=state.t, what="worker 1 died; the round runs again", rank=1))
    text = rendered(state, 140)
    assert "faults  1 · worker 1 died; the round runs again" in text
    assert "lost" in text.splitlines()[-1]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_long_sentence_of_a_fault_is_cut_and_not_left_out(width):
    what = "worker 1 (cpu) was killed by SIGKILL (possibly out of memory), and the log of the machine may tell the reason, if there is one"
    state = viewed(rounds=20)
    state.apply(FaultEvent(t=state.t, what=what, rank=1))
    state.apply(ReplayEvent(t=state.t, rank=1, what=what, after=18, discarded=[64, 64], seconds=0.3))
    lines = {line.split()[0]: line.rstrip() for line in rendered(state, width).splitlines() if line.strip()}
    for label in ("faults", "replays"):
        assert lines[label].startswith(f"{label:<8}1 · ")
        assert "worker 1 (cpu) was killed by SIGKILL" in lines[label]
        assert lines[label].endswith("...")
        assert len(lines[label]) == width


def test_balance_is_in_the_table():
    state = viewed(rounds=20)
    state.apply(BalanceEvent(t=state.t, round=5, iterations=[64, 16]))
    assert "balance 1 · from round 5 the workers train 64, 16 iterations a round, by their speed" in rendered(state, 100)


def test_styles():
    state = viewed(slow=2.1)

    def styles(now):
        return {text.strip(): style for line in frame(state, now, 140, 40) for text, style in line}

    assert styles(state.t)["slow 2.1x"] == "bold red"
    assert styles(state.t)["best accuracy 0.8843"] == "bold reverse green"
    assert styles(state.t + 2)["best accuracy 0.8843"] == "green"
    assert {text.strip(): style for line in frame(viewed(slow=1.6), T, 140, 40) for text, style in line}["slow 1.6x"] == "yellow"


def test_only_ascii_where_the_terminal_knows_no_more():
    text = "".join(text for line in frame(viewed(), T, 140, 40, ASCII) for text, _ in line)
    assert text.isascii()


def test_sparkline():
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([1.0, 0.1, 0.01]) == "█▅▁"
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▅█"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (9_999_999, "9,999,999"), (123_456_789, "123.5M"), (5e12, "5T")]
)
def test_counts(value, text):
    assert count(value) == text


def test_sizes_and_durations():
    assert [size(value) for value in (0, 999, 1000, 1_234_567, 5e9, 2e13)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.235 MB",
        "5 GB",
        "20 TB",
    ]
    assert [clock(value) for value in (0, 59.9, 3600, 100 * 3600)] == ["0:00:00", "0:00:59", "1:00:00", "100:00:00"]


@pytest.mark.parametrize("power", range(-12, 15))
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_fit_their_columns(power, sign):
    value = sign * 9.876543 * 10.0**power
    assert len(number(value)) <= 8
    assert float(number(value)) == pytest.approx(value, rel=0.1)
    assert len(count(abs(value), 8)) <= 8
    assert power > 6 or len(tenths(abs(value))) <= 8
    assert all(len(column.over) <= column.width and len(column.title) <= column.width for column in COLUMNS)


def plain(events, refresh=True, stream=None, verbose=True):
    stream = io.StringIO() if stream is None else stream
    display = PlainDisplay(stream, RunState(), verbose=verbose)
    for event in events:
        display.apply(event)
        if refresh:
            display.refresh(event.t)
    display.close()
    return stream.getvalue()


@pytest.mark.parametrize("refresh", [True, False])
def test_plain_lines(refresh):
    first, *lines = plain(fake_run(rounds=11), refresh).splitlines()
    assert (
        first
        == f"{time_of_day(T)}  mnist: 2 cpu workers, rule average, 0 parameters; until rounds 400 or accuracy 0.975 or patience 20"
    )
    assert len(lines) == 11
    assert lines[0] == f"{time_of_day(T + 2)}     0.5 s  round 1  1,280 item-iterations  loss 2.0700  2,560 items/s  0:03:19 left"
    assert lines[4].endswith("  2,560 items/s  0:03:17 left  saved round 5")
    assert lines[9].endswith("  judged: loss 0.8717, accuracy 0.4611")
    assert "judged" not in lines[10]


def test_a_line_a_second_has_the_newest_judgement():
    """Rounds of a tenth of a second: the first, one a second, and the last, though more are judged."""
    events = list(fake_run(rounds=37))
    fast = [replace(event, t=T + (event.t - T) / 4.9) for event in events]  # from 0.5 s to 0.102 s a round

    def rounds(events):
        return [int(line.partition("round ")[2].split()[0]) for line in plain(events, verbose=False).splitlines()[1:]]

    assert rounds(fast) == [1, 11, 21, 31, 37]
    assert "  judged in round 10: loss" in plain(fast, verbose=False).splitlines()[2]
    assert rounds([event for event in fast if not isinstance(event, JudgementEvent)]) == [1, 11, 21, 31, 37]


def test_a_judgement_that_comes_late_names_its_round():
    events = list(fake_run(rounds=10))
    late = replace(events[-1], t=T + 20)
    record = replace(events[-2].record, round=11)
    following = [RoundEvent(t=T + 21, rank=rank, record=record) for rank in range(2)]
    display, stream = PlainDisplay(out := io.StringIO(), RunState(), verbose=True), out
    for event in events[:-1]:
        display.apply(event)
    display.refresh(T + 19)
    assert stream.getvalue().count("\n") == 11
    for event in (late, *following):
        display.apply(event)
    display.close()
    assert "  judged in round 10: loss 0.8717" in stream.getvalue().splitlines()[-1]


FAULT = FaultEvent(t=T + 4, what="worker 1\ndied: é", rank=1)


def test_faults_have_a_plain_line():
    assert plain([*fake_run(rounds=0), FAULT]).splitlines()[1:] == [f"{time_of_day(FAULT.t)}  fault: worker 1 died: \\xe9"]


def test_a_fault_comes_after_the_rounds_before_it_and_before_those_after_it():
    three = list(fake_run(rounds=3))
    two = len(list(fake_run(rounds=2)))
    lines = plain([*three[:two], FAULT, *three[two:]], refresh=False).splitlines()[1:]
    assert [line.split()[3 if line[10] == " " else 1] for line in lines] == ["round", "round", "fault:", "round"]


def test_a_fault_that_ends_the_run_is_left_to_its_error_message():
    end = EndEvent(t=T + 5, status="failed", reason="workers-lost", round=2, seconds={})
    assert "fault" not in plain([*fake_run(rounds=2), FAULT, end])
    assert "fault" in plain([*fake_run(rounds=2), FAULT, replace(end, status="finished")])


@pytest.mark.parametrize("refresh", [True, False])
def test_a_judgement_in_its_rounds_own_line_names_no_round(refresh):
    lines = plain(fake_run(rounds=11), refresh).splitlines()
    assert "  judged: loss" in lines[10]
    assert " in round " not in lines[10]


class Counting(io.StringIO):
    """A stream that counts its writes."""

    writes = 0

    def write(self, text):
        self.writes += 1
        return super().write(text)


def test_plain_lines_are_written_together():
    stream = Counting()
    display = PlainDisplay(stream, RunState(), verbose=True)
    for event in fake_run(rounds=20):
        display.apply(event)
        display.refresh(T)
    assert (stream.writes, stream.getvalue().count("\n")) == (1, 1), "the first line comes at once"
    display.refresh(T + 100)
    assert (stream.writes, stream.getvalue().count("\n")) == (2, 21)


def test_a_reader_who_leaves_stops_nothing():
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    display = PlainDisplay(stream, RunState())
    os.close(read)
    for event in fake_run(rounds=40):
        display.apply(event)
        display.refresh(event.t)
    display.close()
    assert display.state.round == 40
    print("an epilogue", file=stream)
    stream.close()


@contextmanager
def late_reader(source):
    """What comes from a file to somebody who begins to read it only now, to its end."""
    chunks: list[bytes] = []

    def drain():
        with suppress(OSError):  # a terminal's end
            while chunk := os.read(source, 65536):
                chunks.append(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    yield chunks
    reader.join()


def test_a_reader_who_pauses_stops_nothing():
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    display = PlainDisplay(stream, RunState(), verbose=True)
    for event in fake_run(rounds=2000):
        display.apply(event)
        display.refresh(event.t)
    with late_reader(read) as chunks:
        display.close()
        stream.close()
    os.close(read)
    assert b"".join(chunks).count(b"\n") == 2001


def test_the_display_fits_the_stream(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_display(Terminal())) is LiveDisplay
    assert type(make_display(io.StringIO())) is PlainDisplay
    assert type(make_display(Terminal(), json=True)) is Display
    assert type(make_display(io.StringIO(), quiet=True)) is Display
    assert type(make_display(None)) is Display
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_display(Terminal())) is PlainDisplay
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_INTERACTIVE", "0")
    assert type(make_display(Terminal())) is PlainDisplay


def test_displays_continue_a_view():
    state = viewed(rounds=5)
    assert make_display(io.StringIO(), state=state).state is state
    later = list(fake_run(rounds=11))
    resumed = replace(later[0], resumed_from=10)
    display = PlainDisplay(stream := io.StringIO(), RunState())
    display.adopt(viewed(rounds=10))
    for event in (resumed, *later[-2:]):
        display.apply(event)
    display.close()
    assert display.state.item_iterations == 11 * 1280
    assert "  round 11  " in stream.getvalue()
    assert "judged" not in stream.getvalue()


def in_a_terminal(events, **environment):
    """Output of a script that shows these events on a pseudo-terminal of 100 columns."""
    script = """
import fcntl, struct, sys, termios
fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
from partrain.display.display import make_display
from partrain.record.events import decode
display = make_display(sys.stdout)
for line in sys.stdin:
    event = decode(line)
    display.apply(event)
    display.refresh(event.t)
display.close()
print("done")
"""
    main, other = pty.openpty()
    chunks: list[bytes] = []

    def drain():
        try:
            while chunk := os.read(main, 65536):
                chunks.append(chunk)
        except OSError:
            return

    reader = threading.Thread(target=drain)
    reader.start()
    variables = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    text = b"".join(map(encode, events))
    command = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run(command, input=text, stdout=other, check=True, env={**variables, "TERM": "xterm-256color", **environment})
    os.close(other)
    reader.join()
    os.close(main)
    return b"".join(chunks).decode()


def test_on_a_terminal_the_table_is_redrawn_in_place():
    output = in_a_terminal(fake_run(rounds=20))
    assert "\x1b[1A" in output
    assert "\x1b[32m" in output
    assert output.rstrip().endswith("done")
    assert output.index("\x1b[?25l") < output.rindex("\x1b[?25h")
    assert "item-iterations" in output


def test_a_terminal_that_goes_away_stops_nothing():
    main, other = pty.openpty()
    stream, before = os.fdopen(other, "w"), (sys.stdout, sys.stderr)
    display = LiveDisplay(stream, RunState())
    for step, event in enumerate(fake_run(rounds=40)):
        if step == 40:
            os.close(main)
        display.apply(event)
        display.refresh(event.t)
    display.close()
    stream.close()
    assert display.state.round == 40
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("kind", [LiveDisplay, PlainDisplay])
def test_a_terminal_that_nobody_reads_holds_up_nothing(kind):
    """As one whose connection hangs: it has room for something, but not for all that is written at once."""
    main, other = pty.openpty()
    stream = os.fdopen(other, "w")
    display = kind(stream, RunState())
    for event in fake_run(rounds=3000):
        display.apply(event)
        display.refresh(event.t)
    with late_reader(main) as chunks:
        display.close()
        assert os.get_blocking(other), "the shell's own file waits as ever"
        stream.close()
    os.close(main)
    assert (b" 1,920,000 " if kind is LiveDisplay else b"  round 3,000  ") in b"".join(chunks)


def test_no_color_is_respected():
    assert "\x1b[32m" not in in_a_terminal(fake_run(rounds=20), NO_COLOR="1")


def test_a_dumb_terminal_gets_plain_lines():
    output = in_a_terminal(fake_run(rounds=20), TERM="dumb")
    assert "\x1b" not in output
    assert output.count("  round ") == 11


def test_redraws_are_rare_and_only_for_what_is_new(monkeypatch):
    stream = Counting()
    display = LiveDisplay(stream, RunState())
    drawn: list[float] = []
    monkeypatch.setattr(display, "_draw", lambda last=False: drawn.append(display._now))
    for step, event in enumerate(fake_run(rounds=100)):
        display.apply(event)
        display.refresh(T + step * 0.01)
    assert len(drawn) <= 4 * (step * 0.01) + 1
    drawn.clear()
    for step in range(100):
        display.refresh(T + 100 + step * 0.1)
    assert len(drawn) <= 11


def test_nothing_heavy_is_imported_without_a_terminal():
    script = """
import io, sys
from partrain.display.display import make_display
from partrain.record import event_log
make_display(io.StringIO()).close()
print([name for name in sys.modules if name.split(".")[0] in ("rich", "torch", "numpy", "pydantic")])
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def calls_of_a_redraw(rounds):
    """How many functions are called. Seconds would tell what else the machine is at."""
    state, stream, calls = viewed(rounds=rounds), io.StringIO(), 0
    display = LiveDisplay(stream, state)
    console = Console(file=stream, width=140, height=40, force_terminal=True)
    console.print(display)

    def note(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        console.print(display)
    finally:
        sys.setprofile(None)
    return calls


def test_a_redraw_is_cheap():
    calls = calls_of_a_redraw(60)
    assert calls < 20_000
    assert calls_of_a_redraw(4000) < 1.2 * calls, "also in a long run"


CONTENT = {
    "status": "not-reached", "reason": "rounds", "rounds": 400, "loss": 0.0812, "metrics": {"accuracy": 0.9712}, "test": {},
    "seconds": {"startup": 1.0, "train": 12.34, "total": 15.0}, "item_iterations": 512000, "workers": [],
}  # fmt: skip


@pytest.mark.parametrize(("waits", "threads", "rounds", "line"), [
    ([1.0, 0.5], 4, 400, "workers had no free core for 15% of their time: they have 4 threads for 2 cores; fewer workers may be as fast"),
    ([1.0, 0.5], 2, 400, "workers had no free core for 15% of their time: other programs used the cores"),
    ([1.0, 0.5], 2, 40_000, "workers had no free core for 15% of their time: a round takes 0.13 ms, and recording it also takes a core; "
        'each round is one iteration: raise [sync] iterations or passes; rule = "bsp" mixes in each iteration, rule = "average" need not'),
    ([0.5, 0.4], 4, 400, None),
    ([], 2, 400, None),
])  # fmt: skip
def test_the_last_lines_name_the_time_without_a_core(waits, threads, rounds, line):
    """The workers of this run had ten seconds together."""
    seconds = [{"compute": 4.0, "wait": 0.5, "sync": 0.5}] * 2
    about = {"device": "cpu", "iterations": rounds, "item_iterations": 9}
    workers = [{"rank": rank, **about, "seconds": spent} for rank, spent in enumerate(seconds)]
    for worker, wait in zip(workers, waits, strict=False):
        worker["core_wait"] = wait
    content = {**CONTENT, "workers": workers, "cores": 2, "threads": threads, "rounds": rounds}
    content["seconds"] = {**CONTENT["seconds"], "train": 5.2}
    told = [line for line in closing_lines(content, Path("x"), None) if line.startswith("limit: ")]
    assert told == ([f"limit: {line}"] if line else [])


@pytest.mark.parametrize(("first", "second", "part"), [
    ((0.2, 0.1, 0.1), (0.2, 8.0, 0.1), "judging and saving took 96% of the time: do it less often"),  # worker 1 waits for worker 0
    ((3.0, 0.1, 0.1), (3.0, 0.1, 0.1), "judging and saving took 68% of the time: do it less often"),
    ((3.0, 6.0, 0.1), (8.9, 0.1, 0.1), "workers waited 34% of their time, most for worker 1, which computes longest"),
    ((8.7, 0.2, 0.1), (8.7, 0.2, 0.1), ""),
])  # fmt: skip
def test_the_last_lines_name_the_time_outside_rounds(first, second, part):
    spent = (dict(zip(("compute", "wait", "sync"), seconds, strict=True)) for seconds in (first, second))
    workers = [{"rank": rank, "iterations": 4000, "seconds": seconds} for rank, seconds in enumerate(spent)]
    reason = cause({"workers": workers, "rounds": 400, "seconds": {"train": 10.0}})
    assert reason.startswith(part)
    assert bool(reason) == bool(part)


def test_epilogue():
    lines = closing_lines(
        {**CONTENT, "test": {"loss": 0.09, "accuracy": 0.97}},
        Path("runs/my job"),
        Path("runs/my job/checkpoint.h5"),
        {"rounds": 400},
    )
    assert lines == [
        "not-reached (rounds): 400 rounds, 512,000 item-iterations, 12.3 s of training",
        "judged: loss 0.0812, accuracy 0.9712",
        "test: loss 0.0900, accuracy 0.9700",
        "results: 'runs/my job'",
        "  partrain predict 'runs/my job' --input FILE",
        "  partrain evaluate 'runs/my job'",
        "  partrain export 'runs/my job' --format safetensors --output network.safetensors",
        "  partrain report 'runs/my job'",
        "  partrain inspect 'runs/my job/checkpoint.h5'",
        "  partrain resume 'runs/my job/checkpoint.h5' --until rounds=800",
    ]
    assert closing_lines(CONTENT, Path("runs/x"), None)[-1] == "results: runs/x"
    assert closing_lines({**CONTENT, "rounds": 1}, Path("x"), None)[0].startswith("not-reached (rounds): 1 round, ")
    failed = closing_lines({**CONTENT, "status": "diverged", "reason": "diverged"}, Path("x"), None)
    assert failed[0].startswith("diverged: 400 rounds")
    again = closing_lines({**CONTENT, "status": "diverged", "reason": "diverged"}, Path("x"), Path("x/checkpoint.h5"))
    assert again[-1] == "  partrain inspect x/checkpoint.h5"
    assert "judged in round 398: loss 0.0812, accuracy 0.9712" in closing_lines({**CONTENT, "judged_round": 398}, Path("x"), None)


@pytest.mark.parametrize(("changed", "stop", "until"), [
    ({}, None, " --until rounds=800"),
    ({"status": "finished", "reason": "item_iterations"}, {"item_iterations": 512000}, " --until item_iterations=1024000"),
    ({"status": "reached", "reason": "target"}, {"accuracy": 0.97, "rounds": 400}, " --until accuracy=0.9856"),
    ({"status": "reached", "reason": "target"}, {"loss": 0.1, "accuracy": 0.99}, " --until loss=0.0406 --until accuracy=0.995"),
    ({"status": "stopped", "reason": "asked"}, {"rounds": 800}, ""),
    ({"status": "failed", "reason": "io"}, {"rounds": 800}, ""),
])  # fmt: skip
def test_the_resume_command_lets_the_run_go_on(changed, stop, until):
    assert closing_lines({**CONTENT, **changed}, Path("r"), Path("r/c.h5"), stop)[-1] == f"  partrain resume r/c.h5{until}"


@pytest.mark.parametrize(("items", "waits", "line"), [
    ([98, 2], [0.1, 0.1], "worker 1 (cpu) adds 2% to the speed: leave it out"),
    ([90, 10], [6.0, 0.1], "worker 1 (cpu) costs 42% of the speed: leave it out"),
    ([50, 50], [0.1, 0.1], None),
])  # fmt: skip
def test_the_last_lines_name_a_worker_that_adds_little(items, waits, line):
    """In 12.34 s: without worker 1, worker 0 would not have waited for it."""
    workers = [
        {
            "rank": rank,
            "device": "cpu",
            "iterations": 100,
            "item_iterations": items[rank],
            "seconds": {"compute": 4.0, "wait": waits[rank], "sync": 0.1},
        }
        for rank in range(2)
    ]
    assert [told for told in closing_lines({**CONTENT, "workers": workers}, Path("x"), None) if "leave it out" in told] == [
        line
    ] * bool(line)


@pytest.mark.parametrize("wait", [0.1, 11.0], ids=["in memory", "over a slow network"])
def test_none_of_many_equal_workers_is_to_be_left_out(wait):
    """Each of forty adds 2.6 %, as much as any other, however long their meetings take."""
    seconds = {"compute": 10.0, "wait": wait, "sync": 0.1}
    workers = [
        {"rank": rank, "device": "cpu", "iterations": 100, "item_iterations": 100, "seconds": seconds} for rank in range(40)
    ]
    assert not [line for line in closing_lines({**CONTENT, "workers": workers}, Path("x"), None) if "leave it out" in line]


def test_commands_run_where_the_program_is_not_on_the_path(monkeypatch):
    monkeypatch.setattr(sys, "argv", [".venv/bin/partrain", "run"])
    monkeypatch.setenv("PATH", "/nowhere")
    last = closing_lines(CONTENT, Path("runs/x"), Path("runs/x/checkpoint.h5"))[-3:]
    assert all(line.startswith("  .venv/bin/partrain ") for line in last), last
