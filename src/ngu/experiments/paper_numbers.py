"""The numbers of the paper's tables, as printed (`±` for its plus-minus sign, bold type left out), by label.

Columns have the emulator's names of games. `Human`, `Best baseline`, `RND` and `R2D2` are results of others, which the
paper quotes; it was not trained for them.
"""

from __future__ import annotations

from ngu.experiments.definition import Numbers, Published


def _by_algorithm(table: str) -> Numbers:
    """A table with a row for each algorithm and a column for each game."""
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return {name: dict(zip(head[1:], map(Published, cells), strict=True)) for name, *cells in rows}


def _by_game(table: str) -> Numbers:
    """A table with a row for each game and a column for each algorithm."""
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return {name: {row[0]: Published(row[place]) for row in rows} for place, name in enumerate(head) if place}


HARD_EXPLORATION = _by_algorithm("""
algorithm     | gravitar   | montezuma_revenge | pitfall    | private_eye | solaris   | venture
Human         | 3.4k       | 4.8k              | 6.5k       | 69.6k       | 12.3k     | 1.2k
Best baseline | 15.7k      | 11.6k             | 0.0        | 11k         | 5.5k      | 2.0k
RND           | 3.9k       | 10.1k             | -3         | 8.7k        | 3.3k      | 1.9k
R2D2+RND      | 15.6k±0.6k | 10.4k±1.2k        | -0.5±0.3   | 19.5k±3.5k  | 4.3k±0.6k | 2.7k±0.0k
R2D2(Retrace) | 13.3k±0.6k | 2.3k±0.4k         | -3.5±1.2   | 32.5k±4.7k  | 6.0k±1.1k | 2.0k±0.0k
NGU(N=1)-RND  | 12.4k±0.8k | 3.0k±0.0k         | 15.2k±9.4k | 40.6k±0.0k  | 5.7k±1.8k | 46.4±37.9
NGU(N=1)      | 11.0k±0.7k | 8.7k±1.2k         | 9.4k±2.2k  | 60.6k±16.3k | 5.9k±1.6k | 876.3±114.5
NGU(N=32)     | 14.1k±0.5k | 10.4k±1.6k        | 8.4k±4.5k  | 100.0k±0.4k | 4.9k±0.3k | 1.7k±0.1k
""")
"""`table_action_prediction_montezuma`"""

DENSE_REWARDS = _by_algorithm("""
algorithm     | pong     | qbert        | breakout   | space_invaders | beam_rider
Human         | 14.6     | 13.4k        | 30.5       | 1.6k           | 16.9k
R2D2          | 21.0     | 408.8k       | 837.7      | 43.2k          | 188.2k
R2D2+RND      | 20.7±0.0 | 353.5k±41.0k | 815.8±5.3  | 54.5k±2.8k     | 85.7k±9.0k
R2D2(Retrace) | 20.9±0.0 | 415.6k±55.8k | 838.3±7.0  | 35.0k±13.0k    | 111.1k±5.0k
NGU(N=1)-RND  | -8.1±1.7 | 647.1k±50.5k | 864.0±0.0  | 45.3k±4.9k     | 166.5k±8.6k
NGU(N=1)      | -9.4±2.6 | 684.7k±8.8k  | 864.0±0.0  | 43.0k±3.9k     | 114.6k±2.3k
NGU(N=32)     | 19.6±0.1 | 465.8k±84.9k | 532.8±16.5 | 44.6k±1.2k     | 68.7k±11.1k
""")
"""`table_single_mixture_dense_games`"""

