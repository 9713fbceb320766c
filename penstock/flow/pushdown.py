"""A plan in which joins remember less: conditions and the choice of columns stand before them, where that is the same.

It is a pure rewrite: the views have the same rows and columns. First conditions go down, as far as each join lets them
through; then what nobody behind a join needs is left out before it. What has no join below it stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import count, groupby
from typing import NamedTuple

from penstock.flow import shapes
from penstock.flow.columns import column_of
from penstock.flow.conditions import cannot_fail, conjuncts, renamed
from penstock.flow.expressions import columns_of
from penstock.flow.names import quoted, unquoted
from penstock.flow.plan import (
    Aggregate,
    AnyJoin,
    AsOfJoin,
    Changelog,
    Join,
    Named,
    Node,
    Place,
    Plan,
    Select,
    Shape,
    TimedJoin,
    Topic,
    Union,
    Where,
    inputs,
)

Needed = frozenset[str] | None
"""Names of columns in lower case, because Spark does not tell upper and lower case apart; None: every column."""


def narrowed(plan: Plan) -> Plan:
    """The same views, with conditions before joins and without columns that nobody needs behind them."""
    if not any(isinstance(node, AnyJoin) for node in _ordered(plan)):
        return plan
    plan = _merged(plan)
    while True:
        # Where two nodes have become the same one, what they read from has a reader less, and more can be moved.
        new = _without_columns(_with_conditions_moved(plan))
        if new is plan:
            return plan
        plan = new


# -- walking ----------------------------------------------------------------------------------------------------------

# Nodes are told apart by identity here, after equal ones have been made one. To compare them walks all they read from,
# again for each of several ways that lead there.


def _ordered(plan: Plan) -> list[Node]:
    """Every node once, each after those it reads from."""
    done: dict[int, Node] = {}
    ahead = [one.node for one in reversed(plan.outputs)]
    while ahead:
        missing = [one for one in inputs(ahead[-1]) if id(one) not in done]
        if missing:
            ahead.extend(reversed(missing))
        else:
            node = ahead.pop()
            done[id(node)] = node
    return list(done.values())


def _rebuilt(plan: Plan, remade: Callable[[Node, tuple[Node, ...]], Node]) -> Plan:
    """The plan with each node remade once, over what its inputs have become; the plan itself if all stay the same."""
    new: dict[int, Node] = {}
    for node in _ordered(plan):
        new[id(node)] = remade(node, tuple(new[id(one)] for one in inputs(node)))
    if all(new[id(one.node)] is one.node for one in plan.outputs):
        return plan
    return replace(plan, outputs=tuple(replace(one, node=new[id(one.node)]) for one in plan.outputs))


def _merged(plan: Plan) -> Plan:
    """The plan in which equal nodes are one."""
    known: dict[tuple[object, ...], Node] = {}

    def first_like(node: Node, given: tuple[Node, ...]) -> Node:
        own = (getattr(node, one.name) for one in fields(node) if one.compare and one.hash is not False)
        return known.setdefault((type(node), *own, *map(id, given)), _over(node, given))

    return _rebuilt(plan, first_like)


def _over(node: Node, given: Sequence[Node]) -> Node:
    """A node over other inputs; itself if they are the same."""
    if isinstance(node, Topic | Changelog) or _same(node, given):
        return node
    if isinstance(node, Union):
        return replace(node, inputs=tuple(given))
    if isinstance(node, AnyJoin):
        return replace(node, left=given[0], right=given[1])
    return replace(node, input=given[0])


def _same(node: Node, given: Sequence[Node]) -> bool:
    return all(one is other for one, other in zip(inputs(node), given, strict=True))


# -- conditions -------------------------------------------------------------------------------------------------------


class _Condition(NamedTuple):
    """A condition on its way down: the number of where it stands so far, of the `Where` it is from, and its text."""

    number: int
    origin: int
    text: str


def _with_conditions_moved(plan: Plan) -> Plan:
    moves = _Moves(plan)
    for node in reversed(_ordered(plan)):
        moves.pass_on(node)
    return _merged(_rebuilt(plan, moves.remade))


class _Moves:
    """Where conditions go. Each node offers to its inputs those that may stand before them; only joins take any.

    A node that others read too is offered nothing: what it would leave out is not theirs to miss.
    """

    def __init__(self, plan: Plan) -> None:
        readers = Counter(id(one) for node in _ordered(plan) for one in inputs(node))
        readers.update(id(one.node) for one in plan.outputs)
        self.alone = {node for node, number in readers.items() if number == 1}
        self.offered: dict[int, list[_Condition]] = {}
        # What stands above each input of a node, before it is known whether a join further down takes it.
        self.standing: dict[tuple[int, int], list[_Condition]] = {}
        self.taken: set[int] = set()
        self.numbers = count()

    def pass_on(self, node: Node) -> None:
        """Offer conditions to the inputs; all readers of the node have passed on theirs."""
        offered = self.offered.get(id(node), [])
        match node:
            case Where():
                origin = next(self.numbers)
                own = [_Condition(next(self.numbers), origin, text) for text in conjuncts(node.condition)]
                self.standing[id(node), 0] = own
                self._offer(node.input, [*own, *offered])
            case Select() if not node.rest:
                self._offer(node.input, _before_select(node, offered))
            case Join() | TimedJoin() | AsOfJoin():
                self._take(node, offered)

    def _take(self, node: AnyJoin, offered: list[_Condition]) -> None:
        for side, (one, names) in enumerate(zip(inputs(node), _names_before(node), strict=True)):
            chosen = [condition for condition in offered if _is_over(condition.text, names, one)]
            self.taken.update(condition.number for condition in chosen)
            landed = [condition._replace(number=next(self.numbers)) for condition in chosen]
            self.standing[id(node), side] = landed
            self._offer(one, landed)

    def _offer(self, node: Node, conditions: list[_Condition]) -> None:
        if id(node) in self.alone:
            self.offered[id(node)] = conditions

    def remade(self, node: Node, given: tuple[Node, ...]) -> Node:
        if isinstance(node, Where):
            stay = self._left(node, 0)
            if len(stay) == len(self.standing[id(node), 0]):
                return _over(node, given)
            return _filtered(given[0], stay, node.place)
        if isinstance(node, AnyJoin):
            sides = [_filtered(one, self._left(node, side), node.place) for side, one in enumerate(given)]
            return _over(node, sides)
        return _over(node, given)

    def _left(self, node: Node, side: int) -> list[_Condition]:
        return [condition for condition in self.standing[id(node), side] if condition.number not in self.taken]


def _filtered(node: Node, conditions: Iterable[_Condition], place: Place) -> Node:
    """A node behind conditions. Only those that were one text are put together: in others there may be an `or`."""
    for _, together in groupby(conditions, key=lambda condition: condition.origin):
        text = " and ".join(condition.text for condition in together)
        node = Where(node, text, node.shape, place)
    return node


def _before_select(node: Select, conditions: list[_Condition]) -> list[_Condition]:
    """The conditions that can be said of the rows before a Select, in their names."""
    copies = {one.name: one.expression for one in node.columns if unquoted(one.expression) is not None}
    said = [(condition, renamed(condition.text, copies)) for condition in conditions]
    return [condition._replace(text=text) for condition, text in said if text is not None]


def _is_over(text: str, names: frozenset[str] | None, side: Node) -> bool:
    """Whether the condition needs columns of a side, only these (None: all that there are), and cannot fail on them.

    One that can fail is not evaluated on rows that would not get there: whatever fails is dead, for all views.
    """
    columns = columns_of(text)
    if not columns or (names is not None and not columns <= names):
        return False
    found = {name: column_of(side, name) for name in columns}
    return cannot_fail(text, {name: None if column is None else column.type for name, column in found.items()})


def _names_before(node: AnyJoin) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The columns, for each side, about which a condition may stand before the join instead of behind it.

    Where one side may be missing, it is asked for nothing of its own: without its row the other one would stay, alone.
    What is joined on and stands once is asked for on both sides: rows of one that are left out find none in the other.
    """
    left, right = (frozenset(one.shape.columns or ()) for one in inputs(node))
    if isinstance(node, AsOfJoin):
        # A version of a row that a condition hides must still end the one before.
        return left, frozenset()
    once = frozenset(key.left for key in node.on if key.left == key.right)
    match node.how:
        case "inner":
            return left, right
        case "left":
            return left, once
        case "right":
            return once, right
        case "semi" | "anti":
            return None, once
        case _:
            return frozenset(), frozenset()


