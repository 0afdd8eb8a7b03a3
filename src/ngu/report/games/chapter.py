"""The page's part about games, of Atari and Gymnasium: scores, rooms, one episode, and how it was learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matplotlib.figure import Figure

from ngu.envs.atari_games import ATARI_GAMES
from ngu.errors import UserError
from ngu.report import markup
from ngu.report.chapter import (
    Card,
    anchor,
    bands_caption,
    learning_section,
    only_run,
    panel_pictures,
    presets,
    sentence,
    spread,
    trained,
    training_cards,
    wide_figure,
)
from ngu.report.curves import PANEL_SIZE, PANELS, Line, Panel, Reference, draw_panel
from ngu.report.games.episode import Episode, Played, play
from ngu.report.games.pictures import novelty_figure
from ngu.report.groups import Group, by_topic, full_label
from ngu.report.results import Results
from ngu.report.style import PAGE, Theme
from ngu.report.wording import listing, percent, plain_number
from ngu.report.worlds import World

POLICIES = ("exploit", "explore")
"""What is evaluated: beta_0 and beta_{N-1}; the second alone where N = 1."""
EPISODE_STEPS = 2000
"""So many steps of an episode are played for the page, at most."""

_BESIDE_SCORE = ("human_normalised", "rooms")
_NO_PANEL = ("solved", "score", "return", "length", *_BESIDE_SCORE)
"""Measurements of an evaluation that are shown otherwise than as an environment's own."""
_TRAINING_PANELS = tuple(
    Panel(f"{name.capitalize()} while training{who}", f"{name}{unit}", lines, linear=True)
    for name, unit in (("solved", ", share of episodes"), ("score", ""), ("rooms", " in an episode"))
    for who, lines in (
        (", over all policies", (Line(f"env/{name}", name),)),
        ("", (Line(f"env/{name}/exploit", "exploit"), Line(f"env/{name}/explore", "explore", dashed=True))),
    )
)
"""The episodes that are learned from, with the actors' epsilons."""


class GameChapter:
    """See `Chapter`."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.topics = by_topic(groups)

    @property
    def subjects(self) -> list[str]:
        return list(self.topics) if len(self.topics) <= 3 else [f"{len(self.topics)} games"]

    def lead(self) -> str:
        run = only_run(self.groups)
        if run is not None:
            frames = run.world.frames_per_step
            length = f"{run.steps:,} agent steps" + (f" ({run.steps * frames:,} frames)" if frames else "")
            text = (
                f"How well an agent plays {listing(self.subjects)} after {length} of training: preset {run.preset}, "
                f"variant {run.variant}, seed {run.seed}."
            )
        else:
            runs = sum(len(group.runs) for group in self.groups)
            compared = "; ".join(f"{full_label(group, self.groups)}: {group.seeds}" for group in self.groups)
            text = (
                f"How well {runs} agents play {listing(self.subjects)} ({presets(self.groups)}). {sentence(compared)}."
            )
        if any(_has_both(group) for group in self.groups):
            text += (
                " The policy exploit wants the game's reward alone; explore is the one that wants novelty most. Both "
                "are evaluated."
            )
        return text

    def cards(self) -> str:
        run = only_run(self.groups)
        entries: list[Card] = []
        for group in self.groups:
            for policy in POLICIES:
                scores = group.final(_metric(group, policy, "score"))
                if not scores:
                    continue
                if run is not None:
                    entries.append(
                        (_with_policy("score", group, policy), plain_number(scores[0]), _beside_score(run, policy))
                    )
                else:
                    what = _with_policy(full_label(group, self.groups), group, policy)
                    entries.append(
                        (what, plain_number(sum(scores) / len(scores)), f"score, {spread(scores, plain_number)}")
                    )
        return markup.cards([*entries, *(training_cards(run) if run else [])], len(entries))

    def sections(self) -> list[str]:
        parts = []
        run = only_run(self.groups)
        for topic, members in self.topics.items():
            where = f" ({topic})" if len(self.topics) > 1 else ""
            parts.append(_score_section(members, f"score-{anchor(topic)}", where))
            if run is not None:
                parts += _episode_section(run)
            panels = (*_TRAINING_PANELS, *PANELS)
            parts.append(learning_section(panels, members, f"curves-{anchor(topic)}", where))
        return parts

    def metrics(self) -> list[str]:
        panels = [*evaluation_panels(self.groups), *_TRAINING_PANELS, *PANELS]
        return [metric for panel in panels for metric in panel.metrics]

    def figure(self, theme: Theme) -> Figure | None:
        """A row of panels for each game: score, human-normalised score, rooms."""
        rows = [
            (topic, members, panels) for topic, members in self.topics.items() if (panels := evaluation_panels(members))
        ]
        if not rows:
            return None
        columns = max(len(panels) for _, _, panels in rows)
        figure = Figure(figsize=(PANEL_SIZE[0] * columns, (PANEL_SIZE[1] + 0.45) * len(rows)))
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for (topic, members, panels), row in zip(rows, axes, strict=True):
            for ax in row[len(panels) :]:
                ax.set_axis_off()
            for panel, ax in zip(panels, row, strict=False):
                title = f"{topic}\n{panel.title}"
                draw_panel(ax, dataclasses.replace(panel, title=title), members, theme)
        return figure


# Scores


def _measured(groups: Sequence[Group]) -> list[str]:
    """What the evaluations of any policy measured, without the policy's name: `score`, `length`, ..."""
    parts = [name.split("/") for group in groups for run in group.runs for name in run.names()]
    return sorted({part[2] for part in parts if part[0] == "eval" and part[1] in POLICIES})


