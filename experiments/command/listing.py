"""Everything that has a name, for `--list`."""

import inspect

from experiments.command import calls, compatibility, hparams
from experiments.command.tasks import HELP, OPTIONS, PRESETS, Task
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.data.synthetic import SYNTHETIC
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.models import MODELS
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES

BEFORE_RULES = {"before a robust rule (first=)": calls.NESTED["first"]}


def everything() -> str:
    """Algorithms with their hyper-parameters and what they go with, tasks, options, models, data sets."""
    lines = ["algorithms (--algorithm, --hparams)"]
    for name, factory in ALGORITHMS.items():
        paper = (inspect.getmodule(factory).__doc__ or "").splitlines()[0]
        lines += [f"  {name:18} {paper}", f"  {'':18} {hparams.describe(name)}"]
        if limits := goes_without(name):
            lines.append(f"  {'':18} not with {limits}")
    lines.append("tasks (--task)")
    for name, (task, ran) in PRESETS.items():
        lines += [f"  {name:27} {setting(task)}", f"  {'':27} run so far: {ran}"]
    for field, table in OPTIONS.items():
        lines.append(f"{HELP[field]} (--{field})")
        lines += [f"  {calls.describe(name, hyperparameters(factory))}" for name, factory in table.items()]
    lines += ["schedules of traced hyper-parameters", f"  {calls.describe_all(SCHEDULES).removeprefix('one of ')}"]
    for kind, rules in RULES.items():
        lines += [f"rules in place of a {kind}", f"  {calls.describe_all(rules).removeprefix('one of ')}"]
    for kind, table in {"lies about losses (loss=, of an attack)": calls.NESTED["lie"], **BEFORE_RULES}.items():
        lines += [kind, *(f"  {calls.describe(name, hyperparameters(make))}" for name, make in table.items())]
    lines += ["models (--model)", f"  {', '.join(MODELS)}", "data sets (--dataset)", f"  {', '.join(DATASETS)}"]
    lines += [f"  {calls.describe(name, hyperparameters(make))}" for name, make in SYNTHETIC.items()]
    lines.append("  your own: --data=FILE.npz, or --data=FOLDER with one npz file for each client")
    return "\n".join(lines)


def setting(task: Task) -> str:
    """A task in one line."""
    clients = f"{task.clients} clients" if task.clients else "all clients of the data"
    cohort = f"{task.cohort_size} in each round" if task.cohort_size else "all in each round"
    dealt = f"Dirichlet {task.dirichlet:g}" if task.partition == "dirichlet" else task.partition
    return (
        f"{task.dataset}, {task.model}, {clients} ({dealt}), {cohort}, K={task.steps}, B={task.batch_size}, "
        f"rate {task.lr:g}, times {task.lr_decay:g} from round to round"
    )


def goes_without(algorithm: str) -> str:
    """The options that an algorithm does not take."""
    refused = [option for option in compatibility.WHY if algorithm not in compatibility.TABLE[option]]
    return ", ".join(f"--{compatibility.FLAG.get(option, 'privacy')}={option}" for option in refused)
