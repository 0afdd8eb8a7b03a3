"""The page's part about the Random Disco Maze: coverage of held-out mazes, one episode, and how it was learned."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from ngu.errors import UserError
from ngu.report import markup
from ngu.report.chapter import (
    Card,
    anchor,
    bands_caption,
    learning_section,
    only_run,
    presets,
    sentence,
    spread,
    trained,
    training_cards,
    wide_figure,
)
from ngu.report.curves import PANELS
from ngu.report.groups import Group, by_topic, full_label
from ngu.report.mazes.coverage import (
    SCRIPTED_MAZES,
    common_maze,
    coverage_figure,
    coverage_marks,
    coverage_metric,
    longest_mark,
    policy_marks,
    results_figure,
    scripted_caption,
    scripted_coverage,
)
from ngu.report.mazes.episode import Episode, play_evaluation
from ngu.report.mazes.pictures import map_figure, novelty_figure, within_episode_figure
from ngu.report.results import Results
from ngu.report.style import PAGE, Theme, to_svg
from ngu.report.wording import percent
from ngu.report.worlds import World

_POLICIES = ("explore", "exploit")


class MazeChapter:
    """See `Chapter`."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups

    @property
    def subjects(self) -> list[str]:
        mazes = {run.world.maze for group in self.groups for run in group.runs if run.world.maze}
        sizes = {maze[0] for maze in mazes}
        return [World("disco-maze", maze=mazes.pop() if len(sizes) == 1 else None).title]

    def lead(self) -> str:
        run = only_run(self.groups)
        if run is not None:
            return (
                f"How much of mazes it has never seen the agent explores after {run.steps:,} steps of training, "
                f"without any reward from the maze: preset {run.preset}, variant {run.variant} "
                f"({self.groups[0].label}), seed {run.seed}."
            )
        runs = sum(len(group.runs) for group in self.groups)
        compared = "; ".join(f"{full_label(group, self.groups)}: {group.seeds}" for group in self.groups)
        return (
            f"How much of mazes they have never seen {runs} agents explore, without any reward from the maze "
            f"({presets(self.groups)}). {sentence(compared)}."
        )

    def cards(self) -> str:
        entries: list[Card] = []
        run = only_run(self.groups)
        if run is not None:
            for mark in coverage_marks(run).get("explore", []):
                coverage = run.last(coverage_metric("explore", mark))
                assert coverage is not None
                entries.append(
                    (f"coverage after {mark} steps", percent(coverage), "exploratory policy, held-out mazes")
                )
            return markup.cards([*entries, *training_cards(run)], len(entries))
        for group in self.groups:
            marks = coverage_marks(group.runs[0]).get("explore", [])
            if marks and (values := group.final(coverage_metric("explore", marks[-1]))):
                remark = f"coverage after {marks[-1]} steps, {spread(values, percent)}"
                entries.append((full_label(group, self.groups), percent(sum(values) / len(values)), remark))
        return markup.cards(entries, len(entries))

    def sections(self) -> list[str]:
        parts = []
        topics = by_topic(self.groups)
        run = only_run(self.groups)
        for topic, members in topics.items():
            where = f" ({topic})" if len(topics) > 1 else ""
            parts.append(_coverage_section(members, f"coverage-{anchor(topic)}", where))
            if run is not None:
                parts += _episode_sections(run)
            parts.append(learning_section(PANELS, members, f"curves-{anchor(topic)}", where))
        return parts

    def metrics(self) -> list[str]:
        coverage = {coverage_metric(policy, mark) for policy in _POLICIES for mark in policy_marks(self.groups, policy)}
        return [*sorted(coverage), *(metric for panel in PANELS for metric in panel.metrics)]

    def figure(self, theme: Theme) -> Figure | None:
        return results_figure(self.groups, theme)


# Coverage


def _coverage_section(groups: Sequence[Group], name: str, where: str) -> str:
    title = f"Coverage of held-out mazes{where}"
    marks = {policy: policy_marks(groups, policy) for policy in _POLICIES}
    if not any(marks.values()):
        return markup.section(name, title, markup.paragraph("No evaluation has been made yet.", "note"))
    pictures, metrics = [], []
    for policy, measured in marks.items():
        for mark in measured:
            metrics.append(coverage_metric(policy, mark))
            description = f"Coverage after {mark} steps of an episode against agent steps, policy {policy}"
            drawn = coverage_figure(groups, policy, mark, PAGE)
            pictures.append(markup.figure(to_svg(drawn, f"{name}-{policy}-{mark}", description)))
    caption = (
        "Share of the open cells that an episode has visited, in mazes that the agent was not trained on, evaluated "
        f"during training.{bands_caption(groups, metrics)} {scripted_caption()}"
    )
    return markup.section(
        name,
        title,
        markup.figures(pictures),
        markup.paragraph(caption, "quiet"),
        _coverage_table(groups, marks),
    )


