"""The knowledge: what programs print when they fail, and what it means.

Importing this package is cheap; the modules of the classes are imported by the first call below.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from check_failed_run.catalogue.model import ClassInfo, ExceptionRule, Signature

MODULES: tuple[str, ...] = (
    "nan_inf",
    "oom",
    "optimization_divergence",
    "cuda_runtime",
    "nccl_distributed",
    "data_pipeline",
    "config_error",
    "io_checkpoint",
    "stalled",
    "process_crash",
    "evaluation_mismatch",
    "pipeline_orchestration",
    "cloud_permissions_quota",
    "harmless",
    "advice",
    "markers",
)
"""Modules with ``SIGNATURES``: the 13 classes in the order of ``model.CLASSES``, then what belongs to none."""


_added: list[Signature] = []


@cache
def signatures() -> tuple[Signature, ...]:
    """Every signature, in the order of :data:`MODULES`."""
    return (*_added, *(s for name in MODULES for s in import_module(f"{__name__}.{name}").SIGNATURES))


def add(extra: tuple[Signature, ...]) -> None:
    """Put a user's signatures before the catalogue's own, for this process.

    Raises:
        ValueError: an id is taken.
    """
    taken = {s.id for s in signatures()} & {s.id for s in extra}
    if taken:
        raise ValueError(f"the signature id {sorted(taken)[0]} is taken")
    _added.extend(extra)
    signatures.cache_clear()
    by_id.cache_clear()


@cache
def by_id() -> Mapping[str, Signature]:
    """Signatures by id. Raises ValueError where two share one."""
    index: dict[str, Signature] = {}
    for signature in signatures():
        if signature.id in index:
            raise ValueError(f"two signatures are named {signature.id}")
        index[signature.id] = signature
    return MappingProxyType(index)


@cache
def exception_rules() -> tuple[ExceptionRule, ...]:
    """Rules for exceptions without a signature of their own; the first that fits wins."""
    return tuple(import_module(f"{__name__}.exceptions").EXCEPTION_RULES)


@cache
def class_info() -> Mapping[str, ClassInfo]:
    """What is known about each of the 13 classes, by class id."""
    return MappingProxyType(dict(import_module(f"{__name__}.classes").CLASS_INFO))
