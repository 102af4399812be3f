"""Collects the forms of reports from the modules of this folder."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from tff_adaptive.reports import forms
from tff_adaptive.reports.forms.entry import Form, Option

DEFAULT = 'comparison'


def _collected() -> dict[str, Form]:
  by_name = {}
  for module in pkgutil.iter_modules(forms.__path__):
    form = getattr(importlib.import_module(f'{forms.__name__}.{module.name}'), 'FORM', None)
    if form is not None:
      by_name[form.name] = form
  # The default is named first in messages.
  first = by_name.pop(DEFAULT)
  return {DEFAULT: first, **by_name}


FORMS: Mapping[str, Form] = _collected()


def options() -> dict[str, Option]:
  """Returns the options of all forms by name."""
  by_name: dict[str, Option] = {}
  for form in FORMS.values():
    for option in form.options:
      if by_name.setdefault(option.name, option) != option:
        raise ValueError(f'two forms have different options called {option.name!r}')
  return by_name


def takers(name: str) -> Sequence[str]:
  """Returns the names of the forms that take an option."""
  forms_that_do = []
  for form in FORMS.values():
    if any(option.name == name for option in form.options):
      forms_that_do.append(form.name)
  return forms_that_do
