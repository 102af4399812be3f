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
  for path, node, alike in _walk(tree, (), {}):
    for what, change in (*_changes(node), *_of_parameters(node, alike)):
      name = f'{node.lineno}:{node.col_offset} {what}'
      while name in result:
        name += "'"
      result[name] = Mutant(name, functools.partial(_changed, tree, path, change))
  return list(result.values())


def _changed(tree: ast.AST, path: tuple, change: Change) -> str:
  """The text of a module with a node changed. Made for few of all mutants: it takes long."""
  changed = copy.deepcopy(tree)
  _replace(changed, path, change)
  return ast.unparse(ast.fix_missing_locations(changed))


def _walk(
  node: ast.AST, path: tuple, alike: Mapping[str, str]
) -> Iterator[tuple[tuple, ast.AST, Mapping[str, str]]]:
  """Yields the nodes that may change, each with the way to it from the root.

  With it come the parameters of the function that it is in that have another of their type.
  """
  if hasattr(node, 'lineno'):
    yield path, node, alike
  if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
    return
  if isinstance(node, ast.FunctionDef):
    alike = _alike(node.args)
  for field, value in ast.iter_fields(node):
    if field in _SKIPPED.get(type(node), ()):
      continue
    if isinstance(value, ast.AST):
      yield from _walk(value, (*path, (field, None)), alike)
    elif isinstance(value, list):
      for i, child in enumerate(value):
        if isinstance(child, ast.AST):
          yield from _walk(child, (*path, (field, i)), alike)


def _replace(root: ast.AST, path: tuple, change: Change) -> None:
  """Changes the node at the end of a path."""
  for field, i in path[:-1]:
    root = getattr(root, field) if i is None else getattr(root, field)[i]
  field, i = path[-1]
  if i is None:
    setattr(root, field, change(getattr(root, field)))
  else:
    getattr(root, field)[i] = change(getattr(root, field)[i])


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
  for i, op in enumerate(node.ops):
    for other in _COMPARISONS[type(op)]:

      def change(n: Any, i: int = i, other: type = other) -> ast.AST:
        n.ops[i] = other()
        return n

      yield f'{_word(op)} -> {_word(other())}', change
    match node.comparators[i]:
      case ast.Constant(value=float() as value) if isinstance(op, _ORDER):

        def shift(n: Any, i: int = i, value: float = value) -> ast.AST:
          n.comparators[i] = ast.Constant(value + 1e-6)
          return n

        yield f'{value} shifted', shift


def _of_calls(node: ast.Call) -> Iterator[tuple[str, Change]]:
  for i, keyword in enumerate(node.keywords):
    if keyword.arg:

      def drop(n: Any, i: int = i) -> ast.AST:
        return _set(n, keywords=n.keywords[:i] + n.keywords[i + 1 :])

      yield f'{keyword.arg}= dropped', drop
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

      def replace(n: Any, i: int = i, other: str | None = other) -> ast.AST:
        n.args[i] = ast.Name(str(other), ast.Load())
        return n

      yield f'{argument.id} -> {other}', replace


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
