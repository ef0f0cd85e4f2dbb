"""The log's index has one line for every entry."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "research" / "log"


def test_every_entry_of_the_log_is_in_its_index():
    index = (FOLDER / "README.md").read_text("utf-8")
    linked = re.findall(r"\((\d{4}-\d{2}\.md#[^)]+)\)", index)
    entries = []
    for path in sorted(FOLDER.glob("20*.md")):
        for heading in re.findall(r"^## (.+)$", path.read_text("utf-8"), re.MULTILINE):
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            entries.append(f"{path.name}#{anchor}")
    assert linked == entries
