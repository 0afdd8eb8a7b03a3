"""The paper's empirical claims: what it says and where, at which budget it was tested here, and what was seen.

A verdict is changed here when runs have been made, and the runs are named: files under `results/`, whose last values of
a metric the page of claims then shows. A claim without runs is not yet tested, whatever one may expect.
"""

from __future__ import annotations

from ngu.experiments.evidence import Claim, Evidence

_MAZES = (
    Evidence(
        "reproduce/node/disco-maze/ngu-seed*.csv",
        "eval/explore/coverage@500",
        "coverage of 21x21 mazes after 500 steps",
        share=True,
    ),
    Evidence(
        "disco-maze-small/ngu-seed*.csv",
        "eval/explore/coverage@100",
        "coverage of 9x9 mazes after 100 steps",
        share=True,
    ),
)


def _maze_baselines(folder: str, what: str) -> tuple[Evidence, ...]:
    """Coverage of the large maze by the two baselines of a folder; `what` ends with their names."""
    return tuple(
        Evidence(f"{folder}/{variant}-seed*.csv", "eval/explore/coverage@500", f"{what} {kind}", share=True)
        for variant, kind in (("random-projection", "random projections"), ("rnd-only", "RND alone"))
    )


_BASELINES = _maze_baselines("disco-maze/without-lookahead", "coverage of 21x21 mazes after 500 steps with")

_SMALL_BASELINES = (
    Evidence(
        "reproduce/laptop/disco-maze/random-projection-seed*.csv",
        "eval/explore/coverage@100",
        "coverage of 9x9 mazes with random projections",
        share=True,
    ),
    Evidence(
        "reproduce/laptop/disco-maze/rnd-only-seed*.csv",
        "eval/explore/coverage@100",
        "coverage with RND alone",
        share=True,
    ),
)

_BASELINES_WITH_LOOKAHEAD = _maze_baselines("reproduce/node/disco-maze", "the same with the preset's lookahead,")

_LEARNED_BESIDE_BASELINES = Evidence(
    "disco-maze/without-lookahead/ngu-seed*.csv",
    "eval/explore/coverage@500",
    "the same with learned states",
    share=True,
    until=24_100_000,
    over=1_000_000,
)

_REMEDIES = "atari/montezuma_revenge/remedies/{}-seed0.csv"
"""One seed each, on one H200, by training episodes (docs/montezuma.md)."""


def _montezuma_scores(until: int, **agents: str) -> tuple[Evidence, ...]:
    """Files' names and what to call their agents."""
    return tuple(
        Evidence(_REMEDIES.format(name.replace("_", "-")), "env/score", f"score of {what}", until=until, over=1_000_000)
        for name, what in agents.items()
    )


