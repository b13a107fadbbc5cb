"""Data sets, networks and methods of your own in the `remix` command: REMIX_IMPORT names what registers them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from remix.support.files import check_regular
from remix.support.text import printable

__all__ = ["VARIABLE", "import_extensions"]

VARIABLE = "REMIX_IMPORT"
"""Of the environment, so that the processes that a command starts have it too."""


def import_extensions(names: str) -> None:
    """Import Python files (``mine.py``) and modules (``package.mine``), separated by commas; each once.

    Raises:
        ValueError: for one that cannot be imported; says why.

    """
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}"[:300])
            raise ValueError(f"{VARIABLE} names {printable(name[:80])}, which cannot be imported ({reason})") from error


def _import_file(path: Path) -> None:
    check_regular(path)
    name = f"remix_import:{path.resolve()}"  # two files of one name are two
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
