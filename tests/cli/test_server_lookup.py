"""Prompt lookup as the server's flags ask for it: refusals, what is resolved, what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.app.cost_tables import CostTables
from surefoot.app.server_lookup import (
    LookupOptions,
    ServerLookup,
    ThresholdKind,
    lookup_options,
    server_policy,
)
from surefoot.cli.program import run
from surefoot.errors import ConfigError
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.governed.server_defaults import (
    RESUME_CONFIRM_TOKENS,
    SERVER_PLAIN_ROUNDS,
    server_lookup_config,
)

BASE = PromptLookupConfig()
BUCKET = CostBucket(256, 0.010, 0.0125, {1: 0.0125, 2: 0.015, 4: 0.020, 8: 0.030})
TABLES = CostTables(
    greedy=StepCosts("tiny greedy", "a test", (BUCKET,)),
    sampled=StepCosts("tiny sampled", "a test", (replace(BUCKET, pipelined_s=0.0125),)),
    origin="stored table",
)


@pytest.mark.parametrize(
    "given", ["1", "1.0", "0", "-3", "9", "8.01", "nan", "inf", "-inf", "x", ""]
)
def test_a_threshold_out_of_range_names_flag_value_and_limit(given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lookup_options(BASE, given, 2)
    assert caught.value.param == "min_tokens_per_round"
    assert caught.value.message == (
        f"--min-tokens-per-round is {given}; it must be auto, off or a number more than 1 and at "
        "most draft-max + 1 = 8"
    )


@pytest.mark.parametrize(("given", "threshold"), [("1.01", 1.01), ("2.66", 2.66), ("8", 8.0)])
def test_a_threshold_given_by_hand_rules_every_width(given: str, threshold: float) -> None:
    options = lookup_options(BASE, given, 2)
    config = server_lookup_config(BASE, threshold)
    assert options == LookupOptions(config, ThresholdKind.GIVEN, threshold, 2)
    assert options.config.min_tokens_per_round == threshold


def test_the_limit_follows_the_widest_draft() -> None:
    assert lookup_options(replace(BASE, max_draft=3), "4", 2).threshold == 4.0
    with pytest.raises(ConfigError, match=r"draft-max \+ 1 = 4"):
        lookup_options(replace(BASE, max_draft=3), "4.5", 2)


@pytest.mark.parametrize("max_batch", [0, 65, -1])
def test_a_batch_out_of_range_is_refused(max_batch: int) -> None:
    with pytest.raises(ConfigError) as caught:
        lookup_options(BASE, "auto", max_batch)
    assert caught.value.message == (
        f"--prompt-lookup-max-batch is {max_batch}; it must be between 1 and 64"
    )


def test_auto_and_off() -> None:
    auto = lookup_options(BASE, "auto", 1)
    assert auto == LookupOptions(server_lookup_config(BASE, None), ThresholdKind.AUTO, None, 1)
    assert lookup_options(BASE, "off", 64) == LookupOptions(BASE, ThresholdKind.OFF, None, 64)
    fixed = replace(BASE, adaptive=False)
    assert lookup_options(fixed, "auto", 2).config == fixed


@pytest.mark.parametrize("policy", list(DraftPolicy))
def test_the_servers_configuration_adds_the_resume_evidence_and_nothing_else(
    policy: DraftPolicy,
) -> None:
    base = PromptLookupConfig(ngram_max=4, max_draft=5, policy=policy)
    config = server_lookup_config(base, 2.5)
    assert config.min_tokens_per_round == 2.5
    assert config.resume_confirm_tokens == RESUME_CONFIRM_TOKENS
    assert config.overlapping_probes
    assert config.plain_rounds_before_pipeline == SERVER_PLAIN_ROUNDS
    command_line = replace(
        config,
        min_tokens_per_round=None,
        resume_confirm_tokens=base.resume_confirm_tokens,
        overlapping_probes=False,
        plain_rounds_before_pipeline=base.plain_rounds_before_pipeline,
    )
    assert command_line == base


def test_the_servers_configuration_refuses_what_its_parts_refuse() -> None:
    with pytest.raises(ConfigError, match=r"min_tokens_per_round is 9"):
        server_lookup_config(BASE, 9.0)


def test_prices_are_of_the_way_tokens_are_drawn() -> None:
    price = TABLES.round_costs(3)
    assert price(256, 0.0, False) == pytest.approx((0.0, 1.25, 1.5, 1.75, 2.0))
    assert price(256, 2.0, False) == pytest.approx((0.0, 1.75, 2.0, 2.25, 2.5))
    assert price(256, 0.0, True) == pytest.approx((0.0, 1.0, 1.2, 1.4, 1.6))


class StoredLookup(ServerLookup):
    """As resolved over `TABLES`, without an engine."""

    def __init__(self, threshold: str, base: PromptLookupConfig = BASE, max_batch: int = 2) -> None:
        super().__init__(lookup_options(base, threshold, max_batch))
        self.resolve(TABLES)


def test_the_summary_tells_policy_costs_and_thresholds_and_where_they_came_from() -> None:
    assert StoredLookup("auto").summary() == [
        "prompt lookup: graded, drafts of up to 7, n-grams of 2 to 3, while at most 2 rows decode",
        "break-even rule: a round must emit what its width costs here; resume after a probe of "
        f"{RESUME_CONFIRM_TOKENS} tokens, pipeline again after {SERVER_PLAIN_ROUNDS} plain rounds",
        "step costs: stored table",
        "  at 256 tokens, in plain steps by width: 1: 1.25, 2: 1.50, 4: 2.00, 8: 3.00",
        "  lost overlap 0.25 a synchronous step; a full round must emit 3 tokens",
    ]


@pytest.mark.parametrize(
    ("threshold", "base", "rule", "wanted"),
    [
        ("2.66", BASE, "2.66 tokens a round (given); resume after", "must emit 2.66 tokens"),
        ("off", BASE, "off (--min-tokens-per-round off)", "synchronous step"),
        ("auto", replace(BASE, adaptive=False), "off: drafts are not adaptive", "synchronous step"),
    ],
)
def test_the_summary_of_other_rules(
    threshold: str, base: PromptLookupConfig, rule: str, wanted: str
) -> None:
    lines = StoredLookup(threshold, base).summary()
    assert lines[0].startswith("prompt lookup: not adaptive,") is not base.adaptive
    assert lines[1].startswith(f"break-even rule: {rule}")
    assert lines[4].endswith(wanted)


def test_props_hold_the_resolved_settings_and_prices() -> None:
    ticks = SERVER_PLAIN_ROUNDS
    assert StoredLookup("auto", replace(BASE, max_draft=3), 1).properties() == {
        "policy": "graded",
        "draft_max": 3,
        "ngram_min": 2,
        "ngram_max": 3,
        "adaptive": True,
        "max_batch": 1,
        "min_tokens_per_round": "auto",
        "costs": "stored table",
        "round_costs": {"256": [0.0, *(round(w + 0.25 * ticks, 3) for w in (1.25, 1.5, 1.75, 2))]},
    }
    assert StoredLookup("2.5").properties()["min_tokens_per_round"] == 2.5
    assert StoredLookup("off").properties()["min_tokens_per_round"] == "off"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--min-tokens-per-round", "9"], "--min-tokens-per-round is 9; it must be auto, off or"),
        (["--min-tokens-per-round", "nan"], "--min-tokens-per-round is nan; it must be"),
        (["--min-tokens-per-round=-1"], "--min-tokens-per-round is -1; it must be"),
        (["--prompt-lookup-max-batch", "0"], "--prompt-lookup-max-batch is 0; it must be between"),
        (["--draft-max", "0"], "--draft-max is 0; it must be between 1 and 64"),
        (["--draft-max", "65"], "--draft-max is 65; it must be between 1 and 64"),
        (["--prompt-lookup-ngram-max", "17"], "--prompt-lookup-ngram-max is 17; it must be"),
        (["--prompt-lookup-ngram-min", "0"], "--prompt-lookup-ngram-min is 0; it must be"),
        (["--prompt-lookup-ngram-min", "4"], "--prompt-lookup-ngram-min is 4; it must be"),
        (["--parallel", "0"], "--parallel is 0; it must be between 1 and 64"),
        (["--prefill-chunk-size", "big"], "--prefill-chunk-size is 'big'; it must be a number"),
    ],
)
def test_serve_refuses_a_bad_setting_in_one_line_before_it_loads_anything(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "-m", "/no/such/model.gguf", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"surefoot: error: {said}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--draft-kind", "model"], "'model' is not one of 'prompt-lookup', 'none'"),
        (["--prompt-lookup-policy", "wild"], "'wild' is not one of 'graded', 'gated'"),
        (["--draft-max", "many"], "Invalid value for '--draft-max'"),
    ],
)
def test_serve_refuses_a_word_it_does_not_know_with_code_2(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "-m", "/no/such/model.gguf", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate", "--draft-max", "65"], "max_draft is 65; it must be between 1 and 64"),
        (["generate", "-p", "x", "--check-parity"], "--check-parity compares prompt lookup with"),
        (
            ["generate", "-p", "x", "--prompt-lookup", "--prompt-lookup-ngram-max", "0"],
            "ngram_max is 0; it must be between 1 and 16",
        ),
    ],
)
def test_other_commands_refuse_alike(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "-m", "/no/such/model.gguf"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"surefoot: error: {said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("flags", [["--draft-max", "0"], ["--prompt-lookup-ngram-min", "9"]])
def test_replay_refuses_alike(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"prompt": [1], "emitted": [2]}\n')
    costs = Path(__file__).parents[1] / "data" / "costs" / "gb10-qwen3-1.7b-4bit.json"
    assert run(["replay", "--trace", str(trace), "--costs", str(costs), *flags]) == 1
    error = capsys.readouterr().err
    assert error.startswith("surefoot: error: ")
    assert "; it must be between 1 and " in error
    assert error.count("\n") == 1


GOODPUT = replace(BASE, policy=DraftPolicy.GOODPUT)


@pytest.mark.parametrize("flag", ["auto", "off"])
def test_goodput_runs_without_the_break_even_rule(flag: str) -> None:
    kind = ThresholdKind(flag)
    assert lookup_options(GOODPUT, flag, 2) == LookupOptions(GOODPUT, kind, None, 2)


@pytest.mark.parametrize(
    ("threshold", "policy"),
    [("auto", DraftPolicy.GOODPUT), ("off", None), ("2.5", DraftPolicy.GATED)],
)
def test_a_server_prices_its_rounds_unless_told_otherwise(
    threshold: str, policy: DraftPolicy | None
) -> None:
    assert server_policy(threshold) is policy


def test_goodput_has_no_threshold_to_give() -> None:
    with pytest.raises(ConfigError) as caught:
        lookup_options(GOODPUT, "2.5", 2)
    assert caught.value.message == (
        "--min-tokens-per-round is 2.5; the goodput policy prices every round itself: leave the "
        "flag at auto"
    )


def test_goodputs_rows_are_priced_by_the_tables_and_by_what_replaces_them() -> None:
    at = TABLES.price_books(3).at
    assert at(256, False).verify == pytest.approx((0.0, 1.25, 1.5, 1.75, 2.0))
    assert at(256, True).verify == pytest.approx((0.0, 1.0, 1.2, 1.4, 1.6))
    assert at(256, False).exit_cost == pytest.approx(0.25)


def test_the_summary_of_goodput() -> None:
    assert StoredLookup("auto", GOODPUT).summary() == [
        "prompt lookup: goodput, drafts of up to 7, n-grams of 1 to 3, while at most 2 rows decode",
        "break-even rule: not used: goodput prices each round before it runs, and each row keeps a "
        "ledger",
        "step costs: stored table",
        "  at 256 tokens, in plain steps by width: 1: 1.25, 2: 1.50, 4: 2.00, 8: 3.00",
        "  lost overlap 0.25 a synchronous step; a full round must emit 3.25 tokens",
    ]
