"""Plays as plain text: who speaks what.

The texts are set in several ways, and every one of them yields its roles:

    HAMLET.              HAMLET               Ham.               HAMLET. [Aside.] A little more
    To be, or not ...    To be, or not ...    To be, or not ...  than kin ...

A heading is the first line of a paragraph. Capitals are headings; in a play that sets its headings in small
letters, so is a short line of capitalised words with a full stop. Abbreviations become the name in the list of
persons. What follows belongs to that role until the next heading; what follows the heading of an act or a scene
belongs to nobody.

Notes:
  Not roles: speeches of several at once (ALL, BOTH, FIRST and SECOND LORD), prologues and epilogues without a
  speaker, songs' titles (their words are the singer's). Stage directions in brackets are left out, also where
  a bracket is missing. Two names of one man (MARCIUS, later CORIOLANUS) are two roles.
"""

import re
from collections import Counter
from collections.abc import Iterator

Speech = list[str]  # its lines

_PERSONS = re.compile(r"^\s*(persons represented|dramatis person)", re.IGNORECASE | re.MULTILINE)
_ORDINALS = r"[ivx]+|\d+|first|second|third|fourth|fifth|sixth|seventh"
_BODY = re.compile(rf"^\s*(act\s+({_ORDINALS})\b|(the\s+)?prologue\b|induction\b)", re.IGNORECASE | re.MULTILINE)
_ACT = re.compile(rf"(act|scene)\b\W*({_ORDINALS})?\b", re.IGNORECASE)
_OTHER_PART = re.compile(r"(THE )?(PROLOGUE|EPILOGUE|INDUCTION|DUMB SHOW|END|ORDER OF)\b")
_SONG = re.compile(r"(SONG|Song|SPRING|WINTER|[IVX]{2,})\.?")
_DIRECTION = re.compile(r"(Enter|Re-enter|Exit|Exeunt|Flourish|Alarum)\b")
_EXIT = re.compile(r"\s*\b(Exit|Exeunt|Re-enter)\b.*")
_SMALL = {"and", "of", "the", "de", "&c"}  # words of a heading that are not capitalised
_WORD = r"[A-Z][A-Za-z'-]+"
_NAME = re.compile(rf"(?:[A-Z\d]\.? )?{_WORD}(?:[ ,.&]+(?:{_WORD}|[A-Z]|and|of|the|de|c)\b)*")
_INLINE = re.compile(rf"({_WORD}(?: (?:{_WORD}|of))*)\. +(\S.*)")
_LONGEST_NAME = 32
_NUMERALS = {"1": "FIRST", "I": "FIRST", "2": "SECOND", "3": "THIRD"}


def roles(text: str) -> dict[str, list[Speech]]:
    """The speeches of each role of a play, in the order of the play; roles in the order of their entrance."""
    persons, body = _parts(text)
    paragraphs = list(_paragraphs(body))
    names = _names(paragraphs)
    full = {name: _full_name(name, names, persons) for name in names}
    spoken: dict[str, list[Speech]] = {}
    speaker = None
    for paragraph in paragraphs:
        if _is_part(paragraph[0]):
            speaker = None
            continue
        for position, line in enumerate(paragraph):
            name, words = _heading(line, names, first=position == 0, last=position == len(paragraph) - 1)
            if name:
                speaker = None if _several(name, names) else full[name]
                spoken.setdefault(speaker or "", []).append([])
            if words and speaker and not _SONG.fullmatch(words):
                spoken[speaker][-1].append(words)
    spoken = {name: [lines for lines in speeches if lines] for name, speeches in spoken.items()}
    return {name: speeches for name, speeches in spoken.items() if speeches}


def _parts(text: str) -> tuple[str, str]:
    """The list of persons, and the play itself."""
    start = _PERSONS.search(text)
    begin = start.end() if start else 0
    body = _BODY.search(text, begin)
    cut = body.start() if body else begin
    return text[begin:cut], text[cut:]


