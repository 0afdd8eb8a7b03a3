"""Benchmarks behind `ngu bench`: how fast the whole agent and each of its parts are, beside a bare baseline."""

from ngu.benchmarks.agent import Benchmark, measure
from ngu.benchmarks.hosted import HostedBenchmark, measure_hosted

__all__ = ["Benchmark", "HostedBenchmark", "measure", "measure_hosted"]
