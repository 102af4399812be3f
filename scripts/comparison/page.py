"""Writes the bench's page: its tables, its notes, and its figure."""

import math
import os
from collections.abc import Sequence

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import differences, report

from . import drawing, methods, problems, results as results_lib, rows

_LIMITS = (
  (
    'an order of methods',
    'Average ranks that are closer than the critical difference do not differ significantly. With'
    ' few problems and many methods that is nearly always so.',
  ),
  (
    'which method is the best of many',
    'The best of many means of few seeds is partly luck. Another method'
    ' looks worse beside it than it is, and of twenty intervals one excludes 0 by chance.',
  ),
  (
    'anything about large models',
    'The problems have linear models and small perceptrons: no convolutions, no recurrence, no'
    ' attention, at most 200 rounds.',
  ),
  (
    'the value of finer tuning',
    'Every method gets the same small number of trials, judged by one seed. Methods with many'
    ' settings of their own gain from a larger budget.',
  ),
  (
    'speed on other machines',
    'Seconds are of one process on the machine and day of the row, which may have been busy.'
    ' Compare megabytes and gradients.',
  ),
  (
    'personal models, privacy, attacks, asynchronous servers',
    'The bench evaluates one model for all clients, with a synchronous server and honest clients.',
  ),
)
_INTERVALS = (
  "Differences are the first method minus the other, in the problem's unit, paired by seed: both"
  " have the same data, cohorts and initial weights. Intervals are Student's t at 95 % for each row"
  ' alone. Runs that diverged are left out of both, but a method with such a run is worse than one'
  ' without, whatever its other seeds show.'
)


def build(results: results_lib.Results, command: str) -> report.Report:
  """Returns the page as a report. `command` is how the bench is started."""
  tables: list[report.Table] = []
  for subject in results.subjects:
    tables += [_in_short(results, subject), _differences(results, subject)]
  tables.append(_all_methods(results))
  if results.subjects:
    tables.append(_costs(results))
  tables += [
    _sensitivity(results),
    _protocol(results),
    report.Table(['What cannot be concluded', 'why'], _LIMITS),
    _commands(results, command),
  ]
  title = 'All built-in methods on the bench'
  if results.subjects:
    names = ' and '.join(results.titles.get(key, key) for key in results.subjects)
    title = f'{names} beside the built-in methods'
  figure = drawing.draw(results)
  return report.Report([table for table in tables if table.rows], _data(results), figure, title)


def write(page: report.Report, output: str) -> list[str]:
  """Writes the page to OUTPUT.md and OUTPUT.html, its figure and its numbers. Returns the paths."""
  paths = page.write(output, ('html', 'csv', 'png'))
  picture = ''
  if page.figure is not None:
    name = os.path.basename(output)
    picture = f'![curves over the rounds, and trials by client rate]({name}.png)\n\n'
  text = f'# {page.title}\n\n{picture}{page.markdown()}'
  atomic_files.write_text(f'{output}.md', text)
  return [f'{output}.md', *paths]


def _value(outcome: results_lib.Outcome | None) -> str:
  """Formats the values of an outcome: mean ± deviation of the runs that did not diverge."""
  if outcome is None:
    return ''
  if outcome.refusal:
    return 'not possible'
  factor = outcome.problem.factor
  finite = [factor * value for value in outcome.values.values() if math.isfinite(value)]
  lost = len(outcome.values) - len(finite)
  if not finite:
    return 'diverged'
  text = report.spread(finite, _digits(outcome.problem))
  if lost:
    return f'{text} ({lost} diverged)'
  return text


def _digits(problem: problems.Problem) -> int:
  if problem.is_better_high:  # In percent.
    return 1
  return 3


def _in_short(results: results_lib.Results, subject: str) -> report.Table:
  table_rows = []
  for name in results.names:
    outcome = results.outcomes.get((name, subject))
    if outcome is None or outcome.refusal:
      continue
    best = results.best_stored(name)
    rank, number = results.rank_on(name, subject)
    best_text = ''
    if best is not None:
      best_text = f'{_value(results.on(name)[best])} ({results.titles[best]})'
    table_rows.append(
      [
        outcome.problem.heading,
        _value(outcome),
        _value(results.on(name).get(results_lib.FED_AVG)),
        best_text,
        f'{rank} of {number}',
      ]
    )
  refusals = [
    f'{results.outcomes[name, subject].problem.title}: {results.outcomes[name, subject].refusal}'
    for name in results.names
    if (name, subject) in results.outcomes and results.outcomes[name, subject].refusal
  ]
  note = ''
  if refusals:
    note = f'Not possible on {"; ".join(refusals)}.'
  title = results.titles.get(subject, subject)
  return report.Table(
    ['problem', title, 'FedAvg', 'best built-in', 'rank'], table_rows, title='In short', note=note
  )


