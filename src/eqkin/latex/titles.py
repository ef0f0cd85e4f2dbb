r"""What a document says about itself: title, authors, year, language, DOI, arXiv identifiers.

Of a document only bibliography items are searched for identifiers (`1706.03762v2`, `hep-th/9901001`): a decimal number
in the text is none.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

from eqkin.latex.macros import Macro, expand_macros, find_definitions
from eqkin.latex.prose import to_plain_text
from eqkin.latex.scan import Scanner

# Characters of text.
MAX_TITLE = 500
# Characters of LaTeX.
_MAX_HEADING = 5_000
_MAX_AUTHORS = 100
# Characters of one name.
_MAX_AUTHOR = 100
_COMMAND = re.compile(r"\\(title|author|date|acmDOI|copyrightyear|pubyear)\s*+(?=[\[{])")
_PDF_TITLE = re.compile(r"pdftitle\s*=\s*\{([^{}]{1,300})\}")
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)")
_DOI = re.compile(r"10\.\d{4,9}/[^\s{}\"<>]{1,200}")
_SAMPLE_DOI = re.compile(r"n{4}|x{4}|1122445", re.IGNORECASE)  # of the templates of publishers
# What commands of titles leave of their arguments: links and colours their text, notes and layout nothing.
_LAYOUT = r"""
\def\href#1#2{#2} \newcommand\textcolor[3][]{#3} \newcommand\colorbox[3][]{#3} \def\texorpdfstring#1#2{#1}
\newcommand\color[2][]{} \newcommand\rule[3][]{} \def\fontsize#1#2{} \def\usefont#1#2#3#4{} \def\parbox#1#2{#2}
\newcommand\thanks[2][]{} \newcommand\footnote[2][]{} \newcommand\footnotemark[1][]{} \newcommand\vspace[1]{}
\newcommand\hspace[1]{} \newcommand\includegraphics[2][]{} \newcommand\tnoteref[1]{} \newcommand\corref[1]{}
\newcommand\fnref[1]{} \newcommand\inst[1]{} \newcommand\affil[2][]{} \newcommand\orcid[1]{} \newcommand\orcidlink[1]{}
\newcommand\email[2][]{} \newcommand\ead[2][]{} \newcommand\textsuperscript[1]{} \newcommand\institute[1]{}
\newcommand\IEEEauthorrefmark[1]{} \newcommand\IEEEauthorblockN[1]{#1} \newcommand\IEEEauthorblockA[1]{}
\newcommand\url[1]{} \newcommand\label[1]{} \newcommand\hypersetup[1]{} \newcommand\today{} \newcommand\rlap[1]{#1}
\newcommand\address[2][]{} \newcommand\affiliation[2][]{} \newcommand\index[1]{}
\newcommand\fontseries[1]{} \newcommand\fontshape[1]{} \newcommand\fontfamily[1]{} \newcommand\raisebox[2]{#2}
"""
_LENGTH = re.compile(
    r"\\(?:rule\s*\\[a-z]+\s*\{?[\d.]+\s*[a-z]{2}\}?|(?:[a-z]*skip|[mhv]?kern|[a-z]*space|parindent)\s*=?\s*-?[\d.]+\s*(?:pt|em|ex|cm|mm|in)|begin\s*\{tabular\*?\}(?:\[\w\])?\s*\{[^{}]*\})"
)
_BREAK = re.compile(r"\\\\\*?(?:\s*\[[^\]]{0,20}\])?")
_AND = re.compile(r"\\(?:and|And|AND|quad|qquad)(?![A-Za-z])")
_SUPERSCRIPT = re.compile(r"\$[^$]*+\$|\\\(.*?\\\)")
_NOTE = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\S+@\S+|https?://\S*|[*†‡§¶∗|]+")
_LED_BY = re.compile(r"\A(?:.*\bby|von|par|por|authors?\s*:|автор\s*:|作者\s*[:：])\s*:?\s+", re.IGNORECASE | re.DOTALL)
_SEPARATOR = re.compile(r"\s*[,;·•]\s*(?:and\s+|&\s*)?|\s+(?:and|und|et|e|y|и)\s+|\s*&\s*")
_NAME = re.compile(r"(?:[^\W\d_a-z][\w.'’`-]*|von|van|de[rnl]?|du|la|le|di|da|dos|bin|al|ter)(?:\s+|\Z)")
_PLACEHOLDER = re.compile(
    r"(?:(?:insert|enter|your|the|paper|article|document|report|project|full|main|short|first|second|corresponding"
    r"|student|working|thesis|chapter)\s+)*(?:title|titel|titre|name|names|authors?|heading|subtitle)"
    r"(?:\s+(?:name|one|two|here|of\s+(?:the|your|this)\s+(?:paper|article|document|thesis|report)|goes\s+here|[\dA-C]))*"
    r"|(?:[A-C]\.\s*){1,3}author|first\s?name\s+(?:m\.?\s+)?(?:last|sur)\s?name|john\s+(?:q\.?\s+)?(?:doe|smith)|jane\s+doe"
    r"|untitled\d*|anonymous(?:\s+authors?)?|todo|tbd|n/?a|none|unknown|me|template|lorem\s+ipsum.*|title\s*page",
    re.IGNORECASE,
)
_LANGUAGE_OPTION = re.compile(
    r"\\(?:usepackage\s*\[([^\]]{1,200})\]\s*\{babel\}|set(?:default|main)language\s*(?:\[[^\]]*\])?\s*\{([a-z]+)\})"
)
_LANGUAGES = {
    name: code
    for code, names in {
        "en": "english american british usenglish ukenglish UKenglish USenglish", "de": "german ngerman naustrian",
        "fr": "french francais frenchb", "es": "spanish", "it": "italian", "pt": "portuguese brazil brazilian portuges",
        "nl": "dutch", "ru": "russian", "uk": "ukrainian", "pl": "polish", "cs": "czech", "sv": "swedish",
        "da": "danish", "nb": "norsk", "fi": "finnish", "hu": "magyar hungarian", "ro": "romanian", "tr": "turkish",
        "el": "greek", "ca": "catalan", "vi": "vietnamese",
    }.items()
    for name in names.split()
}  # fmt: skip

# So many frequent words of a language must occur.
_MIN_WORDS = 5
# So many letters of a script must occur.
_MIN_LETTERS = 10
# A sample is taken at each of three places.
_SAMPLE_CHARS = 6_000
_NOT_PROSE = re.compile(r"\$[^$]{0,2000}\$|\\\(.{0,2000}?\\\)|\\[A-Za-z]+\*?|[{}\[\]&~_^0-9]", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+")
_SCRIPTS = {
    language: re.compile(letters, re.IGNORECASE)
    for language, letters in (
        line.split()
        for line in r"""
            ko [\uac00-\ud7af]
            ja [\u3040-\u30ff]
            zh [\u4e00-\u9fff]
            uk [іїєґ]
            ru [\u0400-\u04ff]
            ar [\u0600-\u06ff]
            he [\u0590-\u05ff]
            hi [\u0900-\u097f]
            th [\u0e00-\u0e7f]
            el [\u0370-\u03ff]{3,}
            """.strip().split("\n")
    )
}
# The most frequent words of each language, which begins its line.
_WORD_LISTS = """
en the of and to is that we for in with this be are by it as which from on have can then
de der die das und ist von mit für den eine ein dem des nicht sich auf sind wir dass wird
fr le la les des et est une un dans pour que qui sur par avec nous du au sont pas on ce
es el la los las de que y en un una es por con para del se como son no lo al si
it il la di che e un una per è con del della si in sono non nel dei le gli alla da
pt o a os as de que e em um uma é por com para do da se não na no são dos como
nl de het een van en is dat voor met op zijn niet aan wordt te deze door we dan
pl w i na że się jest nie z do to dla oraz jako przez są od jeśli który można
cs a je na se že v pro jsou z to do nebo jako který pokud který má jsme podle
sv och att det som en är av för med på den till ett inte vi har om kan
tr ve bir bu için ile olan olarak da de her ise bir gibi daha çok veya
ro și de la în este un o care pentru cu nu că se din sunt pe mai
vi là của và các một cho có trong được với không khi ta này những
hu a az és hogy egy nem is van meg ha akkor vagy mint ezt
"""
_LANGUAGES_OF_WORDS: defaultdict[str, list[str]] = defaultdict(list)
for _language, *_words in map(str.split, _WORD_LISTS.strip().split("\n")):
    for _word in set(_words):
        # One letter may be a symbol.
        if len(_word) > 1:
            _LANGUAGES_OF_WORDS[_word].append(_language)


@dataclass
class TitlePage:
    """What a document says about itself; empty where it says nothing."""

    title: str = ""
    authors: list[str] = field(default_factory=list)
    year: int | None = None
    lang: str = ""  # declared, as a code: "en", "de"
    doi: str = ""


@cache
def _define_layout() -> dict[str, Macro]:
    found = (definition.value for definition in find_definitions(_LAYOUT))
    return {macro.name: macro for macro in found if isinstance(macro, Macro)}


def read_title_page(text: str, macros: dict[str, Macro]) -> TitlePage:
    r"""Read `\title`, `\author`, `\date` and the like in a text without comments; macros are expanded."""
    page = TitlePage()
    scanner = Scanner(text)
    for match in islice(_COMMAND.finditer(text), 200):
        written = read_heading(scanner, match.end())[0]
        if match[1] == "title":
            page.title = page.title or clean_title(written, macros)
        elif match[1] == "author":
            page.authors += _split_author_block(written, macros)
        elif match[1] == "acmDOI":
            page.doi = page.doi or find_doi(written)
        else:
            page.year = page.year or find_year(clean_heading(written, macros))
    if not page.title and (declared := _PDF_TITLE.search(text)):
        page.title = clean_title(declared[1], macros)
    page.authors = clean_authors(page.authors)
    options = _LANGUAGE_OPTION.search(text)
    # The last language of babel is the main one.
    if options:
        names = (options[1] or options[2]).replace("main=", "").split(",")
        page.lang = next((code for name in reversed(names) if (code := _LANGUAGES.get(name.strip()))), "")
    return page


def read_heading(scanner: Scanner, at: int) -> tuple[str, int]:
    """Read the braced argument at `at`, after an optional bracketed one; return it and the index after it."""
    text = scanner.text
    at = scanner.skip_space(at)
    if text[at : at + 1] == "[":
        end = scanner.find_end(at)
        at = scanner.skip_space(end) if end > 0 else at + 1
    if text[at : at + 1] != "{":
        return "", at
    end = scanner.find_end(at)
    if end < 0 or end - at > _MAX_HEADING:
        line = text.find("\n", at)
        end = min(line if line > 0 else len(text), at + _MAX_HEADING)
        return text[at + 1 : end], end
    return text[at + 1 : end - 1], end


def clean_heading(latex: str, macros: dict[str, Macro]) -> str:
    r"""Return a title as one line of text: macros expanded, notes and layout dropped, math as `\(...\)`."""
    if "\\" in latex:
        latex = _BREAK.sub(" ", expand_macros(_LENGTH.sub(" ", latex), (macros | _define_layout()).get))
    title = " ".join(to_plain_text(latex).split())
    return title.strip(" -–—:").replace("**", "")[:MAX_TITLE]


def clean_title(latex: str, macros: dict[str, Macro]) -> str:
    """Return the title of a document as `clean_heading` does, "" for the placeholder of a template."""
    title = clean_heading(latex, macros)
    return "" if _PLACEHOLDER.fullmatch(title) else title


def _split_author_block(latex: str, macros: dict[str, Macro]) -> list[str]:
    r"""Return the first line of each part of an `\author`: below it come affiliations."""
    latex = expand_macros(latex, (macros | _define_layout()).get)
    names = []
    for part in _AND.split(_SUPERSCRIPT.sub(" ", _LENGTH.sub(" ", latex))):
        lines = (" ".join(to_plain_text(line).split()) for line in re.split(r"\\\\|\\newline|\n\s*\n", part))
        names.append(next(filter(None, lines), ""))
    return names


def clean_authors(names: list[str]) -> list[str]:
    """Return names of authors without notes, addresses and placeholders; several names in one text are split."""
    found: list[str] = []
    for text in names:
        text = " ".join(_LED_BY.sub("", _NOTE.sub(" ", text), count=1).split())
        parts = [part for part in _SEPARATOR.split(text) if part]
        # "Last, First" and "Department of Energy" are one name
        several = len(parts) > 1 and all(" " in part for part in parts[:2]) and _count_names(parts) > len(parts) / 2
        found += [part for part in parts if _count_names([part])] if several else [text]
    found = [name.strip(" .,:;-–—0123456789") + ("." if name.endswith(".") else "") for name in found]
    known = (name[:_MAX_AUTHOR] for name in dict.fromkeys(found) if any(map(str.isalpha, name)))
    return [name for name in known if not _PLACEHOLDER.fullmatch(name)][:_MAX_AUTHORS]


def _count_names(parts: list[str]) -> int:
    """Count the parts that look like the name of a person: two to five words, written with capital letters."""
    return sum(1 < part.count(" ") + 1 < 6 and len(_NAME.findall(part)) == part.count(" ") + 1 for part in parts)


def order_name(name: str) -> str:
    """Return "Jane Doe" for "Doe, Jane"; several commas separate something else."""
    parts = name.replace("{", "").replace("}", "").split(",")
    return " ".join((" ".join(reversed(parts)) if len(parts) == 2 else ",".join(parts)).split())


def find_year(text: str) -> int | None:
    """Return the first year in a date; None if there is none."""
    found = _YEAR.search(text)
    return int(found[0]) if found else None


def find_doi(text: str) -> str:
    """Return the DOI in a text, "" if there is none or only that of a template."""
    found = _DOI.search(text)
    return "" if found is None or _SAMPLE_DOI.search(found[0]) else found[0].rstrip(".,;:)]")


def detect_language(text: str) -> str:
    """Return the code of a text's language, "" if it cannot be told. Commands and math are left out."""
    starts = (len(text) * part // 8 for part in ((0,) if len(text) < _SAMPLE_CHARS else (1, 3, 5)))
    prose = _NOT_PROSE.sub(" ", " ".join(text[start : start + _SAMPLE_CHARS] for start in starts))
    words = _WORD.findall(prose)
    letters = sum(map(len, words))
    for language, script in _SCRIPTS.items():
        found = sum(map(len, script.findall(prose)))
        # A few kana among many kanji are Japanese, and a few letters that Russian lacks are Ukrainian.
        share = 0.02 if language in ("ja", "uk") else 0.15
        if found >= min(_MIN_LETTERS, letters) and found > share * letters:
            return language
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(_LANGUAGES_OF_WORDS.get(word.lower(), ()))
    best = counts.most_common(2)
    if not best or best[0][1] < _MIN_WORDS or (len(best) > 1 and best[0][1] < 1.2 * best[1][1]):
        return ""
    return best[0][0]


def normalise_language(code: str) -> str:
    """Return a declared language as a short code (`en-US` -> `en`), "" for none."""
    code = code.strip().lower().replace("_", "-").split("-")[0]
    return code if re.fullmatch("[a-z]{2,3}", code) and code != "und" else ""


_ARCHIVES = (
    "acc-phys|adap-org|alg-geom|ao-sci|astro-ph|atom-ph|bayes-an|chao-dyn|chem-ph|cmp-lg|comp-gas|cond-mat|cs|dg-ga"
    "|funct-an|gr-qc|hep-ex|hep-lat|hep-ph|hep-th|math-ph|math|mtrl-th|nlin|nucl-ex|nucl-th|patt-sol|physics|plasm-ph"
    "|q-alg|q-bio|q-fin|quant-ph|solv-int|stat|supr-con"
)
_NEW_MONTH = r"(?:0[7-9]|[1-9]\d)(?:0[1-9]|1[0-2])"  # the new style began in April 2007
_NEW_ID = rf"{_NEW_MONTH}\.\d{{4,5}}"
_OLD_ID = rf"(?:{_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?/\d{{2}}(?:0[1-9]|1[0-2])\d{{3}}"
_ID = re.compile(rf"(?P<base>{_NEW_ID}|(?i:{_OLD_ID}))(?:v(?P<version>[1-9][0-9]{{0,2}}))?", re.ASCII)
_OLD_FILE = re.compile(rf"(?P<archive>{_ARCHIVES})(?:\.[A-Z]{{2}})?[/_]?(?P<number>[0-9]{{7}}(?:v[0-9]{{1,3}})?)")
_PREFIX = re.compile(
    r"(?:arxiv\s*+:\s*+)?(?:(?:https?://)?(?:[a-z0-9]++\.){0,5}arxiv\.org/(?:abs|pdf|html|e-print|src|format|ps)/)?",
    re.IGNORECASE,
)
# No file that is named after an identifier has a longer name.
_MAX_NAME_CHARS = 100
_SUFFIXES = re.compile(r"(?:\.(?:gz|tgz|tar|tex|pdf|zip))+\Z", re.IGNORECASE)
# A new-style identifier needs a marker (arXiv, eprint, abs/ ...): volumes and pages look the same.
_MARKED_MONTH = re.compile(
    rf"(?:arxiv\s*+[:.]?\s*+(?:org/(?:abs|pdf|e-print)/)?|arxiv[^A-Za-z0-9]{{1,12}}|eprint\s*+=?\s*+[{{\"(\[]*+\s*+"
    rf"|abs/|pdf/|CoRR[^0-9]{{1,12}}(?:abs/)?)\s*+[{{\[(~\\]*+\s*+({_NEW_MONTH})$",
    re.IGNORECASE,
)
_OLD_ARCHIVE = re.compile(rf"(?<![A-Za-z0-9.-])(?:{_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?$", re.IGNORECASE)
# Both kinds are found by what follows their "." or "/", which is rare; then the text before is checked.
_NUMBER = re.compile(r"\.\d{4,5}(?!\d)|/\d{7}(?!\d)")
# The marker of a number stands within so many characters before it.
_MARKER_REACH = 60
_BIBLIOGRAPHY = re.compile(
    r"\\begin\s*+\{thebibliography\}.*?(?:\\end\s*+\{thebibliography\}|\Z)|\\bibitem.*?(?=\\end\s*+\{document\}|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class ArxivId:
    """One identifier: `base` without version; `version` 0 where none was given."""

    base: str
    version: int = 0

    @property
    def full(self) -> str:
        """The identifier with its version, if it has one."""
        return f"{self.base}v{self.version}" if self.version else self.base

    @property
    def key(self) -> str:
        """The key of the paper, the same for all versions."""
        return f"arxiv:{self.base}"

    @property
    def year(self) -> int:
        """The year of the first submission, which is part of the identifier."""
        digits = self.base.rpartition("/")[2][:2]
        return int(digits) + (1900 if int(digits) > 90 else 2000)


def parse_arxiv_id(text: str) -> ArxivId | None:
    """Parse an identifier: bare, with `arxiv:`, or an address of arxiv.org; return None for anything else."""
    text = text.strip().split("?", 1)[0].split("#", 1)[0].rstrip("/")
    prefix = _PREFIX.match(text)
    return _parse_bare_id(text[prefix.end() if prefix else 0 :].removesuffix(".pdf"))


def parse_file_name(name: str) -> ArxivId | None:
    """Return the identifier that a file is named after (`hep-th9901001.gz`, `1706.03762v2.tar.gz`), or None."""
    stem = _SUFFIXES.sub("", name.rpartition("/")[2][-_MAX_NAME_CHARS:])
    old = _OLD_FILE.fullmatch(stem)
    return _parse_bare_id(f"{old['archive']}/{old['number']}" if old else stem)


def _parse_bare_id(text: str) -> ArxivId | None:
    match = _ID.fullmatch(text)
    if match is None:
        return None
    archive, slash, number = match["base"].rpartition("/")
    return ArxivId(archive.split(".")[0].lower() + slash + number, int(match["version"] or 0))


def find_cited_ids(document: str, bibliographies: list[str]) -> list[str]:
    """Return the identifiers in the bibliography items of a document and in its .bbl and .bib texts, sorted."""
    texts = list(bibliographies)
    if "\\bibitem" in document or "thebibliography" in document:
        texts += [match[0] for match in _BIBLIOGRAPHY.finditer(document)]
    return sorted({found.base for text in texts for found in _iter_ids(text)})


def find_arxiv_id(text: str) -> ArxivId | None:
    """Return the first identifier in a text that is marked as one (`arXiv:`, `arxiv.org/abs/`), None without one."""
    return next(_iter_ids(text), None)


def _iter_ids(text: str) -> Iterator[ArxivId]:
    for match in _NUMBER.finditer(text):
        before = text[max(match.start() - _MARKER_REACH, 0) : match.start()]
        marked = (_MARKED_MONTH if match[0][0] == "." else _OLD_ARCHIVE).search(before)
        if marked and (found := _parse_bare_id(marked[marked.lastindex or 0] + match[0])):
            yield found
