# make demo [FAILURE=nan|oom|data|config|kill|none]   run the example pipeline and show what its exit handler found
# make demo LOG=train.log                             diagnose a log
# make test                                           everything, with the image end to end where a Docker engine answers
# make image | lint | component | lock | clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FAILURE ?= nan
OUT ?= demo-out

IMAGE ?= check-failed-run:0.1.0
EXAMPLE_IMAGE ?= check-failed-run-example-python:0.1.0
VARIANT ?= full
# The base that .ci/docker-engine.sh makes, where it did; an official image elsewhere.
BASE ?= $(shell docker image inspect python-base:bookworm >/dev/null 2>&1 && echo python-base:bookworm || echo python:3.12-slim)
BUILD_FLAGS ?= --network host
# This host's package index, for the build only.
PIP_INDEX_URL ?= $(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null)
export PIP_INDEX_URL
ifeq ($(strip $(PIP_INDEX_URL)),)
unexport PIP_INDEX_URL
endif
BUILD := docker build $(BUILD_FLAGS) --build-arg BASE=$(BASE) $(foreach name,PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST,$(if $(filter http%,$($(name))),--build-arg $(name)))

ENGINE := docker info >/dev/null 2>&1

.PHONY: demo test image images lint component lock clean

demo: $(VENV)/.made
ifdef LOG
	@mkdir -p "$(OUT)"
	@$(BIN)/check-failed-run "$(LOG)" --out-dir "$(OUT)"
	@echo; echo "Report: $(OUT)/check-failed-run.json"
else
	@if $(ENGINE); then $(MAKE) --no-print-directory images >"$(VENV)/images.log" 2>&1 || echo "The images could not be built (see $(VENV)/images.log)." >&2; fi
	@CHECK_FAILED_RUN_IMAGE="$(IMAGE)" TRAINING_IMAGE="$(EXAMPLE_IMAGE)" $(BIN)/python -m pipelines.local --failure "$(FAILURE)" --out "$(OUT)"
endif

test: $(VENV)/.made
	@if $(ENGINE); then $(MAKE) --no-print-directory images; elif [ -n "$$CI" ]; then echo "no Docker engine answers" >&2; exit 1; fi
	TEST_IMAGE="$(IMAGE)" TRAINING_IMAGE="$(EXAMPLE_IMAGE)" $(BIN)/python -m pytest $(PYTEST_FLAGS)

image:
	$(BUILD) --build-arg VARIANT=$(VARIANT) -t "$(IMAGE)" .

images: image
	$(BUILD) -f pipelines/Dockerfile -t "$(EXAMPLE_IMAGE)" .

lint: $(VENV)/.made
	$(BIN)/ruff check .
	@if grep -q '^\[tool.importlinter\]' pyproject.toml || [ -f .importlinter ]; then $(BIN)/lint-imports; fi

component: $(VENV)/.made
	$(BIN)/python -m check_failed_run.kfp_component component/component.yaml

# Needs uv. The other files are held to the versions of dev.txt.
lock:
	cd requirements && uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header dev.in -o dev.txt
	cd requirements && for name in build slim full example; do \
	  uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c dev.txt $$name.in -o $$name.txt || exit 1; done

$(VENV)/.made: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with make PYTHON=...")'
	@echo "Making $(VENV) (about half a minute) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache component/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
