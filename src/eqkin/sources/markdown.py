r"""Markdown, Quarto, R Markdown, MyST (Jupyter Book), Obsidian and their YAML headers to LaTeX-like text.

Math is kept (`$...$`, `$$...$$`, `\[...\]`, environments, fenced `math` blocks, MyST's directives and roles) with
MyST's labels, headings become sections, links their words, code is dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import islice
from typing import Any

import yaml  # type: ignore[import-untyped]

from eqkin.latex.titles import find_doi, find_year
from eqkin.sources.paper import Paper, decode_text, escape_percent, format_display_math, format_heading

# Dollar signs that are further apart are money, not math.
_MAX_INLINE_CHARS = 3_000
# After so many dollar signs that cannot close inline math, it is none.
_MAX_CLOSING_TRIES = 4
# At the start of a line, so many characters may be marks of a quotation.
_MAX_QUOTE_PREFIX = 200
_TOKEN = re.compile(
    r"""
      (?P<comment><!--)
    | (?P<fence>^[ \t>]{0,40}(?:[-*+][ ]{1,4}|\d{1,3}\.[ ]{1,4})?
        (?P<mark>`{3,}|~{3,}|:{3,}(?=[ ]?\{math\}))(?P<info>[^\n`]{0,500})$)
    | (?P<heading>^[ ]{0,3}(?P<hashes>\#{1,6})[ \t]+(?P<title>[^\n]*)$)
    | (?P<setext>^[ ]{0,3}+(?![-*+>|\#=\s])(?P<line>[^\n|]++)\n[ ]{0,3}(?P<under>={2,}|-{3,})[ \t]*$)
    | (?P<role>\{math\}`(?P<formula>[^`]{1,2000})`)
    | (?P<wikilink>!?\[\[(?P<target>[^\[\]|\n]{1,300})(?:\|(?P<alias>[^\[\]\n]{1,300}))?\]\])
    | (?P<goodcode>\$`(?P<github>[^`\n]{1,2000})`\$)
    | (?P<code>`+)
    | (?P<dollars>\$\$)
    | (?P<dollar>\$)
    | (?P<begin>\\begin[ ]?\{(?P<env>[a-zA-Z]{1,30}\*?)\})
    | (?P<bracket>\\\\?\[)
    | (?P<paren>\\\\?\()
    | (?P<escaped>\\.)
    | (?P<image>!\[[^\]\n]{0,500}\]\([^)\n]{0,1000}\))
    | (?P<link>(?<!\\)\[(?P<words>[^\[\]\n$`]{1,500})\]\([^()\s]{0,2000}\))
    | (?P<div>^[ ]{0,3}:{3,}[^\n]*$)
    | (?P<html></?[a-zA-Z][a-zA-Z0-9-]{0,20}(?:[ ][^<>\n$]{0,500})?/?>)
    """,
    re.VERBOSE | re.MULTILINE,
)
_ATTRIBUTES = re.compile(r"[ \t]*\{[#.][^{}\n]{0,500}\}")
_END = re.compile(r"\\end[ ]?\{([a-zA-Z]{1,30}\*?)\}")
_RAW_FENCE = re.compile(r"\{\s*=\s*(?:la)?tex\s*\}")
_MATH_FENCE = re.compile(r"\{?\s*\.?math\b", re.IGNORECASE)
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_BLANK = re.compile(r"\n(?=[ \t]*\n)")
_QUOTE = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
_BOOKDOWN_LABEL = re.compile(r"\(\\#eq:[\w-]{1,100}\)")
_CLOSING_HASHES = re.compile(r"(?<=[ \t])#++\Z")
_MARKUP = re.compile(r"[`$\\]|\[\[")
_DIRECTIVE_OPTIONS = re.compile(r"\s*\n((?:[ \t]*:[\w-]{1,40}:[^\n]*\n)+)")
_DIRECTIVE_LABEL = re.compile(r":(?:label|name):[ \t]*([\w:.-]{1,100})[ \t]*\n")
_LABEL_AFTER = re.compile(r"[ \t]*\(([\w:.-]{1,100})\)[ \t]*$", re.MULTILINE)
_HEADER = re.compile(r"\A\s{0,100}---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# A field at the start of a line, with the lines below it that start no other.
_FIELD = re.compile(r"^([A-Za-z][\w-]*)[ \t]*:((?:[ \t].*)?(?:\n(?![A-Za-z]).*)*)$", re.MULTILINE)
# Parsing YAML is slow.
_MAX_HEADER_CHARS = 20_000


def read_markdown(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in a Markdown file; any text is valid Markdown."""
    paper = Paper(key, "", origin, kind="md")
    converter = MarkdownConverter(read_front_matter(decode_text(raw), paper))
    paper.text = converter.convert()
    paper.title = paper.title or converter.first_heading
    return paper


class MarkdownConverter:
    """Converts one Markdown text to LaTeX; `first_heading` is known after `convert`.

    Args:
        text: what to convert.
        is_title: the text is a heading, so there are no headings in it.
    """

    def __init__(self, text: str, *, is_title: bool = False) -> None:
        self.first_heading = ""
        self._text = text
        self._is_title = is_title
        self._position = 0
        self._out: list[str] = []
        self._marks: dict[str, list[int]] = {}  # positions of closing marks, searched for once
        self._blanks: list[int] | None = None  # positions of blank lines, searched for once
        self._ends: dict[str, list[int]] = {}  # positions after the ends of environments, by name
        self._handlers: dict[str, Callable[[re.Match[str]], None]] = {
            "comment": self._handle_comment,
            "fence": self._handle_fence,
            "heading": self._handle_heading,
            "setext": lambda m: self._append_heading(1 if m["under"][0] == "=" else 2, m["line"]),
            "goodcode": lambda m: self._append(f"${m['github']}$", m.end()),
            "role": lambda m: self._append(f"${m['formula']}$", m.end()),
            "wikilink": self._handle_wikilink,
            "code": self._handle_code,
            "dollars": self._handle_dollars,
            "dollar": self._handle_dollar,
            "begin": self._handle_environment,
            "bracket": self._handle_bracket,
            "paren": self._handle_paren,
            "escaped": lambda m: self._append(m.group(), m.end()),
            "link": lambda m: self._append(escape_percent(m["words"]), m.end()),
        }

    def convert(self) -> str:
        """Return the text as LaTeX."""
        # Ends of environments are searched for once, so that many openings cost no more.
        if "\\begin" in self._text:
            for end in _END.finditer(self._text):
                self._ends.setdefault(end.group(1), []).append(end.end())
        while match := _TOKEN.search(self._text, self._position):
            self._out.append(escape_percent(self._text[self._position : match.start()]))
            self._position = match.end()
            # The outermost group is the last to close.
            handler = self._handlers.get(match.lastgroup or "")
            if handler is not None:
                handler(match)
        self._out.append(escape_percent(self._text[self._position :]))
        return "".join(self._out)

    def _append(self, latex: str, end: int) -> None:
        self._out.append(latex)
        self._position = end

    def _find_next(self, mark: str, start: int) -> int:
        """Return the position of the next `mark` from `start`, -1 if there is none."""
        positions = self._marks.get(mark)
        if positions is None:
            positions = self._marks[mark] = _find_positions(self._text, mark)
        at = bisect_left(positions, start)
        return positions[at] if at < len(positions) else -1

    def _strip_quote_marks(self, start: int, body: str) -> str:
        """Return `body`, which starts at `start`, without labels of bookdown and without the marks of a quotation."""
        low = max(start - _MAX_QUOTE_PREFIX, 0)
        prefix = self._text[max(self._text.rfind("\n", low, start) + 1, low) : start]
        if ">" in prefix and not prefix.strip(" \t>"):
            body = _QUOTE.sub("", body)
        return _BOOKDOWN_LABEL.sub("", body)

    def _handle_comment(self, match: re.Match[str]) -> None:
        end = self._find_next("-->", match.end())
        self._position = end + 3 if end >= 0 else match.end()

    def _handle_fence(self, match: re.Match[str]) -> None:
        mark = match["mark"]
        fence = re.compile(rf"^[ \t>]{{0,40}}{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE)
        closing = fence.search(self._text, match.end())
        body = self._text[match.end() : closing.start() if closing else len(self._text)]
        info = match["info"].strip()
        self._position = closing.end() if closing else len(self._text)
        if _RAW_FENCE.fullmatch(info):
            self._out.append(body + "\n")
        elif _MATH_FENCE.match(info):
            body = self._strip_quote_marks(match.start("mark"), body)
            label = None
            if options := _DIRECTIVE_OPTIONS.match(body):
                body = body[options.end() :]
                label = _DIRECTIVE_LABEL.search(options[1])
            self._append_display(body, label)

    def _handle_heading(self, match: re.Match[str]) -> None:
        if self._is_title:
            self._append(self._text[match.start() : match.start("title")], match.start("title"))
            return
        title = _CLOSING_HASHES.sub("", match["title"].rstrip())
        self._append_heading(len(match["hashes"]), title)

    def _append_heading(self, level: int, title: str) -> None:
        title = _ATTRIBUTES.sub("", title).strip()
        if _MARKUP.search(title):
            title = MarkdownConverter(title, is_title=True).convert()
        else:
            title = escape_percent(title)
        self.first_heading = self.first_heading or " ".join(title.split())
        self._out.append(format_heading(level, title))

    def _handle_code(self, match: re.Match[str]) -> None:
        """Drop a code span; back-ticks that are not closed in the paragraph are characters."""
        mark = match.group()
        window = self._text[match.end() : match.end() + _MAX_INLINE_CHARS]
        blank = _PARAGRAPH.search(window)
        found = re.search(rf"(?<!`){mark}(?!`)", window[: blank.start()] if blank else window)
        if found is not None:
            self._append(" ", match.end() + found.end())

    def _handle_dollars(self, match: re.Match[str]) -> None:
        end = self._find_next("$$", match.end())
        if end < 0:
            self._append(r"\$\$", match.end())
            return
        label = _LABEL_AFTER.match(self._text, end + 2)
        self._append_display(self._strip_quote_marks(match.start(), self._text[match.end() : end]), label)
        after = label or _ATTRIBUTES.match(self._text, end + 2)
        self._position = after.end() if after else end + 2

    def _append_display(self, body: str, label: re.Match[str] | None) -> None:
        # An environment has labels of its own.
        has_own = body.lstrip().startswith(r"\begin")
        self._out.append(format_display_math(body if label is None or has_own else rf"{body}\label{{{label[1]}}}"))

    def _handle_wikilink(self, match: re.Match[str]) -> None:
        """Keep the words of a link of Obsidian; drop what is embedded."""
        self._append("" if match[0][0] == "!" else escape_percent(match["alias"] or match["target"]), match.end())

    def _handle_dollar(self, match: re.Match[str]) -> None:
        """Keep inline math by Pandoc's rule: no space inside the signs, no digit after the second."""
        end = _find_inline_end(self._text, match.end())
        if end is None:
            self._append(r"\$", match.end())
        else:
            self._append(self._text[match.start() : end], end)

    def _handle_environment(self, match: re.Match[str]) -> None:
        ends = self._ends.get(match["env"], [])
        at = bisect_left(ends, match.end())
        if at < len(ends):
            body = self._strip_quote_marks(match.start(), self._text[match.start() : ends[at]])
            self._append(body, ends[at])

    def _handle_bracket(self, match: re.Match[str]) -> None:
        closing = match.group()[:-1] + "]"
        end = self._find_next(closing, match.end())
        if end < 0:
            return
        if self._blanks is None:
            self._blanks = [blank.start() for blank in _BLANK.finditer(self._text)]
        at = bisect_left(self._blanks, match.end())
        # A blank line ends a paragraph, and with it what could be math.
        if at == len(self._blanks) or self._blanks[at] >= end:
            self._append(format_display_math(self._text[match.end() : end]), end + len(closing))

    def _handle_paren(self, match: re.Match[str]) -> None:
        closing = match.group()[:-1] + ")"
        end = self._find_next(closing, match.end())
        if 0 <= end <= match.end() + _MAX_INLINE_CHARS:
            self._append(f"${self._text[match.end() : end].strip()}$", end + len(closing))


def _find_positions(text: str, mark: str) -> list[int]:
    """Return the positions of `mark` in `text`; dollar signs after a backslash do not count."""
    if mark == "$$":
        return [m.start(1) for m in re.finditer(r"\\[\s\S]|(\$\$)", text) if m.group(1)]
    return [m.start() for m in re.finditer(re.escape(mark), text)]


def _find_inline_end(text: str, start: int) -> int | None:
    """Return the end of the inline math whose dollar sign is before `start`; None if it is not math."""
    window = text[start : start + _MAX_INLINE_CHARS]
    blank = _PARAGRAPH.search(window)
    if blank:
        window = window[: blank.start()]
    if not window or window[0].isspace():
        return None
    signs = (match.start() for match in re.finditer(r"\\[\s\S]|\$", window) if match.group() == "$")
    for sign in islice(signs, _MAX_CLOSING_TRIES):
        end = start + sign + 1
        if sign == 0 or window[sign - 1].isspace():
            return None
        if not text[end : end + 1].isdigit():
            return end
    return None


def read_front_matter(text: str, paper: Paper) -> str:
    """Put the fields of a YAML header into a paper, and return the text after it."""
    match = _HEADER.match(text[:_MAX_HEADER_CHARS])
    fields = {name.lower(): written for name, written in _FIELD.findall(match[1])} if match else {}
    if match is None or not fields:
        return text

    def find_text(*names: str) -> str:
        values = (_parse_field(fields.get(name, "")) for name in names)
        return " ".join(next((value for value in values if isinstance(value, str) and value), "").split())

    paper.title = find_text("title")
    paper.authors = _list_authors(_parse_field(fields.get("author") or fields.get("authors", "")))
    paper.year = find_year(" ".join(map(find_text, ("year", "date", "created"))))
    paper.lang = find_text("lang", "language")[:20]
    paper.abstract = find_text("abstract")
    paper.doi = find_doi(find_text("doi"))
    return text[match.end() :]


def _parse_field(written: str) -> Any:
    """Return the value of one field, with every scalar as text.

    Headers of notes often are not valid YAML, as in `title: Sums: an introduction`: then a field is what is written.
    """
    try:
        # BaseLoader makes strings, lists and mappings, never objects.
        return yaml.load(f"field:{written}", yaml.BaseLoader)["field"]
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError):
        return " ".join(written.split()).strip("\"'>| ")


def _list_authors(value: Any) -> list[str]:
    """Return the names in one string, in a list of strings, or in a list of mappings with a `name`."""
    listed = re.split(r"\band\b|;", value) if isinstance(value, str) else value if isinstance(value, list) else [value]
    names = [author.get("name") if isinstance(author, dict) else author for author in listed]
    return [name.strip() for name in names if isinstance(name, str) and name.strip()]
