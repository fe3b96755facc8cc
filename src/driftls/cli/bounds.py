"""`driftls bounds`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, typer


@app.command()
def bounds(
    mu: Annotated[float, typer.Option(help="Strong convexity: the smallest eigenvalue of A_n / n.")],
    c: Annotated[float, typer.Option(help="Of the step size c/(4(c + n)).")],
    dim: Annotated[int, typer.Option(min=1, help="Number of features.")],
    n: Annotated[str, typer.Option(metavar="N,N,...", help="Rounds.")] = "1000,10000,100000",
    delta: Annotated[float, typer.Option(help="Probability with which a bound may fail.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Evaluate Theorem 1: K1, K2, both printed bounds, and the terms of Proposition 2.

    A bound is on the tracking error, with theta_0 at distance 1 of theta*. It is a diagnostic, and a loose one: never
    a confidence width.

    \b
    Examples:
      driftls bounds --mu 0.5 --c 6 --dim 24 --n 1000,10000 --delta 0.05
      driftls bounds --mu 0.04 --c 75 --dim 24 --n 1000000 --json
    """  # noqa: D301
    from driftls import theory

    try:
        at = [int(entry) for entry in n.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{n!r} is not a list of whole numbers.", param_hint="'--n'") from None
    if min(at) <= dim:
        raise typer.BadParameter(f"the bounds hold from round dim + 1 = {dim + 1} on.", param_hint="'--n'")
    common: dict[str, Any] = {"mu": mu, "c": c, "dim": dim, "delta": delta}
    theorem, appendix = theory.bound_theorem(at, **common), theory.bound_appendix(at, **common)
    terms = theory.proposition_2(
        at, mu=mu, c=c, n0=dim, ols_error=lambda k: theory.ols_error(k.astype(int), mu=mu, dim=dim, delta=delta)
    )
    columns = {
        "K1": theory.K1(at, **common),
        "K2": theory.K2(at, **common),
        "theorem_mean": theorem.expectation,
        "theorem_high": theorem.high_probability,
        "appendix_mean": appendix.expectation,
        "appendix_high": appendix.high_probability,
        "initial": terms.initial,
        "sampling": terms.sampling,
        "drift": terms.drift,
    }
    regime = theory.rate_regime(mu=mu, c=c)
    note = None
    if mu > 1.0 / dim:
        note = f"features with ||x|| <= 1, (A2), allow no mu above 1/dim = {1.0 / dim:.4g}: mu = {mu:g} cannot occur."
    if as_json:
        rows = [
            {"n": number, **{name: float(values[i]) for name, values in columns.items()}} for i, number in enumerate(at)
        ]
        typer.echo(json.dumps({**common, "regime": regime, "note": note, "rounds": rows}))
        return
    typer.echo(f"{'n':<15}" + "".join(f"{number:>14}" for number in at))
    for name, values in columns.items():
        typer.echo(f"{name.replace('_', ' '):<15}" + "".join(f"{value:>14.5g}" for value in values))
    typer.echo(f"\nRegime {regime}. The last three are Proposition 2's terms, with the Lemma's bound on OLS.")
    if note is not None:
        typer.echo(f"Note: {note}")
