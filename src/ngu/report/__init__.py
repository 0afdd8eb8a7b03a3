"""Pictures of what was learned: a page about runs, an episode as an animation, figures for documents."""

from ngu.report.page import write_figure, write_report
from ngu.report.record import poster, record_episode
from ngu.report.results import read_results, write_results_csv

__all__ = ["poster", "read_results", "record_episode", "write_figure", "write_report", "write_results_csv"]
