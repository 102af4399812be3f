"""Small mistakes made in a module on purpose: one at a time, as changes of its syntax tree.

Of each operator, comparison, condition and number a neighbour is tried (`<` for `<=`, `-` for `+`,
n + 1 for n); statements, keyword arguments, factors, the separators of joined texts and raised
errors are dropped, a call's first two arguments exchanged (but not those of a maximum or minimum),
an argument that is a parameter replaced by the next one of the same annotation, and boundaries
(numbers with a point that are compared, what is rounded down or up) shifted by a little.
Annotations, docstrings, other strings and the insides of `raise` and `assert` (words, mostly) stay
as they are.
"""

import ast
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def _kinds(text: str) -> dict[type, tuple[type, ...]]:
  """'Lt LtE GtE, ...': a kind of node, and what it may become."""
  rows = ([getattr(ast, name) for name in row.split()] for row in text.split(','))
  return {first: tuple(others) for first, *others in rows}


_COMPARISONS = _kinds(
  'Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Eq NotEq, NotEq Eq, Is IsNot, IsNot Is,'
  'In NotIn, NotIn In'
)
_OPERATORS = _kinds(
  'Add Sub, Sub Add, Mult Div, Div Mult, FloorDiv Div, Mod Mult, Pow Mult, BitAnd BitOr,'
  'BitOr BitAnd, LShift RShift, RShift LShift, And Or, Or And'
)
# Fields that hold types or words, not behaviour.
_SKIPPED = {
  ast.arg: ('annotation',),
  ast.AnnAssign: ('annotation',),
  ast.FunctionDef: ('returns',),
  ast.Assert: ('test', 'msg'),
  ast.Raise: ('exc', 'cause'),
}

# Functions whose first two arguments may stand in either order.
_SYMMETRIC = ('max', 'min', 'maximum', 'minimum')
_EPSILON = {'floor': -1e-6, 'ceil': 1e-6}  # Added to what these round.
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

Change = Callable[[Any], ast.AST]


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One mistake.

  Attributes:
    name: Line and mistake, as '72:24 < -> <=': unique in its module, for people and for records.
  """

  name: str
  _make: Callable[[], str] = dataclasses.field(repr=False)

  @property
  def source(self) -> str:
    """The module's whole text with the mistake, without its comments."""
    return self._make()


def mutants(source: str) -> list[Mutant]:
  """Returns all mutants of a module's source, in the order of its lines.

  Returns:
    The mutants; each has another syntax tree than the source.
  """
  tree = ast.parse(source)
  result: dict[str, Mutant] = {}
  for node, alike in _walk(tree, {}):
    for what, change in (*_changes(node), *_of_parameters(node, alike)):
      name = f'{node.lineno}:{node.col_offset} {what}'
      while name in result:
        name += "'"
      result[name] = Mutant(name, functools.partial(_changed, tree, node, change))
  return list(result.values())


def _changed(tree: ast.AST, node: ast.AST, change: Change) -> str:
  """The text of a module with a node changed. Made for few of all mutants: it takes long."""
  copies: dict[int, Any] = {}
  changed = copy.deepcopy(tree, copies)
  place = copies[id(node)]
  new = change(place)
  place.__class__, place.__dict__ = new.__class__, new.__dict__
  return ast.unparse(ast.fix_missing_locations(changed))


def _walk(node: Any, alike: Mapping[str, str]) -> Iterator[tuple[Any, Mapping[str, str]]]:
  """Yields the nodes that may change.

  With each come the parameters of the function that it is in that have another of their type.
  """
  if isinstance(node, ast.If) and ast.unparse(node.test) == 'TYPE_CHECKING':
    return  # Nothing of it runs.
  if hasattr(node, 'lineno'):
    yield node, alike
  if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
    return
  if isinstance(node, ast.FunctionDef):
    alike = _alike(node.args)
  for field, value in ast.iter_fields(node):
    if field not in _SKIPPED.get(type(node), ()):
      for child in value if isinstance(value, list) else [value]:
        if isinstance(child, ast.AST):
          yield from _walk(child, alike)


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
  """Yields what may go wrong in one node: in words, and as a change of it."""
  match node:
    case ast.Compare():
      yield from _of_comparisons(node)
    case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in _OPERATORS:
      (other,) = _OPERATORS[type(node.op)]
      yield f'{_word(node.op)} -> {_word(other())}', lambda n: _set(n, op=other())
      if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        yield 'second factor dropped', lambda n: n.left
        if isinstance(node.op, ast.Mult):
          yield 'first factor dropped', lambda n: n.right
    case ast.UnaryOp(op=ast.Not() | ast.USub() as op):
      yield f'{_word(op)} dropped', lambda n: n.operand
    case ast.Constant(value=bool() as value):
      yield f'{value} -> {not value}', lambda n: ast.Constant(not value)
    case ast.Constant(value=int() | float() as value):
      yield f'{value} -> {value + 1}', lambda n: ast.Constant(value + 1)
    case ast.Call():
      yield from _of_calls(node)
  if isinstance(node, (ast.If, ast.IfExp, ast.While)):
    yield 'condition negated', lambda n: _set(n, test=ast.UnaryOp(ast.Not(), n.test))
  # Not `del name`, which tells a linter that an argument is not used: no test can notice it.
  is_del = isinstance(node, ast.Delete) and not all(isinstance(t, ast.Name) for t in node.targets)
  if is_del or isinstance(node, (ast.Raise, ast.AugAssign, ast.Continue, ast.Break)):
    yield f'{type(node).__name__} dropped', lambda n: ast.Pass()
  if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
    yield 'statement dropped', lambda n: ast.Pass()


