"""The language of a text, by its script and its most frequent words."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

_MIN_WORDS = 5  # frequent words of one language that must occur
_MIN_LETTERS = 10  # of a script
_SAMPLE_CHARS = 6_000  # of each of three places
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


def detect_language(text: str) -> str:
    """Return the code of a text's language, "" if it cannot be told. Commands and math are left out."""
    starts = (len(text) * part // 8 for part in ((0,) if len(text) < _SAMPLE_CHARS else (1, 3, 5)))
    prose = _NOT_PROSE.sub(" ", " ".join(text[start : start + _SAMPLE_CHARS] for start in starts))
    words = _WORD.findall(prose)
    letters = sum(map(len, words))
    for language, script in _SCRIPTS.items():
        found = sum(map(len, script.findall(prose)))
        share = 0.02 if language in ("ja", "uk") else 0.15  # kana among kanji, some letters of Ukrainian
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
