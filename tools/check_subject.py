"""Refuse a commit whose subject is not one short sentence in the imperative; a hook of pre-commit runs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST_CHARACTERS = 72
# Third person, past and gerund begin most subjects that are not in the imperative.
NOT_IMPERATIVE = re.compile(r"(?:[A-Z]?[a-z]+(?:ed|ing)|[A-Z][a-z]+s)\b(?<!ss)")
EXCEPTIONS = re.compile(
    r"(?:Merge|Revert|fixup!|squash!|Process|Address|Pass|Press|Express|Compress|Embed|Need|Feed|Speed|Bring)\b"
)


def main() -> None:
    """Check the subject in the file that git names."""
    subject = Path(sys.argv[1]).read_text("utf-8").partition("\n")[0]
    problems = list(find_problems(subject))
    if problems:
        sys.exit(f"{subject!r}: {', '.join(problems)}; see CONTRIBUTING.md, Changes")


def find_problems(subject: str) -> list[str]:
    """Return what is wrong with the subject of a commit."""
    problems = []
    if len(subject) > MOST_CHARACTERS:
        problems.append(f"is longer than {MOST_CHARACTERS} characters")
    if ";" in subject:
        problems.append("has a semicolon, so it may be two concerns")
    if NOT_IMPERATIVE.match(subject) and not EXCEPTIONS.match(subject):
        problems.append("does not begin with a verb in the imperative")
    return problems


if __name__ == "__main__":
    main()
