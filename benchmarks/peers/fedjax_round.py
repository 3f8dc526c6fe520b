"""FedJAX's own federated averaging: one compiled step per batch, host loops over batches and clients.

Its best setting: the newest JAX, faster here than those of FedJAX's time (0.4.30 and 0.4.35 were tried), with the
name put back that FedJAX 0.0.17 still calls; the `jit` backend (`pmap` over two host devices was slower); images
that stay bytes until the compiled step, which copies a quarter of what floats would; native convolutions, which are
fast on CPU outside loops.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.protocol import Data, Peer, Spec, serve

Params = list[dict[str, jax.Array]]


def init(spec: Spec, shape: tuple[int, ...]) -> Params:
    """The networks of `fedeba_jax.models`, started as PyTorch does."""
    height, width, channels = shape
    if spec.model == "mlp":
        shapes = [(height * width * channels, 200), (200, 200), (200, 10)]
    else:
        left = [((n - 4) // 2 - 4) // 2 for n in (height, width)]
        shapes = [(5, 5, channels, 64), (5, 5, 64, 64), (64 * left[0] * left[1], 384), (384, 192), (192, 10)]
    rng = np.random.default_rng(0)

    def layer(shape: tuple[int, ...]) -> dict[str, jax.Array]:
        bound = np.prod(shape[:-1]) ** -0.5
        draw = {"kernel": shape, "bias": shape[-1:]}
        return {name: jnp.asarray(rng.uniform(-bound, bound, s), jnp.float32) for name, s in draw.items()}

    return [layer(shape) for shape in shapes]


def logits(params: Params, x: jax.Array, spec: Spec) -> jax.Array:
    x = (x.astype(jnp.float32) / 255 - jnp.asarray(spec.mean)) / jnp.asarray(spec.std)
    for layer in params:
        kernel, bias = layer["kernel"], layer["bias"]
        if kernel.ndim == 4:  # pooled before bias and ReLU, both monotone: a quarter of the work
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            x = jax.nn.relu(x + bias)
        else:
            x = x.reshape(x.shape[0], -1) @ kernel + bias
            x = x if layer is params[-1] else jax.nn.relu(x)
    return x


def make(spec: Spec, data: Data) -> Peer:
    jax.tree_map = jax.tree.map
    import fedjax

    fedjax.set_for_each_client_backend("jit")

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        log_p = jax.nn.log_softmax(logits(params, batch["x"], spec))
        return -jnp.take_along_axis(log_p, batch["y"][:, None], 1).mean()

    gradient = jax.grad(loss)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        lambda params, batch, rng: gradient(params, batch),
        fedjax.optimizers.sgd(spec.rate),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=spec.batch, num_steps=spec.steps, num_epochs=None),
    )
    clients = [fedjax.ClientDataset({"x": data.x[rows], "y": data.y[rows]}) for rows in data.index]
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), len(clients)))
    rng = np.random.default_rng(1)
    state = algorithm.init(init(spec, data.x.shape[1:]))

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            ids = rng.permutation(len(clients))[: spec.cohort]
            state, _ = algorithm.apply(state, [(int(i), clients[i], keys[i]) for i in ids])
        jax.block_until_ready(state.params)

    forward = jax.jit(lambda params, x: logits(params, x, spec).argmax(-1))

    def predict(images: np.ndarray) -> np.ndarray:
        blocks = np.array_split(images, max(1, len(images) // 500))
        return np.concatenate([forward(state.params, block) for block in blocks])

    return Peer(run, predict, ["fedjax", "jax", "jaxlib"])


if __name__ == "__main__":
    serve(make)
