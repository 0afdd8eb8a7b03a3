"""The 57 Atari games: their names, and the random and human scores that results are measured against.

The scores are the table for starts with up to 30 no-ops that Wang et al. (2016, "Dueling Network Architectures for Deep
Reinforcement Learning") printed and that later papers share: `random` is the mean score of uniformly random actions,
`human` that of a professional tester. Every figure was compared with DQN Zoo's `atari_data.py` and with the appendix of
Badia et al. (2020, "Agent57"): they agree, but for Video Pinball's random score, which Agent57 prints as 0.0.

Nothing here needs the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ngu.errors import UserError, unknown_name


class AtariFacts(NamedTuple):
    """What is known of a game before it is played."""

    title: str
    """The name on the box."""
    random: float
    """Mean score of uniformly random actions."""
    human: float
    """Mean score of a professional human tester."""


ATARI_GAMES: Mapping[str, AtariFacts] = {
    "alien": AtariFacts("Alien", 227.8, 7127.7),
    "amidar": AtariFacts("Amidar", 5.8, 1719.5),
    "assault": AtariFacts("Assault", 222.4, 742.0),
    "asterix": AtariFacts("Asterix", 210.0, 8503.3),
    "asteroids": AtariFacts("Asteroids", 719.1, 47388.7),
    "atlantis": AtariFacts("Atlantis", 12850.0, 29028.1),
    "bank_heist": AtariFacts("Bank Heist", 14.2, 753.1),
    "battle_zone": AtariFacts("Battlezone", 2360.0, 37187.5),
    "beam_rider": AtariFacts("Beamrider", 363.9, 16926.5),
    "berzerk": AtariFacts("Berzerk", 123.7, 2630.4),
    "bowling": AtariFacts("Bowling", 23.1, 160.7),
    "boxing": AtariFacts("Boxing", 0.1, 12.1),
    "breakout": AtariFacts("Breakout", 1.7, 30.5),
    "centipede": AtariFacts("Centipede", 2090.9, 12017.0),
    "chopper_command": AtariFacts("Chopper Command", 811.0, 7387.8),
    "crazy_climber": AtariFacts("Crazy Climber", 10780.5, 35829.4),
    "defender": AtariFacts("Defender", 2874.5, 18688.9),
    "demon_attack": AtariFacts("Demon Attack", 152.1, 1971.0),
    "double_dunk": AtariFacts("Double Dunk", -18.6, -16.4),
    "enduro": AtariFacts("Enduro", 0.0, 860.5),
    "fishing_derby": AtariFacts("Fishing Derby", -91.7, -38.7),
    "freeway": AtariFacts("Freeway", 0.0, 29.6),
    "frostbite": AtariFacts("Frostbite", 65.2, 4334.7),
    "gopher": AtariFacts("Gopher", 257.6, 2412.5),
    "gravitar": AtariFacts("Gravitar", 173.0, 3351.4),
    "hero": AtariFacts("H.E.R.O.", 1027.0, 30826.4),
    "ice_hockey": AtariFacts("Ice Hockey", -11.2, 0.9),
    "jamesbond": AtariFacts("James Bond 007", 29.0, 302.8),
    "kangaroo": AtariFacts("Kangaroo", 52.0, 3035.0),
    "krull": AtariFacts("Krull", 1598.0, 2665.5),
    "kung_fu_master": AtariFacts("Kung-Fu Master", 258.5, 22736.3),
    "montezuma_revenge": AtariFacts("Montezuma's Revenge", 0.0, 4753.3),
    "ms_pacman": AtariFacts("Ms. Pac-Man", 307.3, 6951.6),
    "name_this_game": AtariFacts("Name This Game", 2292.3, 8049.0),
    "phoenix": AtariFacts("Phoenix", 761.4, 7242.6),
    "pitfall": AtariFacts("Pitfall!", -229.4, 6463.7),
    "pong": AtariFacts("Pong", -20.7, 14.6),
    "private_eye": AtariFacts("Private Eye", 24.9, 69571.3),
    "qbert": AtariFacts("Q*bert", 163.9, 13455.0),
    "riverraid": AtariFacts("River Raid", 1338.5, 17118.0),
    "road_runner": AtariFacts("Road Runner", 11.5, 7845.0),
    "robotank": AtariFacts("Robot Tank", 2.2, 11.9),
    "seaquest": AtariFacts("Seaquest", 68.4, 42054.7),
    "skiing": AtariFacts("Skiing", -17098.1, -4336.9),
    "solaris": AtariFacts("Solaris", 1236.3, 12326.7),
    "space_invaders": AtariFacts("Space Invaders", 148.0, 1668.7),
    "star_gunner": AtariFacts("Stargunner", 664.0, 10250.0),
    "surround": AtariFacts("Surround", -10.0, 6.5),
    "tennis": AtariFacts("Tennis", -23.8, -8.3),
    "time_pilot": AtariFacts("Time Pilot", 3568.0, 5229.2),
    "tutankham": AtariFacts("Tutankham", 11.4, 167.6),
    "up_n_down": AtariFacts("Up 'n Down", 533.4, 11693.2),
    "venture": AtariFacts("Venture", 0.0, 1187.5),
    "video_pinball": AtariFacts("Video Pinball", 16256.9, 17667.9),
    "wizard_of_wor": AtariFacts("Wizard of Wor", 563.5, 4756.5),
    "yars_revenge": AtariFacts("Yars' Revenge", 3092.9, 54576.9),
    "zaxxon": AtariFacts("Zaxxon", 32.5, 9173.3),
}
"""The emulator's name of each game (its ROM), and what is known of it."""


def _letters(name: str) -> str:
    """Letters and digits alone, so that spaces, signs and capitals make no difference."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_GAME_OF_LETTERS = {_letters(spelling): game for game, facts in ATARI_GAMES.items() for spelling in (game, facts.title)}


def check_game(name: str) -> str:
    """The emulator's name of a game: `Montezuma's Revenge`, `MontezumaRevenge` -> `montezuma_revenge`."""
    game = _GAME_OF_LETTERS.get(_letters(name))
    if game is None:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())  # FrostByte -> Frost_Byte
        likeness = re.sub(r"[^a-z0-9]+", "_", words.lower())
        raise UserError(unknown_name(f"the Atari game '{name}'", likeness, ATARI_GAMES))
    return game


def human_normalised(game: str, score: float) -> float:
    """Human-normalised score in percent, 100 (score - random) / (human - random): 0 is random play, 100 human play."""
    facts = ATARI_GAMES[check_game(game)]
    return 100.0 * (score - facts.random) / (facts.human - facts.random)
