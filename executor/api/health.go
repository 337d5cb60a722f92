package api

// Health is the answer to GET /healthz: the process is alive.
type Health struct {
	Status  string `json:"status"` // ok
	Version string `json:"version"`
}

// Readiness is the answer to GET /readyz: 200 where a run could start now, 503
// where it could not.
type Readiness struct {
	Ready  bool             `json:"ready"`
	Checks []ReadinessCheck `json:"checks"`
}

// A ReadinessCheck is one thing that a run needs: gate, engine, boundary or
// executor.
type ReadinessCheck struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail,omitempty"` // why it is not ready
}

// ArtifactList is the answer to GET /v1/executions/{id}/artifacts.
type ArtifactList struct {
	Artifacts []Artifact `json:"artifacts"`
}
