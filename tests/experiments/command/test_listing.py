"""Everything that has a name."""

from experiments.command import listing
from experiments.command.tasks import OPTIONS, PRESETS, TASKS
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.data.synthetic import SYNTHETIC
from fedeba_jax.models import MODELS
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES


def test_the_list_names_everything():
    text = listing.everything()
    tables = [ALGORITHMS, TASKS, MODELS, DATASETS, SYNTHETIC, SCHEDULES, *OPTIONS.values(), *RULES.values()]
    missing = [name for table in tables for name in table if name not in text]
    assert not missing
    assert "tau=1.0 (> 0), alpha=0.9 (in [0, 1])" in text
    assert "client(sigma (>= 0), clip=1.0 (> 0)" in text


def test_the_list_says_what_does_not_go_together():
    assert listing.goes_without("fedavg") == "--privacy=paper"
    assert listing.goes_without("fedeba_plus") == "--privacy=example, --privacy=client"
    assert "--server=varp" in listing.goes_without("focus")
    assert listing.everything().count("not with") == sum(bool(listing.goes_without(name)) for name in ALGORITHMS)


def test_the_list_says_what_each_task_is_and_on_what_it_was_run():
    text = listing.everything()
    assert text.count("run so far: ") == len(TASKS)
    assert all(f"run so far: {preset.ran}" in text for preset in PRESETS.values())
    assert "fashion_mnist, mlp, 100 clients (shards), 10 in each round, K=10, B=50, rate 0.1, times 0.999" in text
    assert "cifar100, resnet18, 100 clients (Dirichlet 0.1), 10 in each round, K=10, B=128, rate 0.01" in text
    assert "reddit, lstm_words, all clients of the data (natural), 20 in each round, K=10, B=20, rate 7.5" in text
    assert "synthetic_logistic(alpha=1.0 (float), beta=1.0 (float), clients=30 (int), seed=0 (int))" in text
    assert "data_dir" not in text