def _metric(group: Group, policy: str, measurement: str) -> str:
    """The metric of a measurement; the score is the return where it was measured at fixed steps of episodes alone."""
    name = f"eval/{policy}/{measurement}"
    known = measurement != "score" or any(name in run.names() for run in group.runs)
    return name if known else f"eval/{policy}/return"


def _has_both(group: Group) -> bool:
    return bool(group.final(_metric(group, "exploit", "score")))


def _with_policy(text: str, group: Group, policy: str) -> str:
    """Names the policy; one that is alone in its family neither exploits nor explores in particular."""
    return f"{text}, {policy}" if _has_both(group) else text


def evaluation_panels(groups: Sequence[Group]) -> list[Panel]:
    """What the evaluations of one game measured: the score, and what else there is."""
    measured = _measured(groups)
    if not measured:
        return []
    world = groups[0].world
    panels = [_panel(groups, "score", "Score in evaluation", "score", references=_players(world))]
    if "human_normalised" in measured:
        scale = (Reference(0.0, "random player"), Reference(100.0, "human tester"))
        panels.append(_panel(groups, "human_normalised", "Human-normalised score", "percent", references=scale))
    if "solved" in measured:
        panels.insert(0, _panel(groups, "solved", "Solved in evaluation", "share of episodes"))
    if "rooms" in measured:
        panels.append(_panel(groups, "rooms", "Rooms visited in an episode", "rooms"))
    others = [name for name in measured if name not in _NO_PANEL]
    panels += [_panel(groups, name, f"Measured by the environment: {name}", name) for name in others]
    return panels + [panel for name in ("score", "rooms") if (panel := _panel_by_episode(groups, name)) is not None]


def _panel_by_episode(groups: Sequence[Group], measurement: str) -> Panel | None:
    """A measurement in the first, the second, ... episode of meta-episodes; None where these have but one episode."""
    known = {name for group in groups for run in group.runs for name in run.names()}
    lines: list[Line] = []
    while (name := f"eval/explore/{measurement}/episode_{len(lines) + 1}") in known:
        lines.append(Line(name, f"episode {len(lines) + 1}", dashed=bool(lines)))
    title = f"{measurement.capitalize()} by the episode's place in its meta-episode, explore"
    return Panel(title, measurement, tuple(lines), linear=True, frames=True) if lines else None


def _panel(
    groups: Sequence[Group], measurement: str, title: str, unit: str, *, references: tuple[Reference, ...] = ()
) -> Panel:
    exploit, explore = (_metric(groups[0], policy, measurement) for policy in POLICIES)
    lines = (Line(exploit, "exploit"), Line(explore, "explore", dashed=True))
    return Panel(title, unit, lines, linear=True, references=references, frames=True)


def _players(world: World) -> tuple[Reference, ...]:
    """The published scores that human-normalised ones are measured by."""
    if world.kind != "atari":
        return ()
    facts = ATARI_GAMES[world.name]
    return Reference(facts.random, "random player"), Reference(facts.human, "human tester")


def _beside_score(run: Results, policy: str) -> str:
    """What a card says under a score."""
    remarks = []
    human, rooms = (run.last(f"eval/{policy}/{name}") for name in _BESIDE_SCORE)
    if human is not None:
        remarks.append(f"human-normalised {percent(human / 100)}")
    if rooms is not None:
        remarks.append(f"{plain_number(rooms)} room{'s' if rooms != 1 else ''} visited")
    return ", ".join(remarks)