ABLATIONS = _by_algorithm("""
algorithm | pong | qbert | breakout | space_invaders | beam_rider | montezuma_revenge | pitfall | private_eye
Human | 14.6 | 13.4k | 30.5 | 1.6k | 16.9k | 4.8k | 6.5k | 69.6k
NGU(N=32) | 19.6±0.1 | 465.8k±84.9k | 532.8±16.5 | 44.6k±1.2k | 68.7k±11.1k | 10.4k±1.6k | 8.4k±4.5k | 100.0k±0.4k
N=2 | 20.6±0.1 | 457.7k±128.0k | 576.0±24.9 | 48.0k±6.2k | 71.8k±9.0k | 11.1k±1.4k | -1.6±0.9 | 40.6k±0.1k
N=8 | 20.0±0.3 | 481.8k±41.2k | 524.1±28.3 | 43.1k±5.5k | 64.0k±3.8k | 7.8k±0.3k | -1.9±0.4 | 38.5k±1.6k
N=16 | 17.2±1.0 | 444.2k±61.7k | 549.0±11.0 | 46.4k±3.5k | 73.9k±5.3k | 9.5k±0.8k | 5.0k±1.2k | 52.0k±20.7k
CMR=0.5 | 19.0±0.3 | 502.9k±73.9k | 516.9±20.1 | 40.3k±7.1k | 74.5k±5.9k | 12.0k±0.8k | 5.1k±2.4k | 58.8k±16.9k
beta=0.2 | 20.3±0.2 | 350.1k±24.7k | 525.0±38.2 | 43.9k±1.3k | 75.6k±10.9k | 6.9k±0.1k | 3.3k±1.4k | 40.6k±0.0k
beta=0.5 | 16.8±1.2 | 480.4k±59.2k | 451.6±17.2 | 40.2k±4.8k | 62.3k±5.9k | 11.3k±0.5k | 1.3k±0.5k | 44.5k±3.2k
w/o RND | 19.7±0.4 | 550.3k±64.4k | 553.7±19.1 | 47.6k±3.7k | 87.1k±9.1k | 3.0k±0.0k | 7.7k±0.9k | 40.5k±0.1k
w/o r_e | -8.4±1.9 | 28.1k±1.1k | 383.0±10.0 | 5.5k±0.3k | 6.4k±0.2k | 3.4k±0.7k | 600.4±468.9 | 7.5k±2.2k
""")
"""`table_ablations`"""

FURTHER_ABLATIONS = _by_algorithm("""
algorithm | gravitar   | solaris   | venture
Human     | 3.4k       | 12.3k     | 1.2k
NGU(N=32) | 14.1k±0.5k | 4.9k±0.3k | 1.7k±0.1k
beta=0.2  | 14.2k±0.3k | 6.4k±1.4k | 2.3k±0.2k
beta=0.5  | 13.5k±0.4k | 5.5k±1.4k | 2.0k±0.1k
""")
"""`beta_results`"""