def _paragraphs(text: str) -> Iterator[list[str]]:
    """Lines between blank lines, without stage directions."""
    text = text.replace("{", "[").replace("}", "]").replace("_", "")
    for paragraph in re.split(r"\n\s*\n", text):
        if _DIRECTION.match(paragraph.strip()) and not paragraph.strip().endswith(","):
            continue
        lines = [_EXIT.sub("", " ".join(line.split())) for line in _without_directions(paragraph).splitlines()]
        if lines := [line for line in lines if line]:
            yield lines


def _without_directions(paragraph: str) -> str:
    """Text outside brackets; one that is never closed ends with the paragraph, one never opened began with it."""
    kept: list[str] = []
    depth = 0
    for character in paragraph:
        if character == "[":
            depth += 1
        elif character == "]" and depth:
            depth -= 1
        elif character == "]":
            kept.clear()
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _names(paragraphs: list[list[str]]) -> set[str]:
    """Names that head speeches, in capitals."""
    dotted: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for first, *_ in paragraphs:
        line = first.rstrip(":.- ")
        if _is_part(first) or _SONG.fullmatch(first) or len(line) > _LONGEST_NAME or not _NAME.fullmatch(line):
            continue
        if not _in_capitals(line):
            small[_normal(line)] += first.endswith(".")
        else:
            (dotted if first != line else plain)[_normal(line)] += 1
    names = {"ALL", "BOTH", *dotted, *(name for name, count in plain.items() if count > 1)}
    if sum(small.values()) > sum(dotted.values()) + sum(plain.values()):
        names |= set(small)
    return names


def _heading(line: str, names: set[str], first: bool, last: bool) -> tuple[str, str]:
    """The name that a line says, if any, and what is spoken in it.

    Notes: inside a paragraph only capitals are a heading, and not in its last line: that signs a letter.
    """
    alone = line.rstrip(":.- ")
    if _NAME.fullmatch(alone) and (name := _normal(alone)) in names and (first or (alone.isupper() and not last)):
        return name, ""
    match = _INLINE.fullmatch(line)
    if match and match[1].isupper() and (name := _normal(match[1])) in names:
        return name, match[2]
    return "", line


def _normal(name: str) -> str:
    """A name in capitals, `1 Clown` and `I Player` as FIRST ..."""
    words = name.upper().split()
    numeral = words[0].rstrip(".")
    if len(words) > 1 and numeral in _NUMERALS:
        words[0] = _NUMERALS[numeral]
    return " ".join(words)


def _in_capitals(line: str) -> bool:
    return all(word == word.upper() for word in re.split(r"[ ,.]+", line) if word not in _SMALL)


def _is_part(line: str) -> bool:
    """Whether a line is the heading of an act, a scene or the like."""
    return _ACT.match(line) is not None or (line.isupper() and _OTHER_PART.match(line) is not None)


def _several(name: str, names: set[str]) -> bool:
    """Whether a heading names more than one speaker."""
    joined = re.search(r",|&| AND ", name) is not None
    return joined or name.split()[0] in ("ALL", "BOTH") or name.partition(". ")[0] in names - {name}


def _full_name(name: str, names: set[str], persons: str) -> str:
    """An abbreviated name as the list of persons has it, where only one person fits; else the name itself."""
    first, _, rest = name.partition(" ")
    if rest and first in _NUMERALS.values():  # the list has them all at once: Two Clowns, Carriers
        return f"{first} {_full_name(rest, names, persons).removesuffix('S')}"
    found = _persons_called(name, persons)
    if found & {name, f"{name}S", f"{name}ES", f"{name}MEN"}:  # whole already, or one of several
        return name
    longer = {other for other in names if other != name and other.startswith(name)}
    left = found - {person for other in longer for person in _persons_called(other, persons)} or found
    return left.pop() if len(left) == 1 else name


def _persons_called(name: str, persons: str) -> set[str]:
    """Persons, in capitals, whose words begin with the words of a name."""
    words = [word.rstrip(".") for word in name.split()]
    pattern = r"\s+".join(rf"{word[0]}(?i:{re.escape(word[1:])}[a-z]*)" for word in words)
    return {" ".join(match.upper().split()) for match in re.findall(rf"\b{pattern}\b", persons)}
