"""Pushdown: a plan in which joins store less, because conditions and the choice of columns come before them.

It is a pure rewrite: the views have the same rows and columns. First conditions move down, as far as the joins let them
through. Then columns that nobody needs after a join are dropped before it. What has no join below it stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import count, groupby
from typing import NamedTuple

from penstock.flow import shapes
from penstock.flow.columns import column_of
from penstock.flow.conditions import cannot_fail, conjuncts, rename_columns
from penstock.flow.expressions import columns_of
from penstock.flow.names import quote, unquote
from penstock.flow.needs import EVERYTHING, Columns, in_lower_case, is_needed, needed_of_input
from penstock.flow.plan import (
    AnyJoin,
    AsOfJoin,
    Changelog,
    Join,
    Location,
    Named,
    Node,
    Plan,
    Select,
    Shape,
    TimedJoin,
    Topic,
    Union,
    Where,
    inputs,
)


def push_down(plan: Plan) -> Plan:
    """The same views, with conditions before joins and without columns that nobody needs after them."""
    if not any(isinstance(node, AnyJoin) for node in _nodes_in_order(plan)):
        return plan
    plan = _merge_equal_nodes(plan)
    while True:
        # When two nodes have become equal, their inputs have one reader less, and more can be moved.
        new = _prune_columns(_push_conditions(plan))
        if new is plan:
            return plan
        plan = new


# -- walking ----------------------------------------------------------------------------------------------------------

# Nodes are distinguished by identity here, after equal ones have been merged. Comparing two nodes walks everything they
# read, again for each of several paths that lead to it.


def _nodes_in_order(plan: Plan) -> list[Node]:
    """Every node once, each after its inputs."""
    done: dict[int, Node] = {}
    stack = [output.node for output in reversed(plan.outputs)]
    while stack:
        missing = [node for node in inputs(stack[-1]) if id(node) not in done]
        if missing:
            stack.extend(reversed(missing))
        else:
            node = stack.pop()
            done[id(node)] = node
    return list(done.values())


def rebuild(plan: Plan, rebuild_node: Callable[[Node, tuple[Node, ...]], Node]) -> Plan:
    """The plan with each node rebuilt once, over its rebuilt inputs; the plan itself if no node changes."""
    new: dict[int, Node] = {}
    for node in _nodes_in_order(plan):
        new[id(node)] = rebuild_node(node, tuple(new[id(input_)] for input_ in inputs(node)))
    if all(new[id(output.node)] is output.node for output in plan.outputs):
        return plan
    return replace(plan, outputs=tuple(replace(output, node=new[id(output.node)]) for output in plan.outputs))


def _merge_equal_nodes(plan: Plan) -> Plan:
    known: dict[tuple[object, ...], Node] = {}

    def first_equal(node: Node, new_inputs: tuple[Node, ...]) -> Node:
        own = (getattr(node, field.name) for field in fields(node) if field.compare and field.hash is not False)
        return known.setdefault((type(node), *own, *map(id, new_inputs)), with_inputs(node, new_inputs))

    return rebuild(plan, first_equal)


def with_inputs(node: Node, new_inputs: Sequence[Node]) -> Node:
    """A node over other inputs; itself if they are the same."""
    if isinstance(node, Topic | Changelog) or _has_inputs(node, new_inputs):
        return node
    if isinstance(node, Union):
        return replace(node, inputs=tuple(new_inputs))
    if isinstance(node, AnyJoin):
        return replace(node, left=new_inputs[0], right=new_inputs[1])
    return replace(node, input=new_inputs[0])


def _has_inputs(node: Node, new_inputs: Sequence[Node]) -> bool:
    return all(old is new for old, new in zip(inputs(node), new_inputs, strict=True))


# -- conditions -------------------------------------------------------------------------------------------------------


class _Condition(NamedTuple):
    """A condition on its way down. `number` identifies it at its current position, `origin` the `Where` it is from."""

    number: int
    origin: int
    text: str


def _push_conditions(plan: Plan) -> Plan:
    moves = _ConditionMoves(plan)
    for node in reversed(_nodes_in_order(plan)):
        moves.pass_on(node)
    return _merge_equal_nodes(rebuild(plan, moves.rebuild_node))


class _ConditionMoves:
    """Where conditions go. Each node offers its inputs the conditions that may come before it; only joins take any.

    A node with several readers is offered nothing: the other readers need the rows that the condition would drop.
    """

    def __init__(self, plan: Plan) -> None:
        readers = Counter(id(input_) for node in _nodes_in_order(plan) for input_ in inputs(node))
        readers.update(id(output.node) for output in plan.outputs)
        self.with_one_reader = {node for node, number in readers.items() if number == 1}
        self.offered: dict[int, list[_Condition]] = {}
        # The conditions above each input of a node, before it is known whether a join further down takes them.
        self.placed: dict[tuple[int, int], list[_Condition]] = {}
        self.taken: set[int] = set()
        self.numbers = count()

    def pass_on(self, node: Node) -> None:
        """Offer conditions to the inputs. All readers of the node have been asked before."""
        offered = self.offered.get(id(node), [])
        match node:
            case Where():
                origin = next(self.numbers)
                own = [_Condition(next(self.numbers), origin, text) for text in conjuncts(node.condition)]
                self.placed[id(node), 0] = own
                self._offer(node.input, [*own, *offered])
            case Select() if not node.rest:
                self._offer(node.input, _conditions_before_select(node, offered))
            case Join() | TimedJoin() | AsOfJoin():
                self._take(node, offered)

    def _take(self, node: AnyJoin, offered: list[_Condition]) -> None:
        for side, (input_, names) in enumerate(zip(inputs(node), _pushable_columns(node), strict=True)):
            chosen = [condition for condition in offered if _can_move_to(input_, condition.text, names)]
            self.taken.update(condition.number for condition in chosen)
            moved = [condition._replace(number=next(self.numbers)) for condition in chosen]
            self.placed[id(node), side] = moved
            self._offer(input_, moved)

    def _offer(self, node: Node, conditions: list[_Condition]) -> None:
        if id(node) in self.with_one_reader:
            self.offered[id(node)] = conditions

    def rebuild_node(self, node: Node, new_inputs: tuple[Node, ...]) -> Node:
        if isinstance(node, Where):
            stay = self._conditions_left(node, 0)
            if len(stay) == len(self.placed[id(node), 0]):
                return with_inputs(node, new_inputs)
            return _with_conditions(new_inputs[0], stay, node.location)
        if isinstance(node, AnyJoin):
            sides = [
                _with_conditions(input_, self._conditions_left(node, side), node.location)
                for side, input_ in enumerate(new_inputs)
            ]
            return with_inputs(node, sides)
        return with_inputs(node, new_inputs)

    def _conditions_left(self, node: Node, side: int) -> list[_Condition]:
        """The conditions above an input that no join further down has taken."""
        return [condition for condition in self.placed[id(node), side] if condition.number not in self.taken]


def _with_conditions(node: Node, conditions: Iterable[_Condition], location: Location) -> Node:
    """A node filtered by conditions. Only those of one text are joined by `and`: another may contain an `or`."""
    for _, group in groupby(conditions, key=lambda condition: condition.origin):
        text = " and ".join(condition.text for condition in group)
        node = Where(node, text, node.shape, location)
    return node


def _conditions_before_select(node: Select, conditions: list[_Condition]) -> list[_Condition]:
    """The conditions that can be written in terms of the columns before a Select."""
    copies = {column.name: column.expression for column in node.columns if unquote(column.expression) is not None}
    renamed = [(condition, rename_columns(condition.text, copies)) for condition in conditions]
    return [condition._replace(text=text) for condition, text in renamed if text is not None]


def _can_move_to(side: Node, text: str, names: frozenset[str] | None) -> bool:
    """Whether a condition uses columns of a side, only those in `names` (None: any), and cannot fail on its rows.

    A condition that can fail must not see rows that would not get that far: a row on which anything fails is dead for
    all views.
    """
    columns = columns_of(text)
    if not columns or (names is not None and not columns <= names):
        return False
    found = {name: column_of(side, name) for name in columns}
    return cannot_fail(text, {name: None if column is None else column.type for name, column in found.items()})


def _pushable_columns(node: AnyJoin) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """For each side, the columns about which a condition can be tested before the join instead of after it.

    A side that may be missing is not filtered by its own columns: without its row the other row would stay, alone. Key
    columns of one name are filtered on both sides: a row that is dropped on one side has no partner on the other.
    """
    left, right = (frozenset(side.shape.columns or ()) for side in inputs(node))
    if isinstance(node, AsOfJoin):
        # A version of a row that a condition hides must still end the version before it.
        return left, frozenset()
    shared = frozenset(key.left for key in node.on if key.left == key.right)
    match node.how:
        case "inner":
            return left, right
        case "left":
            return left, shared
        case "right":
            return shared, right
        case "semi" | "anti":
            return None, shared
        case _:
            return frozenset(), frozenset()


# -- columns ----------------------------------------------------------------------------------------------------------


def _prune_columns(plan: Plan) -> Plan:
    return _merge_equal_nodes(rebuild(plan, _ColumnPruning(plan).rebuild_node))


class _ColumnPruning:
    """Drops columns: before joins those that nobody needs, and after joins those that are therefore gone."""

    def __init__(self, plan: Plan) -> None:
        self.needed = _needed_of_nodes(plan)
        joins = (node for node in _nodes_in_order(plan) if isinstance(node, AnyJoin))
        self.sides = {id(side) for join in joins for side in inputs(join)}

    def rebuild_node(self, node: Node, new_inputs: tuple[Node, ...]) -> Node:
        match node:
            case Where():
                same = _has_inputs(node, new_inputs)
                return node if same else replace(node, input=new_inputs[0], shape=new_inputs[0].shape)
            case Select():
                return self._prune_select(node, new_inputs[0])
            case Union():
                return node if _has_inputs(node, new_inputs) else _prune_union(node, new_inputs)
            case Join() | TimedJoin() | AsOfJoin():
                return self._prune_join(node, new_inputs)
            case _:
                return with_inputs(node, new_inputs)

    def _prune_join(self, node: AnyJoin, new_inputs: tuple[Node, ...]) -> Node:
        needed = _needed_of_inputs(node, self.needed[id(node)])
        left, right = (
            _select_needed(side, columns, node.location) for side, columns in zip(new_inputs, needed, strict=True)
        )
        if _has_inputs(node, (left, right)):
            return node
        columns = shapes.joined_columns(left.shape.columns, right.shape.columns, node.on, node.how)
        return replace(node, left=left, right=right, shape=_with_columns(node.shape, columns))

    def _prune_select(self, node: Select, new_input: Node) -> Node:
        """A Select keeps only needed columns if it is before a join, or if some of its input's columns are gone."""
        needed = _at_least_one(node, self.needed[id(node)])
        kept = tuple(column for column in node.columns if is_needed(column.name, needed))
        prune = id(node) in self.sides or not _is_computable(node, new_input)
        if node.rest or not prune or len(kept) == len(node.columns):
            return with_inputs(node, (new_input,))
        return Select(new_input, kept, shapes.selected(new_input.shape, kept), node.location)


