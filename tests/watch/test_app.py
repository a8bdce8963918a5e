"""The screen of `partrain watch`, with real keys on a screen that is not drawn."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.runs import Command, events, eventually, summary, write_job
from support.watched import append, end, events_of, fault, summary_of, write

from partrain.launch.folder.run_folder import locked

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from partrain.watch.app import WatchApp

pytestmark = pytest.mark.slow

Scene = Callable[["WatchApp", "Pilot[None]"], Awaitable[None]]


def played(root: Path, scene: Scene, size: tuple[int, int] = (80, 24)) -> None:
    """Play a scene on a screen of this size."""
    from partrain.watch.app import WatchApp

    async def play() -> None:
        app = WatchApp(root)
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await until(pilot, lambda: not app._reading)
            await scene(app, pilot)

    asyncio.run(play())


async def until(pilot: Pilot[None], holds: Callable[[], Any], seconds: float = 100) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        await pilot.pause(0.02)


def panel(app: WatchApp, name: str) -> list[str]:
    from partrain.watch.panel import LinesPanel

    return ["".join(text for text, _ in line) for line in app.query_one(f"#{name}", LinesPanel).lines]


def screen_of(app: WatchApp) -> str:
    """The characters of the whole screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def listed(app: WatchApp) -> list[str]:
    """The names in the list of runs."""
    return [next(word for word in line.split() if "/" in word) for line in panel(app, "runs")[1:]]


def told(app: WatchApp) -> list[str]:
    return [notification.message for notification in app._notifications]


def three_runs(folder: Path) -> Path:
    for number, loss in enumerate((0.3, 0.1, 0.2)):
        write(folder / f"job/{number}", events_of(20 - number, start=1e9 + number), summary_of(loss))
    return folder


def test_keys_move_sort_and_scale(tmp_path: Path) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        assert listed(app) == ["job/2", "job/1", "job/0"]
        assert "0:00:09 time" in panel(app, "curves")[-1]
        await pilot.press("down")
        assert app.marks.highlighted == str(tmp_path / "job/1")
        assert panel(app, "run")[0].startswith("job · average · round  19/100")
        await pilot.press("s", "s")
        assert app.sort == "loss"
        assert listed(app) == ["job/1", "job/2", "job/0"]
        assert app.marks.highlighted == str(tmp_path / "job/1")  # the cursor stays on its run
        await pilot.press("end", "x")
        assert app.marks.highlighted == str(tmp_path / "job/0")
        assert "20 rounds" in panel(app, "curves")[-1]
        await pilot.press("x")
        assert "3,840 item-iterations" in panel(app, "curves")[-1]
        assert "judged loss, logarithmic" in panel(app, "curves")[0]
        await pilot.press("l")
        assert "logarithmic" not in panel(app, "curves")[0]
        await pilot.press("home", "enter")
        assert panel(app, "runs") == []
        await pilot.press("enter")
        assert len(panel(app, "runs")) == 4

    played(three_runs(tmp_path), scene)


def test_overlaid_curves(tmp_path: Path) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        alone = "".join(panel(app, "curves"))
        await pilot.press("down", "space", "down", "space", "up", "up")
        assert app.marks.overlaid == [str(tmp_path / "job/1"), str(tmp_path / "job/0")]
        assert [line.strip(" >")[:1] for line in panel(app, "runs")[1:]] == ["j", "1", "2"]
        assert len(app.chosen()) == 3
        assert panel(app, "title")[0].endswith("  1 job/1  2 job/0")
        assert "".join(panel(app, "curves")) != alone
        await pilot.press("down", "space")
        assert app.marks.overlaid == [str(tmp_path / "job/0")]

    played(three_runs(tmp_path), scene)


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["S", "ctrl+c"], ["question_mark", "q", "q"]])
def test_quit(tmp_path: Path, keys: list[str]) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(key)
        await until(pilot, lambda: app._exit)

    run = write(tmp_path, events_of())
    with locked(run):
        played(run, scene)


def test_a_mouse_chooses_a_run(tmp_path: Path) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        await pilot.click("#runs", offset=(8, 3))
        assert app.marks.highlighted == str(tmp_path / "job/0")

    played(three_runs(tmp_path), scene)


def test_events_that_come_and_a_file_that_is_replaced(tmp_path: Path) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        assert "killed" in panel(app, "run")[0]
        with locked(run):
            append(run, events_of(30)[1 + 20 * 2 + 10 :])
            app.watched._next_look = 0.0
            await until(pilot, lambda: "round  30/100" in panel(app, "run")[0])
            assert "training" in panel(app, "runs")[1]
            write(run, events_of(8))
            await until(pilot, lambda: "round   8/100" in panel(app, "run")[0])
            append(run, [fault("worker 1 is lost", 1)])
            await until(pilot, lambda: any("worker 1 is lost" in line for line in panel(app, "run")))
            append(run, [end("failed", 8)])
        await until(pilot, lambda: "failed" in panel(app, "runs")[1])

    run = write(tmp_path / "a", events_of())
    played(tmp_path, scene)


