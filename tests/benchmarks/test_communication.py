"""What devices send each other: the count itself, and what methods cost."""

import json

import pytest

from benchmarks.tools.collectives import exchanged
from fedeba_jax import ALGORITHMS
from tests.support.runs import binary

PROGRAM = """HloModule jit_one

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (state: (s32[], f32[10])) -> (s32[], f32[10]) {
  %reduced = f32[10]{0} all-reduce(%x), channel_id=1, to_apply=%add
  ROOT %tuple = (s32[], f32[10]{0}) tuple(%i, %reduced)
}

%left (x: f32[4]) -> f32[8] {
  ROOT %gathered = f32[8]{0} all-gather(%x), channel_id=2, dimensions={0}
}

%right (x: f32[4]) -> f32[8] {
  ROOT %other = f32[8]{0} broadcast(%x)
}

ENTRY %main (x: f32[4]) -> f32[10] {
  %both = (f32[3]{0}, bf16[2,3]{1,0}) all-to-all(%a, %b), channel_id=3
  %loop = (s32[], f32[10]{0}) while(%start), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %other = (s32[], f32[10]{0}) while(%start), condition=%cond, body=%body
  %one = f32[8]{0} conditional(%p, %x, %x), branch_computations={%left, %right}
  ROOT %end = f32[10]{0} get-tuple-element(%loop), index=1
}
"""


def test_loops_count_as_often_as_they_turn_and_of_branches_the_largest():
    """The second loop turns as often as the caller says."""
    found = exchanged(PROGRAM, turns=2.5)
    assert found.num_bytes == (3 * 4 + 6 * 2) + (5 + 2.5) * 40 + 32
    assert found.meetings == 1 + 5 + 2.5 + 1


def counted(tmp_path, algorithms, *, devices=8, cohort=64, clients=1000, servers=(), sampling="uniform"):
    """Models that a device receives in a round, by method."""
    out = tmp_path / f"{devices}_{cohort}_{clients}_{sampling}.json"
    done = binary(
        "benchmarks.communication", f"--host_devices={devices}", f"--algorithms={','.join(algorithms)}",
        f"--cohort_size={cohort}", f"--num_clients={clients}", f"--servers={','.join(servers)}", f"--out={out}",
        f"--sampling={sampling}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {row["method"]: row for row in json.loads(out.read_text())["rows"]}


ROWS = {
    "ditto": 1,
    "lp_proj": 1,
    "local_only": 0,
    "fedavg, varp": 2,
}  # what is sent beside the rows that travel to and fro
MOST = {  # models, at 64 clients on 8 devices
    **dict.fromkeys(ALGORITHMS, 1.1),
    **dict.fromkeys(("focus", "mime_lite"), 2.1),  # two clusters; update and gradient
    **dict.fromkeys(("fedeba_plus", "fedavg_align"), 3.1),  # the fair gradient, its average, the update
    "fedmgda_plus": 9.1,  # its own 8 rows as columns, for the Gram matrix, and the update
    # Gradients, first steps and updates: their 8 rows as columns, and a sum. A round has gradients or first steps.
    "robust_fedeba_plus": 27.2,
    "fedfv": 20.1,  # the same, the mean update, and a sum for each of 10 past rounds
    **dict.fromkeys(ROWS, 14.1),
    "rank_core_fed": 75.1,  # candidates in a loop
}


def travelling(row):
    """Models that are rows of clients away from home: there and back, in as many turns as are expected."""
    return 2 * row["turns"]


def test_devices_receive_a_model_or_two(tmp_path):
    found = counted(tmp_path, ["fedavg", "fedeba_plus", "fedmgda_plus", "ditto"])
    for method, row in found.items():
        assert row["models"] < MOST[method], method
    assert found["ditto"]["models"] == pytest.approx(1 + travelling(found["ditto"]), abs=0.1)
    model = found["fedavg"]["state"]
    assert found["ditto"]["state"] == pytest.approx((1 + 1000 / 8) * model, rel=0.01)


@pytest.mark.slow
def test_no_row_of_a_client_travels_where_cohorts_are_drawn_by_strata(tmp_path):
    """The cost depends neither on devices nor on clients, nor on the cohort."""
    for devices, cohort, clients in ((8, 64, 1000), (8, 256, 1024), (64, 256, 1024), (256, 256, 1024), (8, 256, 4000)):
        settings = {"devices": devices, "cohort": cohort, "clients": clients, "sampling": f"stratified({devices})"}
        found = counted(tmp_path, ["ditto", "lp_proj", "local_only"], servers=["varp"], **settings)
        for method, beside in ROWS.items():
            assert found[method]["models"] == pytest.approx(beside, abs=0.02), (method, settings)


@pytest.mark.slow
def test_what_every_method_costs(tmp_path):
    for method, row in counted(tmp_path, ALGORITHMS, servers=["varp"]).items():
        assert row["models"] < MOST[method], method


@pytest.mark.slow
def test_a_cohort_that_devices_do_not_divide_costs_no_more(tmp_path):
    names = ["fedavg", "fedeba_plus", "fedmgda_plus", "fedfv"]
    for method, row in counted(tmp_path, names, cohort=60).items():
        assert row["models"] < MOST[method], method


@pytest.mark.slow
def test_cost_does_not_grow_with_devices_or_clients(tmp_path):
    names = ["fedavg", "fedeba_plus"]
    few, many = (counted(tmp_path, names, devices=d, cohort=256) for d in (8, 256))
    crowd = counted(tmp_path, names, cohort=256, clients=4000)
    for name in names:
        assert many[name]["models"] == pytest.approx(few[name]["models"], abs=0.02)
        assert crowd[name]["models"] == pytest.approx(few[name]["models"], abs=0.02)
        assert many[name]["temp"] < few[name]["temp"] / 8


@pytest.mark.slow
def test_rows_of_clients_cost_what_travels_however_many_clients_there_are(tmp_path):
    """In twice the turns that the fullest device needs at least; FedFV's past is one sum for each round."""
    for cohort, clients, most in ((64, 4000, 6), (256, 4000, 12)):
        found = counted(
            tmp_path, ["ditto", "lp_proj", "local_only", "fedfv"], cohort=cohort, clients=clients, servers=["varp"]
        )
        for method, beside in ROWS.items():
            assert found[method]["models"] == pytest.approx(beside + travelling(found[method]), abs=0.2)
            assert found[method]["models"] < beside + 2 * most
        gram = cohort**2 / 199_210
        assert found["fedfv"]["models"] == pytest.approx(cohort / 8 + 12 + gram, abs=0.1)


@pytest.mark.slow
def test_state_of_a_device_falls_with_devices_and_rows_hardly_travel_more(tmp_path):
    """1,024 rows of clients, or 256 x 11 of places, beside one model and, of VARP, two."""
    found = {
        d: counted(tmp_path, ["ditto", "fedfv"], devices=d, cohort=256, clients=1024, servers=["varp"])
        for d in (8, 64, 256)
    }
    model = 199_210 * 4 / 2**20
    for devices, rows in found.items():
        assert rows["ditto"]["state"] == pytest.approx((1 + 1024 / devices) * model, rel=0.02)
        assert rows["fedavg, varp"]["state"] == pytest.approx((2 + 1024 / devices) * model, rel=0.02)
        assert rows["fedfv"]["state"] == pytest.approx((1 + 256 * 11 / devices) * model, rel=0.02)
    for method in ("ditto", "fedavg, varp"):
        assert found[256][method]["models"] < 1.5 * found[8][method]["models"]
