"""Parts of a round as algorithms of their own: they compile, run and are counted like any other."""

from collections.abc import Callable

from fedeba_jax.algorithm import one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.local import LocalTraining
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info
from fedeba_jax.weights import by_examples


def sampling(local: LocalTraining, server: Server) -> Algorithm:
    """A round in which nothing is asked: what sampling and bookkeeping cost."""
    del local
    return one_model(server, lambda state, cohort: (state, {}))


def training(local: LocalTraining, server: Server) -> Algorithm:
    """K local steps of every client, and no aggregation."""

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        return state, {"reply": cohort.ask(local.reporting("delta").train, state.params)}

    return one_model(server, update)


def losses(local: LocalTraining, server: Server) -> Algorithm:
    """F_i(x_t) over all of every client's data."""

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        return state, {"reply": cohort.ask(local.loss, state.params)}

    return one_model(server, update)


def gradient(local: LocalTraining, server: Server) -> Algorithm:
    """The weighted full gradient at x_t: FedEBA+'s fair gradient."""

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        weights = by_examples(cohort.num_examples)
        return state, {"reply": cohort.ask_sum(local.grad, weights, state.params)}

    return one_model(server, update)


PARTS: dict[str, Callable[..., Algorithm]] = {
    "sampling": sampling,
    "training": training,
    "losses": losses,
    "gradient": gradient,
}
