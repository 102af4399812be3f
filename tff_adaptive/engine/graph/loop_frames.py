"""While loops as frames of the graph, in which what a step only reads costs it nothing.

TensorFlow makes such a frame of each While node itself, but there what a step hands on unchanged (a
client's data, the plan of its batches) goes through three nodes a step, like what it changes. Here
it enters the frame once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import private_apis

_LOOPS = frozenset({'While', 'StatelessWhile'})
_CALLS = frozenset({'PartitionedCall', 'StatefulPartitionedCall'})
_BECOMES_FRAME = '_lower_using_switch_merge'  # TensorFlow's own mark.


def replace_loops(graph_def: Any) -> dict[str, str]:
  """Replaces the While nodes of a graph, and those in their bodies, by frames.

  Loops in other functions stay as they are, as do those that TensorFlow would not make frames of,
  and those whose steps call functions: where the graph is inlined itself, TensorFlow has such calls
  wait for what is outside of the frame.

  Args:
    graph_def: The graph, changed in place.

  Returns:
    For each tensor that was a loop's result the name of the one that it is now.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}
  moved: dict[str, str] = {}
  nodes, pending = [], list(reversed(graph_def.node))
  while pending:
    node = pending.pop()
    if _is_replaceable(node, functions):
      frame = _Frame(node, functions)
      moved |= frame.results
      pending += frame.nodes
    else:
      nodes.append(node)
  if moved:
    replaced = type(graph_def)(node=nodes)
    for node in replaced.node:
      node.input[:] = [_follow(source, moved) for source in node.input]
    graph_def.ClearField('node')
    graph_def.MergeFrom(replaced)
  return {old: _follow(old, moved) for old in moved}


def _is_replaceable(node: Any, functions: Mapping[str, Any]) -> bool:
  if node.op not in _LOOPS or _BECOMES_FRAME not in node.attr:
    return False
  parts = [functions[node.attr[name].func.name] for name in ('cond', 'body')]
  ops = {inner.op for part in parts for inner in part.node_def}
  return not ops & (_CALLS | set(functions)) and not all(_are_unchanged(parts[1]))


def _are_unchanged(body: Any) -> list[bool]:
  """For each variable of a loop whether its body hands it on as it is."""
  pairs = zip(body.signature.input_arg, body.signature.output_arg)
  return [body.ret[result.name] == argument.name for argument, result in pairs]


def _follow(source: str, moved: Mapping[str, str]) -> str:
  """What an input of a node is now."""
  while (name := source if source[0] == '^' or ':' in source else source + ':0') in moved:
    source = moved[name]
  return source


