"""Parquet files as tables, of a size that the file can account for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ...runtime.files import regular
from .array_files import refuse_bomb

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(path: Path) -> pd.DataFrame:
    """The table in a Parquet file."""
    import pandas as pd

    try:
        about = pq.read_metadata(regular(path))
        refuse_bomb(path, 8 * about.num_rows * about.num_columns)  # a column of one value takes no space in the file
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error})") from error
