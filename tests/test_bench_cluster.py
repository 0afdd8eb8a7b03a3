"""`ngu bench --runner ray`: what is measured is measured, on a real cluster of this machine."""

from __future__ import annotations

import json

import pytest
from conftest import make_tiny_config

from ngu.benchmarks.cluster import measure_cluster
from ngu.config_reading import with_overrides


@pytest.fixture(scope="module")
def result():  # type: ignore[no-untyped-def]
    config = with_overrides(
        make_tiny_config(env__num_envs=8, env__groups=2, run__runner="ray"), {"ray.chunk_steps": 10, "run.threads": 1}
    )
    return measure_cluster(config, 0.5, actors=(1, 2))


def test_every_runner_has_collected_and_learned(result) -> None:  # type: ignore[no-untyped-def]
    assert [pace.actors for pace in result.paces] == [0, 1, 2]
    assert [pace.envs for pace in result.paces] == [4, 4, 8]
    for pace in result.paces:
        assert pace.steps_per_second > 0
        assert pace.updates_per_second > 0
    for pace in result.paces[1:]:
        assert pace.actor_memory > 50 * 2**20
        assert pace.actor_cores > 0
        assert 0 <= pace.waiting_share <= 1


def test_the_intake_is_measured_with_chunks_of_a_real_actor(result) -> None:  # type: ignore[no-untyped-def]
    ingest = result.ingest
    assert ingest.steps_per_second > 0
    assert 0 < ingest.compressed_bytes_per_step < ingest.bytes_per_step
    assert ingest.weights_bytes > 1000


def test_it_is_told_as_a_table_and_as_json(result) -> None:  # type: ignore[no-untyped-def]
    text = result.table()
    assert "local" in text
    assert "ray, 1 actor " in text
    assert "ray, 2 actors" in text
    assert json.loads(json.dumps(result.to_dict()))["paces"][2]["actors"] == 2
