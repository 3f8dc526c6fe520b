"""Tables and pictures of experiments.

    python -m experiments.report runs/fedavg runs/sweep_tau [--out=report] [--select_on=validation] [--metric=mean]

Folders of any binary can be mixed; settings that differ in nothing but the seed become one row. Where an algorithm has
several settings, one is chosen by --metric on --select_on, and its test figures, of the same run, are reported beside
the table of all. Each row is compared with --baseline seed by seed (docs/statistics.md). Into --out go

    report.html                 everything in one file for a browser
    report.md                   tables, where they come from, and the pictures
    settings.csv, settings.tex  every setting; *_compared.tex: its differences to the baseline
    chosen.csv, chosen.tex      the chosen setting of each algorithm
    *.png, *.svg                heat maps, accuracy-variance plane, curves, clients, gates
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments.command import cli
from experiments.reporting.columns import METRICS
from experiments.reporting.page import report
from experiments.reporting.series import LAST

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Called by the binary alone: other binaries use some of these names too."""
    flags.DEFINE_list("runs", [], "Folders of experiments; may also be given as plain arguments.")
    flags.DEFINE_string("out", "report", "Folder of the report; an earlier report there is replaced.")
    flags.DEFINE_integer("last", LAST, "Evaluations a figure averages, at most half; 1: the last alone.", lower_bound=1)
    flags.DEFINE_bool("select", True, "Choose a setting of each algorithm that has several.")
    flags.DEFINE_enum("select_on", "validation", ["validation", "test"], "The data that the choice looks at.")
    flags.DEFINE_enum("metric", "mean", METRICS, "What the choice and the heat maps go by.")
    flags.DEFINE_string("model", "global", "The model that is reported.")
    flags.DEFINE_string(
        "baseline", None,
        "What all rows are compared with: an algorithm or a label; default fedavg, or local_only for personal ones.",
    )  # fmt: skip
    flags.DEFINE_list("heat", [], "Parameters of the heat maps, across and up: tau,alpha; default the first that vary.")
    flags.DEFINE_bool("plot", True, "Draw the pictures (needs the plot extra).")


def main(arguments: Sequence[str]) -> None:
    report(
        [*arguments, *FLAGS.runs], Path(FLAGS.out), last=FLAGS.last, metric=FLAGS.metric, model=FLAGS.model,
        select_on=FLAGS.select_on if FLAGS.select else None, baseline=FLAGS.baseline, axes=FLAGS.heat, plot=FLAGS.plot,
    )  # fmt: skip


if __name__ == "__main__":
    define_flags()
    cli.run(main, positional=True)
