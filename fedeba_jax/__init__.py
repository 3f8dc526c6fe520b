"""Fair federated learning as whole-round XLA programs: FedEBA+ and what it is compared with."""

from fedeba_jax import client_map as client_map
from fedeba_jax import metrics as metrics
from fedeba_jax import privacy as privacy
from fedeba_jax import schedules as schedules
from fedeba_jax import weights as weights
from fedeba_jax.algorithms import ALGORITHMS as ALGORITHMS
from fedeba_jax.algorithms import scheduled as scheduled
from fedeba_jax.local import LocalTraining as LocalTraining
from fedeba_jax.objectives import cross_entropy as cross_entropy
from fedeba_jax.objectives import lsr as lsr
from fedeba_jax.server import descent as descent
from fedeba_jax.server import variance_reduced as variance_reduced
from fedeba_jax.simulate import run_round as run_round
from fedeba_jax.simulate import run_rounds as run_rounds
from fedeba_jax.simulate import simulate as simulate
from fedeba_jax.simulate import sizes_of as sizes_of
from fedeba_jax.simulate import sweep as sweep
from fedeba_jax.types import Algorithm as Algorithm
from fedeba_jax.types import Federation as Federation
from fedeba_jax.types import Model as Model
