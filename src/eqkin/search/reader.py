r"""Read what people type into one box: a formula in any notation, a name, words, or words and a formula.

    P(A|B) = \frac{P(B|A) P(A)}{P(B)}       latex
    iħ ∂ψ/∂t = Hψ                           unicode
    1/sqrt(1-v^2/c^2)                       ascii
    Bayes' theorem                          name: of a law whose formula is known
    law with conditional probabilities      words
    Ising model -J sum s_i s_j              mixed: words and a formula

The text is cut at spaces. Each piece is math (it has a sign or a backslash), a word (a known one, or one that can be
pronounced), or neither (single letters, `sum`, `gamma`, `of`). Words without math are words, and math without words is
a formula; of both, the longest part without a word is the formula.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby

from eqkin.atlas import list_articles
from eqkin.latex.plain import translate_plain
from eqkin.latex.signs import MATH_NAMES, SIGN_CHARACTERS
from eqkin.latex.typed import decode_entities
from eqkin.limits import LIMITS
from eqkin.search.query import (
    Formula,
    FormulaError,
    FormulaReader,
    Problem,
    is_mathml,
)

KINDS = ("latex", "mathml", "unicode", "ascii", "words", "name", "mixed")
_STOP_WORDS = frozenset(
    "a an and are as at be by can do does each every for from given has have how if in into is it its like let of on or"
    " over so such than that the their then there these this to under was we what when where which who why will with"
    " without vs via about".split()
)
_MATH_WORDS = frozenset({"integral", "sum", "product", "limit", "root", "squared", "cubed", "square"})
_SIGN_CHARACTERS = frozenset("^_=<>+*|~{}\\√∛∜") | SIGN_CHARACTERS
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]*)?")
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]*)?(?:[-–/][^\W\d_]+(?:['’][^\W\d_]*)?)*")
_PROSE_MATH = re.compile(
    r"\$[^$]*\$|\\begin\{(equation|align|gather|multline)\}.*?\\end\{\1\}|\\[A-Za-z]+(?:\{[^{}]*\})?", re.DOTALL
)
_TEXT_ARGUMENTS = re.compile(r"\\(?:text[a-z]*|mbox|operatorname\*?|math[a-z]+|begin|end|label|tag)\s*\{[^{}]*\}")
_PLAIN_NAME = re.compile(r"(?<![\\A-Za-z])(?:" + "|".join(sorted(MATH_NAMES, key=len, reverse=True)) + r")(?![A-Za-z])")
_PLAIN_SIGN = re.compile(r"<=|>=|!=|->|\+-|[√∛∜½⅓¼¾ħ]|(?<![\\A-Za-z])[A-Za-z]*(?:softmax|sqrt)\(")
_TRAILING = re.compile(r"(?<!\\)(?:\\[,;:! ])*\s*[.,;:]+\s*$")
_OPERATORS = frozenset("=+*/<>−×·")  # that stand alone between two words
_RELATION_ENDS = re.compile(r"^(?:=|:|<=?|>=?|≤|≥|\\leq?|\\geq?|→|->|,)+$")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_VOWELS = frozenset("aeiouyäöüéèáíóúàâêîôûåøæœ")


@dataclass(frozen=True)
class ReadQuery:
    """A query as it was understood."""

    text: str  # as typed
    kind: str  # one of `KINDS`
    latex: str = ""  # its formula; "" for words and MathML
    words: str = ""  # its words; "" for a formula
    name: str = ""  # of the law it names
    mathml: str = ""  # its formula, safe to be shown
    unknown: tuple[str, ...] = ()  # undefined commands of the formula, shown by name
    repairs: tuple[str, ...] = ()  # of typing errors, in plain sentences
    alternatives: tuple[tuple[str, str], ...] = ()  # other ways to read it: label, and "words" or "formula"
    problem: Problem | None = None  # what is wrong, if the formula cannot be read
    # With its tree; None if there is none, or it cannot be read.
    formula: Formula | None = field(default=None, repr=False, compare=False)


class QueryReader:
    """Reads queries; safe to share between threads.

    Args:
        formulas: Converts formulas.
        find_name: Returns a law's name and LaTeX for words that name it; ("", "") for others.
        knows_word: Returns whether a library has a word.
    """

    def __init__(
        self,
        formulas: FormulaReader | None = None,
        find_name: Callable[[str], tuple[str, str]] = lambda words: ("", ""),
        knows_word: Callable[[str], bool] = lambda word: False,
    ) -> None:
        self.formulas: FormulaReader = formulas or FormulaReader(1)
        self._find_name = find_name
        self._knows_word = knows_word

    def read(self, text: str, *, as_words: bool = False, as_formula: bool = False) -> ReadQuery:
        """Read a query. Raises nothing for what was typed.

        Args:
            text: As typed or pasted.
            as_words: All of it is words.
            as_formula: All of it is one formula.
        """
        text = _CONTROL.sub(" ", text.encode("utf-8", "replace").decode())
        typed = text.strip()
        if not typed:
            return ReadQuery(text, "words", problem=Problem("nothing was typed", 0, "empty"))
        # MathML has a limit of its own, so it comes before that of LaTeX.
        if is_mathml(typed) and not as_words:
            return self._read_formula(ReadQuery(text, "mathml"), typed)
        if len(typed) > LIMITS.latex_chars:
            problem = Problem(f"the query is longer than {LIMITS.latex_chars:,} characters", reason="limit: size")
            return ReadQuery(text, "latex", problem=problem)
        # Text that was copied from a page's source has entities, and may be MathML once they are decoded.
        typed = decode_entities(typed).text
        if is_mathml(typed) and not as_words:
            return self._read_formula(ReadQuery(text, "mathml"), typed)
        if as_formula:
            return self._read_math(ReadQuery(text, "latex", alternatives=(("Read as words instead", "words"),)), typed)
        if as_words:
            other = (("Read as a formula instead", "formula"),)
            return ReadQuery(text, "words", words=typed[: LIMITS.query_text_chars], alternatives=other)
        words, math = self._split(typed)
        if not math:
            return self._read_words(ReadQuery(text, "words"), words)
        if not words:
            # A product of letters may have been meant as a word: offer to read it so.
            has_words = re.search(r"[^\W\d_]{2}", typed) is not None
            others = (("Read as words instead", "words"),) if has_words else ()
            return self._read_math(ReadQuery(text, "latex", alternatives=others), math)
        both = (("Read all of it as words", "words"), ("Read all of it as a formula", "formula"))
        read = self._read_math(ReadQuery(text, "mixed", words=words, alternatives=both), math)
        # What cannot be read among words was probably no formula.
        if read.problem is not None:
            return self._read_words(ReadQuery(text, "words"), typed)
        return replace(read, kind="mixed")

    def _read_words(self, query: ReadQuery, words: str) -> ReadQuery:
        words = words[: LIMITS.query_text_chars]
        name, latex = self._find_name(words)
        query = replace(query, words=words, alternatives=(("Read as a formula instead", "formula"),))
        if not name:
            return query
        query = replace(query, kind="name", name=name)
        if not latex:
            return query
        # The law's own formula is searched for, too: other papers state it without its name.
        read = self._read_formula(query, latex, wildcards=False)
        if read.problem is not None:
            return query
        alternatives = (("Search for the words only", "words"), *query.alternatives)
        return replace(read, repairs=(), alternatives=alternatives)

    def _read_math(self, query: ReadQuery, text: str) -> ReadQuery:
        """Read a formula: LaTeX as it is; anything else is translated, if that can be read."""
        cleaned, repairs = _clean_ends(text)
        if is_clean_latex(cleaned):
            return self._read_formula(replace(query, repairs=repairs), cleaned)
        translation = translate_plain(cleaned, self._is_word)
        has_unicode = any(character > "\x7f" and not character.isspace() for character in cleaned)
        kind = query.kind if query.kind == "mixed" else "unicode" if has_unicode else "ascii"
        found = (*repairs, *translation.repairs)
        read = self._read_formula(replace(query, kind=kind, repairs=found), translation.latex)
        # If the translation only added braces, the text may be LaTeX as it stands: then it is called that.
        if re.sub(r"[{}\s]", "", translation.latex) == re.sub(r"[{}\s]", "", cleaned):
            given = self._read_formula(replace(query, repairs=repairs), cleaned)
            if given.mathml == read.mathml:
                return replace(given, kind="unicode") if kind == "unicode" else given
        if read.problem is None:
            return read
        # An error in the translation has no place in the text, one in the text itself has.
        return self._read_formula(replace(query, repairs=repairs), cleaned)

    def _read_formula(self, query: ReadQuery, latex: str, *, wildcards: bool = True) -> ReadQuery:
        try:
            formula = self.formulas.read(latex, wildcards=wildcards)
        except FormulaError as error:
            # A position in a translation means nothing to whoever typed the text.
            start = query.text.find(latex)
            at = error.problem.position
            is_known = start >= 0 and at >= 0
            return replace(query, problem=replace(error.problem, position=start + at if is_known else -1))
        repairs = tuple(dict.fromkeys((*query.repairs, *formula.repairs)))
        return replace(
            query,
            latex=formula.latex,
            mathml=formula.mathml,
            unknown=formula.unknown,
            repairs=repairs,
            problem=None,
            formula=formula,
        )

    def _split(self, text: str) -> tuple[str, str]:
        """Return words and formula of a query; either may be empty."""
        chunks = _split_chunks(text)
        kinds = [self._classify(chunk) for chunk in chunks]
        for at, kind in enumerate(kinds):
            if kind == "word" and _is_operand(chunks, kinds, at):
                kinds[at] = "math"
        if "word" not in kinds:
            # "to be or not to be" has words of grammar only, but nobody would call it a formula.
            only_stops = all(kind == "stop" for kind in kinds)
            return (text, "") if only_stops else ("", text)
        if "math" not in kinds:
            return text, ""
        # The formula is the run without words that has most math; letters and numbers may be part of it.
        runs: list[list[int]] = []
        for is_word, members in groupby(range(len(chunks)), key=lambda at: kinds[at] in ("word", "stop")):
            if not is_word:
                runs.append(list(members))
        best = max(runs, key=lambda run: (sum(kinds[at] == "math" for at in run), len(run)))
        # "energy = m c^2" leaves "= m c^2" and "theorem 2 a = b" leaves "2 a = b": cut what joins it to the words.
        is_only_math = kinds.count("math") <= 1
        while best and (_RELATION_ENDS.match(chunks[best[0]]) or (kinds[best[0]] == "number" and not is_only_math)):
            best = best[1:]
        while best and _RELATION_ENDS.match(chunks[best[-1]]):
            best = best[:-1]
        if not any(kinds[at] == "math" for at in best):
            return text, ""
        words = " ".join(chunk for at, chunk in enumerate(chunks) if at not in set(best))
        return words, " ".join(chunks[at] for at in best)

    def _classify(self, chunk: str) -> str:  # noqa: C901
        """Return what a piece is: math, word, stop (a word of grammar), name (of a sign), letter or number."""
        core = chunk.strip('.,;:"“”„!…') or chunk
        # A question mark is a wildcard, unless it ends a question.
        if core.endswith("?") and self._is_word(core[:-1]):
            core = core[:-1]
        # In brackets or quotation marks, a remark is as much a word as what it contains.
        if core[:1] + core[-1:] in ("()", "[]", "''", "‘’") and len(core) > 2:
            inner = [self._classify(part) for part in core[1:-1].split()]
            return "word" if inner and set(inner) <= {"word", "stop"} else "math"
        if core.startswith("$") and len(core) > 1:
            return "math"
        if _SIGN_CHARACTERS.intersection(core) or "?" in core:
            # C*-algebra
            return "word" if re.fullmatch(r"[A-Z]\*-\w{3,}", core) else "math"
        if core.isdigit():
            return "number"
        # Punctuation decides nothing.
        if not any(character.isalnum() for character in core) and core not in "-−/":
            return "letter"
        if _WORDS.fullmatch(core):
            return self._classify_letters(core)
        # f', f'(x), g(x), [x]
        if re.search(r"[^\W\d_]['’]+(?:\(|$)", core) or any(c in "()[]" for c in core):
            return "math"
        # 3-body, L2-norm
        if re.fullmatch(r"[\w-]+", core) and re.search(r"[^\W\d_]{3}", core):
            parts = [part for part in core.split("-") if len(part) > 2]
            if parts and all(self._is_word(part) for part in parts):
                return "word"
        if any(unicodedata.category(c) in ("Sm", "No") or unicodedata.combining(c) for c in core) or core in "-−/!":
            return "math"
        # 2D, L2
        if re.fullmatch(r"\d[A-Za-z]|[A-Z]\d", core):
            return "letter"
        return "math" if re.search(r"[\d/!-]", core) else "word"

    def _classify_letters(self, core: str) -> str:
        lower = core.casefold()
        if lower in _STOP_WORDS:
            # "a" is a letter as often as a word.
            return "letter" if len(core) == 1 else "stop"
        if core.rstrip("'’") in MATH_NAMES or lower in _MATH_WORDS:
            return "name"
        parts = re.split(r"[-–/]", core)
        if len(parts) > 1:
            # "Navier-Stokes" needs one word, since names are not in the vocabulary; "a/b" needs all to be words.
            words = [len(part) > 2 and self._is_word(part) for part in parts]
            return "word" if any(words) and ("/" not in core or all(words)) else "math"
        letters = core.rstrip("'’")
        is_primed = letters != core
        if len(letters) == 1 or (len(letters) < 3 and is_primed):
            return "math" if is_primed or (letters > "\x7f" and not _is_foreign(letters)) else "letter"
        if any("GREEK" in unicodedata.name(letter, "") for letter in letters) and len(letters) < 5:
            return "math"
        return "word" if self._is_word(core) else "letter"

    def _is_word(self, text: str) -> bool:
        """Return whether letters are a word, not a product."""
        letters = text.rstrip("'’").casefold()
        if len(letters) < 2 or not letters.replace("'", "").replace("’", "").isalpha() or text in MATH_NAMES:
            return False
        if _is_foreign(letters[0]) or letters in load_vocabulary():
            return True
        if "'" in letters or "’" in letters or (len(letters) > 2 and self._knows_word(letters)):
            return True
        # Unknown words are long, written in one case, and can be pronounced: "abcd" and "mGh" are products.
        is_cased = text[1:].islower() or text.isupper()
        return len(letters) > 3 and is_cased and _is_pronounceable(letters)


def _is_operand(chunks: list[str], kinds: list[str], at: int) -> bool:
    """Return whether a word is an operand: `force = mass * acceleration`."""
    before = chunks[at - 1] if at else ""
    after = chunks[at + 1] if at + 1 < len(chunks) else ""
    neighbours = [kinds[other] for other in (at - 1, at + 1) if 0 <= other < len(kinds)]
    # Two words in a row are prose.
    if "word" in neighbours or "stop" in neighbours:
        return False
    is_before = before in _OPERATORS
    is_after = after in _OPERATORS
    return (is_before or is_after) and (is_before or not before) and (is_after or not after)


_default_readers: list[QueryReader] = []


def read_query(text: str, *, as_words: bool = False, as_formula: bool = False) -> ReadQuery:
    """Read a query without a library; names are those of the atlas. See `QueryReader.read`."""
    if not _default_readers:
        from eqkin.search.names import find_atlas_name

        _default_readers.append(QueryReader(find_name=find_atlas_name))
    return _default_readers[0].read(text, as_words=as_words, as_formula=as_formula)


@cache
def load_vocabulary() -> frozenset[str]:
    """Return the words of the atlas's prose, in small letters."""
    words: set[str] = set()
    for article in list_articles():
        prose = _PROSE_MATH.sub(" ", article.read_text("utf-8"))
        words.update(word.casefold().partition("'")[0] for word in _WORD.findall(prose))
    return frozenset(word for word in words if len(word) > 2 or word in _STOP_WORDS) - {name for name in MATH_NAMES}


