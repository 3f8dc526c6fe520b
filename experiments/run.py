"""One `train` run from settings to a folder of results."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import devices, federations, hparams, plots, privacy, run_folder, show
from experiments.cli import RunError
from experiments.program import Evaluation, Program, Seeds, batch, first_round
from experiments.tasks import Task
from fedeba_jax import metrics
from fedeba_jax.data.sources import Dataset, load
from fedeba_jax.models import make_model
from fedeba_jax.simulate import sizes_from

LAST = 5  # evaluations that a result averages: one alone moves by tens of percent with the last cohort


@dataclasses.dataclass(frozen=True)
class Settings:
    """A run as the flags resolve to it."""

    algorithm: str
    hparams: dict[str, Any]
    task_name: str
    task: Task
    seeds: tuple[int, ...] = (0,)
    data_seed: int | None = None  # None: follows the seed, as the next two
    init_seed: int | None = None
    sample_seed: int | None = None
    validation: float = 0.0
    client_map: str = "auto"
    run_map: str = "auto"
    data_dir: str | None = None
    state_dtype: str = "float32"

    def seeds_of(self, seed: int) -> Seeds:
        chosen = (self.data_seed, self.init_seed, self.sample_seed)
        return Seeds(*(seed if s is None else s for s in chosen))


@dataclasses.dataclass
class Result:
    """What a run came to: by model, metrics of each seed, of the last evaluation and as the mean of the last ones."""

    folder: Path
    last: dict[str, dict[str, list[float]]]
    recent: dict[str, dict[str, list[float]]]
    diverged: dict[int, int]  # seed -> round
    privacy: dict[str, Any]  # what the run may claim (`privacy.statement`), of its worst seed


def train(settings: Settings, folder: Path, *, overwrite: bool = False, plot: bool = True) -> Result:
    """Train, evaluate, write; returns the metrics of the last evaluations."""
    started = time.perf_counter()
    run_folder.check(folder, overwrite=overwrite)
    task = settings.task
    dataset = load(task.dataset, settings.data_dir)
    program, runs, pools = prepare(settings, dataset)
    program.check_memory(runs)
    run_folder.create(folder, overwrite=overwrite)  # whatever can be wrong with the input was found by now
    run_folder.write_json(folder / "config.json", {
        "settings": dataclasses.asdict(settings),
        "client_map": program.client_map, "run_map": program.run_map,
        "sizes": program.sizes._asdict(),
        "data": {"name": dataset.name, "source": dataset.source, "md5": dataset.md5},
        "flipped_labels": federations.flipped(pools, runs.tables),
        "environment": run_folder.environment(),
    })  # fmt: skip
    runs, pools = jax.device_put((runs, pools), program.placement)
    state = program.init()(runs)
    history: list[Evaluation] = []
    diverged: dict[int, int] = {}
    traffic = np.zeros((len(settings.seeds), 3), np.int64)  # bytes down, bytes up, exchanges
    label = settings.algorithm
    chunks, done, training, interrupted = {}, 0, 0.0, False
    first_chunk = 0.0
    with show.Bar(label, task.rounds) as bar:
        try:
            while done < task.rounds and len(diverged) < len(settings.seeds):
                rounds = min(task.eval_every, task.rounds - done)
                if rounds not in chunks:
                    chunks[rounds] = program.chunk(rounds)
                begun = time.perf_counter()
                state, info, scores = jax.block_until_ready(chunks[rounds](runs, state, first_round(done), pools))
                if done:
                    training += time.perf_counter() - begun
                else:
                    first_chunk = time.perf_counter() - begun
                info, scores = jax.tree.map(on_host, (info, scores))
                _note_divergence(diverged, settings.seeds, info["finite"], done)
                traffic += _traffic(info, task.cohort_size)
                run_folder.append_rows(folder / "rounds.jsonl", _round_rows(settings, info, done))
                done += rounds
                run_folder.append_rows(folder / "evals.jsonl", _eval_rows(settings, scores, done, runs, diverged))
                history.append(scores)
                model = run_folder.shown(scores.test)
                summary = metrics_of(scores)[model]
                bar.update(done, model, float(np.mean(summary["mean"])), float(np.mean(summary["variance"])))
        except KeyboardInterrupt:
            interrupted = True
    if not history:
        raise KeyboardInterrupt
    measured = max(done - min(task.eval_every, task.rounds), 0)
    last = metrics_of(history[-1])
    recent = jax.tree.map(lambda *values: np.mean(values, axis=0), *map(metrics_of, history[-LAST:]))
    for values in jax.tree.leaves((last, recent)):
        values[[seed in diverged for seed in settings.seeds]] = np.nan
    summaries = {
        name: {"last_evaluation": _over_seeds(last[name]), f"mean_of_last_{LAST}": _over_seeds(recent[name])}
        for name in last
    }
    main = summaries.pop(model)
    np.savez(folder / "clients.npz", **_client_arrays(history[-1], settings.seeds))
    claim = privacy.worst(
        privacy.statement(
            settings.algorithm, settings.hparams, task,
            rounds=done, counts=np.asarray(counts), sample_seed=settings.seeds_of(seed).sample,
        )
        for seed, counts in zip(settings.seeds, runs.tables.train.count, strict=True)
    )  # fmt: skip
    run_folder.write_json(folder / "summary.json", {
        "algorithm": settings.algorithm, "task": settings.task_name, "hparams": settings.hparams,
        "seeds": settings.seeds, "rounds": done, "interrupted": interrupted,
        "diverged": {str(seed): round_ for seed, round_ in diverged.items()},
        **main, **({"model": model, "other_models": summaries} if set(last) != {"global"} else {}),
        "communication": {
            "bytes_down": traffic[:, 0], "bytes_up": traffic[:, 1], "exchanges": traffic[:, 2],
            "additional_cost": 1 - done / np.maximum(traffic[:, 2], done),
        },
        "privacy": claim,
        "rounds_per_second": measured * len(settings.seeds) / training if measured else None,
        "seconds_first_chunk": first_chunk, "seconds_total": time.perf_counter() - started,
    })  # fmt: skip
    if plot:
        title = f"{settings.algorithm} on {settings.task_name}, seeds {', '.join(map(str, settings.seeds))}"
        plots.compare({label: folder}, folder / "curves.png", title)
    if interrupted:
        raise RunError(f"interrupted after round {done} of {task.rounds}; what was done is in {folder}")
    figures = (jax.tree.map(np.ndarray.tolist, values) for values in (last, recent))
    return Result(folder, *figures, diverged, claim)


def prepare(settings: Settings, dataset: Dataset) -> tuple[Program, Any, Any]:
    """The program of a run, its stacked runs and its examples."""
    task = settings.task
    seeds = [settings.seeds_of(seed) for seed in settings.seeds]
    tables = federations.stack(
        [federations.split(dataset, task, seed=s.data, validation=settings.validation) for s in seeds]
    )
    model = make_model(task.model, task.dataset, dataset.x_train.shape[1:], dataset.num_classes)
    capacity = tables.train.index.shape[-1]
    sizes = sizes_from(model.init, task.clients, task.cohort_size, capacity)
    traced, static = hparams.traced(settings.algorithm, settings.hparams)
    client_map, run_map = devices.choose(settings.client_map, settings.run_map, len(seeds))
    program = Program(task, settings.algorithm, static, model, sizes, client_map, run_map, settings.state_dtype)
    return program, batch([(traced, task, s) for s in seeds], tables), federations.pools(dataset, task)


def metrics_of(scores: Evaluation) -> dict[str, dict[str, np.ndarray]]:
    """Test metrics by model, [seeds] each."""
    summaries = {name: jax.vmap(metrics.summarize)(score.accuracy) for name, score in scores.test.items()}
    return jax.tree.map(np.array, summaries)


def metrics_row(accuracy: np.ndarray, loss: np.ndarray, count: np.ndarray) -> dict[str, float]:
    """All metrics of one evaluation of one model; `count` is the clients' number of held-out examples."""
    return {
        **{key: float(value) for key, value in metrics.summarize(accuracy).items()},
        "pooled_accuracy": float(np.average(accuracy, weights=count)),
        "loss": float(np.mean(loss)),
        "loss_std": float(np.std(loss)),
    }


