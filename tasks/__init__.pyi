from . import partition as partition
from .catalog import names as names
from .client_split import ClientSplit as ClientSplit, split_clients as split_clients
from .data.pictures import read_picture as read_picture
from .data.tff_sqlite import SqlClientData as SqlClientData
from .errors import DataError as DataError
from .loading import load as load, load_run as load_run
from .own_data import from_arrays as from_arrays, from_tff as from_tff
from .own_files import (
  from_huggingface as from_huggingface,
  from_image_folder as from_image_folder,
)
from .own_metrics import with_metric as with_metric
from .own_tables import (
  from_csv as from_csv,
  from_frame as from_frame,
  from_parquet as from_parquet,
)
from .preparation import Preparation as Preparation
from .summary import describe as describe
from .task import (
  ClientData as ClientData,
  InMemoryClientData as InMemoryClientData,
  PooledClients as PooledClients,
  Task as Task,
  example_arrays as example_arrays,
)