# -- columns ----------------------------------------------------------------------------------------------------------


def _without_columns(plan: Plan) -> Plan:
    return _merged(_rebuilt(plan, _Cuts(plan).remade))


class _Cuts:
    """Leaves out columns: before joins what nobody needs, and behind them what is therefore no longer there."""

    def __init__(self, plan: Plan) -> None:
        self.needed = _needed(plan)
        self.sides = {id(one) for node in _ordered(plan) if isinstance(node, AnyJoin) for one in inputs(node)}

    def remade(self, node: Node, given: tuple[Node, ...]) -> Node:
        match node:
            case Where():
                return node if _same(node, given) else replace(node, input=given[0], shape=given[0].shape)
            case Select():
                return self._select(node, given[0])
            case Union():
                return node if _same(node, given) else _united(node, given)
            case Join() | TimedJoin() | AsOfJoin():
                return self._join(node, given)
            case _:
                return _over(node, given)

    def _join(self, node: AnyJoin, given: tuple[Node, ...]) -> Node:
        wanted = _of_inputs(node, self.needed[id(node)])
        left, right = (_chosen(one, names, node.place) for one, names in zip(given, wanted, strict=True))
        if _same(node, (left, right)):
            return node
        columns = shapes.joined_columns(left.shape.columns, right.shape.columns, node.on, node.how)
        return replace(node, left=left, right=right, shape=_with_columns(node.shape, columns))

    def _select(self, node: Select, given: Node) -> Node:
        """A Select before a join, or one whose columns are not all there any more, is cut to what is needed."""
        kept = _needed_columns(node, self.needed[id(node)])
        cut = id(node) in self.sides or not _computable(node, given)
        if node.rest or not cut or len(kept) == len(node.columns):
            return _over(node, (given,))
        return Select(given, kept, shapes.selected(given.shape, kept), node.place)