def _score_section(groups: Sequence[Group], name: str, where: str) -> str:
    title = f"Evaluation{where}"
    panels = evaluation_panels(groups)
    if not panels:
        return markup.section(name, title, markup.paragraph("No evaluation has been made yet.", "note"))
    metrics = [metric for panel in panels for metric in panel.metrics]
    human = "human_normalised" in _measured(groups)
    caption = (
        "Means over the episodes of each evaluation during training, in environments of their own."
        + bands_caption(groups, metrics)
        + (" Human-normalised: 0 is a random player, 100 % a professional human tester." if human else "")
    )
    return markup.section(
        name,
        title,
        markup.figures(panel_pictures(panels, groups, name)),
        markup.paragraph(caption, "quiet"),
        _score_table(groups),
    )


def _score_table(groups: Sequence[Group]) -> str:
    """The last evaluations, the best first, and the published scores of other players."""
    measured = _measured(groups)
    columns = ["score", *(name for name in ("solved", *_BESIDE_SCORE, "length") if name in measured)]
    entries: list[tuple[float, str]] = []
    for group in groups:
        for policy in POLICIES:
            finals = {column: group.final(_metric(group, policy, column)) for column in columns}
            if not finals["score"]:
                continue
            cells = [markup.text(_with_policy(group.label if len(groups) > 1 else "agent", group, policy))]
            cells += [_cell(column, values) for column, values in finals.items()]
            cells.append(markup.text(f"{group.seeds}, {trained(group)}"))
            entries.append((sum(finals["score"]) / len(finals["score"]), markup.row(cells, "agent")))
    for place, player in enumerate(_players(groups[0].world)):
        shown = {"score": plain_number(player.value), "human_normalised": percent(float(place))}
        cells = [markup.text(player.label), *(markup.number(shown.get(column, "")) for column in columns)]
        entries.append((player.value, markup.row([*cells, markup.text("published, with up to 30 no-ops")])))
    entries.sort(key=lambda entry: -entry[0])
    words = {"human_normalised": "human-normalised", "length": "agent steps in an episode", "rooms": "rooms"}
    return markup.table(
        ["policy", *(words.get(column, column) for column in columns), "over"], [row for _, row in entries]
    )


def _cell(column: str, values: Sequence[float]) -> str:
    """The mean, and the range over several seeds."""
    if not values:
        return markup.number("")
    mean, low, high = (
        percent(value / 100) if column == "human_normalised" else plain_number(value)
        for value in (sum(values) / len(values), min(values), max(values))
    )
    return markup.number(mean if low == high else f"{mean} ({low} to {high})")


# One episode


def _episode_section(run: Results) -> list[str]:
    """What a trained policy does; only a run's folder has the weights to play with."""
    if run.config is None:
        return []
    title = "Novelty over an episode"
    try:
        played = play(run.path, steps=EPISODE_STEPS, seed=run.config.evaluation.seed)
    except UserError as error:
        return [markup.section("game-episode", title, markup.paragraph(f"No episode can be drawn: {error}", "note"))]
    description = "Screens of an episode above its score, intrinsic reward, life-long modulator and rooms at each step"
    return [
        markup.section(
            "game-episode",
            title,
            *(markup.paragraph(sentence(note), "note") for note in played.notes),
            wide_figure(novelty_figure(played, PAGE), "game-episode", description, _episode_caption(played)),
        )
    ]


def _episode_caption(played: Played) -> str:
    episode = played.episode
    what = "An episode" if episode.ended else f"The first {episode.length:,} steps of an episode"
    sentences = [
        f"{what} of the exploratory policy with the weights of step {played.checkpoint_step:,} and epsilon "
        f"{played.epsilon:g}: {_outcome(episode)}.",
    ]
    if episode.vectors is None:
        part = "eighth" if episode.length >= 8 else "step"
        which = "the step of the highest intrinsic reward in" if episode.reward.any() else "the first step of"
        sentences.append(f"Screens show {which} each {part} of it.")
    if played.no_screen:
        instead = "the agent's observations are" if episode.vectors is None else "the numbers it observes are"
        sentences.append(f"The environment draws no picture of itself here ({played.no_screen}); {instead} shown.")
    return " ".join(sentences)


def _outcome(episode: Episode) -> str:
    parts = [f"score {plain_number(float(episode.score[-1]))} after {episode.length:,} steps"]
    rooms = episode.rooms
    if rooms is not None:
        parts.append(f"{rooms[-1]:.0f} room{'s' if rooms[-1] != 1 else ''} visited")
    if episode.reward.any():
        parts.append(f"mean intrinsic reward {episode.reward[1:].mean():.3g} per step")
    return ", ".join(parts)
