"""A real `dagster dev` whose runs a test launches, retries and reads by GraphQL, as a person does in the UI."""

from __future__ import annotations

from typing import Any

from dagster_project.testing.live import LiveDagster

_LAUNCH = """mutation L($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename ... on LaunchRunSuccess { run { runId } }
  ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""
_RETRY = """mutation R($p: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_FAILURES = """query F($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection { events {
  ... on ExecutionStepFailureEvent { stepKey failureMetadata { description } error { message } } } } } } }"""
_KEYS = """query A($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) {
  ... on AssetNode { partitionKeysByDimension { partitionKeys } } } }"""
_RUN = "query R($id: ID!) { runOrError(runId: $id) { ... on Run { status startTime endTime tags { key value } } } }"


class DrivenDagster(LiveDagster):
    def launch(self, job: str, config: dict[str, Any] | None = None, tags: dict[str, str] | None = None) -> str:
        selector = {"repositoryLocationName": self.location, "repositoryName": "__repository__", "jobName": job}
        params = {
            "selector": selector,
            "runConfigData": config or {},
            "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in (tags or {}).items()]},
        }
        return _launched(self.ask(_LAUNCH, p=params)["launchRun"])

    def retry(self, run_id: str) -> str:
        """Retry a run from its failure, as the UI does; the id of the new run."""
        params = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return _launched(self.ask(_RETRY, p=params)["launchRunReexecution"])

    def failures(self, run_id: str) -> dict[str, str]:
        """Why each step that failed has failed."""
        events = self.ask(_FAILURES, id=run_id)["runOrError"]["eventConnection"]["events"]
        return {
            e["stepKey"]: (e["failureMetadata"] or {}).get("description") or (e["error"] or {}).get("message", "")
            for e in events
            if e
        }

    def partitions(self, *asset: str) -> list[str]:
        """Keys of an asset's partitions, in their order."""
        node = self.ask(_KEYS, k={"path": list(asset)})["assetNodeOrError"]
        return list(node["partitionKeysByDimension"][0]["partitionKeys"])

    def run(self, run_id: str) -> dict[str, Any]:
        details: dict[str, Any] = self.ask(_RUN, id=run_id)["runOrError"]
        return details

    def finished(self, run_id: str, patience: float = 90.0) -> str:
        final = ("SUCCESS", "FAILURE", "CANCELED")

        def ended() -> str:
            status = str(self.run(run_id)["status"])
            return status if status in final else ""

        return self.until(ended, patience, f"run {run_id} has ended")


def _launched(answer: dict[str, Any]) -> str:
    """The id of the run, or why there is none."""
    if answer["__typename"] != "LaunchRunSuccess":
        raise RuntimeError(str(answer))
    return str(answer["run"]["runId"])
