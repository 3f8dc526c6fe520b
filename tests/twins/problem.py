"""What a twin is given and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.twins import network
from tests.twins.algebra import combine
from tests.twins.weights import angle_degrees


@dataclass
class Problem:
    """A federation with every random draw made beforehand, so that a run is deterministic.

    params: the initial model. data: (x [N_i, d], y [N_i]) of every client, by client id.
    cohorts: the client ids of each round. batches: for each round {client id: its K_i index arrays}.
    learning_rate: round (from 0) -> eta_L. server_rate: eta. loss, gradient: functions of (params, x, y).
    aggregate: (round, cohort, weights, updates) -> the server's direction; the weighted sum, or FedVARP's (`varp`).
    """

    params: list
    data: list
    cohorts: list
    batches: list
    learning_rate: Callable
    server_rate: float = 1.0
    loss: Callable = network.loss
    gradient: Callable = network.gradient
    aggregate: Callable = lambda t, cohort, weights, deltas: combine(weights, deltas)

    def size(self, client):
        """N_i."""
        return len(self.data[client][1])

    def full_loss(self, params, client):
        """F_i(x) over the client's whole training set."""
        return self.loss(params, *self.data[client])

    def full_losses(self, models, cohort):
        """[F_i(x_i)], one model a client."""
        return np.array([self.full_loss(x, i) for x, i in zip(models, cohort, strict=True)])

    def full_gradient(self, params, client):
        """nabla F_i(x) over the client's whole training set."""
        return self.gradient(params, *self.data[client])


@dataclass
class Trace:
    """The model after each round, and what was measured in it (arrays in cohort order)."""

    params: list = field(default_factory=list)
    diagnostics: list = field(default_factory=list)

    def record(self, params, *, losses_before, losses_after, weights, **more):
        """Append one round; the angle is a function of losses_before."""
        measured = {"losses_before": losses_before, "losses_after": losses_after, "weights": weights}
        self.params.append(params)
        self.diagnostics.append({**measured, "angle": angle_degrees(losses_before), **more})