def _coverage_table(groups: Sequence[Group], marks: dict[str, list[int]]) -> str:
    """The last evaluations beside the scripted policies, the best first."""
    columns = sorted({mark for measured in marks.values() for mark in measured})
    entries: list[tuple[float, str]] = []
    for group in groups:
        for policy in (policy for policy, measured in marks.items() if measured):
            finals = {mark: group.final(coverage_metric(policy, mark)) for mark in columns}
            if not any(finals.values()):
                continue
            means = {mark: sum(values) / len(values) if values else None for mark, values in finals.items()}
            label = (group.label if len(groups) > 1 else "agent") + ("" if policy == "explore" else f", {policy}")
            cells = [markup.text(label)]
            for mark, values in finals.items():
                between = f" ({percent(min(values))} to {percent(max(values))})" if len(values) > 1 else ""
                cells.append(markup.bar(means[mark], percent(means[mark] or 0.0) + between))
            cells.append(markup.text(f"{group.seeds}, {trained(group)}"))
            entries.append((means[columns[-1]] or 0.0, markup.row(cells, "agent")))
    maze = common_maze(groups)
    if maze:
        for policy, coverage in scripted_coverage(maze, longest_mark(groups)).items():
            values = [float(coverage[mark - 1]) for mark in columns]
            bars = [markup.bar(value, percent(value)) for value in values]
            cells = [markup.text(policy), *bars, markup.text(f"scripted, {SCRIPTED_MAZES} mazes")]
            entries.append((values[-1], markup.row(cells)))
    entries.sort(key=lambda entry: -entry[0])
    head = ["policy", *(f"after {mark} steps" for mark in columns), "over"]
    return markup.table(head, [row for _, row in entries])


# Episodes


def _episode_sections(run: Results) -> list[str]:
    """What a trained policy does in its mazes; only a run's folder has the weights to play with."""
    config = run.config
    if config is None or run.world.maze is None:
        return []
    title = "One episode"
    try:
        played = play_evaluation(run.path)
    except UserError as error:
        return [markup.section("episode", title, markup.paragraph(f"No episode can be drawn: {error}", "note"))]
    episode, count = played.typical, len(played.episodes)
    end = "ended in a wall, at the cross" if episode.hit_wall else "was cut, at the square"
    weights = f"the weights of step {played.checkpoint_step:,}"
    map_caption = (
        f"The episode of median coverage among {count} on held-out mazes, with {weights}. It began at the circle and "
        f"{end}, after {episode.length} steps. Wall colours change at every step."
    )
    within_caption = (
        f"Means over {count} held-out mazes with {weights}; an episode that has ended keeps its coverage. "
        + scripted_caption()
    )
    return [
        markup.section(
            "episode",
            title,
            *(markup.paragraph(sentence(note), "note") for note in played.notes),
            wide_figure(
                map_figure(episode, PAGE), "map", "A maze as the agent sees it, and its way through it", map_caption
            ),
            wide_figure(
                within_episode_figure(played, run.world.maze, PAGE),
                "within",
                "Mean coverage against the step in the episode",
                within_caption,
            ),
        ),
        markup.section(
            "novelty",
            "Novelty over the episode",
            wide_figure(
                novelty_figure(episode, config.novelty.max_modulation, PAGE),
                "novelty",
                "Intrinsic reward, its episodic part and the life-long modulator at each step",
                _novelty_caption(episode),
            ),
        ),
    ]


def _novelty_caption(episode: Episode) -> str:
    """What the episode's rewards are on average, at cells that are new and at others."""
    reward, new = episode.reward[1:], episode.new_cell[1:]
    means = [
        f"{reward[chosen].mean():.2f} at {words} ({chosen.sum()} steps)"
        for chosen, words in ((new, "the first visit to a cell"), (~new, "a cell seen before or in a wall"))
        if chosen.any()
    ]
    return f"The same episode. Mean reward: {' and '.join(means)}." if means else "The same episode."
