"""What results/ says to the claims of the paper: the figures of README and FINDINGS."""

import functools

import numpy as np

from docs.parts import NOTHING, ROOT
from experiments.paper import claims, comparison, courses, evidence, presets, readings
from experiments.reporting import statistics
from experiments.reporting.columns import COLUMNS
from experiments.reporting.loading import ALONE
from experiments.reporting.tables import grid

MAIN = ("performance", "fashion_mnist_mlp", ("mean", "variance"))  # what the README shows, and compares
MAIN_ROWS = ("fedavg", "fedavg server=sgd(0.19)", "qffl q=0.5", "fedfv alpha=0.1 window=10", "fedeba tau=0.1")
MAIN_ROWS += tuple(f"fedeba_plus tau={tau} alpha=0.9" for tau in ("0.1", "0.5", "1"))
MAIN_ROWS += tuple(f"prac_fedeba_plus tau={tau} alpha=0.9" for tau in ("0.1", "1"))
MAIN_ROWS += ("prac_fedeba_plus tau=0.1 alpha=0.9 server=sgd(0.19)",)


@functools.cache
def committed() -> evidence.Evidence:
    """The runs in results/."""
    return evidence.gather(evidence.folders_in(ROOT / evidence.RESULTS_DIR))


@functools.cache
def sheet(name: str, task: str) -> comparison.Sheet:
    """A table of the paper on a task, as results/ has it."""
    return claims.sheet(name, task, committed())


def noise() -> str:
    """How much of the variances of FedAvg and FedEBA+ comes from testing clients on few examples."""
    name, task, _ = MAIN
    by_label = {entry.row.label: entry.setting for entry in sheet(name, task).entries if entry.setting}
    known = [(label, by_label[label]) for label in (claims.FEDAVG, claims.EBA) if label in by_label]
    if not known:
        return NOTHING
    added = [f"{np.mean([*own.values('noise', comparison.VIEW).values()]):.1f} (`{label}`)" for label, own in known]
    images = np.mean([run.client_examples["global"] for _, own in known for run in own.runs])
    return (
        f"On FashionMNIST each client is tested on {images:.0f} images. The noise of so few adds about "
        f"{' and '.join(added)} to the variance; `experiments.report` shows it with and without."
    )


def alone() -> str:
    """What clients reach by themselves, beside the global model of FedAvg."""
    _, task, keys = MAIN
    entries = [one for one in sheet("faa", task).entries if one.row.algorithm == ALONE and one.setting]
    if not entries:
        return NOTHING
    own = entries[0].setting
    told = [f"{own.mean(key, comparison.VIEW):.2f}" for key in keys]
    (fedavg,) = (one.setting for one in sheet("faa", task).entries if one.row.label == claims.FEDAVG)
    gain = own.mean("mean", comparison.VIEW) - fedavg.mean("mean", comparison.VIEW)
    who = f"a client alone (`{ALONE}`, {len(own.runs)} seeds)"
    return (
        f"On FashionMNIST, with two label shards for each client, {who} has an accuracy of {told[0]} % and a "
        f"variance of {told[1]}: it has to tell two or so labels apart, and its test images have the same. In the mean "
        f"a client of FedAvg would gain {gain:.2f} points by leaving."
    )


def main_results() -> str:
    """The README's table: ours beside the paper's, with verdicts against FedAvg, of rows with enough seeds for one."""
    name, task, keys = MAIN
    by_label = {entry.row.label: entry.cells for entry in sheet(name, task).entries if entry.setting}
    rows = []
    for label in MAIN_ROWS:
        cells = [by_label[label][key] for key in keys if label in by_label]
        if cells and cells[0].seeds >= statistics.FEWEST:
            both = [(comparison.texts(cell, 2)[0], f"{cell.printed.mean:g}" if cell.printed else "") for cell in cells]
            verdicts = " / ".join(cell.against.verdict for cell in cells if cell.against)
            other = f" (against `{cells[0].baseline}`)" if cells[0].baseline != comparison.BASELINE else ""
            compared = f"{verdicts}{other}" if verdicts else ""
            without = comparison.texts(by_label[label]["variance_corrected"], 2)[0]
            figures = (*(text for pair in both for text in pair), without)
            rows.append((f"`{label}`", str(cells[0].seeds), *figures, compared))
    if not rows:
        return "No run of the paper's setting is committed yet in [results](results/README.md)."
    titles = (*(text for key in keys for text in (COLUMNS[key].title, "paper")), COLUMNS["variance_corrected"].title)
    head = ("row", "seeds", *titles, "against FedAvg")
    where = "What the rows say, claim by claim: [FINDINGS.md](FINDINGS.md)."
    return f"{grid(head, rows)}\n\n{noise()} {where}"


