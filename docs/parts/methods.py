"""The methods, as their declarations and docstrings tell them."""

import functools
import inspect
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

import fedeba_jax
from experiments.reporting.tables import grid
from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import Hyperparameter, hyperparameters
from fedeba_jax.method import declared
from fedeba_jax.types import Sizes


def method_list() -> str:
    """The README's table: name, paper, file."""
    rows = [(f"`{name}`", paper(factory), link(factory, "")) for name, factory in ALGORITHMS.items()]
    return grid(("name", "method and paper", "file"), rows)


def what_goes_with_what() -> str:
    """The table of methods with the options that they take."""
    head = ("method", "privacy modes", "FedVARP", "models that are evaluated", "every client in every round", "file")
    rows = []
    for name, factory in ALGORITHMS.items():
        declaration = declared(factory)
        everyone = ", ".join(f"with `{key}={value}`" for key, value in declaration.everyone_if.items())
        rows.append(
            (
                f"[`{name}`](#{name})",
                ", ".join(f"`{mode}`" for mode in declaration.privacy) or "none",
                "yes" if declaration.weighted_sum else "no",
                ", ".join(evaluated(name)),
                everyone or "no",
                link(factory, "../"),
            )
        )
    return grid(head, rows)


def sections() -> str:
    """One section for each method: its paper, its rule, its hyper-parameters."""
    parts = []
    for name, factory in ALGORITHMS.items():
        doc = inspect.getdoc(factory) or ""
        rule, _, rest = doc.partition("\n")
        text = re.split(r"^(?:Args|Notes):$", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
        lines = [f"({name})=", f"### `{name}`", "", f"{paper(factory)}.", "", "```text", rule]
        lines += ["", *text.splitlines()] if text else []
        lines += ["```", ""]
        if declared(factory).logits:
            lines += ["It looks at predictions: from Python, give it `LocalTraining(..., apply=model.apply)`.", ""]
        meanings = arguments(doc)
        known = hyperparameters(factory)
        if missing := [key for key in known if key not in meanings]:
            raise SystemExit(f"{name}: its docstring has no entry for {missing[0]} under Args:; write one")
        search = declared(factory).search
        rows = [
            (
                f"`{h.name}`",
                f"`{written(h.default)}`",
                values(h),
                "traced" if h.traced else "static",
                f"`{search[h.name]}`" if h.name in search else "",
                meanings[h.name],
            )
            for h in known.values()
        ]
        lines.append(grid(("hyper-parameter", "default", "values", "kind", "tuned in", "meaning"), rows))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def api() -> str:
    """The API reference of the methods, one file after the other."""
    modules = dict.fromkeys(inspect.getmodule(factory).__name__ for factory in ALGORITHMS.values())
    directives = "\n\n".join(f".. automodule:: {module}" for module in modules)
    return f"```{{eval-rst}}\n{directives}\n```"


def paper(factory: Any) -> str:
    """The first line of the method's file: its name and its paper."""
    return escaped((inspect.getmodule(factory).__doc__ or "").splitlines()[0].rstrip("."))


def link(factory: Any, up: str) -> str:
    path = inspect.getmodule(factory).__name__.replace(".", "/") + ".py"
    return f"[{Path(path).name}]({up}{path})"


def arguments(doc: str) -> dict[str, str]:
    """What the docstring says of each argument."""
    section = doc.partition("Args:\n")[2].split("\n\n")[0]
    items = re.split(r"^  (?=\w+:)", section, flags=re.MULTILINE)
    pairs = (item.partition(":") for item in items if item.strip())
    return {name.strip(): escaped(" ".join(text.split())) for name, _, text in pairs}


def values(h: Hyperparameter) -> str:
    valid = ", ".join(f"`{choice}`" for choice in h.choices) or (str(h.bounds) if h.bounds else h.kind.__name__)
    return valid + (", or `none`" if h.optional else "") + (", or `solve(...)`" if h.rule else "")


def written(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@functools.cache
def evaluated(name: str) -> tuple[str, ...]:
    """The models that a method is evaluated with: "global", "personal" or both."""
    model = fedeba_jax.Model(lambda key: {"w": jax.random.normal(key, (3, 2))}, lambda params, x: x @ params["w"])
    local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.1, apply=model.apply)
    algorithm = ALGORITHMS[name](local, fedeba_jax.descent(optax.sgd(1.0)))

    def models() -> Any:
        state = algorithm.init(jax.random.key(0), model.init, Sizes(4, 2, 5, 6))
        return algorithm.models(state) or {"none": jnp.zeros(())}

    shared = [model for model in jax.eval_shape(models) if model != "none"]
    return (*shared, *["personal"] * (algorithm.personalize is not None))


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
