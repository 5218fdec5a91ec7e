# One image for the command, the exit handler and the hook.
#
#   docker build -t check-failed-run .                            with the Google Cloud clients
#   docker build --build-arg VARIANT=slim -t check-failed-run:slim .   local logs only
#
# BASE is any image with python3 (3.11 or newer) and its venv module. Package indexes and certificates are
# taken from the build arguments PIP_* when given; nothing of them stays in the image.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG VARIANT=full
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/build.txt requirements/slim.txt requirements/full.txt /src/requirements/
# kfp-server-api is published as source only; it is built with the pinned setuptools, everything else is a wheel.
RUN python3 -m venv /build \
 && /build/bin/pip install -q --require-hashes -r /src/requirements/build.txt \
 && python3 -m venv /opt/check-failed-run \
 && /opt/check-failed-run/bin/pip install -q --require-hashes -r /src/requirements/build.txt \
 && /opt/check-failed-run/bin/pip install -q --require-hashes --only-binary :all: --no-binary kfp-server-api --no-build-isolation \
      -r "/src/requirements/${VARIANT}.txt"
COPY pyproject.toml README.md /src/
COPY component /src/component
COPY hook /src/hook
# The wheel is built apart, so that pip and setuptools need not be in the image.
RUN /build/bin/pip wheel -q --no-deps --no-build-isolation -w /wheel /src \
 && /opt/check-failed-run/bin/pip install -q --no-deps --no-index /wheel/*.whl \
 && /opt/check-failed-run/bin/python3 -m check_failed_run.scanning.matcher --warm /opt/check-failed-run/cache \
 && /opt/check-failed-run/bin/pip uninstall -q -y wheel setuptools pip \
 && find /opt/check-failed-run -type d -name tests -path '*/site-packages/*' -prune -exec rm -rf {} + \
 && chmod -R a+rX /opt/check-failed-run

FROM ${BASE}
ENV PATH=/opt/check-failed-run/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CHECK_FAILED_RUN_CACHE=/opt/check-failed-run/cache
COPY --from=build /opt/check-failed-run /opt/check-failed-run
# Any user may run it, with a read-only root too; the report goes to the working directory where that can be written.
RUN mkdir -m 1777 /work
WORKDIR /work
USER 65532:65532
ENTRYPOINT ["check-failed-run"]
