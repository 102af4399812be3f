from .accounting import (
  Accountant as Accountant,
  SampledGaussian as SampledGaussian,
  TreeGaussian as TreeGaussian,
)
from .factories import Cohort as Cohort, Factory as Factory, build_aggregator as build_aggregator
from .table import AGGREGATORS as AGGREGATORS, aggregator as aggregator, check as check
