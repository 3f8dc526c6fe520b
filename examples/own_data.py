"""Your own arrays as a federation, in one call: examples, labels, and whose each example is.

Ten hospitals measure six values of each patient; instruments differ from hospital to hospital, and hospitals differ in
size. 20 % of each hospital's patients are held out to test on. The same arrays as a file work with every binary:

    np.savez("hospitals.npz", x=x, y=y, client=hospital)
    .venv/bin/python -m experiments.train --task=custom --data=hospitals.npz --algorithm=fedeba_plus

Run: .venv/bin/python examples/own_data.py
"""

import jax
import numpy as np
import optax

import fedeba_jax

rng = np.random.default_rng(0)
hospital = rng.choice([f"hospital {i}" for i in range(10)], size=2000, p=np.arange(1, 11) / 55)  # whose each patient is
number = np.char.rpartition(hospital, " ")[:, 2].astype(int)
x = rng.normal(size=(2000, 6))
y = (x @ rng.normal(size=(6, 3))).argmax(axis=1)  # which of three illnesses
x[:, :3] += 0.3 * number[:, None]  # the last hospital's instruments are off most

train, test = fedeba_jax.federation_from(x, y, hospital)
print(f"patients of each hospital: {train.num_examples.tolist()}, to test on: {test.federation.num_examples.tolist()}")
model = fedeba_jax.make_model("logistic", "hospitals", x.shape[1:], num_classes=3)
sizes = fedeba_jax.sizes_of(train, model.init, cohort_size=5)
local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.1, steps=10, batch_size=20)
algorithm = fedeba_jax.fedeba(local, fedeba_jax.descent(optax.sgd(1.0)), tau=1.0)


@jax.jit
def run(train, test, key):
    return fedeba_jax.simulate(
        algorithm, train, model.init, key, sizes=sizes, rounds=100, eval_every=50, test=test, apply=model.apply
    )


_, _, scores = run(train, test, jax.random.key(0))
for done, accuracy in zip((50, 100), scores["global"].accuracy, strict=True):
    print(f"round {done}: mean accuracy {accuracy.mean():.1f} %, worst hospital {accuracy.min():.1f} %")