class _Frame:
  """What stands for a loop.

  Attributes:
    nodes: Its nodes.
    results: The loop's results, and the wait for it (`^loop`), by the names they had.
  """

  def __init__(self, loop: Any, functions: Mapping[str, Any]) -> None:
    """Makes the frame.

    Args:
      loop: The While node.
      functions: The graph's functions, by name.
    """
    self.nodes: list[Any] = []
    self.results: dict[str, str] = {}
    self._loop, self._functions = loop, functions
    condition = functions[loop.attr['cond'].func.name]
    body = functions[loop.attr['body'].func.name]
    types, unchanged = list(loop.attr['T'].list.type), _are_unchanged(body)
    changed = [i for i, is_unchanged in enumerate(unchanged) if not is_unchanged]
    goes_on = self._name('goes_on')

    # The nodes of a step wait for a variable that the condition reads: what nothing reads goes.
    wanted = {source for node in condition.node_def for source in node.input}
    names = [argument.name for argument in condition.signature.input_arg]
    first = next((i for i in changed if names[i] in wanted), changed[0])

    sources = [s for s in loop.input if s[0] != '^']
    waits = [s for s in loop.input if s[0] == '^']
    all_there = sorted({f'^{source.partition(":")[0]}' for source in sources} - set(waits))
    read = []  # What the condition reads.
    for i, (source, is_unchanged) in enumerate(zip(sources, unchanged)):
      others = all_there if i == first else []  # No step begins before all is there.
      node = self._add('Enter', f'enter_{i}', [source, *waits, *others], types[i])
      node.attr['frame_name'].s = loop.name.encode()
      node.attr['is_constant'].b = is_unchanged
      node.attr['parallel_iterations'].i = loop.attr['parallel_iterations'].i or 10  # The op's own.
      if not is_unchanged:
        node = self._add('Merge', f'merge_{i}', [node.name, self._name(f'next_{i}')], types[i])
        node.attr['N'].i = 2
        if shapes := loop.attr['output_shapes'].list.shape:
          known = node.attr['_output_shapes'].list.shape  # None is inferred in a cycle.
          known.append(shapes[i])
          known.add()  # Of Merge's second result, a number.
      read.append(node.name)
    (holds,), acts = self._copy(condition, 'condition', read, f'^{read[first]}', ())
    self._add('LoopCond', 'goes_on', [holds, *acts])

    given = list(read)  # What the body reads: nothing that changes where no further step is taken.
    waits_for = {source for node in body.node_def for source in node.input if source[0] == '^'}
    for i in changed:
      node = self._add('Switch', f'switch_{i}', [read[i], goes_on], types[i])
      given[i] = f'{node.name}:1'
      if i == first or f'^{body.signature.input_arg[i].name}' in waits_for:
        given[i] = self._add('Identity', f'given_{i}', [given[i]], types[i]).name
    step = f'^{given[first]}'
    constant = [given[i] for i, is_unchanged in enumerate(unchanged) if is_unchanged]
    done = f'^{self._name(f"exit_{first}")}'
    returned, acts = self._copy(body, 'body', given, step, constant)
    for i, source in enumerate(sources):
      self.results[f'{loop.name}:{i}'] = f'{self._name(f"exit_{i}")}:0'
      if unchanged[i]:  # Who reads it may count on what the steps did besides.
        self._add('Identity', f'exit_{i}', [source, done], types[i])
        continue
      result = returned[i]
      if result in constant:  # It would begin a step that is not to be taken.
        result = self._add('Identity', f'result_{i}', [result, step], types[i]).name
      self._add('NextIteration', f'next_{i}', [result, *acts], types[i])
      self._add('Exit', f'exit_{i}', [self._name(f'switch_{i}')], types[i])
    self.results[f'^{loop.name}'] = done

  def _name(self, name: str) -> str:
    return f'{self._loop.name}/frame/{name}'

  def _add(self, op: str, name: str, inputs: Sequence[str], dtype: int | None = None) -> Any:
    node = type(self._loop)(op=op, name=self._name(name), input=inputs, device=self._loop.device)
    if dtype is not None:
      node.attr['T'].type = dtype
    self.nodes.append(node)
    return node

  def _copy(
    self,
    function: Any,
    prefix: str,
    arguments: Sequence[str],
    anchor: str,
    constant: Sequence[str],
  ) -> tuple[list[str], list[str]]:
    """Adds the nodes of a function; returns its results, and waits for what it does besides.

    Args:
      function: The function.
      prefix: Of the names of its nodes.
      arguments: What its arguments are.
      anchor: What a node waits for that would else belong to no step, or to one not taken.
      constant: Arguments that are there where no further step is taken, too.
    """
    now = {}
    for argument, source in zip(function.signature.input_arg, arguments):
      now[argument.name] = source
      now[f'^{argument.name}'] = '' if source in constant else f'^{source}'
    for node in function.node_def:
      name = self._name(f'{prefix}/{node.name}')
      now[f'^{node.name}'] = f'^{name}'
      for i, result in enumerate(private_apis.result_names(node, self._functions)):
        now[f'{node.name}:{result}'] = f'{name}:{i}'
    for node in function.node_def:
      copy = type(node)()
      copy.CopyFrom(node)
      copy.name = self._name(f'{prefix}/{node.name}')
      copy.device = node.device or self._loop.device
      sources = [now[source] for source in node.input]
      copy.input[:] = [source for source in sources if source]
      # A loop in a loop: what its own frame reads of the outer one's constants has to wait, too.
      if node.op in _LOOPS or all(source in constant for source in copy.input):
        copy.input.append(anchor)
      if '_class' in copy.attr:  # Where it is placed: with what one of its inputs is.
        del copy.attr['_class']
      self.nodes.append(copy)
    acts = set(function.control_ret.values())
    acts |= {node.name for node in function.node_def if private_apis.is_stateful(node.op)}
    results = [now[function.ret[result.name]] for result in function.signature.output_arg]
    return results, [now[f'^{name}'] for name in sorted(acts)]
