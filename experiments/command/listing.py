"""Everything that has a name, for `--list`."""

import inspect

from experiments.command import calls, compatibility, hparams
from experiments.command.tasks import HELP, OPTIONS, TASKS
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.models import MODELS
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES


def everything() -> str:
    """Algorithms with their hyper-parameters and what they go with, tasks, options, models, data sets."""
    lines = ["algorithms (--algorithm, --hparams)"]
    for name, factory in ALGORITHMS.items():
        paper = (inspect.getmodule(factory).__doc__ or "").splitlines()[0]
        lines += [f"  {name:18} {paper}", f"  {'':18} {hparams.describe(name)}"]
        if limits := goes_without(name):
            lines.append(f"  {'':18} not with {limits}")
    lines.append("tasks (--task)")
    for name, task in TASKS.items():
        lines.append(
            f"  {name:24} {task.dataset}, {task.model}, {task.clients} clients, {task.cohort_size} in each round, "
            f"K={task.steps}, B={task.batch_size}, rate {task.lr:g}, times {task.lr_decay:g} from round to round"
        )
    for field, table in OPTIONS.items():
        lines.append(f"{HELP[field]} (--{field})")
        lines += [f"  {calls.describe(name, hyperparameters(factory))}" for name, factory in table.items()]
    lines += ["schedules of traced hyper-parameters", f"  {calls.describe_all(SCHEDULES).removeprefix('one of ')}"]
    for kind, rules in RULES.items():
        lines += [f"rules in place of a {kind}", f"  {calls.describe_all(rules).removeprefix('one of ')}"]
    lines += ["models (--model)", f"  {', '.join(MODELS)}", "data sets (--dataset)", f"  {', '.join(DATASETS)}"]
    return "\n".join(lines)


def goes_without(algorithm: str) -> str:
    """The options that an algorithm does not take."""
    refused = [option for option in compatibility.WHY if algorithm not in compatibility.TABLE[option]]
    return ", ".join(f"--{'server' if option == 'varp' else 'privacy'}={option}" for option in refused)
