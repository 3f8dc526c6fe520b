"""The pictures: what they show, and that every one is made."""

import importlib.util
import itertools
from functools import partial

import pytest

from experiments.reporting import pictures, style
from experiments.reporting.loading import group, load
from experiments.reporting.style import drawn
from tests.support.folders import Run, both, sweep_folder, write_folder


@pytest.fixture
def methods(tmp_path):
    """A method with both models, one with personal predictions alone, and one that diverges in the end."""
    figures = [(40.0, 90.0), (50.0, 60.0), (60.0, 30.0)]
    runs = []
    for seed in (0, 1):
        shifted = [(mean + 5 * seed, variance) for mean, variance in figures]
        better = [(mean + 10, variance / 2) for mean, variance in shifted]
        runs += [
            Run("ditto", {("test", "global"): shifted, ("test", "personal"): better}, seed=seed),
            Run("focus", {("test", "cluster_0"): figures, ("test", "personal"): shifted}, seed=seed),
            Run("fedavg", {"test": figures}, seed=seed, diverged=5 if seed else None),
        ]
    return write_folder(tmp_path / "methods", runs)


def test_pictures_show_each_algorithms_best(tmp_path):
    points = [("fedeba", {"tau": float(i)}, 0, both(50 + i, 50), 1.0) for i in range(1, 12)]
    points += [("fedavg", {}, 0, both(40, 40), 1.0)]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    chosen, said = pictures.best(settings, pictures.View("global", 1, "mean", "toy"))
    assert [s.label for s in chosen] == [*(f"fedeba tau={i}" for i in range(5, 12)), "fedavg"]
    assert said.startswith("the best 8 of 12 settings by mean")


def test_pictures_of_global_and_personal_models(methods, tmp_path):
    settings = group(load([methods]))
    view = pictures.View("global", 5, "mean", "toy")
    for picture in (pictures.plane, pictures.curves, pictures.clients):
        made = tmp_path / f"{picture.__name__}.png"
        picture(settings, view, made)
        assert made.stat().st_size > 10_000
        first = made.with_suffix(".svg").read_bytes()
        assert b"fedavg</text>" in first or b"ditto</text>" in first, "text stays text"


def test_lines_are_told_apart_without_colour():
    looks = [(look["ls"], look["marker"]) for look in (style.line(n, 10) for n in range(8))]
    assert len(set(looks)) == len(looks)
    assert all(one != other for one, other in itertools.pairwise(style.line(n, 10)["ls"] for n in range(8)))
    every = [(look["ls"], look["color"]) for look in (style.line(n, 10) for n in range(24))]
    assert len(set(every)) == len(every)
    spots = [(style.color(n), style.marker(n)) for n in range(64)]
    assert len(set(spots)) == len(spots)


def test_the_same_picture_is_the_same_bytes(methods, tmp_path):
    settings, view = group(load([methods])), pictures.View("global", 5, "mean", "toy")
    for name in ("a", "b"):
        pictures.plane(settings, view, tmp_path / f"{name}.png")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_gates_with_a_schedule_of_theta_beside_numbers(tmp_path):
    points = [("fedeba_plus", {"theta": theta}, 0, both(50, 50), 1.0) for theta in (0.0, 45.0, "anneal(45, 0)", None)]
    settings = group(load([sweep_folder(tmp_path / "s", points, varies=("theta",))]))
    view = pictures.View("global", 5, "mean", "toy")
    pictures.gates(settings, view, tmp_path / "gates.png")
    assert (tmp_path / "gates.png").stat().st_size > 10_000


def test_the_overview_shows_both_models_and_what_diverged(methods, tmp_path, capsys):
    out = tmp_path / "all.png"
    drawn(out, partial(pictures.overview, group(load([methods]), model=None), "title"))
    assert out.stat().st_size > 10_000
    assert capsys.readouterr().out == f"picture: {out}\n"


def test_the_overview_of_more_lines_than_colours_and_of_equal_clients(tmp_path):
    runs = [Run(f"fed{i}", {"test": [(50.0 + i, 0.0), (60.0 + i, 0.0)]}, planned=6 if i else 4) for i in range(9)]
    settings = group(load([write_folder(tmp_path / "f", runs)]), model=None)
    pictures.overview(settings, "title", tmp_path / "all.png")
    assert (tmp_path / "all.png").stat().st_size > 10_000


def test_an_overview_of_nothing_says_why(tmp_path, capsys, monkeypatch):
    folder = write_folder(tmp_path / "f", [Run("fedavg", {"test": [(50, 1)]}, diverged=1)])
    settings = group(load([folder]), model=None)
    drawn(tmp_path / "curves.png", partial(pictures.overview, settings, "title"))
    assert capsys.readouterr().out == "no curves.png: every setting diverged or has no figures\n"
    folder = write_folder(tmp_path / "g", [Run("fedavg", {"test": [(50, 1)]})])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    drawn(tmp_path / "curves.png", partial(pictures.overview, group(load([folder])), "title"))
    assert "no curves.png: matplotlib is not installed; pip install 'fedeba_jax[plot]'" in capsys.readouterr().out
    assert not (tmp_path / "curves.png").exists()
