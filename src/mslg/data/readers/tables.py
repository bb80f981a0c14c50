"""Parquet, CSV and Excel files as tables, of a size that the file can account for."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runtime.files import regular
from .array_files import FREE, refuse_bomb

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(path: Path) -> pd.DataFrame:
    """The table in a Parquet file."""
    import pandas as pd

    accounted_for(path)
    try:
        return pd.read_parquet(path)
    except Exception as error:  # a damaged file makes pyarrow raise nearly anything
        raise ValueError(f"{path} cannot be read as Parquet ({error})") from error


def accounted_for(path: Path) -> Path:
    """The path of a Parquet file, unless its table takes far more memory than its size can account for."""
    try:
        about = pq.read_metadata(regular(path))
        refuse_bomb(path, 8 * about.num_rows * about.num_columns)  # a column of one value takes no space in the file
        refuse_bomb(path, _written_out(path, about))
    except Exception as error:  # likewise
        raise ValueError(f"{path} cannot be read as Parquet ({error})") from error
    return path


def read_csv(path: Path, **how: Any) -> pd.DataFrame:
    """The table in a CSV file."""
    import pandas as pd

    try:
        table: pd.DataFrame = pd.read_csv(regular(path), **how)
        return table
    except Exception as error:  # likewise
        raise ValueError(f"{path} cannot be read as a table ({error}); write it as .csv (comma, UTF-8)") from error


def read_excel(path: Path, **how: Any) -> pd.DataFrame:
    """The first sheet of an Excel file."""
    import pandas as pd

    with zipfile.ZipFile(regular(path)) as archive:
        refuse_bomb(path, sum(entry.file_size for entry in archive.infolist()))
    try:
        table: pd.DataFrame = pd.read_excel(path, engine="openpyxl", **how)
        return table
    except ImportError as error:
        raise ImportError(
            f"{path} is an Excel file; to read it: pip install 'mslg[excel]', or save it as .csv"
        ) from error


def _written_out(path: Path, about: pq.FileMetaData) -> int:
    """The bytes of the texts that the file keeps once per value: a long one may stand for any number of rows."""
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    names = {chunk.path_in_schema for chunk in chunks if "RLE_DICTIONARY" in chunk.encodings}
    names &= {name for name in pq.read_schema(path).names if _is_text(pq.read_schema(path).field(name).type)}
    if about.num_rows * sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in names) <= FREE:
        return 0
    table = pq.read_table(path, columns=sorted(names), read_dictionary=sorted(names))
    pieces = [piece for column in table.columns for piece in column.chunks]
    return sum(pc.sum(pc.binary_length(piece.dictionary).take(piece.indices)).as_py() or 0 for piece in pieces)


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))
