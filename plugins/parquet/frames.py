#!/usr/bin/env python3
"""The tables of `rdmascope export parquet FILE DIR` in Polars and in Spark: frames.py DIR [polars|spark]

Prints the latency of each command, from requests of all captures in DIR."""
import sys


def with_polars(folder):
    import polars as pl

    exchanges = pl.scan_parquet(f"{folder}/exchanges/**/*.parquet", hive_partitioning=True)
    latency = pl.col("latency")
    return (
        exchanges.filter(latency.is_not_null())
        .group_by("command")
        .agg(pl.len().alias("count"), (latency.median() / 1e6).alias("median_ms"), (latency.quantile(0.99) / 1e6).alias("p99_ms"))
        .sort("command")
        .collect()
    )


def with_spark(folder):
    from pyspark.sql import SparkSession, functions as f

    # Spark's times have microseconds: nanoseconds are read as numbers
    spark = SparkSession.builder.config("spark.sql.legacy.parquet.nanosAsLong", "true").getOrCreate()
    exchanges = spark.read.parquet(f"{folder}/exchanges")
    return (
        exchanges.where("latency IS NOT NULL")
        .groupBy("command")
        .agg(f.count("*").alias("count"), f.expr("percentile(latency, 0.5) / 1e6 AS median_ms"), f.expr("percentile(latency, 0.99) / 1e6 AS p99_ms"))
        .orderBy("command")
        .collect()
    )


if __name__ == "__main__":
    print({"polars": with_polars, "spark": with_spark}[(sys.argv + ["polars"])[2]](sys.argv[1]))
