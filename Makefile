# make demo: make a slow training job faster, and prove it.  make test: all checks.
PYTHON ?= python3
VENV := .venv
TF216 := .venv-tf216
TORCH := .venv-torch
DLTUNE := $(VENV)/bin/dltune
# make demo FRAMEWORK=torch: the same with PyTorch
FRAMEWORK ?= tensorflow
TORCH_VERSION := 2.13.0
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
.PHONY: help venv horovod demo check test proof lint docs gate clean

help:
	@echo "make demo    install what it needs, then find out why a training job is slow and prove"
	@echo "             the gain: four minutes, and a page, demo/report.html (FRAMEWORK=torch: PyTorch)"
	@echo "make check   run the linters and the tests that start no process: minutes"
	@echo "make test    install everything, then run the linters and all tests"
	@echo "make proof   run the long test matrices (hours); continues after an interruption"
	@echo "make lint    run ruff and mypy"
	@echo "make docs    build the documentation as a site, build/site/index.html"
	@echo "make gate    compare dltune's own speed with the commit before (BASE=REF: with another)"
	@echo "make venv    install the environment for development ($(VENV))"
	@echo "make horovod build and install Horovod in it (minutes, once)"
	@echo "make clean   remove the environments, the demo's files and all caches"

venv: $(VENV)/.installed

# a stamp, not the folder: an installation cut short is done again, and from the beginning, for pip
# takes half a package for a whole one
INSTALLING = $(@D)/.installing
BEGIN = @if test -e $(INSTALLING); then rm -rf $(@D); fi; \
    mkdir -p $(@D) && touch $(INSTALLING) && $(PYTHON) -m venv $(@D)
SIZE = echo "installed: $$(du -sm $(@D) | cut -f 1) MB in $(@D)"
# pip that fails leaves what was there
FAILED = || { test $$? -gt 128 || rm -f $(INSTALLING); false; }
END = @rm -f $(INSTALLING) && touch $@

CHECK_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
    "dltune needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + \
    "; call make PYTHON=...")'

$(VENV)/.installed: pyproject.toml
	$(CHECK_PYTHON)
	@echo "installing everything for development into $(VENV) (some minutes)"
	$(BEGIN)
	@$(VENV)/bin/python $(PIP) install --editable '.[dev]' $(FAILED)
	@$(TF_KERAS)
	$(END)

# only what the demo needs
$(VENV)/.demo-tensorflow: EXTRAS := [tensorflow]
$(VENV)/.demo-%: pyproject.toml
	$(CHECK_PYTHON)
	@echo "installing dltune$(EXTRAS) into $(VENV) (a minute or two)"
	$(BEGIN)
	@$(VENV)/bin/python $(PIP) install --editable '.$(EXTRAS)' $(FAILED)
	@$(SIZE)
	$(END)

horovod: $(VENV)/.horovod

$(VENV)/.horovod: scripts/release/build_horovod.py $(VENV)/.installed
	@$(VENV)/bin/python scripts/release/build_horovod.py
	@touch $@

# another environment than dltune's own, with another TensorFlow, for the tests
$(TF216)/.installed:
	@echo "installing TensorFlow 2.16.2 into $(TF216) for the tests"
	$(BEGIN)
	@$(TF216)/bin/python $(PIP) install 'tensorflow-cpu==2.16.2' 'numpy<2' $(FAILED)
	$(END)

$(TF216): $(TF216)/.installed

# PyTorch's build for CPUs where the package index has it; the default build is many times as large
$(TORCH)/.torch:
	@echo "installing PyTorch $(TORCH_VERSION) into $(TORCH)"
	$(BEGIN)
	@$(TORCH)/bin/python $(PIP) install 'torch==$(TORCH_VERSION)+cpu' numpy 2>/dev/null || { \
	    echo "the package index has no CPU build of PyTorch; installing the default build (some GB;" \
	    "PIP_EXTRA_INDEX_URL can name another index)"; \
	    $(TORCH)/bin/python $(PIP) install 'torch==$(TORCH_VERSION)' numpy; } $(FAILED)
	@$(TORCH)/bin/python -c 'import torch; print("PyTorch", torch.__version__)'
	@$(SIZE)
	$(END)

$(TORCH)/.installed: $(TORCH)/.torch
	@$(TORCH)/bin/python $(PIP) install pykeen skorch scikit-learn || \
	    echo "PyKEEN or skorch cannot be installed: the tests of other people's programs are skipped"
	@touch $@

$(TORCH): $(TORCH)/.installed

# an environment for development has dltune and TensorFlow, too
demo: $(if $(wildcard $(VENV)/.installed),,$(VENV)/.demo-$(FRAMEWORK)) $(if $(filter torch,$(FRAMEWORK)),$(TORCH)/.torch)
	@$(VENV)/bin/python scripts/examples/demo.py --framework $(FRAMEWORK)

# ruff's cache keeps the import order of before a package came: 0.2 s without it
lint: venv
	$(VENV)/bin/ruff check --no-cache $(PYTHON_FILES)
	$(VENV)/bin/ruff format --no-cache --check $(PYTHON_FILES)
	$(VENV)/bin/mypy dltune

# a test that is skipped when it starts a process can leave a socket to the garbage collector
check: lint
	$(VENV)/bin/pytest -n 2 -m "not tensorflow and not jax" --no-processes --durations=5 \
	    -W ignore::pytest.PytestUnraisableExceptionWarning

# three files of tests at a time: many wait, for a start, a hang, a turn
test: lint $(TF216) $(TORCH) horovod
	$(VENV)/bin/pytest -n 3 --dist loadfile

proof: $(TF216) $(TORCH) horovod
	$(VENV)/bin/python scripts/release/prove.py

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
