"""Maven coordinates of what Spark needs for the optional table formats and for tables in S3.

All are for Spark 4.1, the only one that both formats are out for: pyproject.toml bounds PySpark by it. Delta before 4.4 fails
on PySpark 4.1.3 as soon as the table's log has a checkpoint, so after ten commits.
"""

SPARK = "4.1"
DELTA_VERSION = "4.4.0"
DELTA = (f"io.delta:delta-spark_4.1_2.13:{DELTA_VERSION}",)
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
S3A = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    *(f"software.amazon.awssdk:{part}:2.29.52" for part in ("s3", "s3-transfer-manager", "sts")),
)
NOT_NEEDED = ("software.amazon.awssdk:bundle", "io.netty:*")
"""600 MB of all that AWS has, of which the parts above are enough; and what Spark brings itself."""
