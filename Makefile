# fedeba_jax: `make demo` shows it working, `make test` checks it.
PYTHON ?= python3
VENV   ?= .venv
RUN     = $(VENV)/bin/python
OUT    ?= runs/demo

.PHONY: help demo test test-slow test-peers lint docs data results reproduce-small compare theory robustness options
.PHONY: bench bench-envs bench-check bench-record clean
help:            ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# A stamp per extra: installs happen once, and again when setup.cfg changes.
$(VENV)/.stamp-%: setup.cfg pyproject.toml
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	@touch $@

demo: $(VENV)/.stamp-plot  ## train FedAvg, FedEBA+ and Prac-FedEBA+ on embedded images; table and picture
	$(RUN) -m experiments.demo --out=$(OUT)

test: $(VENV)/.stamp-test  ## the suite (CPU, 7 to 10 minutes on 2 cores)
	$(RUN) -m pytest -n auto --dist=loadgroup

test-slow: $(VENV)/.stamp-test  ## the checks that take minutes
	$(RUN) -m pytest -m slow

test-peers: $(VENV)/.stamp-test $(VENV)/.stamp-bench  ## rules beside ByzFL's and models beside PyTorch's, with the packages
	$(RUN) -m pytest tests/fedeba_jax/test_aggregation.py tests/fedeba_jax/models/test_against_torch.py tests/benchmarks/test_models.py

lint: $(VENV)/.stamp-test  ## ruff (checks and format) and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(VENV)/.stamp-docs  ## the documentation as a site in build/docs, strict about dead links
	$(RUN) -m sphinx -W --keep-going -n -q -b html docs build/docs
	@echo "documentation: build/docs/index.html"

# As it was given: neither make nor the shell reads what is in it.
override DATASET := $(value DATASET)
data: $(VENV)/.stamp-images  ## fetch a dataset through the package clients: make data DATASET=fashion_mnist
	$(RUN) -m experiments.fetch --dataset='$(subst ','\'',$(DATASET))'

REPRODUCE = $(RUN) -m experiments.reproduce
results: $(VENV)/.stamp-plot  ## FedAvg and the FedEBA family on FashionMNIST, two seeds (an hour; needs the data)
	$(REPRODUCE) --table=performance --panel=fashion_mnist_mlp --seeds=0:2 --out=runs/results \
	  --rows="fedavg,fedavg lr=0.019,fedeba,fedeba_plus,prac_fedeba_plus"

SMALL = runs/reproduce_small
reproduce-small: $(VENV)/.stamp-plot  ## the paper's first table in small, from nothing: verdicts, picture, report (5 minutes)
	$(REPRODUCE) --flagfile=experiments/configs/reproduce_small.flags --out=$(SMALL)
	$(RUN) -m experiments.report $(SMALL)/fashion_mnist_mini_mlp --noselect --out=$(SMALL)/report

compare: $(VENV)/.stamp-plot  ## every method at its defaults on embedded images: one table (a quarter of an hour)
	$(RUN) -m experiments.compare

theory: $(VENV)/.stamp-plot  ## the paper's theorems on thousands of small federations: tables and pictures (a minute)
	$(RUN) -m experiments.theory

robustness: $(VENV)/.stamp-plot  ## methods under attack on embedded images: worst case as table and heat map (10 minutes)
	$(RUN) -m experiments.robustness

OPTIONS = servers noisy_labels privacy privacy_paper annealing
options: $(VENV)/.stamp-plot $(VENV)/.stamp-privacy  ## momentum, FedVARP, label noise, privacy, annealing: a table each (half an hour)
	for name in $(OPTIONS); do \
	  $(RUN) -m experiments.sweep --flagfile=experiments/configs/$$name.flags && \
	  $(RUN) -m experiments.report runs/$$name --noselect --out=runs/$$name/report || exit; done

# Peers whose versions clash with ours live in environments of their own.
bench-envs: .bench/fedjax/.stamp .bench/flower/.stamp .bench/pfl/.stamp  ## environments of the benchmarks' peers
.bench/%/.stamp: benchmarks/peers/envs/%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

BENCH = runs/bench
bench: $(VENV)/.stamp-bench bench-envs  ## every benchmark, peers included (50 minutes; give it an idle machine)
	$(RUN) -m benchmarks.round_throughput --peers=all --out=$(BENCH)/round_throughput.json
	$(RUN) -m benchmarks.algorithms --models=mlp --out=$(BENCH)/algorithms.json
	$(RUN) -m benchmarks.algorithms --models=cnn --repeats=3 --seconds=0.1 --out=$(BENCH)/algorithms_cnn.json
	$(RUN) -m benchmarks.scaling --models=mlp --algorithms=fedavg --out=$(BENCH)/scaling.json
	$(RUN) -m benchmarks.clients --out=$(BENCH)/clients.json
	$(RUN) -m benchmarks.models --out=$(BENCH)/models.json
	$(RUN) -m benchmarks.sweep --models=mlp --out=$(BENCH)/sweep.json
	$(RUN) -m benchmarks.evaluation --out=$(BENCH)/evaluation.json
	$(RUN) -m benchmarks.overhead --out=$(BENCH)/overhead.json
	$(RUN) -m benchmarks.robustness --models=mlp --repeats=5 --out=$(BENCH)/robustness.json
	$(RUN) -m benchmarks.products --out=$(BENCH)/products.json
	$(RUN) -m benchmarks.checkpoints --out=$(BENCH)/checkpoints.json
	$(RUN) -m benchmarks.communication --host_devices=8 --servers=varp --out=$(BENCH)/communication.json
	$(RUN) -m benchmarks.engines --repeats=3 --out=$(BENCH)/engines.json
	$(RUN) -m benchmarks.startup --repeats=5 --out=$(BENCH)/startup.json

CHECK = runs/bench-check
bench-check: $(VENV)/.stamp-bench  ## fail if a ratio got worse than benchmarks/recorded.json says (5 minutes)
	$(RUN) -m benchmarks.round_throughput --models=mlp --repeats=7 --out=$(CHECK)/round_throughput.json
	$(RUN) -m benchmarks.algorithms --models=mlp --repeats=5 --seconds=0.5 --out=$(CHECK)/algorithms.json
	$(RUN) -m benchmarks.evaluation --models=mlp --repeats=7 --out=$(CHECK)/evaluation.json
	$(RUN) -m benchmarks.check $(CHECK)/*.json

bench-record:    ## make the last results of `make bench` the recorded ones
	$(RUN) -m benchmarks.check --record $(BENCH)/*.json

clean:           ## remove what these targets made, except data and runs
	rm -rf $(VENV) .bench build *.egg-info .pytest_cache .mypy_cache .ruff_cache