CLAIMS: tuple[Claim, ...] = (
    # Sec. 4.1
    Claim(
        "Sec. 4.1",
        "The proposed model learns to explore any maze sampled from the task-distribution.",
        "fig_disco_maze",
        "holds in part",
        "High coverage of mazes that it has never seen, but some side branches are left out.",
        _MAZES,
    ),
    Claim(
        "Sec. 4.1",
        "The strategy resembles depth-first search: as far as possible along each branch before backtracking.",
        "fig_disco_maze",
        "holds in part",
        "On the 9x9 maze, two agents in 1,024 mazes each: in corridors whose next cell is new they go on in 98.3 and "
        "96.7 % of the cases, at forks that they meet for the first time they take a new way in 99.5 and 98.8 %; at "
        "forks that they come back to, in 44.1 and 33.0 % only. Not looked at on the 21x21 maze.",
        (
            Evidence(
                "disco-maze-small/late-episode/average-seed*.csv",
                "eval/explore/coverage@100",
                "coverage of 9x9 mazes after 100 steps",
                share=True,
            ),
        ),
    ),
    Claim(
        "Sec. 4.1",
        "The model with random projections, and the baseline of RND, do not show such exploratory behaviour.",
        "fig_disco_maze",
        "holds",
        "Three seeds each, on the 21x21 maze and on the 9x9 maze. On the large one random projections, and two of "
        "three with RND, were still rising slowly.",
        (*_BASELINES, _LEARNED_BESIDE_BASELINES, *_BASELINES_WITH_LOOKAHEAD, *_SMALL_BASELINES),
    ),
    Claim(
        "Sec. 4.1",
        "Both do learn to avoid walking into walls; oscillating is enough for them.",
        "fig_disco_maze",
        "holds in part",
        "On the 9x9 maze their episodes last to the cut at 100 steps; with seed 0, 62 % (random projections) and 75 % "
        "(RND) of the last steps turn back though there is another way, against 4 % with learned states. On the 21x21 "
        "maze, cut at 500 steps, random projections learned it; of the agents with RND alone one did, one mostly, and "
        "one did not.",
        tuple(
            Evidence(evidence.files, "eval/explore/length", f"steps in an episode with {kind}, {size}")
            for baselines, size in ((_BASELINES, "21x21"), (_SMALL_BASELINES, "9x9"))
            for evidence, kind in zip(baselines, ("random projections", "RND alone"), strict=True)
        ),
    ),
    # Sec. 4.2, ablations
    Claim(
        "Sec. 4.2",
        "A CMR of 0.5 slightly harms overall average performance on hard exploration games.",
        "fig_ablations",
    ),
    Claim(
        "Sec. 4.2",
        "An improvement, on average, from increasing the number of mixtures N on hard exploration games.",
        "fig_ablations",
    ),
    Claim(
        "Sec. 4.2",
        "beta = 0.3 is the best on average; 0.2 and 0.5 are worse on those hard exploration games.",
        "fig_ablations",
    ),
    Claim(
        "Sec. 4.2", "The RND factor seems to be greatly beneficial on these hard exploration games.", "fig_ablations"
    ),
    Claim(
        "Sec. 4.2",
        "But for removing the extrinsic reward, the ablations have little effect on the dense reward games.",
        "fig_ablations",
    ),
    Claim(
        "Sec. 4.2",
        "Without extrinsic reward, still average superhuman performance on the 5 dense reward games.",
        "fig_ablations",
    ),
    # Abstract, Sec. 4.2, hard exploration
    Claim(
        "Abstract",
        "NGU doubles the performance of the base agent in all hard exploration games of Atari-57.",
        "table_action_prediction_montezuma",
    ),
    Claim(
        "Abstract",
        "Non-zero rewards in Pitfall! without demonstrations or hand-crafted features, with a mean score of 8,400.",
        "table_action_prediction_montezuma",
    ),
    Claim(
        "Abstract; Sec. 3",
        "What predominantly exploratory policies have learned is transferred to effective exploitative policies.",
        "ngu_evals_graph",
    ),
    Claim(
        "Sec. 4.2",
        "Similar or higher average return than state-of-the-art baselines on all hard exploration tasks.",
        "table_action_prediction_montezuma",
        "not seen at this budget",
        "Montezuma's Revenge alone, one seed each, with the remedies of docs/montezuma.md, which are not the paper's, "
        "and not the same for all: xi is larger with NGU. After 10 million frames this run of NGU has found no key "
        "(an earlier one, without them, had now and then), where the others have now and then. Training episodes of "
        "the last million agent steps until then.",
        _montezuma_scores(2_550_000, ngu="NGU(N=32)", r2d2_rnd="R2D2+RND", r2d2_advantage_learning="R2D2"),
    ),
    Claim(
        "Sec. 4.2",
        "A positive score on Pitfall! without privileged information, NGU(N=1)-RND with a best score of 15,200.",
        "table_action_prediction_montezuma",
    ),
    Claim(
        "Sec. 4.2",
        "In 4 of the 6 games NGU(N=32) appears to substantially improve against NGU(N=1).",
        "table_action_prediction_montezuma",
    ),
    Claim(
        "Sec. 4.2",
        "In mean and median human normalized scores NGU greatly improves upon existing algorithms.",
        "hard_explore_hns_graph",
    ),
    Claim(
        "Sec. 4.2",
        "NGU(N=32) explores an average of 46 rooms of Pitfall! per episode, 14 before the first extrinsic reward.",
        "ap_mr_graph",
    ),
    Claim("Sec. 4.2", "On Pitfall! using RND makes the model less data efficient.", "ap_mr_graph"),
    Claim("Sec. 4.2", "On Montezuma's Revenge RND greatly improves the results of NGU(N=32).", "ap_mr_graph"),
    Claim(
        "Sec. 4.2",
        "On Pitfall! RND harms NGU(N=1), too: without it, it is the best agent there.",
        "table_action_prediction_montezuma",
    ),
    Claim("Sec. 4.2", "On Pitfall! NGU(N=1) obtains better results than NGU(N=32).", "ap_mr_graph"),
    # Sec. 4.2, dense rewards and all games
    Claim(
        "Sec. 4.2", "NGU(N=1) underperforms relative to R2D2 on most dense games.", "table_single_mixture_dense_games"
    ),
    Claim(
        "Sec. 4.2",
        "R2D2(Retrace), the basis of NGU, underperforms relative to R2D2 on most dense games.",
        "table_single_mixture_dense_games",
    ),
    Claim(
        "Sec. 4.2",
        "On Pong NGU(N=1) catastrophically fails; the exploitative policy of NGU(N=32) reliably learns to play it.",
        "table_single_mixture_dense_games",
        "holds in part",
        "One seed of N = 32, which learns it, with errors in units of their policy; N = 1 has not been run. While "
        "beta_0 wins, beta_31 loses, by some points more than in the paper (-9.7), in games cut after five minutes.",
        (
            Evidence("reproduce/node/pong/ngu-seed*.csv", "eval/exploit/score", "score of beta_0"),
            Evidence("reproduce/node/pong/ngu-seed*.csv", "eval/explore/score", "score of beta_31"),
        ),
    ),
    Claim("Sec. 4.2", "NGU(N=32) does not match R2D2 on Breakout and Beam Rider.", "table_single_mixture_dense_games"),
    Claim(
        "Sec. 4.2; abstract",
        "An overall median score of 1354.4 % (abstract: 1344.0 %), R2D2 using retrace loss 1451.8 %.",
        "table_atari57",
        saw="The scores that the paper prints in table_atari57 give medians of 1208.1 % and 1342.8 % with the random "
        "and human scores of docs/atari.md; which scores the paper normalised with, it does not say.",
    ),
    Claim("Sec. 4.2", "Above human level on 51 out of the 57 games.", "table_atari57"),
    Claim(
        "Sec. 4.2",
        "On Q*Bert the policies seem to converge to the exploitative policy regardless of beta; so in many games.",
        "ngu_evals_graph",
    ),
    Claim("Sec. 4.2", "On Pitfall! and Beam Rider the policies learn very different behaviour.", "ngu_evals_graph"),
    Claim(
        "Sec. 4.2",
        "On Pitfall!, where R2D2 never scores, the exploitative policy benefits from the exploratory one.",
        "ngu_evals_graph",
    ),
    Claim(
        "Sec. 4.2",
        "On Montezuma's Revenge the exploratory policy obtains better score than the exploitative policy.",
        "ngu_evals_graph",
        "not seen at this budget",
        "One seed, and a key in one of thirty games at most. Training episodes from 2M to 4M agent steps.",
        tuple(
            Evidence(
                "atari/montezuma_revenge/values/ngu-target-50-seed0.csv",
                f"env/score/{policy}",
                f"score of the {name} policy",
                until=4_000_000,
                over=2_000_000,
            )
            for policy, name in (("explore", "exploratory"), ("exploit", "exploitative"))
        ),
    ),
    Claim(
        "Sec. 5",
        "Sharing a network is limiting when two policies are almost adversarial, as in Surround and Ice Hockey.",
        "table_atari57",
        "holds in part",
        "Not on these games: on the random-coin grid, where one end of the family seeks the coin that the other "
        "avoids, at a small budget. While the coin is worth more than novelty, one network serves both ends. With "
        "errors in units of their policy, which the paper does not do, beta_0 takes most coins with each of the three "
        "larger betas that were tried, fewer than with a beta of 0.",
        (
            Evidence(
                "reproduce/laptop/random-coin/beta-0-seed*.csv",
                "eval/exploit/solved",
                "coins taken by beta_0, with a beta of 0",
                share=True,
            ),
            Evidence(
                "reproduce/laptop/random-coin/beta-0.01-seed*.csv",
                "eval/exploit/solved",
                "the same with a beta of 0.01",
                share=True,
            ),
            Evidence(
                "reproduce/laptop/random-coin/beta-0.05-seed*.csv",
                "eval/exploit/solved",
                "with 0.05, where novelty is worth more",
                share=True,
            ),
            Evidence(
                "reproduce/laptop/random-coin/beta-1-seed*.csv",
                "eval/exploit/solved",
                "with 1",
                share=True,
            ),
            Evidence(
                "reproduce/laptop/random-coin/beta-1-balanced-seed*.csv",
                "eval/exploit/solved",
                "with 1 and balanced errors",
                share=True,
            ),
        ),
    ),
    Claim(
        "Sec. 5",
        "Environments with other scales of the extrinsic reward might require other values of beta.",
        "random_coin",
        "holds in part",
        "On the random-coin grid, whose coin is worth 1, at a small budget: with 0.01 beta_0 takes most coins, with "
        "the paper's 0.3 few, unless errors are in units of their policy, which the paper does not do.",
        tuple(
            Evidence(
                f"reproduce/laptop/random-coin/beta-{beta}-seed*.csv",
                "eval/exploit/solved",
                f"coins taken by beta_0, with a beta of {what}",
                share=True,
            )
            for beta, what in (("0.01", "0.01"), ("0.3", "0.3"), ("0.3-balanced", "0.3 and balanced errors"))
        ),
    ),
    Claim(
        "Sec. 5",
        "High scores in all hard-exploration games, and a very high average over the whole Atari-57 suite.",
        "table_atari57",
    ),
    # App. B
    Claim("App. B.1", "Small to no impact of the size of controllable states on Pitfall!.", "ng1_embedding_pitfall"),
    Claim("App. B.1", "Scores on Pitfall! sometimes reach more than 25,000.", "ng1_embedding_pitfall"),
    Claim("App. B.1", "On Montezuma's Revenge a size of 32 is consistently better than 64.", "ng1_embedding_mr"),
    Claim(
        "App. B.1",
        "On Montezuma's Revenge a size of 16 sometimes solves the level, but is less stable.",
        "ng1_embedding_mr",
    ),
    Claim("App. B.2", "Slight gains from using more neighbors on Pitfall!.", "ng1_nn_pitfall"),
    Claim("App. B.2", "On Montezuma's Revenge 10 neighbors are clearly better than 5 or 30.", "ng1_nn_mr"),
    Claim("App. B.3", "Pitfall! is robust to L, with marginally worse performance for L = 10.", "ng1_l_pitfall"),
    Claim("App. B.3", "The highest value of clipping appears to work best on Montezuma's Revenge.", "ng1_l_mr"),
    Claim("App. B.3", "On Montezuma's Revenge clipping alpha is required to make the algorithm stable.", "ng1_l_mr"),
    # App. C and F
    Claim(
        "App. C.1",
        "The best score in Montezuma's Revenge is obtained by a non-zero Cross Mixture Ratio.",
        "table_ablations",
    ),
    Claim(
        "App. C.1",
        "N = 2 and N = 8 have a lower mean human-normalised score on the 3 hard games than N = 16 and N = 32.",
        "table_ablations",
    ),
    Claim(
        "App. C.1",
        "N = 2 and N = 8 only achieve super-human performance on Montezuma's Revenge among the 3 hard games.",
        "table_ablations",
    ),
    Claim(
        "App. C.1",
        "beta = 0.2 and 0.5 still outperform RND, R2D2, R2D2(Retrace) and R2D2+RND on Pitfall! and Private Eye.",
        "table_ablations",
    ),
    Claim(
        "App. C.1",
        "On Private Eye, minor rewards aside, two of around 30,000 points are left after a score of 40,000.",
        "table_ablations",
    ),
    Claim("App. C.1", "On Breakout, a high score is achieved without extrinsic reward.", "table_ablations"),
    Claim(
        "App. C.2",
        "On Gravitar, Solaris and Venture the differences between beta = 0.2, 0.3 and 0.5 are less pronounced.",
        "beta_results",
    ),
    Claim(
        "App. C.2",
        "On these games 0.2 and 0.5 are slightly better than 0.3, by 1,500 points at most.",
        "beta_results",
        saw="The paper's table has it otherwise on Gravitar with beta = 0.5: 13.5k, where 0.3 has 14.1k.",
    ),
    Claim("App. F.1", "The best beta of R2D2+RND is 0.3, of 0.1, 0.3 and 0.5.", "table_hyper_ranges"),
    Claim(
        "App. F.1",
        "The only agent that is superhuman on all 8 games of table_ablations is NGU(N=32).",
        "table_ablations",
    ),
    # App. I
    Claim(
        "App. I.1",
        "The error of a linear probe of the position settles at the order of 12 units, under 10 % of the range, and "
        "does not grow when new rooms are discovered.",
        "predictability_results",
        "not seen at this budget",
        "One seed each; means over the last million agent steps, in the console's pixels, of which x ranges over 153. "
        "No agent left the first room.",
        tuple(
            Evidence(
                _REMEDIES.format(name),
                f"probe/position/{metric}",
                f"root of the mean squared error of x and y, {whose}",
                root=True,
                over=1_000_000,
            )
            for name, agent in (("ngu", "NGU(N=32)"), ("n1", "NGU(N=1)"), ("n1-no-rnd", "NGU(N=1)-RND"))
            for metric, whose in (("squared_error", agent), ("baseline", f"of a constant answer beside {agent}"))
        ),
    ),
    Claim(
        "App. I.1",
        "The error in the room stabilises slightly above 20 %, where random chance is 96 %.",
        "predictability_results",
    ),
    Claim(
        "App. I.2",
        "With hand-crafted controllable states NGU(N=1) achieves higher scores than with learned ones.",
        "initial_results",
        "holds in part",
        "One seed each and far fewer frames than in the paper; a memory over one episode instead of three. Training "
        "episodes of the last million agent steps.",
        (
            *_montezuma_scores(2_150_000, hand_crafted="hand-crafted states", n1="learned states"),
            *_montezuma_scores(0, hand_crafted="hand-crafted states, which went on for longer"),
        ),
    ),
    Claim(
        "App. I.2",
        "Long-term novelty boosts efficiency and final performance: close to 15,000 points and 25 rooms per episode.",
        "initial_results",
        "not seen at this budget",
        "A small agent on one CPU core that has not come farther than the second room, with a memory over one episode: "
        "without RND both seeds have found the key by 580,000 steps, with RND one of three, which scored most. Too few "
        "seeds to tell. Training episodes of the last 100,000 agent steps until then.",
        tuple(
            Evidence(
                f"atari/montezuma_revenge/small/{name}-narrowed-kappa-0.01-seed*.csv",
                "env/score",
                f"score {what} RND",
                until=until,
                over=100_000,
            )
            for until in (520_000, 720_000)
            for name, what in (("hand-crafted", "with"), ("hand-crafted-no-rnd", "without"))
        ),
    ),
    Claim(
        "App. I.2", "Three out of five seeds reach the second level, one of which reaches the third.", "initial_results"
    ),
    Claim(
        "App. I.2",
        "Without extrinsic rewards it still achieves a very high score and explores more than 20 rooms.",
        "initial_results",
    ),
    Claim(
        "App. I.2",
        "In a meta-episode the first episode scores 14,660, the third 34,040: another key-door combination each time.",
        "initial_results",
        "not seen at this budget",
        "Not after 23 million frames, with one seed: one door by then, and now and then another room behind it. Means "
        "over the lines that the run told of its last two million agent steps, whatever the number of episodes that "
        "each tells of; one line of the third episode, far above the others, makes it the second best.",
        tuple(
            Evidence(
                "reproduce/node/montezuma_revenge/hand-crafted-seed0.csv",
                f"env/score/episode_{place}",
                f"score of the {name} episode",
                over=2_000_000,
            )
            for place, name in enumerate(("first", "second", "third"), 1)
        ),
    ),
    Claim(
        "App. I.2",
        "No different key-door combinations across episodes when using learned controllable states.",
        "initial_results",
    ),
)
