"""Do the models give published figures, textbook formulas, and what an independent simulation measures?"""

import math

import ciw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.operational_laws import (
    Demand,
    asymptotic_bounds,
    bottleneck,
    forced_flow,
    in_system,
    interactive_response,
    utilization,
)
from crescendo.pipeline.queueing.closed_network import closed_network
from crescendo.pipeline.queueing.open_queues import erlang_c, mg1, mm1, mmm
from crescendo.pipeline.queueing.scalability_laws import fit_amdahl, fit_usl

MLMQ = {
    # The queueing model of the published system: four network delays, 80 workers, a database with 8 servers.
    **{f"network {number}": Demand(2.617e-3, is_delay=True) for number in range(4)},
    "workers": Demand(0.042e-3, servers=80),
    "database": Demand(4.506e-3, servers=8),
}


def test_the_published_figures_come_out_to_their_printed_digits() -> None:
    assert erlang_c(10, 9) == pytest.approx(0.6687, abs=5e-5)
    state = mmm(0.5625 * 8, 1.0, 8)
    assert (state.waits, state.queue_length) == pytest.approx((0.104, 0.134), abs=5e-4)
    busy = closed_network(MLMQ, 300, think_s=0.010)
    assert busy.throughput == pytest.approx(1775.4, abs=0.05)
    assert busy.response_s == pytest.approx(0.15898, abs=6e-6)
    assert busy.stations["database"].utilization == pytest.approx(1775.4 * 4.506e-3 / 8, abs=1e-4)


def test_one_server_is_the_textbook_queue() -> None:
    state = mm1(8, 0.1)
    assert (state.load, state.queue_length, state.response_s) == pytest.approx((0.8, 0.8**2 / 0.2, 0.1 / 0.2))
    assert in_system(8, state.response_s) == pytest.approx(0.8 / 0.2)
    constant, exponential = mg1(8, 0.1, 0.0), mg1(8, 0.1, 1.0)
    assert exponential.wait_s == pytest.approx(state.wait_s)
    assert constant.wait_s == pytest.approx(state.wait_s / 2)  # half of the wait is due to variation
    for overloaded in (lambda: mm1(10, 0.1), lambda: mg1(11, 0.1, 1), lambda: erlang_c(2, 2)):
        with pytest.raises(ValueError, match="no steady state"):
            overloaded()


@settings(max_examples=40)
@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=4), st.floats(0.0, 2.0), st.integers(1, 40))
def test_a_network_of_single_servers_is_mean_value_analysis(demands: list[float], think_s: float, clients: int) -> None:
    """The recursion of Reiser and Lavenberg (1980), written down here."""
    queues = np.zeros(len(demands))
    for count in range(1, clients + 1):
        residence = np.array(demands) * (1 + queues)
        throughput = count / (think_s + residence.sum())
        queues = throughput * residence
    state = closed_network({str(at): Demand(each) for at, each in enumerate(demands)}, clients, think_s)
    assert state.throughput == pytest.approx(throughput, rel=1e-9)
    assert [each.in_station for each in state.stations.values()] == pytest.approx(list(queues), rel=1e-6, abs=1e-9)
    bounds = asymptotic_bounds({str(at): Demand(each) for at, each in enumerate(demands)}, clients, think_s)
    assert state.throughput <= bounds.most_throughput * (1 + 1e-9)
    assert state.response_s >= bounds.least_response_s * (1 - 1e-9)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 60), st.floats(0.01, 1.0))
def test_a_station_with_several_servers_is_the_machine_repair_model(servers: int, clients: int, service: float) -> None:
    """The finite-source queue M/M/m//N, from its balance equations."""
    weights = [1.0]
    for count in range(1, clients + 1):
        weights.append(weights[-1] * (clients - count + 1) * service / min(count, servers))
    chances = np.array(weights) / sum(weights)
    expected = sum(chance * min(count, servers) for count, chance in enumerate(chances)) / service
    state = closed_network({"repair": Demand(service, servers)}, clients, think_s=1.0)
    assert state.throughput == pytest.approx(expected, rel=1e-9)


def _simulated(network: ciw.network.Network, until: float, warmup: float, node: int) -> tuple[float, float]:
    """Mean and half of the 95 % interval of the wait at a node, over twelve independent simulations."""
    means = []
    for seed in range(12):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(until)
        records = simulation.get_all_records()
        waits = [each.waiting_time for each in records if each.node == node and each.arrival_date > warmup]
        means.append(float(np.mean(waits)))
    return float(np.mean(means)), 2.201 * float(np.std(means, ddof=1)) / math.sqrt(12)


