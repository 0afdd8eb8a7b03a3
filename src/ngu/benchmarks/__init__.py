"""Benchmarks behind `ngu bench`: how fast the whole agent and each of its parts are, beside a bare baseline."""

from ngu.benchmarks.agent import Benchmark, measure

__all__ = ["Benchmark", "measure"]
