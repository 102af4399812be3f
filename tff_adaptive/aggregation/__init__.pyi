from .accounting import (
  Accountant as Accountant,
)
from .accounting import (
  SampledGaussian as SampledGaussian,
)
from .accounting import (
  TreeGaussian as TreeGaussian,
)
from .factories import (
  Cohort as Cohort,
)
from .factories import (
  Factory as Factory,
)
from .factories import (
  build_aggregator as build_aggregator,
)
from .table import (
  AGGREGATORS as AGGREGATORS,
)
from .table import (
  aggregator as aggregator,
)
from .table import (
  check as check,
)