def claim(number: int) -> str:
    """What results/ has on a claim."""
    parts = []
    for witness in claims.CLAIMS[number]:
        made = sheet(witness.table, witness.task)
        rows = claims.lines(witness, made)
        told = f"`{claims.command(witness)}`"
        if rows:
            head = ("row", "measure", "seeds", "ours [95 %]", "paper", "against FedAvg")
            head += (f"against `{witness.control}`",) if witness.control else ()
            where = ", ".join(f"`results/{name}`" for name in claims.folders(witness, made))
            what = f"Table `{witness.table}`, task `{witness.task}`, from {where}, made by {told}"
            parts.append(f"{what}:\n\n{grid(head, rows)}")
        else:
            run = told.replace(" --norun", "")
            parts.append(f"{NOTHING} {run} would make it (table `{witness.table}`, task `{witness.task}`).")
    return "\n\n".join(parts)


READ_ROWS = (claims.EBA, "fedfv alpha=0.1 window=10", "qffl q=0.5", "fedsgd")  # fairer than FedAvg by our reading


@functools.cache
def sheets_by_reading() -> dict[str, comparison.Sheet]:
    """The README's table, by which evaluations the figure of a run is made of."""
    table, task, _ = MAIN
    return {name: claims.sheet(table, task, committed(), view) for name, view in readings.READINGS.items()}


def readings_of_the_paper() -> str:
    """How far ours are from what is printed, by reading."""
    found = readings.read(sheets_by_reading())
    head = ("measure", "reading", "rows", "median distance", "mean of ours - paper", "printed inside ours", "nearest")
    return grid(head, readings.lines(found)) if found else NOTHING


def by_the_best() -> str:
    """Verdicts against FedAvg if every run is read at its most accurate evaluation."""
    rows = readings.compared(sheets_by_reading()["best"], READ_ROWS)
    head = ("row, by `best`", *(f"{COLUMNS[measure].title} against FedAvg" for measure in readings.TOLD_OF_SETTINGS))
    return grid(head, rows) if rows else NOTHING


def steadiness() -> str:
    """How far variances go up and down from one evaluation to the next."""
    name, task, _ = MAIN
    known = {entry.row.label: entry.setting for entry in sheet(name, task).entries if entry.setting}
    told = [
        f"`{label}` {readings.unsteadiness(known[label]):.0f} %"
        for label in (claims.FEDAVG, *READ_ROWS)
        if label in known and not known[label].diverged
    ]
    what = f"Standard deviation of the variance over the last {readings.STEADY} evaluations of a run, in % of its mean"
    return f"{what}, mean over seeds: {', '.join(told)}." if told else NOTHING


def annealing() -> str:
    """A constant temperature beside falling ones, over the seeds that all of them have."""
    _, task, _ = MAIN
    rows = [row for row in presets.presets()["tau_annealing"].rows if row.task == task]
    found = [(row, evidence.setting(comparison.there(row, committed()), row.given, committed())) for row in rows]
    known = [(row.label, setting) for row, setting in found if setting and not setting.diverged]
    if len(known) < len(rows):
        return NOTHING
    seeds = set.intersection(*({run.seed for run in setting.runs} for _, setting in known))
    lines = []
    for label, setting in known:
        values = [setting.values(key, comparison.VIEW) for key in readings.TOLD_OF_SETTINGS]
        numbers = [np.array([own[seed] for seed in sorted(seeds)]) for own in values]
        lines.append((f"`{label}`", str(len(seeds)), *(f"{own.mean():.2f} ± {own.std():.2f}" for own in numbers)))
    head = ("row", "seeds", *(COLUMNS[key].title for key in readings.TOLD_OF_SETTINGS))
    command = f".venv/bin/python -m experiments.reproduce --figure=tau_annealing --panel={task} --norun"
    return f"From `results/{task}`; `{command}` draws it:\n\n{grid(head, lines)}"


def courses_by_task() -> str:
    """How many rounds methods need to reach some accuracies, task by task."""
    parts = []
    for course in courses.COURSES:
        made = sheet(course.preset, course.task)
        rows = courses.lines(made, course.rows, course.levels)
        which = f"--{presets.presets()[course.preset].kind}={course.preset} --panel={course.task}"
        command = f".venv/bin/python -m experiments.reproduce {which} --norun"
        told = f"Task `{course.task}`, from `results/{course.task}`; `{command}` shows the runs"
        parts += [f"{told}:\n\n{grid(courses.head(course.levels), rows)}"] if rows else []
    return "\n\n".join(parts) or NOTHING


def other_settings() -> str:
    """FedAvg, FedEBA+ and Prac-FedEBA+ under other readings of the paper's setting, three seeds each."""
    titles = [COLUMNS[measure].title for measure in readings.TOLD_OF_SETTINGS]
    head = ("reading", "row", "seeds", *titles, *(f"{title}, most accurate" for title in titles))
    rows = readings.settings(committed(), range(3))
    return grid(head, rows) if rows else NOTHING
