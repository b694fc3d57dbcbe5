"""Import hook that renames names throughout a package's source, as a later version of the package could."""

import re
import sys
from collections.abc import Collection
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, Final

from typing_extensions import override

__all__ = ["rename"]

_SUFFIX: Final = "_elsewhere"


def rename(names: Collection[str], *, packages: Collection[str]) -> None:
    """Rename names in all modules of the packages that are imported from now on."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")

    class Loader(SourceFileLoader):
        @override
        def get_code(self, fullname: str) -> CodeType:
            renamed = pattern.sub(lambda found: found[0] + _SUFFIX, Path(self.path).read_text(encoding="utf-8"))
            return compile(renamed, self.path, "exec", dont_inherit=True)

    class Finder(MetaPathFinder):
        @override
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
            # A renamed module has the file of its old name.
            name = fullname.removesuffix(_SUFFIX)
            spec = PathFinder.find_spec(name, path) if fullname.partition(".")[0] in packages else None
            if spec is None or not isinstance(spec.loader, SourceFileLoader):
                return spec
            if (pattern.fullmatch(name.rpartition(".")[2]) is not None) != fullname.endswith(_SUFFIX):
                return None
            folders, loader = spec.submodule_search_locations, Loader(fullname, spec.loader.path)
            return spec_from_file_location(fullname, loader=loader, submodule_search_locations=folders)

    sys.meta_path.insert(0, Finder())
