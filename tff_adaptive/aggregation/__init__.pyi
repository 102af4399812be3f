from .accounting import (
  Accountant as Accountant,
  SampledGaussian as SampledGaussian,
  TreeGaussian as TreeGaussian,
)
from .factories import Cohort as Cohort, Factory as Factory, build_aggregator as build_aggregator
from .gathering import (
  ClientNormsFactory as ClientNormsFactory,
  Outcome as Outcome,
  RuleFactory as RuleFactory,
  StatefulRule as StatefulRule,
)
from .inner_product import InnerProductFactory as InnerProductFactory
from .robust import (
  CentredClipping as CentredClipping,
  GeometricMedian as GeometricMedian,
  Krum as Krum,
  NormBounding as NormBounding,
  TrimmedMean as TrimmedMean,
  median as median,
)
from .table import AGGREGATORS as AGGREGATORS, aggregator as aggregator, check as check
