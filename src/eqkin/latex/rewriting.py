"""A text in which some places were rewritten, and where its characters stood before."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RewrittenText:
    """The new text, and the pieces of it that came from elsewhere, in order."""

    text: str
    starts: tuple[int, ...] = (0,)  # where each piece begins
    origins: tuple[int, ...] = (0,)  # where it began in the text as given
    kept: tuple[bool, ...] = (True,)  # whether it stayed as it was

    def find_origin(self, at: int) -> int:
        """Where a character of the new text stood; for one that was written anew, where what it replaces began."""
        piece = max(bisect_right(self.starts, at) - 1, 0)
        return self.origins[piece] + (at - self.starts[piece] if self.kept[piece] else 0)


def rewrite_matches(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> RewrittenText:
    """Replace what a pattern finds; a match that is replaced by itself stays part of what is around it."""
    pieces, starts, origins, kept = [""], [0], [0], [True]
    at = length = 0

    def add(piece: str, origin: int, same: bool) -> None:
        nonlocal length
        if piece or not same:
            pieces.append(piece)
            starts.append(length)
            origins.append(origin)
            kept.append(same)
            length += len(piece)

    for match in pattern.finditer(text):
        new = replacement(match)
        if new != match[0]:
            add(text[at : match.start()], at, True)
            add(new, match.start(), False)
            at = match.end()
    add(text[at:], at, True)
    if at == len(text):
        add("", at, False)  # the end of the text stays the end
    return RewrittenText("".join(pieces), tuple(starts), tuple(origins), tuple(kept))
