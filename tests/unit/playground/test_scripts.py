"""The scripts of a page share one scope, so none may hide a name of another."""

import re
from collections import Counter
from importlib.resources import files

from roundtrip.playground.serving import PLAYGROUND_PAGE
from roundtrip.trace.page.document import STEP_SCRIPTS, UI_PAGES

NAMES = re.compile(r"^(?:async )?(?:function|let|const) (\w+)", re.MULTILINE)


PAGES = [page.scripts for page in (PLAYGROUND_PAGE, *UI_PAGES.values())]


def test_names_are_used_once_in_a_page() -> None:
    folder = files("roundtrip.trace.page").joinpath("web")
    for scripts in [*PAGES, (*STEP_SCRIPTS, "call.js")]:
        names = Counter(
            name for script in scripts for name in NAMES.findall(folder.joinpath(script).read_text("utf-8"))
        )
        assert len(names) > 5
        assert (scripts[-1], [name for name, times in names.items() if times > 1]) == (scripts[-1], [])
