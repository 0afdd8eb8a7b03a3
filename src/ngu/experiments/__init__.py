"""Every figure and table of the paper as an experiment that can be run by its name: `ngu reproduce NAME`."""

from ngu.experiments.catalogue import EXPERIMENTS, experiment
from ngu.experiments.definition import Experiment

__all__ = ["EXPERIMENTS", "Experiment", "experiment"]