ATARI57 = _by_game("""
game              | R2D2(Retrace) | NGU(32) eval beta=0.0 | NGU(32) eval beta=0.3
alien             | 189.1k±15.6k  | 248.1k±22.4k          | 225.5k±36.9k
asteroids         | 338.5k±4.5k   | 230.5k±4.0k           | 181.6k±2.8k
time_pilot        | 446.8k±3.9k   | 344.7k±31.0k          | 336.1k±32.9k
tutankham         | 452.2±20.0    | 191.1±1.2             | 125.7±5.2
up_n_down         | 678.8k±1.3k   | 620.1k±13.7k          | 575.2k±10.4k
venture           | 2.0k±0.0k     | 1.7k±0.1k             | 779.9±188.7
video_pinball     | 948.6k±5.2k   | 965.3k±12.8k          | 596.7k±120.0k
wizard_of_wor     | 120.2k±7.6k   | 106.2k±7.0k           | 85.1k±12.3k
atlantis          | 1654.9k±1.5k  | 1653.6k±2.3k          | 1638.0k±4.6k
yars_revenge      | 990.4k±2.9k   | 986.0k±3.2k           | 993.8k±1.5k
zaxxon            | 94.8k±23.7k   | 111.1k±11.8k          | 190.1k±6.9k
bank_heist        | 15.0k±5.7k    | 17.4k±12.0k           | 1.4k±0.0k
battle_zone       | 733.1k±45.2k  | 691.7k±22.6k          | 571.5k±45.4k
beam_rider        | 103.9k±1.1k   | 63.6k±8.6k            | 31.9k±0.6k
berzerk           | 69.3k±5.8k    | 36.2k±4.7k            | 27.3k±0.8k
bowling           | 253.0±1.2     | 211.9±8.4             | 161.8±4.9
boxing            | 100.0±0.0     | 99.7±0.0              | 3.8±1.4
breakout          | 839.7±6.0     | 559.2±29.0            | 387.6±51.0
centipede         | 700.2k±19.8k  | 577.8k±3.1k           | 574.6k±7.0k
chopper_command   | 999.9k±0.0k   | 999.9k±0.0k           | 974.1k±14.7k
amidar            | 28.2k±0.2k    | 17.8k±1.2k            | 8.5k±0.4k
crazy_climber     | 294.2k±25.7k  | 313.4k±7.7k           | 357.0k±8.3k
defender          | 675.6k±3.2k   | 664.1k±1.8k           | 656.3k±7.2k
demon_attack      | 143.9k±0.0k   | 143.5k±0.0k           | 136.6k±3.3k
double_dunk       | 24.0±0.0      | -14.1±2.4             | -21.5±0.7
enduro            | 2.4k±0.0k     | 2.0k±0.1k             | 682.5±24.0
fishing_derby     | 86.8±0.9      | 32.0±1.9              | -29.3±4.1
freeway           | 33.2±0.1      | 28.5±1.1              | 21.2±0.5
frostbite         | 10.5k±3.8k    | 206.4k±150.0k         | 67.9k±45.6k
gopher            | 117.8k±0.9k   | 113.4k±0.6k           | 86.6k±7.4k
gravitar          | 12.9k±0.6k    | 14.2k±0.5k            | 13.2k±0.3k
assault           | 36.7k±3.0k    | 34.8k±5.4k            | 1.9k±0.6k
hero              | 54.5k±3.0k    | 69.4k±5.7k            | 64.2k±7.0k
ice_hockey        | 85.1±0.6      | -4.1±0.3              | -0.5±0.2
jamesbond         | 30.8k±2.3k    | 26.6k±2.6k            | 22.4k±0.3k
kangaroo          | 14.7k±0.1k    | 35.1k±2.1k            | 16.9k±2.0k
krull             | 131.1k±12.7k  | 127.4k±17.1k          | 26.7k±2.2k
kung_fu_master    | 220.7k±3.9k   | 212.1k±11.2k          | 203.2k±10.8k
montezuma_revenge | 2.3k±0.4k     | 10.4k±1.5k            | 16.8k±6.8k
ms_pacman         | 40.3k±1.1k    | 40.8k±1.1k            | 38.1k±1.6k
name_this_game    | 70.6k±8.3k    | 23.9k±0.5k            | 15.6k±0.3k
phoenix           | 935.2k±13.5k  | 959.1k±2.7k           | 933.3k±4.7k
asterix           | 994.3k±0.9k   | 950.7k±23.1k          | 953.1k±21.7k
pitfall           | -5.2±1.7      | 7.8k±4.0k             | 1.3k±0.9k
pong              | 20.9±0.0      | 19.6±0.2              | -9.7±1.4
private_eye       | 31.5k±5.4k    | 100.0k±0.4k           | 65.6k±14.3k
qbert             | 398.6k±46.4k  | 451.9k±82.1k          | 449.0k±108.2k
riverraid         | 38.9k±0.6k    | 36.7k±2.3k            | 42.6k±4.0k
road_runner       | 105.2k±16.8k  | 128.6k±28.7k          | 103.9k±7.1k
robotank          | 142.4±0.8     | 9.1±0.7               | 24.9±2.5
seaquest          | 1000.0k±0.0k  | 1000.0k±0.0k          | 1000.0k±0.0k
skiing            | -11081.7±97.7 | -22977.9±5059.9       | -21907.4±3647.5
solaris           | 5.6k±1.1k     | 4.7k±0.3k             | 1.3k±0.1k
space_invaders    | 33.4k±12.2k   | 43.4k±1.3k            | 12.0k±1.9k
star_gunner       | 412.8k±4.1k   | 414.6k±66.8k          | 452.5k±53.0k
surround          | 9.8±0.0       | -9.6±0.2              | -7.3±0.4
tennis            | 24.0±0.0      | 10.2±3.5              | -3.5±5.7
""")
"""`table_atari57`"""
