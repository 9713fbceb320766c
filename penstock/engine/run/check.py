"""What only Spark can find wrong with a plan: types that do not fit, functions that make no DataFrame. Nothing runs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.engine.build.app import build
from penstock.engine.run.compiled import CompiledPlan
from penstock.engine.run.failures import FAILURES, reason
from penstock.errors import DeclarationError, PenstockError
from penstock.flow import plan as flow


def check_built(engine: CompiledPlan) -> None:
    """Refuse a plan that Spark cannot build, with the line of the user's program that is to blame."""
    plan = engine.plan
    if not plan.outputs:
        raise DeclarationError(
            f"app '{plan.app}': it declares no views", hint="say what is to be kept: app.view(name, ...)"
        )
    try:
        engine.built()
    except PenstockError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise _declaration_error(error, engine.session, plan) from error


def _declaration_error(error: Exception, session: SparkSession, plan: flow.Plan) -> Exception:
    """The first node that cannot be built; the error itself if it is not the user's."""
    for node in flow.nodes(plan):
        alone = flow.Plan(plan.app, (flow.View("alone", node, node.place),))
        try:
            build(session, alone, partitions=1)
        except Exception as found:  # noqa: BLE001 - as above
            if isinstance(node, flow.Map):
                return DeclarationError(f"{node.place}: map: the function fails: {_told(found)}")
            return DeclarationError(f"{node.place}: {reason(found)}") if isinstance(found, FAILURES) else error
    return DeclarationError(f"app '{plan.app}': {reason(error)}") if isinstance(error, FAILURES) else error


def _told(error: Exception) -> str:
    return reason(error) if isinstance(error, FAILURES) else f"{type(error).__name__}: {error}"