def _select_needed(node: Node, needed: Columns, location: Location) -> Node:
    """A node with only its needed columns; the node itself if it has no others."""
    columns = node.shape.columns
    kept = [name for name in columns or () if is_needed(name, needed)]
    if columns is None or len(kept) in (0, len(columns)):
        return node
    named = tuple(Named(name, quote(name)) for name in kept)
    return Select(node, named, shapes.selected(node.shape, named), location)


def _prune_union(node: Union, new_inputs: Sequence[Node]) -> Node:
    """A union of inputs of which some have lost columns: all keep only the columns that they share."""
    known = [in_lower_case(input_.shape.columns) for input_ in new_inputs if input_.shape.columns is not None]
    shared = frozenset.intersection(*known) if len(known) == len(new_inputs) else EVERYTHING
    parts = tuple(_select_needed(input_, shared, node.location) for input_ in new_inputs)
    return replace(node, inputs=parts, shape=shapes.united([part.shape for part in parts]))


def _with_columns(shape: Shape, columns: tuple[str, ...] | None) -> Shape:
    """The shape of a join of which only these columns are left."""
    if columns is None:
        return shape
    key = shape.key if shape.key is not None and {*shape.key} <= {*columns} else None
    return replace(shape, columns=columns, key=key, time=shape.time if shape.time in columns else None)


