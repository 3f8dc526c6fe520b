"""A profiler trace of rounds, and the time of its operations by name."""

import collections
import gzip
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.tools.work import Compiled

ROUNDS = 3
OPERATION = re.compile(r"[a-z][\w.-]*")  # other events are of the runtime and of Python
CONTAINER = re.compile(r"(while|conditional|call)[.\d]*")  # their time is that of what they hold


class Operation(NamedTuple):
    name: str
    seconds: float  # of a round, all devices together
    times: float  # in a round
    source: str  # the shape, and where in the model or the algorithm it comes from


def trace(compiled: Compiled, folder: Path) -> list[Operation]:
    """Trace a few rounds into the folder; their operations, longest first.

    A product that is handed to other threads (`dot`) shows the part that its own thread did; an exchange (`all-reduce`)
    holds the wait for the other devices.
    """
    compiled.run(1)
    with jax.profiler.trace(str(folder), create_perfetto_trace=True):
        compiled.run(ROUNDS)
    newest = max(folder.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)
    seconds: collections.Counter[str] = collections.Counter()
    times: collections.Counter[str] = collections.Counter()
    for event in _events(json.loads(gzip.decompress(newest.read_bytes()))):
        name = event["name"]
        if OPERATION.fullmatch(name) and not CONTAINER.fullmatch(name):
            seconds[name] += event["dur"] / 1e6 / ROUNDS
            times[name] += 1
    from_where = _sources(compiled.text())
    return [
        Operation(name, taken, times[name] / ROUNDS, from_where.get(name, "")) for name, taken in seconds.most_common()
    ]


def _events(content: Any) -> list[dict[str, Any]]:
    events = content if isinstance(content, list) else content["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def _sources(text: str) -> dict[str, str]:
    """By operation, from XLA's program: f32[50,200] .../jvp(ConvNet)/Dense_0/dot_general, the last three names."""
    found = re.findall(r'%([\w.-]+) = (\S+?)(?:{\S*)? [^\n]*?op_name="([^"]*)"', text)
    return {name: f"{shape} {'/'.join(origin.split('/')[-3:])}" for name, shape, origin in found}
