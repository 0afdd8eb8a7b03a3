"""Environments: one protocol, and what implements it."""

from ngu.envs.protocol import EnvironmentBatch, EnvironmentSpec, Step

__all__ = ["EnvironmentBatch", "EnvironmentSpec", "Step"]