def _of_comparisons(node: ast.Compare) -> Iterator[tuple[str, Change]]:
  for i, (op, right) in enumerate(zip(node.ops, node.comparators)):
    for other in _COMPARISONS[type(op)]:
      yield f'{_word(op)} -> {_word(other())}', _item('ops', i, other())
    if isinstance(op, _ORDER) and isinstance(right, ast.Constant) and type(right.value) is float:
      yield f'{right.value} shifted', _item('comparators', i, ast.Constant(right.value + 1e-6))


def _of_calls(node: ast.Call) -> Iterator[tuple[str, Change]]:
  for i, keyword in enumerate(node.keywords):
    if keyword.arg:
      yield f'{keyword.arg}= dropped', _item('keywords', i)
  match node:
    case ast.Call(func=ast.Attribute(ast.Constant(str() as separator), 'join')) if separator:
      yield 'separator dropped', lambda n: _set(n, func=_set(n.func, value=ast.Constant('')))
    case ast.Call(func=ast.Attribute(attr=name), args=[_]) if name in _EPSILON:
      little = ast.Constant(_EPSILON[name])
      yield 'boundary shifted', lambda n: _set(n, args=[ast.BinOp(n.args[0], ast.Add(), little)])
  first_two = node.args[:2]
  has_star = any(isinstance(a, ast.Starred) for a in first_two)
  name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, 'id', '')
  if len({ast.dump(a) for a in first_two}) == 2 and not has_star and name not in _SYMMETRIC:
    yield 'arguments exchanged', lambda n: _set(n, args=[n.args[1], n.args[0], *n.args[2:]])


def _of_parameters(node: ast.AST, alike: Mapping[str, str]) -> Iterator[tuple[str, Change]]:
  """Yields, for each argument of a call that is a parameter, another parameter of its type."""
  for i, argument in enumerate(node.args if isinstance(node, ast.Call) else ()):
    if isinstance(argument, ast.Name) and (other := alike.get(argument.id)):
      yield f'{argument.id} -> {other}', _item('args', i, ast.Name(other, ast.Load()))


def _alike(arguments: ast.arguments) -> Mapping[str, str]:
  """Parameter -> the next one, in a circle, that has the same annotation."""
  by_type: dict[str, list[str]] = {}
  for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
    if parameter.annotation is not None:
      by_type.setdefault(ast.dump(parameter.annotation), []).append(parameter.arg)
  several = [names for names in by_type.values() if len(names) > 1]
  return {a: b for names in several for a, b in zip(names, names[1:] + names[:1])}


def _set(node: ast.AST, **fields: object) -> ast.AST:
  for name, value in fields.items():
    setattr(node, name, value)
  return node


def _item(field: str, i: int, *new: ast.AST) -> Change:
  """A change that puts another node, or none, in the place of one of a list."""

  def change(node: Any) -> ast.AST:
    items = getattr(node, field)
    return _set(node, **{field: [*items[:i], *new, *items[i + 1 :]]})

  return change


def _word(op: ast.AST) -> str:
  """Returns an operator as it is written, as '<='."""
  one = ast.Name('a')
  if isinstance(op, ast.unaryop):
    text = ast.unparse(ast.UnaryOp(op, one))
  elif isinstance(op, ast.cmpop):
    text = ast.unparse(ast.Compare(one, [op], [one]))
  elif isinstance(op, ast.boolop):
    text = ast.unparse(ast.BoolOp(op, [one, one]))
  else:
    text = ast.unparse(ast.BinOp(one, op, one))
  return ' '.join(text.removeprefix('a').removesuffix('a').split())