def _differences(results: results_lib.Results, subject: str) -> report.Table:
  table_rows = []
  for name in results.names:
    for other in results.compared_with(name):
      difference = results.difference(name, subject, other)
      if difference is None:
        continue
      problem = problems.PROBLEMS[name]
      table_rows.append(
        [
          problem.heading,
          results.titles[other],
          str(len(difference.values)),
          _signed(problem, difference.mean),
          _interval(problem, difference),
          results.verdict(name, subject, other),
        ]
      )
  title = f'{results.titles.get(subject, subject)}: differences from FedAvg and from the best'
  heading = ['problem', 'minus', 'seeds', 'difference', '95 % interval', 'conclusion']
  return report.Table(heading, table_rows, title=title, note=_INTERVALS)


def _signed(problem: problems.Problem, value: float) -> str:
  return f'{problem.factor * value:+.{_digits(problem)}f}'


def _interval(problem: problems.Problem, difference: differences.Difference) -> str:
  limits = difference.interval
  if limits is None:
    return 'none of one seed'
  return f'{_signed(problem, limits[0])} to {_signed(problem, limits[1])}'


def _all_methods(results: results_lib.Results) -> report.Table:
  """Returns the table of all methods: average ranks, values, and verdicts about the subjects."""
  ranks = results.ranks()
  averages = {}
  note = 'Ranks need two methods with values on all problems.'
  if ranks is not None:
    averages = ranks.by_problem.mean().to_dict()
    note = _note_of_ranks(results, ranks.p, ranks.critical_difference, len(averages))
  order = sorted(results.titles, key=lambda key: averages.get(key, math.inf))
  table_rows = []
  for key in order:
    rank = ''
    if key in averages:
      rank = f'{averages[key]:.1f}'
    values = [_value(results.outcomes.get((name, key))) for name in results.names]
    verdicts = [_verdicts(results, subject, key) for subject in results.subjects]
    table_rows.append([results.titles[key], rank, *values, *verdicts])
  headings = [problems.PROBLEMS[name].heading for name in results.names]
  about = [
    f'{results.titles.get(key, key)}: better / worse / no significant difference'
    for key in results.subjects
  ]
  heading = ['method', 'average rank', *headings, *about]
  return report.Table(heading, table_rows, title='All methods', note=note)


def _note_of_ranks(results: results_lib.Results, p: float, difference: float, count: int) -> str:
  test = ''
  if math.isfinite(p):
    test = f" Friedman's test: p = {p:.2g}."
  return (
    f'Means ± sample standard deviations over {len(methods.BUDGETS[results.budget].seeds)} seeds.'
    f' {count} methods have values on all problems, and ranks among these; a method with a run that'
    f' diverged is last.{test} Two methods differ at 5 % if their average ranks are'
    f' {difference:.1f} apart (Nemenyi).'
  )


def _verdicts(results: results_lib.Results, subject: str, other: str) -> str:
  """Counts the problems on which a subject is better, worse, and not significantly different."""
  if other == subject:
    return ''
  conclusions = []
  for name in results.names:
    conclusions.append(results.verdict(name, subject, other))
  counts = [conclusions.count(word) for word in ('better', 'worse', 'none')]
  return ' / '.join(map(str, counts))


def _costs(results: results_lib.Results) -> report.Table:
  table_rows = []
  for name in results.names:
    for key in (*results.subjects, *results.compared_with(name)):
      outcome = results.on(name).get(key)
      if outcome is None:
        continue
      numbers = [outcome.mean_of(column) for column in ('megabytes', 'gradients', 'seconds')]
      texts = [_number(number) for number in numbers]
      table_rows.append([f'{outcome.problem.title}: {results.titles[key]}', *texts])
  note = 'Means over the runs that count: what all clients receive and send, and compute, in a run.'
  heading = ['problem and method', 'megabytes', 'batch gradients', 'seconds']
  return report.Table(heading, table_rows, title='Costs', note=note)


