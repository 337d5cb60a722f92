package api

// Capabilities is the answer to GET /v1/capabilities: what a request may ask for.
type Capabilities struct {
	Version  string   `json:"version"` // of the executor's build
	Agents   []string `json:"agents"`
	Backends []string `json:"backends"`
	// Images are the values that sandboxImage may have.
	Images []string `json:"images"`
	Tiers  []Tier   `json:"tiers"`
	// Policies are those of the gate's allowlist, PolicyDigest its digest.
	Policies     []string `json:"policies"`
	PolicyDigest string   `json:"policyDigest"`
	// DefaultModel is what a request gets that names none; empty where there is none.
	DefaultModel string `json:"defaultModel,omitempty"`
	// WebSearchProviders are those whose key the operator has set.
	WebSearchProviders []string      `json:"webSearchProviders"`
	Limits             ServiceLimits `json:"limits"`
	Sandbox            Sandbox       `json:"sandbox"`
	// Github is nil where the operator has set up no access.
	Github *GithubCapability `json:"github,omitempty"`
}

// A Tier is a named set of resource limits of one sandbox.
type Tier struct {
	Name        string  `json:"name"`
	MemoryBytes int64   `json:"memoryBytes"` // without swap
	PIDs        int64   `json:"pids"`
	CPUs        float64 `json:"cpus"` // in cores
}

// ServiceLimits bound what one request, one run and the service may take.
type ServiceLimits struct {
	RequestBytes     int64 `json:"requestBytes"` // of a POST's body
	DefaultTimeoutMS int64 `json:"defaultTimeoutMs"`
	MaxTimeoutMS     int64 `json:"maxTimeoutMs"`
	OutputBytes      int64 `json:"outputBytes"`    // of a run's event log
	WorkspaceBytes   int64 `json:"workspaceBytes"` // that a run may add to its workspace
	ArtifactBytes    int64 `json:"artifactBytes"`  // of a run's artifacts in all
	ArtifactFiles    int   `json:"artifactFiles"`  // of a run
	ConcurrentRuns   int   `json:"concurrentRuns"` // at once
	QueuedRuns       int   `json:"queuedRuns"`     // waiting beside those
	KeptExecutions   int   `json:"keptExecutions"` // finished ones
	KeptForMS        int64 `json:"keptForMs"`      // after their end
}

// Sandbox is the block of that name of RFC 0035, "Sandbox execution contract".
type Sandbox struct {
	// Supported says that the last check of the boundary was passed, so that runs may
	// start.
	Supported        bool     `json:"supported"`
	IsolationModel   string   `json:"isolationModel"` // container
	AllowedHostCalls []string `json:"allowedHostCalls"`
	MemoryLimitBytes int64    `json:"memoryLimitBytes"`
	WallClockLimitMS int64    `json:"wallClockLimitMs"`
}