def is_clean_latex(text: str) -> bool:
    r"""Return whether a formula is LaTeX without anything that must be translated (`sqrt(`, `<=`, `alpha`).

    A formula without any command or brace is not: `a/b` may be a fraction.
    """
    if "\\begin" in text:
        return True
    if not re.search(r"\\[A-Za-z]", text):
        return False
    bare = _TEXT_ARGUMENTS.sub(" ", text)
    return _PLAIN_SIGN.search(bare) is None and _PLAIN_NAME.search(bare) is None


def _clean_ends(text: str) -> tuple[str, tuple[str, ...]]:
    """Remove delimiters and punctuation around a formula; say so if that is worth a word."""
    repairs = []
    # Delimiters belong to the formula only if they surround all of it.
    dollars = len(re.findall(r"(?<!\\)\$", text))
    stripped = text.strip()
    if dollars % 2 or (dollars and not (stripped.startswith("$") and stripped.endswith("$"))):
        text = re.sub(r"(?<!\\)\$", " ", text)
        repairs.append("Removed a stray $.")
    elif dollars:
        text = re.sub(r"^\s*\$+|\$+\s*$", "", text)
    # The formula may have been copied with the end of its sentence.
    cut = _TRAILING.sub("", text)
    if cut.strip() and cut != text and not text.rstrip().endswith("..."):
        text = cut
    return text.strip(), tuple(repairs)


