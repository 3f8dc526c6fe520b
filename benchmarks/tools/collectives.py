"""What the devices of a compiled program send each other, read from the program itself.

Bytes are those of the results of all-reduce, all-gather, reduce-scatter, all-to-all and collective-permute on one
device. A loop counts as often as it turns, and one that only the run knows the turns of as often as the caller says; of
branches, of which one is executed, the largest counts.
"""

import re
from typing import NamedTuple

SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "f32": 4}
SIZES |= {"s64": 8, "u64": 8, "f64": 8}
EXCHANGE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|ragged-all-to-all)(-start)?\("
)
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")


class Exchanged(NamedTuple):
    """Of one device: bytes, and how often the devices meet."""

    num_bytes: float
    meetings: float

    def __add__(self, other: tuple) -> "Exchanged":  # type: ignore[override]
        return Exchanged(self.num_bytes + other[0], self.meetings + other[1])

    def times(self, count: float) -> "Exchanged":
        return Exchanged(self.num_bytes * count, self.meetings * count)


def exchanged(text: str, turns: float = 1) -> Exchanged:
    """What one execution of a program (its HLO as text, optimised) exchanges.

    Args:
      text: the program.
      turns: of loops whose number of turns depends on values.
    """
    bodies, entry = _computations(text)
    known: dict[str, Exchanged] = {}

    def of(name: str) -> Exchanged:
        if name not in known:
            total = Exchanged(0, 0)
            for line in bodies.get(name, ()):
                total += _of_line(line)
            known[name] = total
        return known[name]

    def _of_line(line: str) -> Exchanged:
        total = Exchanged(0, 0)
        if match := EXCHANGE.search(line):
            return Exchanged(_bytes(match[1]), 1)
        if " while(" in line:
            known_turns = re.search(r'known_trip_count[^}]*?"n":"(\d+)"', line)
            body = re.search(r"body=%?([\w.\-]+)", line)
            return of(body[1]).times(int(known_turns[1]) if known_turns else turns) if body else total
        if " conditional(" in line:
            branches = re.findall(r"(?:true_computation|false_computation)=%?([\w.\-]+)", line)
            if listed := re.search(r"branch_computations=\{([^}]*)\}", line):
                branches += [name.strip().lstrip("%") for name in listed[1].split(",")]
            return max((of(name) for name in branches), default=total)
        for called in re.findall(r"(?:to_apply|calls)=%?([\w.\-]+)", line):
            total += of(called)
        return total

    return of(entry)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation, and the name of the first one to run."""
    bodies: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        if not line.startswith(" ") and (match := HEAD.match(line)):
            name = match[1]
            bodies[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            bodies[name].append(line)
    return bodies, entry


def _bytes(shapes: str) -> int:
    total = 0
    for kind, dimensions in SHAPE.findall(shapes):
        size = SIZES.get(kind, 0)
        for dimension in dimensions.split(",") if dimensions else ():
            size *= int(dimension)
        total += size
    return total