def _chosen(node: Node, needed: Needed, place: Place) -> Node:
    """A node with these of its columns only; itself if that is all it has."""
    columns = node.shape.columns
    kept = [name for name in columns or () if _is_needed(name, needed)]
    if columns is None or len(kept) in (0, len(columns)):
        return node
    named = tuple(Named(name, quoted(name)) for name in kept)
    return Select(node, named, shapes.selected(node.shape, named), place)


def _united(node: Union, given: Sequence[Node]) -> Node:
    """A union of inputs of which some have lost columns: all are left with those that they share."""
    known = [frozenset(name.lower() for name in one.shape.columns) for one in given if one.shape.columns is not None]
    shared = frozenset.intersection(*known) if len(known) == len(given) else None
    parts = tuple(_chosen(one, shared, node.place) for one in given)
    return replace(node, inputs=parts, shape=shapes.united([one.shape for one in parts]))


def _with_columns(shape: Shape, columns: tuple[str, ...] | None) -> Shape:
    """The shape of a join of which only these columns are left."""
    if columns is None:
        return shape
    key = shape.key if shape.key is not None and {*shape.key} <= {*columns} else None
    return replace(shape, columns=columns, key=key, time=shape.time if shape.time in columns else None)


def _computable(node: Select, given: Node) -> bool:
    there = given.shape.columns
    return there is None or _lower(_columns(one.expression for one in node.columns)) <= _lower(there)


# -- what is needed ---------------------------------------------------------------------------------------------------


def _needed(plan: Plan) -> dict[int, Needed]:
    """What all readers of each node need of it."""
    needed: dict[int, Needed] = {id(one.node): None for one in plan.outputs}
    # Every node comes before those it reads from, so that all who need something of it have been asked.
    for node in reversed(_ordered(plan)):
        for one, names in zip(inputs(node), _of_inputs(node, needed[id(node)]), strict=True):
            needed[id(one)] = _and(needed.get(id(one), frozenset()), names)
    return needed


def _of_inputs(node: Node, needed: Needed) -> tuple[Needed, ...]:
    """What a node needs of each input to give what is needed of it."""
    match node:
        case Where():
            return (_and(needed, _lower(columns_of(node.condition))),)
        case Select() if not node.rest:
            return (_lower(_columns(one.expression for one in _needed_columns(node, needed))),)
        case Union() if node.shape.columns is not None:
            # One column at least: rows without any could not be united.
            return (_lower(node.shape.columns[:1]) if needed == frozenset() else needed,) * len(node.inputs)
        case Aggregate():
            time = node.input.shape.time if node.windowing else None
            return (_lower([*_columns(one.expression for one in (*node.keys, *node.aggregates)), *_known(time)]),)
        case Join() | TimedJoin() | AsOfJoin():
            return _of_sides(node, needed)
        case _:
            return (None,) * len(inputs(node))


def _of_sides(node: AnyJoin, needed: Needed) -> tuple[Needed, Needed]:
    left = _lower(key.left for key in node.on)
    right = _lower(key.right for key in node.on)
    if isinstance(node, AsOfJoin):
        return _and(needed, left | _lower(_known(node.as_of, node.left.shape.time))), None
    if isinstance(node, TimedJoin):
        left |= _lower(_known(node.left.shape.time))
        right |= _lower(_known(node.right.shape.time))
    return _and(needed, left), right if node.how in ("semi", "anti") else _and(needed, right)


def _needed_columns(node: Select, needed: Needed) -> tuple[Named, ...]:
    """The columns of a Select that are needed; one at least."""
    return tuple(one for one in node.columns if _is_needed(one.name, needed)) or node.columns[:1]


def _is_needed(name: str, needed: Needed) -> bool:
    return needed is None or name.lower() in needed


def _and(one: Needed, other: Needed) -> Needed:
    return None if one is None or other is None else one | other


def _known(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _columns(expressions: Iterable[str]) -> list[str]:
    return [name for one in expressions for name in columns_of(one)]


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