def _split_chunks(text: str) -> list[str]:
    """Split at spaces that are not within brackets."""
    chunks: list[str] = []
    depth = 0
    current = ""
    # Spaces within brackets do not separate, unless a bracket is missing: then nobody knows where it ends.
    opened = text.count("(") + text.count("[") + text.count("{")
    closed = text.count(")") + text.count("]") + text.count("}")
    for part in re.split(r"(\s+|(?<!\\)\$[^$]+\$)", text):
        if part.startswith("$") and len(part) > 2 and depth <= 0:
            chunks += [current, part] if current else [part]
            current = ""
            continue
        if part.isspace() and (depth <= 0 or opened != closed):
            if current:
                chunks.append(current)
            current = ""
            continue
        current += part
        depth += sum((character in "([{") - (character in ")]}") for character in part)
    return [*chunks, current] if current else chunks


def _is_foreign(letter: str) -> bool:
    """Return whether a letter is of a script that formulas do not use."""
    return letter.isalpha() and not unicodedata.name(letter, "").startswith(
        ("LATIN", "GREEK", "MATHEMATICAL", "SCRIPT")
    )


def _is_pronounceable(word: str) -> bool:
    # No word has five consonants, four vowels or three equal letters in a row.
    if len(set(word)) < 3 or not _VOWELS.intersection(word):
        return False
    return re.search(r"[^aeiouyäöüéèáíóúàâêîôûåøæœ]{5}|[aeiou]{4}|(.)\1\1", word) is None