def on_host(leaf: jax.Array) -> np.ndarray:
    """Host statistics are taken in float64: the losses of a diverging run overflow when squared."""
    return np.asarray(leaf, np.float64 if leaf.dtype == np.float32 else None)


def _note_divergence(diverged: dict[int, int], seeds: tuple[int, ...], finite: np.ndarray, start: int) -> None:
    for seed, ok in zip(seeds, finite, strict=True):
        if seed not in diverged and not ok.all():
            diverged[seed] = start + int(np.argmin(ok)) + 1


def _traffic(info: dict[str, np.ndarray], cohort_size: int) -> np.ndarray:
    """Bytes down and up of the whole cohort and exchanges, [seeds, 3], from what passed in these rounds."""
    clients = {"bytes_down": cohort_size, "bytes_up": cohort_size, "exchanges": 1}
    return np.stack([info[name].astype(np.int64).sum(axis=1) * n for name, n in clients.items()], axis=1)


def _round_rows(settings: Settings, info: dict[str, np.ndarray], start: int) -> list[dict[str, Any]]:
    scale = {name: settings.task.cohort_size for name in ("floats_down", "floats_up", "bytes_down", "bytes_up")}
    return [
        {"seed": seed, "round": start + t + 1, **{k: v[i, t] * scale.get(k, 1) for k, v in info.items()}}
        for i, seed in enumerate(settings.seeds)
        for t in range(info["finite"].shape[1])
    ]


def _eval_rows(
    settings: Settings, scores: Evaluation, done: int, runs: Any, diverged: dict[int, int]
) -> list[dict[str, Any]]:
    """Rows of all seeds; a model that is not finite has no metrics."""
    rows = []
    for split, owned in (("test", runs.tables.test), ("validation", runs.tables.validation)):
        for model, score in (getattr(scores, split) or {}).items():
            for i, seed in enumerate(settings.seeds):
                count = np.asarray(owned.count[i])
                measured = metrics_row(score.accuracy[i], score.loss[i], count)
                if seed in diverged:
                    measured = dict.fromkeys(measured, float("nan"))
                rows.append({"seed": seed, "round": done, "split": split, "model": model, **measured})
    return rows


def _client_arrays(scores: Evaluation, seeds: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Of the shown model as "accuracy" and "loss", of others with their names."""
    arrays = {"seeds": np.array(seeds)}
    for name, score in scores.test.items():
        suffix = "" if name == run_folder.shown(scores.test) else f"_{name}"
        arrays |= {f"accuracy{suffix}": score.accuracy, f"loss{suffix}": score.loss}
    return arrays


def _over_seeds(values: dict[str, Any]) -> dict[str, Any]:
    """Mean, population std and a 95 % interval (Student's t) over seeds, and the values themselves."""
    return {key: spread(np.asarray(v, float)) for key, v in values.items()}


def spread(values: np.ndarray) -> dict[str, Any]:
    n = len(values)
    half = T_95[min(n - 1, len(T_95)) - 1] * values.std(ddof=1) / n**0.5 if n > 1 else None
    return {"mean": values.mean(), "std": values.std(), "ci95_half_width": half, "values": values}


# 97.5 % points of Student's t with 1, 2, ... degrees of freedom; beyond 30 the last one serves (conservative)
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