def test_the_wait_of_mmm_is_within_the_interval_of_a_simulation() -> None:
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=3.0)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[4],
    )
    mean, half = _simulated(network, 700, 100, 1)
    assert abs(mmm(3.0, 1.0, 4).wait_s - mean) < half


def test_the_wait_of_mg1_is_within_the_interval_of_a_simulation() -> None:
    """A service time of 0.2 or 1.0: mean 0.6, deviation 0.4."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=1.0)],
        service_distributions=[ciw.dists.Pmf([0.2, 1.0], [0.5, 0.5])],
        number_of_servers=[1],
    )
    mean, half = _simulated(network, 1500, 100, 1)
    assert abs(mg1(1.0, 0.6, 0.4 / 0.6).wait_s - mean) < half


def test_a_closed_network_is_within_the_interval_of_a_simulation() -> None:
    """Twelve clients that think for 1 s, a station with 3 servers, another with one."""
    clients, rates = 12, (1.0, 2.5, 4.0)
    network = ciw.create_network(
        arrival_distributions=[
            ciw.dists.Sequential([0.0] * clients + [float("inf")]),
            None,
            None,
        ],
        service_distributions=[ciw.dists.Exponential(rate=rate) for rate in rates],
        number_of_servers=[float("inf"), 3, 1],
        routing=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
    )
    throughputs = []
    for seed in range(12):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(260)
        done = [each for each in simulation.get_all_records() if each.node == 3 and 20 < each.exit_date <= 260]
        throughputs.append(len(done) / 240)
    half = 2.201 * float(np.std(throughputs, ddof=1)) / math.sqrt(12)
    state = closed_network({"several": Demand(1 / 2.5, 3), "one": Demand(1 / 4.0)}, clients, think_s=1.0)
    assert abs(state.throughput - float(np.mean(throughputs))) < half


def test_the_laws_agree_with_each_other() -> None:
    assert utilization(100, 0.02, 4) == 0.5
    assert forced_flow(50, 3) == 150
    assert interactive_response(300, 1775.4, 0.010) == pytest.approx(0.15898, abs=1e-5)
    assert bottleneck(MLMQ) == "database"
    bounds = asymptotic_bounds(MLMQ, 300, 0.010)
    assert bounds.most_throughput == pytest.approx(8 / 4.506e-3)
    assert bounds.knee == pytest.approx((4 * 2.617e-3 + 0.042e-3 + 4.506e-3 + 0.010) / (4.506e-3 / 8))
    with pytest.raises(ValueError, match="no station has a queue"):
        bottleneck({"network": Demand(1, is_delay=True)})


def test_a_fit_recovers_planted_coefficients_and_warns_about_extrapolation() -> None:
    random = np.random.default_rng(1)
    sizes = np.array([1, 2, 4, 8, 16, 32, 48, 64])
    truth = 1000 * sizes / (1 + 0.03 * (sizes - 1) + 0.0004 * sizes * (sizes - 1))
    covered = []
    for _ in range(40):
        fit = fit_usl(sizes.tolist(), (truth * (1 + random.normal(0, 0.01, len(sizes)))).tolist())
        covered += [fit.coefficients[name].low <= value <= fit.coefficients[name].high
                    for name, value in (("one", 1000), ("contention", 0.03), ("coherency", 0.0004))]  # fmt: skip
    assert np.mean(covered) > 0.85
    assert fit.peak == pytest.approx(math.sqrt(0.97 / 0.0004), rel=0.1)
    assert not any("beyond" in warning for warning in fit.warnings)
    short = fit_usl(sizes[:5].tolist(), truth[:5].tolist())
    assert any("lies beyond the largest size" in warning for warning in short.warnings)
    with pytest.raises(ValueError, match="4 or more different sizes"):
        fit_usl([1, 2, 2, 4], [1, 2, 2, 3])


def test_amdahls_law_is_the_serial_share() -> None:
    sizes = [1, 2, 4, 8, 16]
    fit = fit_amdahl(sizes, [100 * n / (1 + 0.1 * (n - 1)) for n in sizes])
    assert fit.coefficients["contention"].value == pytest.approx(0.1, abs=1e-4)
    assert fit.peak is None
    assert fit.throughput(1000) == pytest.approx(1000, rel=0.02)  # one tenth is serial: at most ten times as fast