def _number(value: float) -> str:
  if not math.isfinite(value):
    return ''
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.3g}'


def _sensitivity(results: results_lib.Results) -> report.Table:
  keys = list(results.titles)
  if results.subjects:
    keys = [*results.subjects, results_lib.FED_AVG]
    for name in results.names:
      keys += results.compared_with(name)
    keys = list(dict.fromkeys(keys))
  table_rows = []
  for key in keys:
    cells = []
    for name in results.names:
      outcome = results.on(name).get(key)
      text = ''
      if outcome is not None:
        text = f'{100 * outcome.good_trials:.0f} ({_brief(outcome.point)})'
      cells.append(text)
    if key in results.titles:
      table_rows.append([results.titles[key], *cells])
  margins = ', '.join(
    f'{problems.PROBLEMS[name].title} {_margin(problems.PROBLEMS[name])}' for name in results.names
  )
  note = (
    'The share of trials that come near the best trial, and in brackets the settings that were'
    f' chosen (lr: the client rate). Near means within: {margins}.'
  )
  titles = [problems.PROBLEMS[name].title for name in results.names]
  title = 'How much the rates matter: good trials, %'
  return report.Table(['method', *titles], table_rows, title=title, note=note)


def _brief(point: str) -> str:
  """Returns the chosen settings with short names of the rates."""
  short = point.replace('client_learning_rate', 'lr').replace('server_learning_rate', 'server')
  return ', '.join(short.split())


def _margin(problem: problems.Problem) -> str:
  text = f'{problem.factor * problem.margin:g}'
  if problem.is_better_high:
    return f'{text} points'
  return text


def _protocol(results: results_lib.Results) -> report.Table:
  budget = methods.BUDGETS[results.budget]
  table_rows = []
  for name in results.names:
    problem = problems.PROBLEMS[name]
    low, high = problem.rates
    metric = f'{problem.metric}, {problem.direction}'
    table_rows.append([name, problem.about, metric, f'{low:g} to {high:g}'])
  note = (
    f'Budget {results.budget}, protocol {rows.VERSION}: {budget.trials} trials with seed'
    f' {methods.TUNING_SEED} ({budget.about}), judged by examples that do not count later; the best'
    f' trial is trained with seeds {", ".join(map(str, budget.seeds))}. All rounds are done;'
    f' nothing stops early. A value is the mean of the last {problems.AVERAGED} of'
    f' {problems.EVALUATIONS} evaluations, of the model for inference if a method has one.'
  )
  heading = ['problem', 'what it is', 'metric', 'client rates']
  return report.Table(heading, table_rows, title='Problems', note=note)


def _commands(results: results_lib.Results, command: str) -> report.Table:
  complete = results.methods_on_all()
  missing = [method.key for method in methods.built_in() if method.key not in complete]
  absent = [f'{name}: {reason}' for name, reason in methods.left_out().items()]
  rows_of_table = [
    ['a stored row again', f'{command} --rerun=PROBLEM/METHOD/{results.budget}/STAGE/NUMBER'],
    ['ten stored rows, drawn by a seed', f'{command} --verify=10 --seed=1'],
    ['all runs of a method', f'{command} --budget={results.budget} --algorithm=METHOD'],
  ]
  parts = ['STAGE is search or final, NUMBER that of the trial (from 0) or the seed.']
  if missing:
    parts.append(f'Without values on all of these problems: {", ".join(missing)}.')
  parts.append(f'Not compared: {"; ".join(absent)}.')
  heading = ['To make', 'command']
  return report.Table(heading, rows_of_table, title='Made by', note=' '.join(parts))


def _data(results: results_lib.Results) -> str:
  """Returns the numbers of the page as CSV: a row for each problem and method."""
  table: list[Sequence[object]] = [
    ['problem', 'method', 'mean', 'rank', 'good_trials', 'chosen', 'megabytes', 'gradients']
  ]
  for (name, key), outcome in results.outcomes.items():
    if outcome.refusal:
      continue
    mean = outcome.problem.worth(outcome.worth)
    costs = [outcome.mean_of(column) for column in ('megabytes', 'gradients')]
    rank, _ = results.rank_on(name, key)
    table.append([name, key, mean, rank, outcome.good_trials, outcome.point, *costs])
  return report.csv_text(table)
