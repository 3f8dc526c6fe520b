"""report.html: what it holds, how large it gets, and in a browser that it sorts, filters, hovers and loads nothing."""

import json
import re
import shutil
import subprocess
from urllib.parse import unquote

import pytest

from experiments.reporting import heat, tables, web
from experiments.reporting.loading import group, load
from experiments.reporting.series import View
from tests.support.folders import Run, both, sweep_folder, write_folder

VIEW = View(task="toy", last=2)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=500,900",
)  # fmt: skip
EVIL = "fed</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'><!-- @data@"

BEFORE = """<script>
window.errors = [];
addEventListener("error", (event) => errors.push(event.message));
document.addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective));
</script>"""
AFTER = """<script>
const found = {};
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const column = (n) => all("section table")[0].querySelectorAll(`tbody td:nth-child(${n})`);
const texts = (nodes) => [...nodes].map((node) => node.textContent);
const heading = (name) => all("th button").find((button) => button.textContent === name);
const tipped = () => { const tip = document.getElementById("tip"); return tip.hidden ? null : tip.textContent; };
const set = (id, property, value, event) => {
  const made = document.getElementById(id);
  made[property] = value;
  made.dispatchEvent(new Event(event));
};
found.title = document.title;
found.tables = texts(all("h2"));
found.rows = texts(column(1));
found.marks = texts(all("section table")[0].querySelectorAll("td.best"));
found.verdicts = texts(all("td.better, td.worse"));
heading("variance").click();
found.by_variance = texts(column(1));
found.direction = heading("variance").parentElement.getAttribute("aria-sort");
heading("variance").click();
found.by_variance_reversed = texts(column(1));
heading("global acc. %").click();
found.by_accuracy = texts(column(1));
set("words", "value", "TAU=1 fedeba", "input");
found.filtered = texts(column(1));
found.points_filtered = all(".point[data-label]").length;
found.count = document.getElementById("count").textContent;
set("words", "value", "", "input");
set("algorithm", "value", "fedavg", "change");
found.one_method = texts(column(1));
set("algorithm", "value", "", "change");
set("front", "checked", true, "change");
found.front = texts(column(1));
set("front", "checked", false, "change");
const point = all(".point[data-label='fedeba tau=1 mu=2']")[0];
point.dispatchEvent(new PointerEvent("pointerenter"));
found.hover = tipped();
point.dispatchEvent(new PointerEvent("pointerleave"));
found.left = tipped();
point.dispatchEvent(new FocusEvent("focus"));
found.focus = tipped();
point.dispatchEvent(new FocusEvent("blur"));
const over = all(".over")[0], box = over.getBoundingClientRect();
over.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 1, clientY: box.top + 5 }));
found.over_curves = tipped();
over.dispatchEvent(new PointerEvent("pointerleave"));
found.after_curves = tipped();
found.charts = all("svg[role=group]").map((svg) => svg.getAttribute("aria-label"));
found.cells = all(".cell").length;
all("select").at(-1).value = "variance";
all("select").at(-1).dispatchEvent(new Event("change"));
found.shaded = all("svg[role=group]").at(-1).getAttribute("aria-label");
dispatchEvent(new Event("beforeprint"));
const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.media);
found.media = rules.map((rule) => rule.conditionText);
const print = rules.find((rule) => rule.conditionText === "print");
found.printed = [...print.cssRules].map((rule) => rule.cssText).join(" ");
found.too_wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
found.loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
found.hacked = window.hacked ?? null;
found.images = document.images.length;
found.shows_evil = document.body.innerText.includes("<img src=x onerror='window.hacked=2'>");
found.errors = errors;
document.body.textContent = `FOUND${encodeURIComponent(JSON.stringify(found))}END`;
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """FedAvg, a grid of FedEBA with one point that diverged, and a method with a dangerous name, over six seeds."""
    place = tmp_path_factory.mktemp("web")
    points = [
        ("fedeba", {"tau": tau, "mu": mu}, seed, both(60 + tau + mu + seed, 50), 100 - 20 * tau - mu,
         *([2] if tau == mu == 2.0 else []))
        for tau in (1.0, 2.0) for mu in (1.0, 2.0) for seed in range(6)
    ]  # fmt: skip
    others = [
        Run(name, {"test": [(mean + seed, 100.0)] * 2, "validation": [(mean + seed, 100.0)] * 2}, seed=seed, planned=4)
        for name, mean in (("fedavg", 60), (EVIL, 50))
        for seed in range(6)
    ]
    folders = [write_folder(place / "others", others), sweep_folder(place / "grid", points, varies=("tau", "mu"))]
    settings = group(load(folders))
    table = tables.build(settings, "all settings", last=2)
    axes = heat.axes_of(settings, [])
    return web.write(place / "report.html", f"toy {EVIL}", [table], VIEW, lines=[f"from {EVIL}"], axes=axes)


def block(page):
    return re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1]


def test_the_page_is_one_file_that_names_no_other(page):
    text = page.read_text()
    assert not re.findall(r"https?://", text.replace("http://www.w3.org/2000/svg", ""))
    assert not re.findall(r"\b(?:src|href)=(?!\"data:|x onerror)", text)
    assert "default-src 'none'" in text
    assert not re.search("^@(style|script)@$", text, re.MULTILINE), "every place is filled"


def test_the_block_is_data_that_no_text_can_leave(page):
    assert "<" not in block(page)
    data = json.loads(block(page))
    assert data["title"] == f"toy {EVIL}"
    assert data["sources"] == [f"from {EVIL}"]
    assert {point["label"] for point in data["points"]} >= {EVIL, "fedavg"}
    assert "<title>toy fed&lt;/script&gt;" in page.read_text()


def test_the_block_holds_aggregates_of_what_the_tables_show(page):
    data = json.loads(block(page))
    assert [table["title"] for table in data["tables"]] == ["all settings", "all settings, compared with fedavg"]
    grid = next(point for point in data["points"] if point["label"] == "fedeba tau=1 mu=2")
    assert grid["values"]["mean"] == [65.5, pytest.approx(1.70783, abs=1e-5)]
    assert grid["told"][1] == "Δ variance to fedavg: better"
    assert data["curves"][0]["metrics"]["mean"] == [[2, 65.5, 63, 68], [4, 65.5, 63, 68]], "the best is first"
    (heat_map,) = data["heat"]
    assert (heat_map["names"], heat_map["across"], heat_map["up"]) == (["tau", "mu"], ["1", "2"], ["1", "2"])
    assert heat_map["panels"][0]["cells"]["mean"] == [[64.5, 65.5], [65.5, None]]
    assert heat_map["panels"][0]["notes"][1][1] == "div."
    clients = data["clients"][0]
    assert clients["low"][0] < clients["accuracy"][0] < clients["high"][0]
    assert data["settings"]["lr"] == "0.1"
    assert "rounds" in data["settings"]
    diverged = next(row for row in data["tables"][0]["rows"] if "diverged" in row["label"])
    assert [cell[:2] for cell in diverged["cells"][2:4]] == [["n/a", None]] * 2


def many(folder, settings, evaluations):
    """The page of so many settings and evaluations."""
    runs = [
        Run(
            "fedeba", {"test": [(50.123 + i / 7 + n / 3, 100.0 + i / 9) for n in range(evaluations)]}, {"tau": float(i)}
        )
        for i in range(settings)
    ]
    table = tables.build(group(load([write_folder(folder / "s", runs)])), "many")
    return web.write(folder / "report.html", "many", [table], VIEW)


def test_a_large_sweep_shows_its_best_rows_at_some_of_its_rounds(tmp_path, monkeypatch):
    for name, most in (("MOST_ROWS", 20), ("MOST_SERIES", 5), ("MOST_POINTS", 6)):
        monkeypatch.setattr(web, name, most)
    data = json.loads(block(many(tmp_path, 22, 9)))
    assert [row["label"] for row in data["tables"][0]["rows"]] == [f"fedeba tau={i}" for i in range(2, 22)]
    assert len(data["points"]) == 20
    assert "the best 20 of 22 rows" in data["tables"][0]["notes"]
    assert [one["label"] for one in data["curves"]] == [f"fedeba tau={i}" for i in (21, 20, 19, 18, 17)]
    rounds = [point[0] for point in data["curves"][0]["metrics"]["mean"]]
    assert (rounds[0], rounds[-1], len(rounds)) == (2, 18, 6)


def test_a_model_for_each_client_is_no_rival_on_the_plane(tmp_path):
    runs = [Run("local_only", {("test", "personal"): [(90, 1)]}), Run("fedavg", {"test": [(60, 60)]})]
    runs += [Run("ditto", {"test": [(50, 70)], ("test", "personal"): [(80, 2)]})]
    folder = write_folder(tmp_path / "f", runs)
    for model, expected in (("global", {"fedavg", "ditto"}), (None, {"fedavg", "ditto"})):
        table = tables.build(group(load([folder]), model=model), "three", model=model)
        data = json.loads(block(web.write(tmp_path / "report.html", "three", [table], VIEW)))
        assert {point["label"] for point in data["points"] if point["rival"]} == expected
        assert len(data["points"]) == (4 if model is None else 3)


@pytest.mark.slow
def test_a_large_sweep_stays_a_small_file(tmp_path):
    assert many(tmp_path, web.MOST_ROWS + 10, web.MOST_POINTS + 10).stat().st_size < 400_000


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine (Debian: apt install chromium)")
def test_in_a_browser_it_sorts_filters_hovers_and_loads_nothing(page, tmp_path):
    text = page.read_text()
    driven = tmp_path / "driven.html"
    driven.write_text(text.replace("<title>", BEFORE + "<title>", 1).replace("</body>", AFTER + "</body>", 1))
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", driven.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = json.loads(unquote(re.search("FOUND(.*)END", dumped)[1]))
    assert (found["errors"], found["loaded"], found["hacked"], found["images"]) == ([], [], None, 0)
    assert found["shows_evil"]
    assert found["title"] == f"toy {EVIL}"
    grid = [f"fedeba tau={tau} mu={mu}" for tau in (1, 2) for mu in (1, 2)]
    broken = f"{grid[3]} (diverged: 6 of 6 seeds in round 2)"
    assert found["rows"] == ["fedavg", EVIL, *grid[:3], broken]
    assert found["by_variance"] == [grid[2], grid[1], grid[0], "fedavg", EVIL, broken]
    assert found["direction"] == "ascending"
    assert found["by_variance_reversed"] == ["fedavg", EVIL, grid[0], grid[1], grid[2], broken], "n/a stays last"
    assert found["by_accuracy"][0] == grid[1]
    assert found["filtered"] == grid[:2][::-1]
    assert (found["points_filtered"] >= 2, found["count"]) == (True, "2 of 5 settings")
    assert found["one_method"] == ["fedavg"]
    assert set(found["front"]) == {"fedavg", grid[2]}, "fedavg sends least"
    assert found["verdicts"].count("better") >= 6
    assert found["marks"]
    assert found["hover"].startswith("fedeba tau=1 mu=2\nglobal acc. %: 65.50 ± 1.71\nvariance: 78.00 ± 0.00\n")
    assert (found["left"], found["focus"]) == (None, found["hover"])
    assert found["over_curves"].startswith("round 2\nfedavg: 62.50")
    assert found["after_curves"] is None
    assert found["charts"][0] == "variance (down is better) over global acc. % (right is better)"
    assert found["charts"][-1] == "global acc. % over tau and mu"
    assert (found["cells"], found["shaded"]) == (4, "variance over tau and mu")
    assert found["too_wide"] <= 0, "nothing but tables scrolls sideways"
    assert {"print", "(prefers-color-scheme: dark)"} <= set(found["media"])
    assert re.search(r"form, \.controls, #tip \{ display: none", found["printed"])
