"""Which tests run in the same worker, and in which order do the workers take them?

`make test` runs two workers (pytest-xdist, `--dist loadgroup`). A system or a Spark session that tests share belongs to
one group, so it is started once, by one worker. All other tests are grouped by module, because modules have fixtures
of their own. Long groups come first, so that the workers finish at about the same time.

Tests marked `quiet` measure time so finely that a neighbour would disturb them; they run alone afterwards.
"""

import pytest

BROKERS = frozenset(
    ("activemq", "artemis", "mosquitto", "qpid_broker_j", "qpid_dispatch", "rabbitmq", "secure_rabbitmq")
)
LONG_FIRST = ("spark", "brokers", "mlmq")
LONG_MODULES = (
    "test_whole_runs",
    "test_failover",
    "test_failover_systems",
    "test_systems_java_brokers",
    "test_moving_stations",
    "test_kill_matrix",
    "test_ansible_deployment",
    "test_systems_under_load",
    "test_pipeline_killed",
    "test_systems_detached",
    "test_run_live",
    "test_mlmq_workloads_killed",
    "test_web_browser",
    "test_web_cluster",
    "test_codec_fuzzing",
)


def group_of(module: str, fixtures: frozenset[str]) -> str:
    """The name of the group that a test of this module with these fixtures belongs to."""
    if "spark" in fixtures:
        return "spark"
    if fixtures & BROKERS:
        return "brokers"
    return "mlmq" if fixtures & {"mlmq", "postgres"} else module


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item.nodeid: _group(item) for item in items}
    order = {name: rank for rank, name in enumerate((*LONG_FIRST, *LONG_MODULES))}
    items.sort(key=lambda item: order.get(groups[item.nodeid], len(order)))  # stable: modules stay together
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item.nodeid]))


@pytest.hookimpl(tryfirst=True)  # before xdist reports what was collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop if xdist lost the groups: the tests would pass, but each worker would start every system and Spark."""
    if not getattr(session.config.option, "loadgroup", False):  # only workers have this option
        return
    for item in session.items:
        if "@" not in item.nodeid.rpartition("]")[2]:
            raise RuntimeError(f"pytest {pytest.__version__} and pytest-xdist do not group tests: {item.nodeid}")


def _group(item: pytest.Item) -> str:
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    marked = item.get_closest_marker("shares")  # fixtures that are asked for by name while the test runs
    return group_of(item.path.stem, fixtures | frozenset(marked.args if marked else ()))
