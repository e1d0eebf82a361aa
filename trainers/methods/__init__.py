"""Credit methods, one file each; ``creditrl methods`` lists them."""

from __future__ import annotations

from creditrl.trainers.methods.base import (
    Method,
    MethodInfo,
    list_methods,
    method_info,
    register_method,
)

__all__ = [
    "Method",
    "MethodInfo",
    "list_methods",
    "method_info",
    "register_method",
]
