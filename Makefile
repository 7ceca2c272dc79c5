# make demo: what dltune does, on a bundled ResNet-50.  make test: everything that is checked.
PYTHON ?= python3
VENV := .venv
TF216 := .venv-tf216
TORCH := .venv-torch
DLTUNE := $(VENV)/bin/dltune
# half the script's own batch: five minutes are for everything
DEMO := $(VENV)/bin/python scripts/train_resnet50.py --batch 32
PIP := -m pip --disable-pip-version-check --quiet
PYTHON_FILES := dltune tests scripts
# Keras 2 for a test, of the TensorFlow that is there; it asks for tensorflow, tensorflow-cpu is the same
TF_KERAS = version=$$($(VENV)/bin/python -c 'import importlib.metadata as m; \
    print(*m.version("tensorflow-cpu").split(".")[:2], sep=".")') && \
    $(VENV)/bin/python $(PIP) install --no-deps "tf_keras==$$version.*" || \
    echo "no tf_keras for this TensorFlow: the test that uses it is skipped"

# each start of dltune would compile it anew
unexport PYTHONDONTWRITEBYTECODE
# of environments, Horovod and the linters, two at a time
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv horovod demo test proof lint docs gate clean

help:
	@echo "make demo    install into $(VENV), then profile, plan, bench and tune a bundled ResNet-50:"
	@echo "             five minutes and a page, demo/report.html"
	@echo "make test    install, then the linters and the whole test suite"
	@echo "make proof   the long matrices of tests, hours; goes on where it was interrupted"
	@echo "make lint    ruff and mypy alone"
	@echo "make docs    the documentation as a site, build/site/index.html"
	@echo "make gate    has the last commit made dltune itself slower? (BASE=REF: since another one)"
	@echo "make venv    the environment alone ($(VENV))"
	@echo "make horovod build Horovod for it (minutes, once) and install it"
	@echo "make clean   remove the environments, the demo's files and all caches here"

venv: $(VENV)/.installed

# a stamp, not the folder: an installation cut short is done again, and from the beginning, for pip
# takes half a package for a whole one
INSTALLING = $(@D)/.installing
BEGIN = @if test -e $(INSTALLING); then rm -rf $(@D); fi; \
    mkdir -p $(@D) && touch $(INSTALLING) && $(PYTHON) -m venv $(@D)
# pip that fails leaves what was there
FAILED = || { test $$? -gt 128 || rm -f $(INSTALLING); false; }
END = @rm -f $(INSTALLING) && touch $@

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "dltune needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + \
	    "; call make PYTHON=...")'
	@echo "installing into $(VENV) (TensorFlow's wheel is large: a minute or two)"
	$(BEGIN)
	@$(VENV)/bin/python $(PIP) install --editable '.[dev]' $(FAILED)
	@$(TF_KERAS)
	$(END)

horovod: $(VENV)/.horovod

$(VENV)/.horovod: scripts/build_horovod.py $(VENV)/.installed
	@$(VENV)/bin/python scripts/build_horovod.py
	@touch $@

# another environment than dltune's own, with another TensorFlow, for the tests
$(TF216)/.installed:
	@echo "installing TensorFlow 2.16.2 into $(TF216) for the tests"
	$(BEGIN)
	@$(TF216)/bin/python $(PIP) install 'tensorflow-cpu==2.16.2' 'numpy<2' $(FAILED)
	$(END)

$(TF216): $(TF216)/.installed

# PyTorch's build for CPUs; its usual one, for GPUs, is twenty times as large
$(TORCH)/.installed:
	@echo "installing PyTorch into $(TORCH) for the tests"
	$(BEGIN)
	@$(TORCH)/bin/python $(PIP) install 'torch==2.13.0+cpu' numpy || (rm -rf $(TORCH) && mkdir $(TORCH) && \
	    echo "no build of PyTorch 2.13 for CPUs at the package index (PIP_EXTRA_INDEX_URL may name" \
	    "another): the tests that use it are skipped")
	@$(TORCH)/bin/python $(PIP) install pykeen skorch scikit-learn || \
	    echo "no PyKEEN or skorch: the tests of other people's programs are skipped"
	$(END)

$(TORCH): $(TORCH)/.installed

# tune ends with 2 where a machine is too slow for its budget: the page is made all the same
demo: venv
	@mkdir -p demo
	$(DLTUNE) profile --overwrite --top 6 -o demo/profile.json -- $(DEMO)
	$(DLTUNE) plan --overwrite demo/profile.json -o demo/plan.json
	$(DLTUNE) bench --overwrite --against default,recommended,plan --no-one-core --rounds 6 \
	    --seconds-per-turn 1 --plan demo/plan.json -o demo/bench.json -- $(DEMO)
	$(DLTUNE) tune --overwrite --only batch_norm,onednn_primitives --budget 100s \
	    --profile demo/profile.json -o demo/tuned.json -- $(DEMO) || test $$? = 2
	$(DLTUNE) report --overwrite demo/profile.json demo/plan.json demo/bench.json \
	    $$(ls demo/tuned.json 2>/dev/null) -o demo/report.html

# ruff's cache keeps the import order of before a package came: 0.2 s without it
lint: venv
	$(VENV)/bin/ruff check --no-cache $(PYTHON_FILES)
	$(VENV)/bin/ruff format --no-cache --check $(PYTHON_FILES)
	$(VENV)/bin/mypy dltune

# three files of tests at a time: many wait, for a start, a hang, a turn
test: lint $(TF216) $(TORCH) horovod
	$(VENV)/bin/pytest -n 3 --dist loadfile

proof: $(TF216) $(TORCH) horovod
	$(VENV)/bin/python scripts/prove.py

# the reference is generated first; a broken link or a page that is not in the navigation fails
docs: venv
	$(VENV)/bin/python scripts/docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --config-file scripts/docs/mkdocs.yml

# commits only; BASE is the one to compare HEAD with
BASE ?= HEAD~1
gate: venv
	$(DLTUNE) gate ab --base $(BASE) --config .ci/gate.toml -- $(VENV)/bin/python scripts/gate_self.py

clean:
	rm -rf $(VENV) $(TF216) $(TORCH) demo build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PYTHON_FILES) -name __pycache__ -type d -prune -exec rm -rf {} +
