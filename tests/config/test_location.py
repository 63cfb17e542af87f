"""Stores by the scheme of their URLs: one table for configuration, segments, tables and Spark."""

from __future__ import annotations

import re

import pytest

from crkafka_core.config import location


@pytest.mark.parametrize(
    ("path", "store", "for_hadoop"),
    [
        ("/data/orders", location.FOLDER, "/data/orders"),
        ("file:///data/orders", location.FOLDER, "file:///data/orders"),
        ("${env:BUCKET}/orders", location.FOLDER, "${env:BUCKET}/orders"),
        ("s3://lake/a", location.S3, "s3a://lake/a"),
        ("S3A://lake/s3://a", location.S3, "s3a://lake/s3://a"),
        ("abfss://lake@acc.dfs.core.windows.net/a", location.AZURE, "abfss://lake@acc.dfs.core.windows.net/a"),
        ("gs://lake/a", location.GOOGLE, "gs://lake/a"),
        ("hdfs://nn:8020/a", location.HDFS, "hdfs://nn:8020/a"),
    ],
)
def test_hadoop_gets_its_own_scheme(path: str, store: location.Store, for_hadoop: str) -> None:
    assert location.store_of(path) is store
    assert location.hadoop_url(path) == for_hadoop


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("az://container/a", "az: is not supported"),
        ("c:/data", "c: is not supported"),
        ("s3:///a", "s3://bucket/prefix, not"),
        ("gs:///a", "gs://bucket/prefix, not"),
        ("s3://bucket/a?region=eu", "s3://bucket/prefix, not"),
        ("abfss://container/a", "abfss://container@account.dfs.core.windows.net/prefix, not"),
    ],
)
def test_a_storage_in_another_store_is_refused(path: str, written: str) -> None:
    with pytest.raises(ValueError, match=re.escape(written)):
        location.check_store(path)


def test_one_place_under_two_schemes_overlaps() -> None:
    assert location.overlap("s3a://lake/a", "s3://lake/a/b")
    assert location.overlap("file:///data/a/b", "/data/a")
    assert not location.overlap("s3://lake/a", "hdfs://lake/a")


def test_a_name_in_a_catalog_overlaps_only_itself_in_any_case_of_letters() -> None:
    assert location.overlap("lake.bronze.Orders", "lake.bronze.orders")
    assert not location.overlap("lake.bronze.orders", "lake.bronze.orders_dead")
    assert not location.overlap("lake.bronze.orders", "/data/a")


def test_of_a_path_with_a_reference_only_the_same_one_overlaps() -> None:
    assert location.overlap("${env:LAKE}/a", "${env:LAKE}/a")
    assert not location.overlap("${env:LAKE}/a", "${env:LAKE}/a/b")
