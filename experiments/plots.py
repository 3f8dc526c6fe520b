"""Pictures of runs: accuracy and variance over rounds, and how accuracy is spread over clients."""

import importlib.util
from pathlib import Path

import numpy as np

from experiments import show
from experiments.run_folder import client_accuracy, read_rows

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")


def compare(runs: dict[str, Path], out: Path, title: str) -> None:
    """One picture of several run folders: curves (mean and range over seeds) and client distributions."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"no {out.name}: matplotlib is not installed; pip install 'fedeba_jax[plot]'")
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (accuracy, variance, clients) = plt.subplots(1, 3, figsize=(13.5, 4), layout="constrained")
    lines = {}
    for name, folder in runs.items():
        tests = [row for row in read_rows(folder / "evals.jsonl") if row["split"] == "test"]
        lines |= show.both_ways(name, {row["model"]: (folder, row["model"], tests) for row in tests})
    for (label, (folder, model, tests)), color in zip(lines.items(), COLORS * 3, strict=False):
        rows = [row for row in tests if row["model"] == model]
        rounds = sorted({row["round"] for row in rows})
        for axis, key in ((accuracy, "mean"), (variance, "variance")):
            values = [[r[key] for r in rows if r["round"] == t and r[key] is not None] for t in rounds]
            kept = [(t, v) for t, v in zip(rounds, values, strict=True) if v]
            axis.plot([t for t, _ in kept], [np.mean(v) for _, v in kept], color=color, label=label)
            low, high = [min(v) for _, v in kept], [max(v) for _, v in kept]
            axis.fill_between([t for t, _ in kept], low, high, color=color, alpha=0.15, lw=0)
        values = np.sort(client_accuracy(folder)[model].ravel())
        clients.plot(values, np.arange(1, len(values) + 1) / len(values), color=color, drawstyle="steps-post")
    accuracy.set(xlabel="round", ylabel="global accuracy, %", title="accuracy of the clients, mean")
    variance.set(xlabel="round", ylabel="variance over clients", title="fairness (lower is fairer)", yscale="log")
    clients.set(xlabel="accuracy of a client, %", ylabel="share of clients at or below", title="clients, last round")
    variance.yaxis.set_major_formatter("{x:.0f}")
    variance.yaxis.set_minor_formatter("{x:.0f}")
    accuracy.legend(frameon=False)
    for axis in (accuracy, variance, clients):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(out, dpi=110)
    plt.close(figure)
    print(f"picture: {out}")