def _is_computable(node: Select, new_input: Node) -> bool:
    columns = new_input.shape.columns
    return columns is None or needed_of_input(node, EVERYTHING) <= in_lower_case(columns)


# -- what is needed ---------------------------------------------------------------------------------------------------


def _needed_of_nodes(plan: Plan) -> dict[int, Columns]:
    """Which columns of each node its readers need, all of them together."""
    needed: dict[int, Columns] = {id(output.node): EVERYTHING for output in plan.outputs}
    # Every node comes before its inputs, so that everything that is needed of it is known.
    for node in reversed(_nodes_in_order(plan)):
        for input_, columns in zip(inputs(node), _needed_of_inputs(node, needed[id(node)]), strict=True):
            needed[id(input_)] = needed.get(id(input_), frozenset()) | columns
    return needed


def _needed_of_inputs(node: Node, needed: Columns) -> tuple[Columns, ...]:
    """What a node needs of each input to give the columns that are needed of itself."""
    match node:
        case Join() | TimedJoin() | AsOfJoin():
            return _needed_of_sides(node, needed)
        case Union() if node.shape.columns is None:
            return (EVERYTHING,) * len(node.inputs)
        case Union() | Select():
            needed = _at_least_one(node, needed)
    return (needed_of_input(node, needed),) * len(inputs(node))


def _needed_of_sides(node: AnyJoin, needed: Columns) -> tuple[Columns, Columns]:
    left = in_lower_case(key.left for key in node.on)
    right = in_lower_case(key.right for key in node.on)
    if isinstance(node, AsOfJoin):
        return needed | left | _without_none(node.as_of, node.left.shape.time), EVERYTHING
    if isinstance(node, TimedJoin):
        left |= _without_none(node.left.shape.time)
        right |= _without_none(node.right.shape.time)
    return needed | left, right if node.how in ("semi", "anti") else needed | right


def _at_least_one(node: Select | Union, needed: Columns) -> Columns:
    """What is needed of a node; its first column if that is nothing, because rows without columns are not possible."""
    columns = node.shape.columns
    if columns is None or any(is_needed(name, needed) for name in columns):
        return needed
    return in_lower_case(columns[:1])


def _without_none(*names: str | None) -> Columns:
    return in_lower_case(name for name in names if name is not None)
