"""Stores by the scheme of their URLs: one table for configuration, segments, tables and Spark."""

from __future__ import annotations

import pytest

from crkafka_core.config import location


@pytest.mark.parametrize(
    ("path", "store", "for_arrow", "for_hadoop"),
    [
        ("/data/orders", location.FOLDER, "/data/orders", "/data/orders"),
        ("file:///data/orders", location.FOLDER, "file:///data/orders", "file:///data/orders"),
        ("${env:BUCKET}/orders", location.FOLDER, "${env:BUCKET}/orders", "${env:BUCKET}/orders"),
        ("s3://lake/a?region=eu", location.S3, "s3://lake/a?region=eu", "s3a://lake/a?region=eu"),
        ("S3A://lake/s3://a", location.S3, "s3://lake/s3://a", "s3a://lake/s3://a"),
        ("hdfs://nn:8020/a", location.HDFS, "hdfs://nn:8020/a", "hdfs://nn:8020/a"),
    ],
)
def test_each_reader_gets_its_own_scheme(path: str, store: location.Store, for_arrow: str, for_hadoop: str) -> None:
    assert location.store_of(path) is store
    assert (location.arrow_url(path), location.hadoop_url(path)) == (for_arrow, for_hadoop)


@pytest.mark.parametrize("path", ["gs://bucket/a", "abfss://a@b/c", "c:/data", "s3:///a"])
def test_a_storage_in_another_store_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"s3://bucket/prefix"):
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
