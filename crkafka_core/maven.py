"""Maven coordinates of what Spark needs for the optional table formats (FACTS E3) and for tables in S3."""

DELTA = ("io.delta:delta-spark_4.1_2.13:4.1.0",)
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
S3A = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    *(f"software.amazon.awssdk:{part}:2.29.52" for part in ("s3", "s3-transfer-manager", "sts")),
)
NOT_NEEDED = ("software.amazon.awssdk:bundle", "io.netty:*")
"""600 MB of all that AWS has, of which the parts above are enough; and what Spark brings itself."""