def test_new_runs_appear(tmp_path: Path) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        assert panel(app, "run") == ["no run yet; new ones appear here"]
        await pilot.press("down", "space", "enter", "enter", "s", "S", "c")
        write(tmp_path / "a", events_of())
        app.watched._next_look = 0.0
        await until(pilot, lambda: "killed" in panel(app, "runs")[-1])

    played(tmp_path, scene)


def test_hostile_names_are_texts(tmp_path: Path) -> None:
    """Markup would color a name, an escape would change the terminal, and a bad tag would end the program."""
    bad = "[/red][bold]\x1b]0;title\x07\x1b[2J[@click=app.quit]x"

    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "[/red]" in panel(app, "run")[0])
        await pilot.press("S")
        await until(pilot, lambda: "[/red][bold]" in screen_of(app))
        shown = screen_of(app)
        assert all(each.isprintable() for each in shown.replace("\n", ""))
        await pilot.press("n", "c")
        await until(pilot, lambda: told(app))

    run = write(tmp_path / "[/red][bold]", [*events_of(name=bad, rule=bad), fault(bad)])
    with locked(run):
        played(tmp_path, scene, (120, 30))


def test_many_runs(tmp_path: Path) -> None:
    for number in range(500):
        write(tmp_path / f"sweep/{number:03}", events_of(2, start=1e9 - number), summary_of(1 / (number + 1)))

    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        assert "500 runs" in panel(app, "title")[0]
        await pilot.press("end")
        assert "sweep/499" in panel(app, "runs")[-1]
        await pilot.press("pageup")
        assert any("> " in line and "sweep/489" in line for line in panel(app, "runs"))
        assert sum(run.has_events for run in app.watched.runs.values()) <= 3

    played(tmp_path, scene)


@pytest.mark.parametrize("size", [(30, 10), (60, 24), (80, 24), (140, 40)])
def test_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        def lines() -> list[str]:
            return screen_of(app).split("\n")

        assert len(lines()) == size[1]
        await until(pilot, lambda: "partrain watch" in lines()[0])
        if size[1] >= 24:
            await until(pilot, lambda: any("cpu" in line for line in lines()))
            await until(pilot, lambda: "quit" in lines()[-1] or size[0] < 80)
        await pilot.press("question_mark")
        await until(pilot, lambda: "highlight" in screen_of(app))
        await pilot.press("escape")
        await pilot.resize_terminal(50, 20)
        await until(pilot, lambda: len(screen_of(app).split("\n")) == 20)

    write(tmp_path / "wide/2026-11-23T10-00-00", events_of(workers=16))
    played(three_runs(tmp_path), scene, size)


def test_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
        window = {"#28c840", "#ff5f57", "#febc2e", "#c5c8c6"}  # of the picture's frame
        colors = set(re.findall(r"#[0-9a-f]{6}", app.export_screenshot().lower())) - window
        assert all(color[1:3] == color[3:5] == color[5:7] for color in colors)

    played(three_runs(tmp_path), scene)


def test_stop_and_commit_of_a_real_run(tmp_path: Path) -> None:
    job = write_job(tmp_path, 'transport={kind="simulated"}', "stop={rounds=1000000}", 'checkpoint={commit="coalesce"}')
    with Command(("run", job, "--out", "runs/a", "-q"), tmp_path) as command:
        run = tmp_path / "runs/a"
        eventually(lambda: events(run, "commit"), "a checkpoint")

        async def scene(app: WatchApp, pilot: Pilot[None]) -> None:
            before = len(events(run, "commit"))
            await pilot.press("c")
            await until(pilot, lambda: told(app))  # for some seconds
            assert "commits a checkpoint" in told(app)[0]
            await until(pilot, lambda: len(events(run, "commit")) > before)
            await pilot.press("S")
            await until(pilot, lambda: "Stop a after its round?" in screen_of(app))
            await pilot.press("n")
            await pilot.pause(0.1)
            assert command.process.poll() is None
            await pilot.press("S")
            await until(pilot, lambda: "Stop a after its round?" in screen_of(app))
            await pilot.press("y")
            await until(pilot, lambda: "stopped" in panel(app, "runs")[1])
            await until(pilot, lambda: command.process.poll() is not None)  # it exits a moment after its last event
            await pilot.press("S")
            assert "no process trains this run now" in told(app)[-1]

        played(tmp_path / "runs", scene)
        assert command.wait().code == 143
    assert summary(run)["status"] == "stopped"
