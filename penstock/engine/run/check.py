"""Checks of a plan that only Spark can do: types that do not fit, functions that return no DataFrame. Nothing runs."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from penstock.engine.build.app import build
from penstock.engine.run.compiled import CompiledPlan
from penstock.engine.run.failures import FAILURES, reason
from penstock.errors import DeclarationError, PenstockError
from penstock.flow import plan as flow

_CODE = re.compile(r"^\[[A-Z_.]+\] ")
_MISFIT = re.compile(
    r"\[DATATYPE_MISMATCH\.\w+\] Cannot resolve \"(?P<expression>.*?)\" due to data type mismatch: (?P<why>.+)"
)
_ADDED_COLUMN = re.compile(r", _\w+(?=\))")
_CAST_HINT = "convert a value with cast(... as ...); `penstock topic describe` shows the types of a topic"


def check_plan(compiled_plan: CompiledPlan) -> None:
    """Refuse a plan that Spark cannot build, naming the line of the user's program that is to blame."""
    plan = compiled_plan.plan
    if not plan.outputs:
        raise DeclarationError(
            f"app '{plan.app}': it declares no views", hint="say what is to be kept: app.view(name, ...)"
        )
    try:
        compiled_plan.build()
    except PenstockError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise _declaration_error(error, compiled_plan.session, plan) from error


def _declaration_error(error: Exception, session: SparkSession, plan: flow.Plan) -> Exception:
    """An error that names the first node that cannot be built; the error itself if the user is not to blame."""
    for node in flow.nodes(plan):
        single_node_plan = flow.Plan(plan.app, (flow.View("alone", node, node.location),))
        try:
            build(session, single_node_plan, partitions=1)
        except Exception as node_error:  # noqa: BLE001 - as above
            if isinstance(node, flow.Map):
                return DeclarationError(f"{node.location}: map: the function fails: {_describe_error(node_error)}")
            return (
                DeclarationError(f"{node.location}: {_describe_misfit(reason(node_error))}", hint=_CAST_HINT)
                if isinstance(node_error, FAILURES)
                else error
            )
    return DeclarationError(f"app '{plan.app}': {reason(error)}") if isinstance(error, FAILURES) else error


def _describe_misfit(text: str) -> str:
    """Spark's sentence about types that do not fit, without its codes and without columns that Penstock has added."""
    text = _ADDED_COLUMN.sub("", text)
    if misfit := _MISFIT.fullmatch(text):
        why = misfit["why"].rstrip(".")
        return f"the types do not fit in '{misfit['expression']}': {why[0].lower()}{why[1:]}"
    return _CODE.sub("", text)


def _describe_error(error: Exception) -> str:
    return reason(error) if isinstance(error, FAILURES) else f"{type(error).__name__}: {error}"
