"""`mslg list`: the names of methods, noises, data sets, networks and recipes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ..data.readers import DATASETS
from ..methods import METHODS
from ..networks import NETWORKS
from ..noise import NOISES
from ..registry import unknown
from ..runs.recipes import recipes, sweeps

KINDS = ("methods", "noises", "datasets", "networks", "recipes")


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="methods, noises, datasets, networks or recipes; all by default")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """List methods, noises, data sets, networks and recipes, with those that installed packages register.

    Example: mslg list methods
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    listed = {name: rows for name, rows in _all().items() if kind in (None, name)}
    if as_json:
        print(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    for name, rows in listed.items():
        print(name)
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            needs = f"  (needs: {', '.join(row['needs'])})" if row["needs"] else ""
            sweep = "  (a sweep)" if row.get("sweep") else ""
            print(f"  {row['name']:<{width}}  {row['summary']}{needs}{sweep}")
        print()


def _all() -> dict[str, list[dict[str, Any]]]:
    registries = {"methods": METHODS, "noises": NOISES, "datasets": DATASETS, "networks": NETWORKS}
    rows: dict[str, list[dict[str, Any]]] = {
        kind: [{"name": name, "summary": entry.summary, "needs": list(entry.needs)} for name, entry in registry.items()]
        for kind, registry in registries.items()
    }
    many = sweeps()
    rows["recipes"] = [
        {"name": name, "summary": line, "needs": [], "sweep": name in many} for name, line in recipes().items()
    ]
    return rows
