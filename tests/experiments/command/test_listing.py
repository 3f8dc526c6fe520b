"""Everything that has a name."""

from experiments.command import listing
from experiments.command.tasks import OPTIONS, TASKS
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.models import MODELS
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES


def test_the_list_names_everything():
    text = listing.everything()
    tables = [ALGORITHMS, TASKS, MODELS, DATASETS, SCHEDULES, *OPTIONS.values(), *RULES.values()]
    missing = [name for table in tables for name in table if name not in text]
    assert not missing
    assert "tau=1.0 (> 0), alpha=0.9 (in [0, 1])" in text
    assert "client(sigma (>= 0), clip=1.0 (> 0)" in text


def test_the_list_says_what_does_not_go_together():
    assert listing.goes_without("fedavg") == "--privacy=paper"
    assert listing.goes_without("fedeba_plus") == "--privacy=example, --privacy=client"
    assert "--server=varp" in listing.goes_without("focus")
    assert listing.everything().count("not with") == sum(bool(listing.goes_without(name)) for name in ALGORITHMS)
